"""What the service itself remembers: keys, visits, quotas, questions, attempts and jobs. No data.

A small SQLite file that all workers share. Losing it loses keys and quotas, never a charge: those are in the
ledger. Of answers it keeps what retries and jobs must be told again: all of it was released and paid for.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reticent.errors import AccountConflict, IdempotencyConflict, LedgerError, ParameterError
from reticent.files import private, secluded
from reticent.service.keys import Person, Role, checked_name, digest, new_secret
from reticent.sqlite import writing

VISIT_S = 12 * 3600.0
_VERSION = 1  # of the tables
_TABLES = """
CREATE TABLE IF NOT EXISTS person (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, role TEXT NOT NULL,
    digest TEXT NOT NULL UNIQUE, made REAL NOT NULL, revoked REAL
);
CREATE TABLE IF NOT EXISTS visit (
    digest TEXT PRIMARY KEY, person INTEGER NOT NULL, csrf TEXT NOT NULL, ends REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS owned (dataset TEXT PRIMARY KEY, person INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS registered (
    dataset TEXT PRIMARY KEY, file TEXT NOT NULL, part TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS source (
    file TEXT PRIMARY KEY, identity TEXT NOT NULL UNIQUE, person INTEGER NOT NULL, made REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quota (
    dataset TEXT NOT NULL, person INTEGER NOT NULL, units INTEGER NOT NULL, PRIMARY KEY (dataset, person)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS used (
    dataset TEXT NOT NULL, person INTEGER NOT NULL, units INTEGER NOT NULL, PRIMARY KEY (dataset, person)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS asked (
    number INTEGER PRIMARY KEY, dataset TEXT NOT NULL, person TEXT NOT NULL, query TEXT NOT NULL,
    cased TEXT NOT NULL, cost INTEGER NOT NULL, without_reuse INTEGER NOT NULL, spent INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS asked_of ON asked (dataset, number);
CREATE TABLE IF NOT EXISTS attempt (
    id TEXT PRIMARY KEY, person INTEGER NOT NULL, dataset TEXT NOT NULL, body TEXT NOT NULL,
    units INTEGER NOT NULL, answer TEXT, made REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS job (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, attempt TEXT NOT NULL UNIQUE,
    person INTEGER NOT NULL, dataset TEXT NOT NULL, idempotency TEXT, body TEXT NOT NULL,
    state TEXT NOT NULL, made REAL NOT NULL, beat REAL NOT NULL, shown REAL NOT NULL, result TEXT
);
CREATE INDEX IF NOT EXISTS job_state ON job (state, number);
"""
_REMEMBERED_S = 7 * 24 * 3600.0  # attempts and finished jobs
_MOST_NOTES = 10_000  # that wait to be written together; jobs.Jobs writes them twice a second
_PERSON = "SELECT number, name, role FROM person WHERE revoked IS NULL AND "
_JOB = "SELECT id, person, dataset, idempotency, body, state, made, shown, result FROM job WHERE "

_NEXT_JOB = (
    "SELECT number FROM job WHERE state = 'queued' OR (state = 'running' AND beat < ?) "
    "ORDER BY number LIMIT 1"
)


def own_folder(folder: Path) -> Path:
    """Where the service of a folder keeps its own files."""
    return folder / ".service"


@dataclass(frozen=True)
class Visit:
    """A signed-in browser."""

    person: Person
    csrf: str


@dataclass(frozen=True)
class KeyRecord:
    """A key as lists show it."""

    person: Person
    made: float
    revoked: float | None


@dataclass(frozen=True)
class Source:
    """A file in the folder and whose it is.

    Attributes:
        file: its name, at the end of all links.
        identity: what tells it from another file of that name.
        owner: who may register it.
        is_revoked: whether the owner's key was taken back.
        made: when it was assigned.
    """

    file: str
    identity: str
    owner: Person
    is_revoked: bool
    made: float


@dataclass(frozen=True)
class Rows:
    """What a data set is made of: a file in the folder, and the table if it holds several."""

    file: str
    part: str


@dataclass(frozen=True)
class Asked:
    """A question that was answered: what it was, and what it cost with and without reuse."""

    number: int
    dataset: str
    person: str
    query: str
    case: str
    cost: int
    without_reuse: int
    spent: int


@dataclass(frozen=True)
class Job:
    """A question that is answered when there is time for it.

    Attributes:
        id: unguessable.
        person: the number of who asked.
        idempotency: under which text it is asked, so that asking again after a crash is charged once.
        body: the JSON of the question and its accuracy.
        state: queued, running, done or refused.
        made: when it came.
        shown: when its result may be seen, once there is one.
        result: the JSON of the answer, or of the refusal.
    """

    id: str
    person: int
    dataset: str
    idempotency: str | None
    body: str
    state: str
    made: float
    shown: float
    result: str | None


class State:
    """One connection to write and one to read, each for one thread at a time: readers never wait for a disk.

    Several processes may share the file. Open it after forking.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._guard, self._looking = threading.Lock(), threading.Lock()
        self._notes: deque[Asked] = deque()
        try:
            self._connection = _connected(private(Path(path)))
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            held = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if held > _VERSION:
                raise LedgerError(f"the service's state was written by a newer Reticent: {path}")
            self._connection.executescript(_TABLES)
            self._connection.execute(f"PRAGMA user_version={_VERSION}")
            self._reader = _connected(path)
            self._reader.execute("PRAGMA query_only=ON")
        except (sqlite3.Error, OSError) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise LedgerError(f"the service's state cannot be opened ({why}): {path}") from error

    @classmethod
    def of(cls, folder: Path) -> State:
        """The state of the service of a folder; made if there is none."""
        own = own_folder(folder)
        secluded(own, whole=True)
        return cls(own / "state.sqlite")

    def close(self) -> None:
        """Close the file, with every note written."""
        self.flush()
        with self._guard, self._looking:
            self._connection.close()
            self._reader.close()

    def check(self) -> None:
        """Read something; raises sqlite3.Error if that cannot be done."""
        self._one("SELECT count(*) FROM quota")

    def forget(self) -> None:
        """Drop old attempts and finished jobs. The ledger still knows what was paid for."""
        before = time.time() - _REMEMBERED_S
        with self._writing() as connection:
            connection.execute("DELETE FROM attempt WHERE made < ?", (before,))
            connection.execute("DELETE FROM job WHERE made < ? AND result IS NOT NULL", (before,))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._guard, writing(self._connection) as connection:
            yield connection

    def _one(self, sql: str, *given: object) -> tuple[Any, ...] | None:
        with self._looking:
            row: tuple[Any, ...] | None = self._reader.execute(sql, given).fetchone()
        return row

    def _all(self, sql: str, *given: object) -> list[tuple[Any, ...]]:
        with self._looking:
            return self._reader.execute(sql, given).fetchall()

    # Keys

    def make_key(self, name: str, role: Role) -> tuple[Person, str]:
        """A new key; its secret is returned here and never again.

        Somebody of a name that had a key before has its limits, and what was used of them: taking a key back
        and making another gives no fresh quota. What belonged to it stays away.
        """
        checked_name(name)
        secret = new_secret()
        with self._writing() as connection:
            taken = "SELECT 1 FROM person WHERE name = ? AND revoked IS NULL"
            if connection.execute(taken, (name,)).fetchone():
                raise ParameterError(f"name must be of nobody who has a key, got {name!r}")
            made = connection.execute(
                "INSERT INTO person (name, role, digest, made) VALUES (?, ?, ?, ?) RETURNING number",
                (name, role.value, digest(secret), time.time()),
            ).fetchone()
            for table in ("quota", "used"):
                connection.execute(
                    f"INSERT INTO {table} SELECT dataset, ?1, units FROM {table} WHERE person = "  # noqa: S608
                    "(SELECT max(number) FROM person WHERE name = ?2 AND number < ?1)",
                    (made[0], name),
                )
        return Person(made[0], name, role), secret

    def replace_key(self, name: str) -> tuple[Person, str] | None:
        """Another secret for a key that was lost: the old one and its visits end, all else stays as it is.

        Its number, quotas and what was used of them, files, data sets and jobs are those of the person.
        """
        secret = new_secret()
        with self._writing() as connection:
            found = connection.execute(
                "UPDATE person SET digest = ?, made = ? WHERE name = ? AND revoked IS NULL "
                "RETURNING number, name, role",
                (digest(secret), time.time(), name),
            ).fetchone()
            if found:
                connection.execute("DELETE FROM visit WHERE person = ?", found[:1])
        person = _person(found)
        return None if person is None else (person, secret)

    def revoke(self, name: str) -> bool:
        """Take a key back, with its visits, and say whether there was one."""
        with self._writing() as connection:
            found = connection.execute(
                "UPDATE person SET revoked = ? WHERE name = ? AND revoked IS NULL RETURNING number",
                (time.time(), name),
            ).fetchone()
            if found:
                connection.execute("DELETE FROM visit WHERE person = ?", found)
        return found is not None

    def all_keys(self) -> list[KeyRecord]:
        """Every key that was ever made."""
        rows = self._all("SELECT number, name, role, made, revoked FROM person ORDER BY number")
        return [
            KeyRecord(Person(number, name, Role(role)), made, gone) for number, name, role, made, gone in rows
        ]

    def person(self, secret: str) -> Person | None:
        """Who holds a key; None for an unknown or revoked one. Found by its hash, so time tells nothing."""
        return _person(self._one(f"{_PERSON} digest = ?", digest(secret)))

    def named(self, name: str) -> Person | None:
        """Who has a valid key under a name."""
        return _person(self._one(f"{_PERSON} name = ?", name))

    def numbered(self, number: int) -> Person | None:
        """Whose key has this number, if it is valid."""
        return _person(self._one(f"{_PERSON} number = ?", number))

    # Visits

    def enter(self, person: Person) -> tuple[str, Visit]:
        """A new visit: the cookie's secret, and its token against forged forms."""
        secret, csrf = new_secret(""), new_secret("")
        with self._writing() as connection:
            connection.execute("DELETE FROM visit WHERE ends < ?", (time.time(),))
            ends = time.time() + VISIT_S
            connection.execute(
                "INSERT INTO visit VALUES (?, ?, ?, ?)", (digest(secret), person.number, csrf, ends)
            )
        return secret, Visit(person, csrf)

    def visit(self, secret: str) -> Visit | None:
        """The visit of a cookie, if it has not ended."""
        row = self._one(
            "SELECT p.number, p.name, p.role, v.csrf FROM visit v JOIN person p ON p.number = v.person "
            "WHERE v.digest = ? AND v.ends > ? AND p.revoked IS NULL",
            digest(secret),
            time.time(),
        )
        if row is None:
            return None
        return Visit(Person(row[0], row[1], Role(row[2])), row[3])

    def leave(self, secret: str) -> None:
        """End a visit."""
        with self._writing() as connection:
            connection.execute("DELETE FROM visit WHERE digest = ?", (digest(secret),))

    # Owners

    def own(self, dataset: str, person: Person, rows: Rows) -> bool:
        """Note who registered a data set over which rows, and say whether it is new.

        Raises:
            AccountConflict: somebody registered it before, or the same person over other rows.
        """
        with self._writing() as connection:
            held = connection.execute(
                "SELECT person, file, part FROM owned LEFT JOIN registered USING (dataset) WHERE dataset = ?",
                (dataset,),
            ).fetchone()
            if held not in (None, (person.number, rows.file, rows.part)):
                raise AccountConflict(f"data set {dataset} is registered already")
            if held is None:
                connection.execute("INSERT INTO owned VALUES (?, ?)", (dataset, person.number))
                connection.execute("INSERT INTO registered VALUES (?, ?, ?)", (dataset, rows.file, rows.part))
        return held is None

    def disown(self, dataset: str, person: Person) -> None:
        """Forget who registered a data set."""
        with self._writing() as connection:
            gone = "DELETE FROM owned WHERE dataset = ? AND person = ? RETURNING dataset"
            if connection.execute(gone, (dataset, person.number)).fetchone():
                connection.execute("DELETE FROM registered WHERE dataset = ?", (dataset,))

    def registered(self, file: str) -> list[tuple[str, str]]:
        """What was ever registered over a file: the name of the data set, and the part of the file."""
        found = self._all("SELECT dataset, part FROM registered WHERE file = ? ORDER BY dataset", file)
        return [(dataset, part) for dataset, part in found]

    def owner(self, dataset: str) -> int | None:
        """The number of whoever registered a data set; None for one that the operator put there."""
        row = self._one("SELECT person FROM owned WHERE dataset = ?", dataset)
        return None if row is None else int(row[0])

    # Sources: whose a file in the folder is

    def assign(self, file: str, identity: str, person: Person) -> None:
        """Give a file to an owner, with the data sets that were registered over it.

        Raises:
            ParameterError: another owner has it, or the same file under another name.
        """
        with self._writing() as connection:
            held = connection.execute(
                "SELECT s.file, p.number, p.name FROM source s JOIN person p ON p.number = s.person "
                "WHERE s.file = ? OR s.identity = ?",
                (file, identity),
            ).fetchall()
            for name, number, owner in held:
                if name != file:
                    raise ParameterError(f"file must have one name: {file} is {name}, which is {owner}'s")
                if number != person.number:
                    raise ParameterError(
                        f"file must be nobody else's, {file} is {owner}'s (key {number}): release it first"
                    )
            connection.execute(
                "INSERT OR REPLACE INTO source VALUES (?, ?, ?, ?)",
                (file, identity, person.number, time.time()),
            )
            connection.execute(
                "UPDATE owned SET person = ? "
                "WHERE dataset IN (SELECT dataset FROM registered WHERE file = ?)",
                (person.number, file),
            )

    def release_source(self, file: str) -> bool:
        """Take a file back from its owner, and say whether it had one. What was registered stays noted."""
        with self._writing() as connection:
            gone = connection.execute("DELETE FROM source WHERE file = ? RETURNING file", (file,)).fetchone()
        return gone is not None

    def sources(self) -> list[Source]:
        """Every file that is assigned."""
        rows = self._all(
            "SELECT s.file, s.identity, p.number, p.name, p.role, p.revoked IS NOT NULL, s.made "
            "FROM source s JOIN person p ON p.number = s.person ORDER BY s.file"
        )
        return [
            Source(file, identity, Person(number, name, Role(role)), bool(is_revoked), made)
            for file, identity, number, name, role, is_revoked, made in rows
        ]

    def source(self, file: str) -> tuple[int, str] | None:
        """The number of the owner and the identity of a file that is assigned."""
        row = self._one("SELECT person, identity FROM source WHERE file = ?", file)
        return None if row is None else (row[0], row[1])

    # Quotas

    def set_quota(self, dataset: str, person: Person, units: int | None) -> None:
        """Limit what an analyst may be charged of a data set; None lifts the limit."""
        with self._writing() as connection:
            connection.execute("DELETE FROM quota WHERE dataset = ? AND person = ?", (dataset, person.number))
            if units is not None:
                connection.execute("INSERT INTO quota VALUES (?, ?, ?)", (dataset, person.number, units))

    def quota(self, dataset: str, person: Person) -> tuple[int | None, int]:
        """An analyst's limit, if there is one, and what was used of it."""
        row = self._one(
            "SELECT (SELECT units FROM quota WHERE dataset = ?1 AND person = ?2), "
            "(SELECT units FROM used WHERE dataset = ?1 AND person = ?2)",
            dataset,
            person.number,
        )
        assert row is not None
        return row[0], row[1] or 0

    def quotas(self, dataset: str) -> list[tuple[str, int | None, int]]:
        """Every analyst with a valid key: name, limit if there is one, and what was used."""
        return [
            (row[0], row[1], row[2])
            for row in self._all(
                "SELECT p.name, q.units, coalesce(u.units, 0) FROM person p "
                "LEFT JOIN quota q ON q.dataset = ?1 AND q.person = p.number "
                "LEFT JOIN used u ON u.dataset = ?1 AND u.person = p.number "
                "WHERE p.role = ?2 AND p.revoked IS NULL ORDER BY p.number",
                dataset,
                Role.ANALYST.value,
            )
        ]

    # Attempts: what each request was counted with, so that a retry is not counted again

    def attempted(self, attempt: str, person: Person, dataset: str, body: str) -> str | None:
        """Note the body that came first under an attempt; the answer, if it was given one before.

        Raises:
            IdempotencyConflict: another body came before.
        """
        row = self._one("SELECT body, answer FROM attempt WHERE id = ?", attempt)
        if row is None:
            with self._writing() as connection:
                connection.execute(
                    "INSERT OR IGNORE INTO attempt VALUES (?, ?, ?, ?, 0, NULL, ?)",
                    (attempt, person.number, dataset, body, time.time()),
                )
                row = connection.execute(
                    "SELECT body, answer FROM attempt WHERE id = ?", (attempt,)
                ).fetchone()
        assert row is not None
        if row[0] != body:
            raise IdempotencyConflict("the Idempotency-Key was used for another request")
        answer: str | None = row[1]
        return answer

    def reserve(self, attempt: str, person: Person, dataset: str, units: int) -> tuple[bool, int | None]:
        """Count an attempt with units, at least.

        Returns:
            Whether it was counted with nothing before; and what is left of the quota if that does not
            suffice: then nothing is changed.
        """
        with self._writing() as connection:
            row = connection.execute("SELECT units FROM attempt WHERE id = ?", (attempt,)).fetchone()
            held = row[0] if row else 0
            more = max(0, units - held)
            limit = connection.execute(
                "SELECT units FROM quota WHERE dataset = ? AND person = ?", (dataset, person.number)
            ).fetchone()
            used = _used(connection, dataset, person)
            if more and limit and used + more > limit[0]:
                return False, max(0, int(limit[0]) - used)
            if row is None:
                connection.execute(
                    "INSERT INTO attempt VALUES (?, ?, ?, '', 0, NULL, ?)",
                    (attempt, person.number, dataset, time.time()),
                )
            _count(connection, attempt, dataset, person, held, held + more)
        return held == 0, None

    def release(self, attempt: str, person: Person, dataset: str) -> None:
        """Count an attempt with nothing: it was charged nothing."""
        with self._writing() as connection:
            row = connection.execute("SELECT units FROM attempt WHERE id = ?", (attempt,)).fetchone()
            if row:
                _count(connection, attempt, dataset, person, row[0], 0)
                connection.execute("DELETE FROM attempt WHERE id = ? AND body = ''", (attempt,))

    def settle(self, attempt: str, person: Person, one: Asked, answer: str, *, is_first: bool) -> str:
        """Count an attempt with what it was charged, and remember the question, all or nothing.

        Args:
            attempt: which.
            person: whose.
            one: the question and its cost.
            answer: what a retry must be told.
            is_first: whether nothing was counted before this try. Else an earlier try may have been charged,
                of which this one knows nothing, and the larger count stands.

        Returns:
            The answer, or that of another try which was first.
        """
        with self._writing() as connection:
            row = connection.execute("SELECT units, answer FROM attempt WHERE id = ?", (attempt,)).fetchone()
            held, earlier = row if row else (0, None)
            if earlier is not None:
                return str(earlier)
            _count(
                connection,
                attempt,
                one.dataset,
                person,
                held,
                one.cost if is_first or not row else max(held, one.cost),
            )
            connection.execute("UPDATE attempt SET answer = ? WHERE id = ? AND body <> ''", (answer, attempt))
            connection.execute("DELETE FROM attempt WHERE id = ? AND body = ''", (attempt,))
            _insert_notes(connection, [one])
        return answer

    # History

    def note(self, one: Asked) -> None:
        """Remember a question that cost nothing; its number is given later. Many are written together."""
        self._notes.append(one)
        if len(self._notes) >= _MOST_NOTES:
            self.flush()

    def flush(self) -> None:
        """Write the notes that wait."""
        if not self._notes:
            return
        with self._writing() as connection:
            notes = [self._notes.popleft() for _ in range(len(self._notes))]
            _insert_notes(connection, notes)

    def history(self, dataset: str, most: int = 1000) -> list[Asked]:
        """The last questions about a data set, the oldest first."""
        self.flush()
        rows = self._all("SELECT * FROM asked WHERE dataset = ? ORDER BY number DESC LIMIT ?", dataset, most)
        return [Asked(*row) for row in reversed(rows)]

    # Jobs

    def queue(
        self,
        attempt: str,
        person: Person,
        dataset: str,
        idempotency: str | None,
        body: str,
        *,
        made: float,
        is_running: bool,
        most: int,
    ) -> Job | None:
        """A new job, or the one that the attempt has already; None if the person has too many."""
        with self._writing() as connection:
            found = connection.execute(f"{_JOB} attempt = ?", (attempt,)).fetchone()
            if found:
                return Job(*found)
            unfinished = connection.execute(
                "SELECT count(*) FROM job WHERE person = ? AND result IS NULL", (person.number,)
            ).fetchone()
            if unfinished[0] >= most:
                return None
            name = new_secret("job_")
            job = Job(
                name,
                person.number,
                dataset,
                idempotency or name,
                body,
                "running" if is_running else "queued",
                made,
                made,
                None,
            )
            connection.execute(
                "INSERT INTO job (id, attempt, person, dataset, idempotency, body, state, made, beat, shown) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    job.id,
                    attempt,
                    job.person,
                    dataset,
                    job.idempotency,
                    body,
                    job.state,
                    made,
                    time.time(),
                    made,
                ),
            )
        return job

    def claim(self, lapse_s: float) -> Job | None:
        """The oldest job that waits, or whose process was not heard of for so long; it runs here now."""
        now = time.time()
        if self._one(_NEXT_JOB, now - lapse_s) is None:
            return None
        with self._writing() as connection:
            row = connection.execute(
                f"UPDATE job SET state = 'running', beat = ? WHERE number = ({_NEXT_JOB}) RETURNING id",  # noqa: S608
                (now, now - lapse_s),
            ).fetchone()
            found = connection.execute(f"{_JOB} id = ?", row).fetchone() if row else None
        return Job(*found) if found else None

    def beat(self, jobs: Iterable[str]) -> None:
        """Say that these are still worked on."""
        with self._writing() as connection:
            connection.executemany(
                "UPDATE job SET beat = ? WHERE id = ?", [(time.time(), one) for one in jobs]
            )

    def finish(self, job: str, state: str, result: str, shown: float) -> None:
        """Keep the result of a job; the first stands."""
        with self._writing() as connection:
            connection.execute(
                "UPDATE job SET state = ?, result = ?, shown = ? WHERE id = ? AND result IS NULL",
                (state, result, shown, job),
            )

    def job(self, name: str, person: Person) -> Job | None:
        """A job of this person."""
        row = self._one(f"{_JOB} id = ? AND person = ?", name, person.number)
        return Job(*row) if row else None

    def job_counts(self) -> dict[str, int]:
        """How many jobs are in each state."""
        return {
            str(state): int(n) for state, n in self._all("SELECT state, count(*) FROM job GROUP BY state")
        }


def _connected(path: str | os.PathLike[str]) -> sqlite3.Connection:
    return sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=60, cached_statements=64
    )


def _person(row: tuple[Any, ...] | None) -> Person | None:
    return None if row is None else Person(row[0], row[1], Role(row[2]))


def _used(connection: sqlite3.Connection, dataset: str, person: Person) -> int:
    row = connection.execute(
        "SELECT units FROM used WHERE dataset = ? AND person = ?", (dataset, person.number)
    ).fetchone()
    return int(row[0]) if row else 0


def _count(
    connection: sqlite3.Connection, attempt: str, dataset: str, person: Person, before: int, after: int
) -> None:
    """Change what an attempt is counted with, and what its person used in all."""
    if before == after:
        return
    used = _used(connection, dataset, person) + after - before
    connection.execute(
        "INSERT INTO used VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET units = excluded.units",
        (dataset, person.number, max(0, used)),
    )
    connection.execute("UPDATE attempt SET units = ? WHERE id = ?", (after, attempt))


def _insert_notes(connection: sqlite3.Connection, notes: list[Asked]) -> None:
    connection.executemany(
        "INSERT INTO asked (dataset, person, query, cased, cost, without_reuse, spent) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (one.dataset, one.person, one.query, one.case, one.cost, one.without_reuse, one.spent)
            for one in notes
        ],
    )
