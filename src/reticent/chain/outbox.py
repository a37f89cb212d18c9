"""Signed transactions, durable before they are broadcast: whoever starts again sends the same bytes.

A label names what a transaction is for, and its data is fixed for ever when it is first put there: nothing
else can be sent under the label (MATH.md 7.10: at most one draw per request ever leaves the machine).
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

_TABLE = """
CREATE TABLE IF NOT EXISTS sent (
    label TEXT PRIMARY KEY, destination TEXT NOT NULL, data BLOB NOT NULL,
    hash TEXT NOT NULL, raw BLOB NOT NULL, nonce INTEGER NOT NULL, fee INTEGER NOT NULL
) WITHOUT ROWID
"""
_FIND = "SELECT label, destination, data, hash, raw, nonce, fee FROM sent WHERE label = ?"


@dataclass(frozen=True)
class Sent:
    """A signed transaction. `fee` is the most it pays for a unit of gas, in wei."""

    label: str
    destination: str
    data: bytes
    hash: str
    raw: bytes
    nonce: int
    fee: int


class Outbox:
    """A small SQLite file. One connection, one thread at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._guard, self._path = threading.Lock(), path
        with self._explained():
            self._connection = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=60
            )
        try:
            with self._explained():
                self._connection.execute("PRAGMA journal_mode=WAL")
                self._connection.execute("PRAGMA synchronous=FULL")
                self._connection.execute("PRAGMA fullfsync=ON")
                self._connection.execute(_TABLE)
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ChainError(f"the outbox cannot be used ({error}): {self._path}") from error

    def find(self, label: str) -> Sent | None:
        """What was last signed under a label.

        Raises:
            ChainError: the file is damaged.
        """
        with self._guard, self._explained():
            row = self._connection.execute(_FIND, (label,)).fetchone()
        if row is None:
            return None
        sent = Sent(*row)
        if "0x" + keccak(sent.raw).hex() != sent.hash:
            raise ChainError(
                f"the outbox is damaged, in what was signed under the label {label}: {self._path}"
            )
        return sent

    def put(self, sent: Sent) -> None:
        """Keep a transaction, in place of one under its label that says the same with another nonce or fee.

        Raises:
            ChainError: the label holds other data. It stays as it was.
        """
        with self._guard, self._explained():
            done = self._connection.execute(
                "INSERT INTO sent VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (label) DO UPDATE SET "
                "hash = excluded.hash, raw = excluded.raw, nonce = excluded.nonce, fee = excluded.fee "
                "WHERE destination = excluded.destination AND data = excluded.data",
                (sent.label, sent.destination, sent.data, sent.hash, sent.raw, sent.nonce, sent.fee),
            )
        if done.rowcount != 1:
            raise ChainError(f"something else was signed before under the label {sent.label}")

    def close(self) -> None:
        """Close the file."""
        with self._guard:
            self._connection.close()
