"""The ledger in SQLite or PostgreSQL, which is also an append-only Merkle log.

A charge, its log entry and the new head are one transaction. Callers on several threads share a
transaction when they meet (group commit): the thread that holds the lock writes for all that wait.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.errors import (
    BudgetExceeded,
    CommitUnknown,
    LedgerDamaged,
    LedgerError,
    ReticentError,
    UnknownAccount,
)
from reticent.ledger import merkle
from reticent.ledger.base import (
    Balance,
    Grant,
    Ledger,
    Measurement,
    Order,
    Reading,
    Recorded,
    Terms,
    Worded,
    Wordings,
    decided,
    increment,
)
from reticent.ledger.checkpoint import Head, checked_name, sign, totals_hash
from reticent.ledger.sql.batch import ACCOUNT, BOTH, NODE_LEVEL, Batch
from reticent.ledger.sql.connect import connect
from reticent.ledger.sql.migrations import MIGRATIONS
from reticent.ledger.sql.rows import (
    ACCOUNT_COLUMNS,
    BOUGHT_COLUMNS,
    WORDED,
    WORDED_SINCE,
    Account,
    Bought,
    Carried,
    make_head,
    read_head,
    recorded,
    stored_bytes,
)
from reticent.ledger.sql.sqlite_store import SqliteStore
from reticent.ledger.sql.store import Store, TryAgain

ORIGIN = "reticent/ledger"  # name of the log of a ledger that is created without one
VERSION = "3"  # version of the tables
LOG_VERSION = "1"  # version of the rules that entries follow, in entry 0
MOST_TOGETHER = 256  # calls that share one commit
MOST_ORDERS = 4096  # orders of one call that share one commit
_TRIES = 5
_MOST_REMEMBERED = 10_000  # accounts

_Read = TypeVar("_Read")
Check = Callable[["SqlLedger"], None]


class _Job:
    """A call, `work(batch, *given)`, that waits for a commit. For `wanted` see `Batch.prefetch`."""

    __slots__ = ("answer", "done", "error", "given", "gone", "together", "turn", "wanted", "work")

    def __init__(
        self,
        work: Callable[..., Any],
        given: tuple[Any, ...] = (),
        wanted: Sequence[tuple[str, str, str | None]] = (),
    ) -> None:
        self.work, self.given, self.wanted = work, given, wanted
        self.done = False
        self.gone = False  # its caller no longer waits
        self.answer: Any = None
        self.error: BaseException | None = None
        self.together: list[_Job] = []  # jobs that this job commits, once it leads
        self.turn = threading.Lock()  # released when the job is done, or must lead
        self.turn.acquire()


class _HalfDone(Exception):
    """A job failed after it had changed the batch: the batch must be discarded."""


class SqlLedger(Ledger):
    """A durable ledger at a path (SQLite) or a postgresql:// address.

    Args:
        where: Path or address of the ledger.
        origin: Name of the log in its heads, fixed when the ledger is created. If given, a ledger of another
            name is refused; if not, any is opened, and a new ledger is called "reticent/ledger".
        key: Key that signs heads; without one, `head` still returns the root.
        after_commit: Callback, with the ledger, after each commit and before any call is answered, for a
            witness; also before a repeated call is answered, since the first may have been cut off between
            its commit and the callback. If it raises, callers get the error and the charge stays.
        create: Create a ledger if there is none; otherwise that is an error, and nothing is created.
        migrate: Update the tables of an older release; otherwise they are refused and left unchanged.

    Raises:
        LedgerError: there is no ledger, or a ledger of another log. Nothing was written.
    """

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        origin: str | None = None,
        key: Ed25519PrivateKey | None = None,
        after_commit: Check | None = None,
        create: bool = True,
        migrate: bool = True,
    ) -> None:
        if origin is not None:
            checked_name("origin", origin)
        self.where = os.fsdecode(where) if isinstance(where, (str, bytes, os.PathLike)) else ""
        self._store: Store = connect(where, create=create, migrate=migrate)
        self._key = key
        self._after_commit = after_commit
        self._jobs: list[_Job] = []  # in order of arrival
        self._guard = threading.Lock()  # guards the queue and the leader
        self._leader: _Job | None = None
        self._carried: Carried | None = None  # used by the leader only
        self._known_terms: dict[str, Terms] = {}
        self._tight: set[str] = set()  # accounts that refused once
        self._wordings = Wordings()
        try:
            self._prepare(origin, create=create, migrate=migrate)
        except BaseException:
            self._store.close()
            raise

    def _prepare(self, origin: str | None, *, create: bool, migrate: bool) -> None:
        store = self._store
        if not store.has_schema():
            if not create:
                raise LedgerError("there is no ledger in this database")
            with store.alone():
                if not store.has_schema():
                    self._make(ORIGIN if origin is None else origin)
        settings = self._settings()
        self.origin: str = settings["origin"]
        if origin is not None and origin != self.origin:
            raise LedgerError(f"the ledger is that of the log {self.origin}, asked for {origin}")
        if settings["version"] < int(VERSION):
            if not migrate:
                raise LedgerError(
                    f"the ledger has tables of version {settings['version']}, and looking changes nothing: "
                    f"open it once with SqlLedger of this release, which brings them to {VERSION}"
                )
            with store.alone():
                self._migrate()
            settings = self._settings()
        if settings["version"] > int(VERSION):
            raise LedgerError(
                f"the ledger was written by a newer Reticent: schema {settings['version']}, here {VERSION}"
            )
        with store.reading():
            read_head(store)
        if isinstance(store, SqliteStore) and (create or migrate):
            store.made()

    def _settings(self) -> dict[str, Any]:
        with self._store.reading():
            settings: dict[str, Any] = dict(self._store.all("SELECT name, setting FROM meta"))
        try:
            return {"version": int(settings["version"]), "origin": str(settings["origin"])}
        except (KeyError, ValueError) as error:
            raise LedgerDamaged("the ledger's settings are damaged") from error

    def _make(self, origin: str) -> None:
        store = self._store
        store.make_schema()
        settings = [("version", VERSION), ("origin", origin)]
        store.many("INSERT INTO meta (name, setting) VALUES (?, ?)", settings)
        make_head(store)
        batch = Batch(store)
        batch.log("ledger", origin=origin, version=LOG_VERSION)
        batch.flush()

    def _migrate(self) -> None:
        """Migrate the tables to this version, all or nothing; another process may have done so already."""
        row = self._store.one("SELECT setting FROM meta WHERE name = 'version'")
        for version in range(int(row[0]) if row else 0, int(VERSION)):
            if version not in MIGRATIONS:
                raise LedgerError(f"no way leads from schema {version} to {version + 1} of the ledger")
            MIGRATIONS[version](self._store)
        self._store.run("UPDATE meta SET setting = ? WHERE name = 'version'", (VERSION,))

    # Writing

    def _write(self, job: _Job) -> Any:
        """Run a job in a transaction, together with the other jobs that wait.

        Jobs are served in order of arrival. A thread that finds no leader commits for all jobs that wait, and
        then passes the lead to the first job that arrived meanwhile. An interrupt may come anywhere, and
        must leave no job waiting for a leader that is gone.
        """
        self._store.same_process()  # before any lock that a fork may have copied
        try:
            with self._guard:
                if self._leader is None:  # then nobody waits either
                    self._leader, job.together = job, [job]
                else:
                    self._jobs.append(job)
            if self._leader is not job:
                job.turn.acquire()
            if not job.done:
                self._lead(job)
            self._leave(job)
        except BaseException:
            self._leave(job)
            raise
        job.together = []
        if job.error is not None:
            raise job.error
        return job.answer

    def _leave(self, job: _Job) -> None:
        """Pass the lead on and wake the callers that the job served. Repeating this does no harm."""
        with self._guard:
            job.gone = True
            if job in self._jobs:
                self._jobs.remove(job)
            if self._leader is job:
                self._leader = self._jobs[0] if self._jobs else None
            for one in (self._leader, *job.together):
                if one is None or one is job:
                    continue
                if (one.done or one is self._leader) and one.turn.locked():
                    one.turn.release()

    def _lead(self, own: _Job) -> None:
        try:
            self._store.commit_begun = False
            if not own.together:
                with self._guard:
                    own.together = self._jobs[:MOST_TOGETHER]
                    del self._jobs[:MOST_TOGETHER]
            self._commit_all(own.together)
        except BaseException as error:  # KeyboardInterrupt and the like concern this caller alone
            self._interrupted(own, error)

    def _interrupted(self, own: _Job, error: BaseException) -> None:
        """Requeue the other jobs if nothing was committed; if unknown, fail them with CommitUnknown."""
        others = [job for job in own.together if job is not own and not job.done]
        if self._store.commit_begun:
            for job in others:
                job.answer, job.done = None, True
                job.error = CommitUnknown(
                    "the ledger was interrupted while committing: ask again with the same idempotency key"
                )
        else:
            with self._guard:
                later = [job for job in self._jobs if job not in own.together]
                self._jobs = [job for job in others + later if job is not own and not job.gone]
        own.error, own.done = error, True

    def _commit_all(self, jobs: list[_Job]) -> None:
        """Commit jobs together; if one of them makes that fail, commit each alone."""
        for attempt in range(1, _TRIES + 1):
            try:
                self._commit(jobs)
                break
            except TryAgain as error:
                if attempt == _TRIES:
                    self._fail(jobs, error)
            except Exception as error:
                if len(jobs) == 1 or isinstance(error, LedgerError):
                    self._fail(jobs, error)
                    break
                for job in jobs:
                    self._commit_all([job])
                break
        for job in jobs:
            job.done = True

    def _fail(self, jobs: list[_Job], error: Exception) -> None:
        if isinstance(error, _HalfDone) and error.__cause__ is not None:
            assert isinstance(error.__cause__, Exception)
            error = error.__cause__
        for job in jobs:
            job.answer, job.error = None, error

    def _commit(self, jobs: list[_Job]) -> None:
        batch = self._store.transact(self._run, jobs)
        self._carried = batch.carried()
        if self._after_commit is not None:
            answered = [job for job in jobs if job.error is None]
            try:
                if answered:
                    self._after_commit(self)
            except Exception as error:
                self._fail(answered, error)

    def _run(self, jobs: list[_Job]) -> Batch:
        """Run the jobs in turn and write their changes. A refusal is the answer of its job alone."""
        carried, self._carried = self._carried, None
        alone = len(jobs) == 1
        batch = Batch(self._store, carried, alone=alone and jobs[0].work is Batch.request)
        wanted = jobs[0].wanted if alone else [one for job in jobs for one in job.wanted]
        if len(wanted) > 1:
            batch.prefetch(wanted)
        for job in jobs:
            job.error = None
            before = batch.changes
            try:
                job.answer = job.work(batch, *job.given)
            except LedgerDamaged:
                raise
            except ReticentError as refusal:
                if batch.changes != before:
                    raise _HalfDone from refusal
                job.error = refusal
        batch.flush()
        return batch

    def _open(self, terms: Terms) -> Balance:
        balance: Balance = self._write(_Job(Batch.open, (terms,)))
        return balance

    def _fulfil(self, number: int, values: tuple[int, ...]) -> Reading:
        reading: Reading = self._write(_Job(Batch.fulfil, (number, values)))
        return reading

    def _pay(self, terms: Terms, key: str, units: int, idempotency: str | None) -> Grant:
        grant: Grant = self._write(_Job(Batch.pay, (terms, key, units, idempotency)))
        return grant

    def _declare(self, account: str, key: str, question: str, grid: int, dimension: int) -> None:
        self._wordings.keep(account, key, question)

    def _terms(self, account: str) -> Terms:
        """Return the terms of an account; they never change, so they are read once."""
        terms = self._known_terms.get(account)
        if terms is None:
            terms = self.balance(account).terms
            if len(self._known_terms) >= _MOST_REMEMBERED:
                self._known_terms.clear()
            self._known_terms[account] = terms
        return terms

    def _request(self, terms: Terms, key: str, information: int, idempotency: str | None) -> Grant:
        if terms.name in self._tight and idempotency is None:
            self._refuse_early(terms, key, information)
        given = (terms, key, information, idempotency, self._wordings.of(terms.name, key))
        try:
            grant: Grant = self._write(_Job(Batch.request, given, ((terms.name, key, idempotency),)))
        except BudgetExceeded:
            if len(self._tight) >= _MOST_REMEMBERED:
                self._tight.clear()
            self._tight.add(terms.name)
            raise
        return grant

    def _request_many(self, orders: list[tuple[Terms, Order]]) -> list[Grant | LedgerError]:
        answers: list[Grant | LedgerError] = []
        for start in range(0, len(orders), MOST_ORDERS):
            part = orders[start : start + MOST_ORDERS]
            wanted = [(order.account, order.key, order.idempotency) for _, order in part]
            answers += self._write(_Job(_decide, (part,), wanted))
        return answers

    def _refuse_early(self, terms: Terms, key: str, information: int) -> None:
        """Refuse a request above the cap without waiting for the writer: spending never falls."""
        row = self._store.glance(BOTH, (key, terms.name))
        if row is None:
            raise UnknownAccount(f"account {terms.name} was never opened")
        held, under = Account.of(row[:10]), Bought.of(row[10:]) if row[10] is not None else None
        charge = increment(terms, under.requested if under else 0, information)
        if held.spent + charge > terms.cap:
            raise BudgetExceeded(terms.name, charge, terms.cap - held.spent)

    # Reading

    def _account(self, account: str) -> Account:
        row = self._store.glance(ACCOUNT, (account,))
        if row is None:
            raise UnknownAccount(f"account {account} was never opened")
        return Account.of(row)

    def balance(self, account: str) -> Balance:
        """Return the account's terms and the units spent."""
        held = self._account(account)
        return Balance(held.terms, held.spent)

    def accounts(self) -> list[Balance]:
        """Return every account, by name."""
        with self._store.reading():
            rows = self._store.all(f"SELECT {ACCOUNT_COLUMNS}, seal FROM account")  # noqa: S608
        held = [Account.of(row) for row in rows]
        return sorted((Balance(one.terms, one.spent) for one in held), key=lambda b: b.terms.name)

    def mark(self) -> int | None:
        """Return a number that is equal at two looks if nothing was written in between; None if not known."""
        return self._store.mark()

    def reading(self, account: str, key: str) -> Reading:
        """Return the reading of a key."""
        row = self._store.glance(BOTH, (key, account))
        if row is None:
            raise UnknownAccount(f"account {account} was never opened")
        return (
            Bought.of(row[10:]).reading(account) if row[10] is not None else Reading(account, key, 0, (), 0)
        )

    def worded(self, account: str, after: int = 0) -> Worded:
        """Return the stored texts of the questions that were paid for."""
        with self._store.reading():
            _, _, _, number, _ = read_head(self._store)
            if number == after:
                return Worded({}, number)
            sql, given = (WORDED_SINCE, (after,)) if after else (WORDED, ())
            rows = self._store.all(sql, (*given, self._account(account).id))
        return Worded(dict(rows), number)

    def purchases(self, account: str, keys: Sequence[str]) -> list[Recorded]:
        """Return the readings of several keys."""
        with self._store.reading():
            return recorded(self._store, account, self._account(account).id, keys)

    def pending(self, account: str) -> list[Measurement]:
        """Return the measurements that are paid for and not recorded."""
        with self._store.reading():
            held = self._account(account)
            rows = self._store.all(
                f"SELECT {BOUGHT_COLUMNS} FROM bought WHERE account = ? AND waiting <> ''",  # noqa: S608
                (held.id,),
            )
        found = [measurement for row in rows for measurement in Bought.of(row).pending(account)]
        return sorted(found, key=lambda measurement: measurement.number)

    # The log

    def head(self) -> Head:
        """Return the log's size and root, and the hash of the spent totals."""
        with self._store.reading():
            size, *_, frontier = read_head(self._store)
            totals = self._store.all("SELECT id, spent FROM account ORDER BY id")
        return Head(self.origin, size, frontier.root(), totals_hash(dict(totals)))

    def checkpoint(self) -> str:
        """Return the signed head."""
        if self._key is None:
            raise LedgerError("the ledger was opened without a signing key")
        return sign(self.head(), self.origin, self._key)

    def totals(self) -> dict[int, int]:
        """Return the units spent by account number, as in the hash that heads carry."""
        with self._store.reading():
            return dict(self._store.all("SELECT id, spent FROM account ORDER BY id"))

    def leaf(self, number: int) -> str:
        """Return the text of one entry."""
        with self._store.reading():
            row = self._store.one("SELECT leaf FROM entry WHERE number = ?", (number,))
        if row is None:
            raise LedgerError(f"entry {number} does not exist")
        leaf: str = row[0]
        return leaf

    def leaves(self, start: int = 0, stop: int | None = None) -> list[str]:
        """Return the texts of entries [start, stop)."""
        limit = (1 << 62) if stop is None else stop
        with self._store.reading():
            rows = self._store.all(
                "SELECT number, leaf FROM entry WHERE number >= ? AND number < ? ORDER BY number",
                (start, limit),
            )
        if [number for number, _ in rows] != list(range(start, start + len(rows))):
            raise LedgerDamaged("entries are missing from the log")
        return [leaf for _, leaf in rows]

    def inclusion_proof(self, number: int, size: int) -> list[bytes]:
        """Return the audit path of an entry in the log of `size` entries."""
        self._within(number, size)
        return merkle.inclusion_proof(number, size, partial(self._node, {}))

    def consistency_proof(self, old: int, size: int) -> list[bytes]:
        """Return a proof that the log of `old` entries is a prefix of the log of `size`."""
        self._within(old, size)
        return merkle.consistency_proof(old, size, partial(self._node, {}))

    def root(self, size: int) -> bytes:
        """Return the root of the first `size` entries."""
        self._within(0, size)
        return merkle.range_hash(0, size, partial(self._node, {})) if size else merkle.EMPTY_ROOT

    def _within(self, number: int, size: int) -> None:
        held = self.head().size
        if not 0 <= number <= size <= held:
            raise LedgerError(f"the log has {held} entries, asked for {number} in {size}")

    def _node(self, known: dict[tuple[int, int], bytes], level: int, index: int) -> bytes:
        """Return the hash of a perfect subtree: stored from NODE_LEVEL on, computed from entries below."""
        if (level, index) not in known:
            if level >= NODE_LEVEL:
                with self._store.reading():
                    row = self._store.one(
                        "SELECT hash FROM node WHERE level = ? AND number = ?", (level, index)
                    )
                if row is None:
                    raise LedgerDamaged(f"node {index} of level {level} is missing from the log")
                known[level, index] = stored_bytes(row[0])
            else:
                first = index << level
                hashes = [
                    merkle.leaf_hash(leaf.encode()) for leaf in self.leaves(first, first + (1 << level))
                ]
                if len(hashes) != 1 << level:
                    raise LedgerDamaged("entries are missing from the log")
                known[level, index] = merkle.root_of(hashes)
        return known[level, index]

    def charge_witnessed(
        self, totals: dict[int, int], head: str, *, lost: Mapping[int, Terms] | None = None
    ) -> None:
        """Close pending measurements and raise accounts to the witness's totals, with an entry each.

        All changes are one transaction.

        Args:
            totals: Units spent, by account number.
            head: Head that was lost, as entries name it.
            lost: Terms of accounts to be opened, by the number that they must get.
        """
        names = {row[0]: row[1] for row in self.rows("SELECT id, name FROM account")}

        def work(batch: Batch) -> None:
            batch.close_pending(head)
            for number in sorted(set(names) & set(totals)):
                batch.charge_witnessed(names[number], totals[number], head)
            for number, terms in sorted((lost or {}).items()):
                batch.open_lost(number, terms)
                batch.charge_witnessed(terms.name, totals[number], head)

        self.transact(work)

    def transact(self, work: Callable[[Batch], Any]) -> Any:
        """Run work on the ledger's rows as one transaction, for the modules beside this one."""
        return self._write(_Job(work))

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query, for the modules beside this one."""
        with self._store.reading():
            return self._store.all(sql, parameters)

    def in_view(self, read: Callable[[SqlLedger], _Read]) -> _Read:
        """Return the result of `read` on this ledger, in one consistent view."""
        with self._store.reading():
            return read(self)

    def account_mark(self, account: str) -> str:
        """Return a text that differs from every other account's, of any ledger, and reveals nothing."""
        return hashlib.sha256(b"account" + self._account(account).nonce).hexdigest()

    def close(self) -> None:
        """Close the connection; everything answered is durable already."""
        self._store.close()


def _decide(batch: Batch, orders: list[tuple[Terms, Order]]) -> list[Grant | LedgerError]:
    """Decide orders in turn and return the grant or the refusal of each."""
    return decided(orders, batch.request)
