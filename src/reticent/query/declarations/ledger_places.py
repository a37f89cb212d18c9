"""The location of a ledger in one text: a resolved path, an address without password, or a contract."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

ADDRESSES = ("postgresql://", "postgres://")
_WHERE = ("host", "hostaddr", "port", "dbname", "options", "service")  # of an address, what says where


def placed(ledger: str | os.PathLike[str], base: Path | None = None) -> str:
    """Return one text for each ledger: a resolved path, or the parts of an address that state the place."""
    text = os.fsdecode(ledger)
    if text.startswith("ethereum:"):
        return text
    if not text.startswith(ADDRESSES):
        return str((base / text if base is not None else Path(text)).resolve())
    parts = urlsplit(text)
    host = parts.netloc.rpartition("@")[2]
    query = sorted((name, value) for name, value in parse_qsl(parts.query) if name in _WHERE)
    return f"postgresql://{host}{parts.path}" + "".join(
        f"{'&' if i else '?'}{name}={value}" for i, (name, value) in enumerate(query)
    )


def on_chain(chain_id: int, contract: str) -> str:
    """Return the text by which a home names a contract."""
    return f"ethereum:{chain_id}/{contract}"


def kept(ledger: str | os.PathLike[str], base: Path) -> str:
    """Return a ledger as a home notes it: a path relative to the declaration, or an address, no password."""
    text = os.fsdecode(ledger)
    if text.startswith(ADDRESSES):
        parts = urlsplit(text)
        user, at, host = parts.netloc.rpartition("@")
        query = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name != "password"])
        who = user.partition(":")[0] + at
        return f"postgresql://{who}{host}{parts.path}" + (f"?{query}" if query else "")
    place = placed(text)
    if place.startswith("ethereum:"):
        return place
    with contextlib.suppress(ValueError):
        return str(Path(place).relative_to(base))
    with contextlib.suppress(ValueError):
        return str(Path("..") / Path(place).relative_to(base.parent))
    return place


def is_there(place: str) -> bool:
    """Return whether a ledger may be opened at a place; for an address nobody knows before trying."""
    return place.startswith(ADDRESSES) or Path(place).is_file()
