"""Signed transactions, durable before they are broadcast: a restarted program sends the same bytes.

A label names the purpose of a transaction, and its data is fixed for ever when it is first stored: nothing
else can be sent under the label (mathematics 4.10: at most one draw per request ever leaves the machine). It
may be signed again with another nonce or fee; all versions are kept, since each may be the one that gets in.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from eth_utils.crypto import keccak

from reticent.errors import ChainError
from reticent.sqlite import opened

_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS sent (
        label TEXT PRIMARY KEY, destination TEXT NOT NULL, data BLOB NOT NULL,
        hash TEXT NOT NULL, raw BLOB NOT NULL, nonce INTEGER NOT NULL, fee INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    # All of a label, in the order in which they were signed; `sent` has the newest. A row that only an older
    # program wrote there comes here before it is replaced.
    """
    CREATE TABLE IF NOT EXISTS version (
        label TEXT NOT NULL, hash TEXT NOT NULL, raw BLOB NOT NULL, nonce INTEGER NOT NULL,
        fee INTEGER NOT NULL, signed INTEGER NOT NULL, UNIQUE (label, hash)
    )
    """,
)
_NEWEST = "SELECT label, destination, data, hash, raw, nonce, fee FROM sent WHERE label = ?"
_VERSIONS = "SELECT hash, raw, nonce, fee, signed FROM version WHERE label = ? ORDER BY rowid"
_PUT = (
    "INSERT INTO sent VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (label) DO UPDATE SET "
    "hash = excluded.hash, raw = excluded.raw, nonce = excluded.nonce, fee = excluded.fee "
    "WHERE destination = excluded.destination AND data = excluded.data"
)
_KEEP = "INSERT OR IGNORE INTO version SELECT label, hash, raw, nonce, fee, ? FROM sent WHERE label = ?"


@dataclass(frozen=True)
class Sent:
    """A signed transaction.

    `fee` is the most it pays for a unit of gas, in wei; `signed` is when, in s.
    """

    label: str
    destination: str
    data: bytes
    hash: str
    raw: bytes
    nonce: int
    fee: int
    signed: int = 0


class Outbox:
    """A store of signed transactions in a small SQLite file.

    One connection, one thread at a time.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._guard, self._path = threading.Lock(), path
        with self._explained():
            self._connection = opened(path)
        try:
            with self._explained():
                self._connection.execute("PRAGMA fullfsync=ON")
                for table in _TABLES:
                    self._connection.execute(table)
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError) as error:
            raise ChainError(f"the outbox cannot be used ({error}): {self._path}") from error
        except OSError as error:
            raise ChainError(f"the outbox cannot be used ({error.strerror}): {self._path}") from error

    def versions(self, label: str) -> list[Sent]:
        """Return all transactions that were ever signed under a label, the newest last.

        Raises:
            ChainError: The file is damaged.
        """
        with self._guard, self._explained():
            row = self._connection.execute(_NEWEST, (label,)).fetchone()
            rows = self._connection.execute(_VERSIONS, (label,)).fetchall()
        if row is None:
            return []
        found = [Sent(*row[:3], *one) for one in rows]
        if Sent(*row).hash not in [one.hash for one in found]:  # an older program put it there
            found.append(Sent(*row))
        for one in found:
            if "0x" + keccak(one.raw).hex() != one.hash:
                raise ChainError(
                    f"the outbox is damaged, in what was signed under the label {label}: {self._path}"
                )
        return found

    def find(self, label: str) -> Sent | None:
        """Return the transaction last signed under a label.

        Raises ChainError if the file is damaged.
        """
        found = self.versions(label)
        return found[-1] if found else None

    def put(self, sent: Sent) -> None:
        """Store a transaction, beside those of its label with the same data and another nonce or fee.

        Raises:
            ChainError: The label holds other data. It stays as it was.
        """
        row = (sent.label, sent.destination, sent.data, sent.hash, sent.raw, sent.nonce, sent.fee)
        with self._guard, self._explained(), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(_KEEP, (0, sent.label))
            done = self._connection.execute(_PUT, row)
            self._connection.execute(_KEEP, (sent.signed, sent.label))
        if done.rowcount != 1:
            raise ChainError(f"something else was signed before under the label {sent.label}")

    def close(self) -> None:
        """Close the outbox file."""
        with self._guard:
            self._connection.close()
