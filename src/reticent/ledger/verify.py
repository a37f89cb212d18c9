"""Verification of every entry, every hash and every row of a ledger, without the data.

`Replay` reads the log alone: accounts, charges within their caps, consecutive numbers, measurements recorded
once. `verify` compares this with the tables of a ledger row by row and recomputes every commitment from the
nonces stored there, every subtree, and every sum of recorded values. It reads in chunks and remembers a few
bytes per account, key and measurement.

A log alone cannot show that its end was cut off, or that all of it was replaced. To detect this, pass a
`checkpoint` stored elsewhere, or the `witness`.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from reticent.errors import LedgerDamaged, ReticentError, RolledBack
from reticent.ledger import entries
from reticent.ledger.base import is_named_after, is_question
from reticent.ledger.checkpoint import Head, PublicKey, parse, totals_hash, verified
from reticent.ledger.merkle import Frontier
from reticent.ledger.replay import RECORDED, VOID, Opened, Replay, Report
from reticent.ledger.sql.batch import NODE_LEVEL
from reticent.ledger.sql.ledger import VERSION, SqlLedger
from reticent.ledger.sql.postgres_store import PostgresStore
from reticent.ledger.sql.rows import Account, Bought, read_head
from reticent.ledger.sql.sqlite_store import SqliteStore
from reticent.ledger.sql.store import Store

CHUNK = 8192  # entries read at a time
_TOGETHER = 500  # rows named in one statement
_ACCOUNT = "id, name, unit, neighbours, subject, cap, minimum, spent, nonce, seal"
_BOUGHT = "id, account, name, requested, information, sums, waiting, nonce, seal"

_NOT_PLAIN = """
SELECT count(*) FROM pg_class c WHERE c.oid IN
    ('meta'::regclass, 'head'::regclass, 'account'::regclass, 'bought'::regclass,
     'measurement'::regclass, 'answered'::regclass, 'entry'::regclass, 'node'::regclass,
     'question'::regclass)
AND (c.relkind <> 'r' OR c.relpersistence <> 'p' OR c.relrowsecurity OR c.relforcerowsecurity
    OR EXISTS (SELECT FROM pg_policy WHERE polrelid = c.oid)
    OR EXISTS (SELECT FROM pg_rewrite WHERE ev_class = c.oid)
    OR EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal)
    OR EXISTS (SELECT FROM pg_inherits WHERE c.oid IN (inhparent, inhrelid)))
"""  # tables of PostgreSQL on which a trigger, rule or policy may write, hide or add rows

Progress = Callable[[int, int], None]
Row = tuple[Any, ...]


class Witness(Protocol):
    """A party that remembers the last head of a log, and the units spent."""

    def last(self, origin: str) -> tuple[str, dict[int, int]] | None:
        """Return the last checkpoint and the spent totals, or None if the witness never saw this log."""


class Expected:
    """Heads known from elsewhere, which the log must pass through."""

    def __init__(self) -> None:
        self._heads: dict[int, list[tuple[str, Head]]] = {}

    def add(self, who: str, head: Head) -> None:
        """Add a head that the log must pass through, and the party that saw it."""
        self._heads.setdefault(head.size, []).append((who, head))

    def stops(self, start: int, stop: int) -> list[int]:
        """Return the sizes of expected heads between `start` and `stop`, and `stop` itself."""
        return [*sorted(size for size in self._heads if start < size < stop), stop]

    def check(self, replay: Replay) -> None:
        """Compare the replay with the heads that are expected at its size."""
        for who, head in self._heads.pop(replay.size, []):
            if head.root != replay.frontier.root() or (replay.size and head.origin != replay.origin):
                raise RolledBack(
                    f"the ledger is forked: its first {head.size} entries are not those that {who} saw"
                )
            if head.totals != totals_hash(replay.totals()):
                raise RolledBack(f"the totals after {head.size} entries are not those that {who} saw")

    def finish(self, size: int) -> None:
        """Raise RolledBack if an expected head was never reached."""
        for expected in sorted(self._heads):
            who = self._heads[expected][0][0]
            raise RolledBack(f"the ledger has {size} entries, {who} saw {expected}: it was rolled back")


def verify(
    ledger: SqlLedger,
    *,
    progress: Progress | None = None,
    public_key: PublicKey | Ed25519PublicKey | None = None,
    checkpoint: str | None = None,
    witness: Witness | None = None,
) -> Report:
    """Verify a complete ledger, in one consistent view.

    Args:
        ledger: Ledger to verify; its own connection is used and busy until the end.
        progress: Callback that receives the number of entries read and the number of all entries.
        public_key: Key that must have signed the checkpoint, and the checkpoint of the witness.
        checkpoint: Head stored elsewhere; the log must pass through it.
        witness: Witness whose last head must be on the log, and whose totals must all be spent.

    Raises:
        LedgerDamaged: names the first place that does not verify, and no data.
        RolledBack: the checkpoint or the witness knows another, or a longer, log.
    """
    if isinstance(public_key, Ed25519PublicKey):
        public_key = PublicKey(ledger.origin, public_key)
    expected, checked, witnessed, totals = Expected(), None, None, {}
    if checkpoint is not None:
        head = signed_head(checkpoint, ledger.origin, public_key)
        expected.add("the checkpoint", head)
        checked = head.size
    if witness is not None:
        seen = witness.last(ledger.origin)
        if seen is None:
            raise RolledBack(f"the witness never saw the log {ledger.origin}")
        head, totals = signed_head(seen[0], ledger.origin, public_key), seen[1]
        expected.add("the witness", head)
        witnessed = head.size
    tables = _Tables(ledger._store, ledger.origin)
    with _damage_named(), ledger._store.reading():
        replay = tables.verify(expected, progress)
    for account, spent in totals.items():
        if account >= len(replay.spent) or replay.spent[account] < spent:
            raise RolledBack(f"account {account} has spent less than the witness saw")
    report = replay.report(checked=checked, witnessed=witnessed)
    return replace(report, questions=tables.questions, texts=tables.texts)


def signed_head(checkpoint: str, origin: str, public_key: PublicKey | None) -> Head:
    """Return the head in a checkpoint of this log, its signature verified if the key is known."""
    head = parse(checkpoint)[0] if public_key is None else verified(checkpoint, public_key)
    if head.origin != origin:
        raise RolledBack(f"the checkpoint is of the log {head.origin}, this is {origin}")
    return head


@contextmanager
def _damage_named() -> Iterator[None]:
    """Raise LedgerDamaged for values of a wrong kind and for pages that cannot be read."""
    try:
        yield
    except ReticentError:
        raise
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise LedgerDamaged(f"a row holds a value of the wrong kind ({type(error).__name__})") from error
    except sqlite3.DatabaseError as error:
        raise LedgerDamaged(f"the database cannot be read: {error}") from error


class _Tables:
    """The rows of a ledger, compared with its log."""

    def __init__(self, store: Store, origin: str) -> None:
        self._store = store
        self._origin = origin
        self._replay = Replay()
        self.questions = self.texts = 0  # keys that are named after a text, and those whose text is kept
        self._answered: Iterator[Answered] = iter(())

    def verify(self, expected: Expected, progress: Progress | None) -> Replay:
        self._whole_database()
        with closing(answered(self._store)) as self._answered:  # runs along with the log
            return self._verify(expected, progress)

    def _verify(self, expected: Expected, progress: Progress | None) -> Replay:
        head = read_head(self._store)
        size, replay = head[0], self._replay
        while replay.size < size:
            start = replay.size
            for stop in expected.stops(start, min(size, start - start % CHUNK + CHUNK)):
                self._read(stop)
                expected.check(replay)
            if progress is not None:
                progress(replay.size, size)
        expected.check(replay)
        self._counts(head)
        self._no_more_answers()
        self._meta()
        self._accounts()
        self._keys()
        expected.finish(size)
        return replay

    def _whole_database(self) -> None:
        """Check the database: pages and indexes of SQLite, and no triggers, rules or views of its own."""
        if isinstance(self._store, SqliteStore):
            for (finding,) in self._store.all("PRAGMA integrity_check(1)"):
                if finding != "ok":
                    raise LedgerDamaged("the database file is damaged")
            sql = "SELECT count(*) FROM sqlite_master WHERE type IN ('trigger', 'view')"
        else:
            sql = _NOT_PLAIN
        if self._store.all(sql) != [(0,)]:
            raise LedgerDamaged("the database has triggers, rules or views of its own, or hides rows")

    def _count(self, table: str) -> int:
        return int(self._store.all(f"SELECT count(*) FROM {table}")[0][0])  # noqa: S608

    def _read(self, stop: int) -> None:
        """Read and check the entries up to `stop`, and the rows that belong to them."""
        start, keys = self._replay.size, len(self._replay.recorded)
        rows = self._store.all(
            "SELECT number, leaf FROM entry WHERE number >= ? AND number < ? ORDER BY number", (start, stop)
        )
        for number, row in enumerate(rows, start):
            if row[0] != number:
                raise LedgerDamaged(f"entry {number} is missing")
        if len(rows) != stop - start:
            raise LedgerDamaged(f"entry {start + len(rows)} is missing")
        made = self._replay.read([leaf for _, leaf in rows])
        self._nodes([node for node in made if node[0] >= NODE_LEVEL])
        self._opened(self._replay.opened)
        self._requested(keys, self._replay.requested)
        self._values(self._replay.values)
        self._answers(self._replay.answers)

    def _nodes(self, made: list[tuple[int, int, bytes]]) -> None:
        by_level: dict[int, list[tuple[int, bytes]]] = {}
        for level, index, node in made:
            by_level.setdefault(level, []).append((index, node))
        for level, nodes in by_level.items():
            rows = self._store.all(
                "SELECT number, hash FROM node WHERE level = ? AND number BETWEEN ? AND ? ORDER BY number",
                (level, nodes[0][0], nodes[-1][0]),
            )
            if rows != nodes:
                wrong = next(node for i, node in enumerate(nodes) if i >= len(rows) or rows[i] != node)[0]
                first = wrong << level
                raise LedgerDamaged(
                    f"entries {first} to {first + (1 << level) - 1} do not have the hash kept for them"
                )

    def _opened(self, opened: list[Opened]) -> None:
        if not opened:
            return
        rows = self._store.all(
            f"SELECT {_ACCOUNT} FROM account WHERE id >= ? AND id <= ? ORDER BY id",  # noqa: S608
            (opened[0].account, opened[-1].account),
        )
        for i, told in enumerate(opened):
            if i >= len(rows) or rows[i][0] != told.account:
                raise LedgerDamaged(f"account {told.account} is missing")
            _, name, unit, neighbours, subject, cap, minimum, _, nonce, _ = rows[i]
            if type(nonce) is not bytes:
                raise LedgerDamaged(f"account {told.account}: its nonce is no byte string")
            Account.of(rows[i])
            if (unit, neighbours, cap, minimum) != (told.unit, told.neighbours, told.cap, told.minimum):
                raise LedgerDamaged(f"account {told.account}: its terms are not those of entry {told.entry}")
            if entries.commitment(nonce, name, subject) != told.commitment:
                raise LedgerDamaged(f"account {told.account}: its name is not the one of entry {told.entry}")

    def _requested(self, first: int, requested: list[tuple[int, int, int, int, str]]) -> None:
        if not requested:
            return
        rows = self._store.all(
            "SELECT m.number, b.account, m.information, m.bought, b.name, b.nonce "
            "FROM measurement m LEFT JOIN bought b ON b.id = m.bought "
            "WHERE m.number >= ? AND m.number < ? ORDER BY m.number",
            (first, first + len(requested)),
        )
        if len(rows) != len(requested):
            raise LedgerDamaged(f"measurements {first} to {first + len(requested) - 1}: a row is missing")
        commitment = entries.commitment
        for number, (row, told) in enumerate(zip(rows, requested, strict=True), first):
            if row[:4] != (number, told[1], told[2], told[3]):
                raise LedgerDamaged(f"measurement {number}: its row is not what entry {told[0]} says")
            if commitment(row[5], row[4]) != told[4]:
                raise LedgerDamaged(f"key {told[3]}: its name is not the one of entry {told[0]}")

    def _values(self, values: list[tuple[int, int, str]]) -> None:
        for start in range(0, len(values), _TOGETHER):
            some = values[start : start + _TOGETHER]
            marks = ",".join("?" * len(some))
            rows = self._store.all(
                f"SELECT number, recorded, nonce FROM measurement WHERE number IN ({marks})",  # noqa: S608
                [measurement for _, measurement, _ in some],
            )
            held = {number: (recorded, nonce) for number, recorded, nonce in rows}
            for entry, measurement, commitment in some:
                recorded, nonce = held.get(measurement, (None, None))
                if recorded is None or entries.commitment(nonce, recorded) != commitment:
                    raise LedgerDamaged(
                        f"measurement {measurement}: its values are not those of entry {entry}"
                    )

    def _answers(self, answers: list[tuple[int, int, str]]) -> None:
        for entry, account, commitment in answers:
            held = next(self._answered, None)
            if held is None or (held.entry, held.account) != (entry, account):
                raise LedgerDamaged(f"the answer of entry {entry} is missing, or another is in its place")
            if entries.commitment(held.nonce, *held.parts) != commitment:
                raise LedgerDamaged(f"the answer kept for entry {entry} is not the one that was given")

    def _no_more_answers(self) -> None:
        if next(self._answered, None) is not None:
            raise LedgerDamaged("the table answered has rows that no entry speaks of")

    def _counts(self, head: tuple[int, int, int, int, Frontier]) -> None:
        replay = self._replay
        told = (replay.size, len(replay.cap), len(replay.owner), len(replay.recorded))
        if head[:4] != told or head[4].hashes != replay.frontier.hashes:
            raise LedgerDamaged("the head kept in the ledger is not that of its entries")
        nodes = sum(replay.size >> level for level in range(NODE_LEVEL, replay.size.bit_length()))
        due = {
            "head": 1,
            "entry": replay.size,
            "node": nodes,
            "account": len(replay.cap),
            "bought": len(replay.owner),
            "measurement": len(replay.recorded),
        }
        for table, rows in due.items():
            if self._count(table) != rows:
                raise LedgerDamaged(f"the table {table} has rows that no entry speaks of")

    def _meta(self) -> None:
        told = [("origin", self._replay.origin), ("version", str(VERSION))]
        held = sorted(self._store.all("SELECT name, setting FROM meta"))
        if held != told or self._replay.origin != self._origin:
            raise LedgerDamaged("the settings kept in the ledger are not those of entry 0")

    def _accounts(self) -> None:
        spent = self._replay.spent
        for start in range(0, len(spent), CHUNK):
            rows = self._store.all(
                "SELECT id, spent FROM account WHERE id >= ? AND id < ? ORDER BY id", (start, start + CHUNK)
            )
            for account, held in rows:
                if type(held) is not int or held != spent[account]:
                    raise LedgerDamaged(f"account {account}: what is spent is not the sum of its entries")

    def _keys(self) -> None:
        """Check the sums by key, and the answers stored for idempotent calls."""
        queries = (
            f"SELECT {_BOUGHT} FROM bought ORDER BY id",  # noqa: S608
            "SELECT bought, number, information, recorded, nonce FROM measurement ORDER BY bought, number",
            "SELECT b.id, a.verb, a.asked, a.information, a.charged FROM answered a "
            "LEFT JOIN bought b ON b.account = a.account AND b.name = a.name ORDER BY 1, a.idempotency",
            "SELECT bought, wording, numbers FROM question ORDER BY bought",
        )
        with ExitStack() as open_streams:
            bought, measured, answered, worded = (
                open_streams.enter_context(closing(_stream(self._store, sql))) for sql in queries
            )
            self._check_keys(bought, _Groups(measured), _Groups(answered), _Groups(worded))

    def _check_keys(
        self, bought: Iterator[Row], measured: _Groups, answered: _Groups, worded: _Groups
    ) -> None:
        for key, row in enumerate(bought):
            if row[0] != key:
                raise LedgerDamaged(f"key {key} is missing")
            if type(row[7]) is not bytes:
                raise LedgerDamaged(f"key {key}: its nonce is no byte string")
            held, numbers, charges = Bought.of(row), array("q"), array("q")
            due = self._due(numbers, charges, measured.of(key))
            if (held.paid, held.information, held.sums, row[6]) != due:
                raise LedgerDamaged(f"key {key}: its sums are not those of its measurements")
            if rows := list(answered.of(key)):
                levels = _Levels(numbers, charges, self._replay.void)
                _check_answers(key, self._replay.minimum[held.account], levels, rows)
            self.questions += is_question(held.name)
            for _, wording, listed in worded.of(key):
                self._check_question(held, wording, listed, numbers)
                self.texts += 1
        if measured.rest() or answered.rest() or worded.rest():
            raise LedgerDamaged("a measurement, an answer or a question belongs to no key")

    def _check_question(self, held: Bought, wording: str, listed: str, numbers: array[int]) -> None:
        """Check that the text of a question is the text that its key is named after."""
        if not is_named_after(held.name, wording):
            raise LedgerDamaged(
                f"key {held.id}: the text of its question is not the one that it is named after"
            )
        recorded = [str(one) for one in numbers if self._replay.recorded[one] == RECORDED]
        if sorted(listed.split(",")) != sorted(recorded or [""]):
            raise LedgerDamaged(f"key {held.id}: its question lists other measurements than it has")

    def _due(
        self, numbers: array[int], charges: array[int], rows: Iterator[Row]
    ) -> tuple[int, int, str, str]:
        """Return the row of a key (paid, information, sums, waiting) that its measurements require."""
        information, sums, waiting = 0, None, []
        for _, number, amount, recorded, nonce in rows:
            state = self._replay.recorded[number]
            if (state == RECORDED) != (recorded is not None):
                raise LedgerDamaged(
                    f"measurement {number}: it has values that no entry speaks of, or has none"
                )
            numbers.append(number)
            charges.append(amount)
            if recorded is None:
                if nonce is not None:
                    raise LedgerDamaged(f"measurement {number}: it has a nonce and no values")
                waiting.append(f"{number}:{-amount if state == VOID else amount}")
                continue
            values = entries.values_of(recorded)
            if information and len(values) != len(sums or []):
                raise LedgerDamaged(f"measurement {number}: its values do not fit those before it")
            if sums is None:
                sums = [amount * v for v in values]
            else:
                sums = [s + amount * v for s, v in zip(sums, values, strict=True)]
            information += amount
        return sum(charges), information, entries.values_text(sums or []), ",".join(waiting)


class _Levels:
    """The levels of information bought under a key: after each charge, and after a recovery closed some."""

    def __init__(self, numbers: Sequence[int], charges: Sequence[int], void: Mapping[int, int]) -> None:
        self.paid: Counter[tuple[int, int]] = Counter()  # number of charges that led to a level
        self.all: set[int] = set()
        pairs = list(zip(numbers, charges, strict=True))
        closed = sorted((void[number], amount) for number, amount in pairs if number in void)
        level = 0
        for number, charge in pairs:
            if closed and closed[0][0] <= number:
                level -= sum(amount for when, amount in closed if when <= number)
                closed = [one for one in closed if one[0] > number]
                self.all.add(level)
            level += charge
            self.all.add(level)
            self.paid[level, charge] += 1
        self.all.add(level - sum(amount for _, amount in closed))


def _check_answers(key: int, minimum: int, levels: _Levels, rows: list[Row]) -> None:
    """Check that each answer names a level of its key, and that each of its charges is used once."""
    for _, verb, asked, information, charged in rows:
        fits = verb == "request" or (verb == "pay" and charged == information)  # a payment has a fresh key
        if information not in levels.all or not fits or not 0 < asked <= information:
            raise LedgerDamaged(f"key {key}: an answer kept for it does not fit its charges")
        missing = asked - (information - charged)
        if charged:
            if levels.paid[information, charged] < 1 or missing <= 0 or charged != max(missing, minimum):
                raise LedgerDamaged(f"key {key}: an answer kept for it does not fit its charges")
            levels.paid[information, charged] -= 1


@dataclass(frozen=True)
class Answered:
    """A row of the table `answered`; `parts` are the texts that its entry commits to."""

    entry: int
    account: int
    nonce: bytes
    parts: tuple[str, ...]


def answered(store: Store) -> Generator[Answered, None, None]:
    """Yield the answers stored for idempotent calls, in the order of their entries."""
    sql = (
        "SELECT entry, account, nonce, idempotency, verb, name, asked, information, charged "
        "FROM answered ORDER BY entry, account, idempotency"
    )
    with closing(_stream(store, sql)) as rows:
        for entry, account, nonce, *given in rows:
            if [type(one) for one in given] != [str, str, str, int, int, int]:
                raise LedgerDamaged("the table answered holds a value of the wrong kind")
            yield Answered(entry, account, nonce, entries.answer_parts(*given))


class _Groups:
    """A stream of rows ordered by their first column, read group by group."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self._rows = rows
        self._next = next(rows, None)

    def of(self, key: int) -> Iterator[Row]:
        """Yield the rows of a group; groups must be read in order, and each to its end."""
        while self._next is not None and self._next[0] == key:
            yield self._next
            self._next = next(self._rows, None)

    def rest(self) -> bool:
        """Return whether rows are left that belong to no group."""
        return self._next is not None


def _stream(store: Store, sql: str) -> Generator[Row, None, None]:
    """Yield the rows of a query without loading them all."""
    if isinstance(store, SqliteStore):
        yield from store._connection().execute(sql)
    elif isinstance(store, PostgresStore):
        with store._connected(write=False).cursor(name=f"verify_{abs(hash(sql))}") as cursor:
            cursor.itersize = CHUNK
            cursor.execute(sql)
            yield from cursor
