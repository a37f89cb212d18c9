"""Things of a service that are a folder each, opened when they are first needed: campaigns, providers."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from reticent.errors import LedgerDamaged, ParameterError, StorageUnavailable
from reticent.service.refusals import not_found


class _Closes(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closes)


class Folders(Generic[T]):
    """The objects below a folder, by name.

    Args:
        folder: Folder that holds the objects.
        mark: File by which one of the objects is known.
        what: Name of the kind of object, in a refusal.
        opened: Function that opens an object.
    """

    def __init__(self, folder: Path, mark: str, what: str, opened: Callable[[Path], T]) -> None:
        self._folder, self._mark, self._what, self._opened = folder, mark, what, opened
        self._guard = threading.Lock()
        self._open: dict[str, T] = {}

    def names(self) -> list[str]:
        """Return the names of all objects, sorted."""
        return sorted(one.parent.name for one in self._folder.glob(f"*/{self._mark}"))

    def named(self, name: str) -> T:
        """Return the object of a name."""
        held = self._open.get(name)
        if held is not None:
            return held
        with self._guard:
            if name not in self._open:
                if name not in self.names():
                    raise not_found(self._what)
                self._open[name] = self._opened(self._folder / name)
            return self._open[name]

    def all(self) -> list[tuple[str, T]]:
        """Every one by its name; one that cannot be read is left out."""
        found = []
        for name in self.names():
            with contextlib.suppress(
                ParameterError, LedgerDamaged, StorageUnavailable, OSError, sqlite3.Error
            ):
                found.append((name, self.named(name)))
        return found

    def close(self) -> None:
        """Close those that are open."""
        with self._guard:
            for one in self._open.values():
                one.close()
            self._open.clear()
