"""Enrolments that were taken back: one list for each master key, beside it, for all that the key is used for.

The list is a small SQLite file that processes share. It only grows. Without it nothing is taken back: keep it
with the key.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Set
from pathlib import Path

from reticent.errors import ParameterError, StorageUnavailable
from reticent.fleet.enrolment import ID_BYTES
from reticent.sqlite import opened, writing

_TABLE = "CREATE TABLE IF NOT EXISTS revoked (number INTEGER PRIMARY KEY, reporter BLOB NOT NULL UNIQUE)"
_NEWER = "SELECT number, reporter FROM revoked WHERE number > ? ORDER BY number"


class Revocations:
    """The list at a path.

    Args:
        path: of the file; made if there is none, readable by its owner alone. ":memory:" for tests.

    Raises:
        StorageUnavailable: it cannot be used: nothing is counted then.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._guard = threading.Lock()
        self._known: dict[bytes, None] = {}  # in the order in which they were taken back
        self._newest = 0
        try:
            self._base = opened(path)
            self._base.execute(_TABLE)
        except (sqlite3.Error, OSError) as error:
            raise _unusable(error) from error

    @classmethod
    def beside(cls, master: Path) -> Revocations:
        """The list of the master key in a file: of `enrolment.key` it is `enrolment.revoked`.

        It lies beside the key itself, whichever links lead there: the key is one, and so is its list.
        """
        return cls(master.resolve().with_suffix(".revoked"))

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def revoke(self, identity: bytes) -> bool:
        """Take an enrolment back; whether it was not before."""
        if not isinstance(identity, bytes) or len(identity) != ID_BYTES:
            raise ParameterError(f"an enrolment's id must be {ID_BYTES} bytes")
        try:
            with self._guard, writing(self._base):
                row = (identity,)
                added = self._base.execute(
                    "INSERT OR IGNORE INTO revoked (reporter) VALUES (?)", row
                ).rowcount
        except sqlite3.Error as error:
            raise _unusable(error) from error
        return added > 0

    def look(self) -> Set[bytes]:
        """The ids of all that were taken back until now, by whichever process. It grows with later looks."""
        try:
            with self._guard:
                for number, identity in self._base.execute(_NEWER, (self._newest,)):
                    self._known[bytes(identity)] = None
                    self._newest = number
        except sqlite3.Error as error:
            raise _unusable(error) from error
        return self._known.keys()

    def listed(self) -> list[bytes]:
        """The same as a list, the oldest first."""
        self.look()
        with self._guard:
            return list(self._known)


def _unusable(error: Exception) -> StorageUnavailable:
    code = getattr(error, "sqlite_errorname", type(error).__name__)
    return StorageUnavailable(f"the list of enrolments that were taken back cannot be used now ({code})")
