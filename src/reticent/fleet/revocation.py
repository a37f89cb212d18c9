"""Revoked enrolments: one list for each master key, for all uses of the key.

The list is a small SQLite file beside the key, which processes share, or a table of the PostgreSQL database
that collectors on several machines share. It only grows. Without it no enrolment is revoked: back it up with
the key.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Protocol

from reticent.errors import ParameterError, StorageUnavailable
from reticent.fleet.database import Database, is_address, noted
from reticent.fleet.enrolment import ID_BYTES
from reticent.sqlite import opened, writing

_WHAT = "the list of enrolments that were taken back"


class Revocations:
    """The list of revoked enrolments in a file or a database.

    Args:
        where: File, created if it is missing, readable by its owner alone; ":memory:" for tests; or a
            postgresql:// address.

    Raises:
        StorageUnavailable: it cannot be used: nothing is counted then.
    """

    def __init__(self, where: str | os.PathLike[str]) -> None:
        self._guard = threading.Lock()
        self._known: dict[bytes, None] = {}  # in the order of revocation
        self._newest = 0
        self._list: _List = _Table(os.fsdecode(where)) if is_address(where) else _File(where)

    @classmethod
    def beside(cls, master: str | os.PathLike[str]) -> Revocations:
        """Open the list of the master key in a file: for `enrolment.key` it is `enrolment.revoked`.

        The list lies beside the key itself, whichever links lead there. If `master` is an address, or an
        address is noted beside the key, the list is in that database.
        """
        if is_address(master):
            return cls(master)
        shared = noted(Path(master))
        return cls(shared) if shared is not None else cls.of_this_machine(master)

    @classmethod
    def of_this_machine(cls, master: str | os.PathLike[str]) -> Revocations:
        """Open the list beside the key, whatever address is noted there."""
        return cls(Path(master).resolve().with_suffix(".revoked"))

    def close(self) -> None:
        """Close the list."""
        self._list.close()

    def revoke(self, identity: bytes) -> bool:
        """Revoke an enrolment, and return whether it was not revoked before."""
        if not isinstance(identity, bytes) or len(identity) != ID_BYTES:
            raise ParameterError(f"an enrolment's id must be {ID_BYTES} bytes")
        with self._guard:
            return self._list.add(identity)

    def look(self) -> Set[bytes]:
        """Return the ids that any process has revoked until now. The set grows with later calls."""
        with self._guard:
            for number, identity in self._list.newer(self._newest):
                self._known[bytes(identity)] = None
                self._newest = number
        return self._known.keys()

    def listed(self) -> list[bytes]:
        """Return the ids of revoked enrolments as a list, the oldest first."""
        self.look()
        with self._guard:
            return list(self._known)


class _List(Protocol):
    def add(self, identity: bytes) -> bool: ...

    def newer(self, than: int) -> Iterable[tuple[int, bytes]]:
        """Return numbers and ids above a number, in order; no smaller number appears later."""

    def close(self) -> None: ...


class _File:
    """The list of revocations in a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        table = (
            "CREATE TABLE IF NOT EXISTS revoked (number INTEGER PRIMARY KEY, reporter BLOB NOT NULL UNIQUE)"
        )
        try:
            self._base = opened(path)
            self._base.execute(table)
        except (sqlite3.Error, OSError) as error:
            raise _unusable(error) from error

    def add(self, identity: bytes) -> bool:
        try:
            with writing(self._base):
                done = self._base.execute("INSERT OR IGNORE INTO revoked (reporter) VALUES (?)", (identity,))
        except sqlite3.Error as error:
            raise _unusable(error) from error
        return done.rowcount > 0

    def newer(self, than: int) -> list[tuple[int, bytes]]:
        sql = "SELECT number, reporter FROM revoked WHERE number > ? ORDER BY number"
        try:
            return self._base.execute(sql, (than,)).fetchall()
        except sqlite3.Error as error:
            raise _unusable(error) from error

    def close(self) -> None:
        self._base.close()


class _Table:
    """The list of revocations in a database.

    One process at a time assigns numbers, so that no number is visible before a lower one.
    """

    def __init__(self, url: str) -> None:
        self._base = Database(url, what=_WHAT)
        try:
            with self._base.making() as connection:
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS revoked "
                    "(number BIGINT PRIMARY KEY, reporter BYTEA NOT NULL UNIQUE)"
                )
        except BaseException:
            self._base.close()
            raise

    def add(self, identity: bytes) -> bool:
        with self._base.writing() as connection:
            connection.execute("LOCK TABLE revoked IN EXCLUSIVE MODE")  # readers do not wait
            done = connection.execute(
                "INSERT INTO revoked SELECT coalesce(max(number), 0) + 1, %s FROM revoked "
                "ON CONFLICT (reporter) DO NOTHING",
                (identity,),
            )
        return int(done.rowcount) > 0

    def newer(self, than: int) -> list[tuple[int, bytes]]:
        sql = "SELECT number, reporter FROM revoked WHERE number > %s ORDER BY number"
        with self._base.looking() as connection:
            return list(connection.execute(sql, (than,)).fetchall())

    def close(self) -> None:
        self._base.close()


def _unusable(error: Exception) -> StorageUnavailable:
    code = getattr(error, "sqlite_errorname", type(error).__name__)
    return StorageUnavailable(f"{_WHAT} cannot be used now ({code})")
