"""Reticent: learn from personal data while every release is paid for out of one privacy ledger."""

import typing as _typing

if _typing.TYPE_CHECKING:
    from reticent.query import open  # noqa: A004

__version__ = "0.1.0"

__all__ = ["__version__", "open"]


def __getattr__(name: str) -> _typing.Any:
    """Import `open` when it is first used: devices that only report never load the query engine."""
    if name == "open":
        from reticent.query import open  # noqa: A004

        return open
    raise AttributeError(f"module 'reticent' has no attribute {name!r}")
