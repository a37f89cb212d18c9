"""Choice of the store of a ledger by its location: a file, or an address of PostgreSQL."""

from __future__ import annotations

import os

from reticent.errors import LedgerError
from reticent.ledger.sql.postgres_store import PostgresStore
from reticent.ledger.sql.sqlite_store import SqliteStore
from reticent.ledger.sql.store import Store


def connect(where: str | os.PathLike[str], *, create: bool = True, migrate: bool = True) -> Store:
    """Open the store at a path (SQLite) or a postgresql:// address. See `SqliteStore` for the options."""
    try:
        text = os.fsdecode(where)
    except TypeError as error:
        raise LedgerError(f"a ledger is at a path or an address, got {type(where).__name__}") from error
    if text.startswith(("postgresql://", "postgres://")):
        return PostgresStore(text, migrate=migrate)
    if text in ("", ":memory:"):
        raise LedgerError(f"a ledger needs a file to be durable, got {text!r}")
    return SqliteStore(text, create=create, migrate=migrate)
