"""The mechanisms for one value: a line each, and everything that lists them reads it here.

Surveys and trainings carry them by these names, the auditor measures all of them, the commands show them, and
the tests of the family run on each. A class says the rest about itself: `name` as the documents have it,
and `travels`, the fields that a signed text carries so that a device makes it again; None if it cannot. A
class in one of these packages that is not listed, or leaves a part out, fails when it is imported.

Nothing is loaded before it is asked for: a device loads the mechanism that its survey names.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

NUMERIC = {  # class -> its module in `mechanisms.numeric`
    "OneBit": "one_bit",
    "Window": "window",
    "Tailored": "tailored",
    "Duchi": "hybrid",
    "ThreeOutputs": "hybrid",
    "PM": "hybrid",
    "PMOpt": "hybrid",
    "PMSub": "hybrid",
    "HM": "hybrid",
    "HMTP": "hybrid",
    "Laplace": "laplace",
}
CATEGORICAL = {  # class -> its module in `mechanisms.categorical`
    "KRR": "krr",
    "OUE": "oue",
    "OLH": "olh",
    "Subset": "subset",
}
_PACKAGES = {"numeric": NUMERIC, "categorical": CATEGORICAL}


def loaded(name: str) -> Any:
    """Return the class of a name."""
    package = "numeric" if name in NUMERIC else "categorical"
    return getattr(import_module(f"reticent.mechanisms.{package}.{_PACKAGES[package][name]}"), name)


def travelling(names: dict[str, str]) -> list[str]:
    """Return the names of mechanisms that a signed text can carry. All of them are loaded."""
    return [name for name in names if loaded(name).travels is not None]


def check_listed(made: type) -> None:
    """Refuse a class of these packages that nobody would find; those of others are their own affair."""
    parts = made.__module__.split(".")
    if parts[:2] != ["reticent", "mechanisms"]:
        return
    is_listed, is_named = _PACKAGES[parts[2]].get(made.__name__) == parts[-1], "name" in vars(made)
    if not is_listed and not is_named:  # what several of them have in common
        return
    if not is_named:
        raise TypeError(f"{made.__name__} must have the name that the documents give it")
    if not is_listed:
        raise TypeError(f"{made.__name__} must have its line in mechanisms.catalogue: {parts[-1]!r}")
    if not hasattr(made, "travels"):
        raise TypeError(f"{made.__name__} must say which of its fields travel, or None")
    due = set().union(*(getattr(one, "__abstractmethods__", ()) for one in made.__mro__[1:]))
    missing = sorted(name for name in due if getattr(getattr(made, name), "__isabstractmethod__", False))
    if missing:
        raise TypeError(f"{made.__name__} must have {', '.join(missing)}")
