"""Connections to SQLite and PostgreSQL: one writer at a time, durable commits, one dialect above.

Statements use `?` for parameters. A write transaction holds the ledger's one lock (a lock file and BEGIN
IMMEDIATE, or the head row FOR UPDATE), so what it reads stays true until it commits. Reads have a
connection of their own and never wait for a writer.

Errors of the engines become one line: `LedgerError` when the ledger is not available now (busy, full,
read-only, unreachable), `LedgerDamaged` when the stored rows are not those that were written. Messages of the
engines are not passed on where they could quote a row.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from threading import get_ident
from typing import Any, TypeVar

from reticent.errors import LedgerDamaged, LedgerError

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


Rows = tuple[str, Sequence[Sequence[Any]]]  # a statement, and the parameters of each of its runs


class TryAgain(LedgerError):
    """A transaction was undone in favour of another: it may be run again unchanged."""


def schema(dialect: dict[str, str]) -> list[str]:
    """Return the statements of schema.sql for one dialect."""
    text = files("reticent.ledger.sql").joinpath("schema.sql").read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    statements = "\n".join(lines)
    for name, written in dialect.items():
        statements = statements.replace(f"{{{name}}}", written)
    return [statement for statement in statements.split(";") if statement.strip()]


class Store(ABC):
    """A database with one connection for writing and one for reading."""

    dialect: dict[str, str]
    locking: str  # ends the query of the head row with which a write transaction begins

    def __init__(self) -> None:
        self._process = os.getpid()
        self._write_guard = threading.RLock()
        self._read_guard = threading.RLock()
        self._writing_thread = 0
        self._views = 0
        self._writes = 0
        self.commit_begun = False  # by the last write transaction

    @abstractmethod
    def _begin(self, *, write: bool) -> None:
        """Begin a transaction."""

    @abstractmethod
    def _commit(self) -> None:
        """Make the write transaction durable."""

    @abstractmethod
    def _undo(self, *, write: bool) -> None:
        """Roll back a transaction. Never raises."""

    @abstractmethod
    def _explanation(self, error: Exception) -> LedgerError | None:
        """Return the LedgerError for an error of the engine; None for any other error."""

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Convert the engine's errors to ledger errors."""
        try:
            yield
        except Exception as error:
            ours = self._explanation(error)
            if ours is None:
                raise
            raise ours from error

    @abstractmethod
    def all(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return every row of a query."""

    @abstractmethod
    def send(self, statements: Iterable[Rows]) -> None:
        """Run independent statements, in order, each once per row.

        Each run must write one row. If a policy, trigger or rule in the database prevents that without an
        error, LedgerDamaged is raised, and nothing is committed.
        """

    @abstractmethod
    def run(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement."""

    @abstractmethod
    def has_schema(self) -> bool:
        """Return whether the database holds a ledger."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once per row."""
        self.send([(sql, rows)])

    def one(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Return the first row, or None."""
        rows = self.all(sql, parameters)
        return rows[0] if rows else None

    def glance(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Return the first row of a query, which runs in a view of its own."""
        self.same_process()
        with self._read_guard, self._explained():
            return self.one(sql, parameters)

    def mark(self) -> int | None:
        """Return a number that is equal at two looks if nothing was written in between; None if not known."""
        return None

    def make_schema(self, table: str = "") -> None:
        """Create the tables, or one of them, in a transaction begun with `alone`."""
        for statement in schema(self.dialect):
            if not table or f"CREATE TABLE {table} (" in statement:
                self.run(statement)

    def same_process(self) -> None:
        """Refuse to go on in a forked child, where locks and connections are the parent's."""
        if os.getpid() != self._process:
            raise LedgerError("a ledger is not carried over a fork: close it before, open it in the child")

    def transact(self, work: Callable[[_Given], _Made], given: _Given) -> _Made:
        """Run `work` in a write transaction, durable when this returns, rolled back if it raises.

        The first query of `work` must be that of the head row with `locking`.
        """
        self.same_process()
        with self._write_guard:
            try:
                self._enter()
                made = work(given)
                self.commit_begun = True
                self._commit()
                return made
            except BaseException as error:
                self._fail(error)
                raise
            finally:
                self._writing_thread = 0
                self._let_next()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run a block in a write transaction, as `transact` does with a function."""
        self.same_process()
        with self._write_guard:
            try:
                self._enter()
                yield
                self.commit_begun = True
                self._commit()
            except BaseException as error:
                self._fail(error)
                raise
            finally:
                self._writing_thread = 0
                self._let_next()

    def _enter(self) -> None:
        self._writing_thread = get_ident()
        self.commit_begun = False
        self._writes += 1
        self._wait()
        self._begin(write=True)

    def _fail(self, error: BaseException) -> None:
        """Roll back; convert an error of the engine to a ledger error and raise it."""
        ours = self._explanation(error) if isinstance(error, Exception) else None
        self._undo(write=True)
        if ours is not None:
            raise ours from error

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Begin a write transaction without the head row, to create or to migrate the tables."""
        with self.writing():
            yield

    def _wait(self) -> None:  # noqa: B027
        """Wait for other processes that write, for BUSY_TIMEOUT_S at most."""

    def _let_next(self) -> None:  # noqa: B027
        """Let another process write."""

    def stamp(self) -> tuple[int, int] | None:
        """Return, in a write transaction, a counter of foreign writes and the transaction's number.

        The counter is equal in two transactions if nobody else wrote in between. None: not known.
        """
        return None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Open a consistent view, which neither waits for a writer nor makes a writer wait."""
        self.same_process()
        with self._read_guard:
            self._views += 1
            try:
                with self._explained():
                    if self._views == 1:
                        self._begin(write=False)
                    yield
            finally:
                self._views -= 1
                if not self._views:
                    self._undo(write=False)

    @property
    def is_nested_view(self) -> bool:
        """True if the current view began before the innermost `reading`."""
        return self._views > 1

    @property
    def _in_writing(self) -> bool:
        return self._writing_thread == get_ident()


def check_written(found: int, due: int) -> None:
    """Raise LedgerDamaged if a database did not write exactly the expected number of rows."""
    if found != due:
        raise LedgerDamaged(
            f"the database wrote {found} rows of {due}: a policy, trigger or rule is in the way"
        )
