"""The ledger of a phone or a vehicle: one small append-only file, charged before a report leaves.

The file is a chain of records, whose bytes and meaning are in `device_records`. All state is in memory,
rebuilt on opening. When records outgrow the state, a new file that begins with the state replaces the old.

A request is answered when its record is on the disk. What a crash left of a record that nobody was answered
for is cut off on opening; a file that does not verify is refused and left as it is.

Privacy: a device protects its owner and has no witness. Whoever may write the file can rewrite it whole,
seals included, cut records off its end, put back an old copy or delete it, and so regain spent budget;
nothing in the file can tell. The chain shows damage, and tampering by those who do not redo it. The file
holds keys, amounts and released symbols, never raw data; only its owner may read it (mode 0600).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import threading
import time
import weakref
from collections.abc import Iterator
from io import FileIO
from typing import Any, Self

from reticent.arguments import real, whole
from reticent.errors import (
    AccountConflict,
    AlreadyFulfilled,
    BudgetExceeded,
    IdempotencyConflict,
    KeyUsed,
    LedgerDamaged,
    LedgerError,
    ParameterError,
    ParameterTypeError,
    UnknownAccount,
    UnknownMeasurement,
)
from reticent.ledger.base import Balance, Grant, Ledger, Measurement, Reading, Terms, increment
from reticent.ledger.device_records import (
    HEAD,
    MAGIC,
    START,
    Account,
    Key,
    Record,
    State,
    framed,
    is_begun,
    records,
    terms_texts,
)
from reticent.ledger.values import values_text

try:
    import fcntl
except ImportError:  # no POSIX file locks here
    fcntl = None  # type: ignore[assignment]

COMPACT_BYTES = 1 << 18
_POLL_S = 0.01
_PAGE = 4096  # what a power loss keeps or loses as a whole, or a multiple of it


def _checked_path(given: Any) -> str:
    try:
        text = os.fsdecode(os.fsencode(given))
    except (TypeError, UnicodeError):
        raise ParameterTypeError(f"path must be the path of a file, got {type(given).__name__}") from None
    if not text or "\0" in text:
        raise ParameterError("path must be the path of a file, got an empty one or one with a NUL")
    return text


def _sync(descriptor: int) -> None:
    """Onto the disk itself, past its cache where the system has a call for that (macOS, iOS)."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full)


def _sync_directory(path: str) -> None:
    descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)  # noqa: PTH120
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(file: FileIO, text: bytes, at: int) -> None:
    """Write all of it and make it durable."""
    done = 0
    while done < len(text):
        done += os.pwrite(file.fileno(), text[done:], at + done)
    _sync(file.fileno())


def _in_order(text: bytes, at: int) -> Iterator[tuple[bytes, int]]:
    """The parts of a record to make durable one after the other, each with its place.

    A power loss may keep a later page of one write and lose an earlier one. So the head is durable before
    the pages after it, and all of them before the last: while a page can be missing, the record is seen to
    end too early. A record within one page is one part.
    """
    end = at + len(text)
    first, headed, last = (place + -place % _PAGE for place in (at, at + HEAD, end - _PAGE))
    places = [at, *sorted({cut for cut in (first, headed, last) if at < cut <= last}), end]
    for place, until in itertools.pairwise(places):
        yield text[place - at : until - at], place


def _lock(file: FileIO) -> bool:
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _trouble(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LedgerError(f"the ledger {what}: {error.strerror or error}") from error


class DeviceLedger(Ledger):
    """A durable ledger in one file, for one process at a time (threads may share it).

    Call `fulfil` before the values leave the device: a measurement that is pending after a crash is drawn
    again, and two draws must not both be seen when one was paid for. What is recorded is sent again as it is.

    Args:
        path: the file; a new ledger is made where there is none.
        timeout_s: how long to wait while another process has it open.
        compact_bytes: below this size the file is never compacted.

    Attributes:
        cut_bytes: bytes of an unfinished record that opening removed.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, timeout_s: float = 0.0, compact_bytes: int = COMPACT_BYTES
    ) -> None:
        text = _checked_path(path)
        patience = real("timeout_s", timeout_s, low=0)
        self._compact_bytes = whole("compact_bytes", compact_bytes, low=0)
        if fcntl is None:
            raise LedgerError("a device ledger needs POSIX file locks, which this system lacks")
        self._path = os.path.realpath(text)  # compaction replaces the file, never a link to it
        self._guard = threading.Lock()
        self._process = os.getpid()
        self._unsure = False  # whether disk and memory may differ
        self._state = State()
        with _trouble("cannot be opened"):
            self._file = self._acquire(patience)
            try:
                self._replay()
            except BaseException:
                self._file.close()
                raise

    def _acquire(self, patience: float) -> FileIO:
        """Open and lock the file that is at the path once the lock is held."""
        deadline = time.monotonic() + patience
        while True:
            file = _opened(self._path, os.O_CREAT | os.O_NONBLOCK)
            try:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise LedgerError(f"{self._path} is not a plain file")
                if _lock(file) and self._is_at_path(status):
                    return file
            except BaseException:
                file.close()
                raise
            file.close()
            if time.monotonic() >= deadline:
                raise LedgerError(f"the ledger {self._path} is in use")
            time.sleep(_POLL_S)

    def _is_at_path(self, status: os.stat_result) -> bool:
        """Whether the path still leads to this file: compaction elsewhere may have replaced it."""
        try:
            return os.path.samestat(status, os.stat(self._path))  # noqa: PTH116
        except FileNotFoundError:
            return False

    def _replay(self) -> None:
        """Rebuild the state; cut a torn end. Nothing is changed in a file that does not verify."""
        stored = self._file.readall()
        made = stored.startswith(MAGIC)
        if not made and not is_begun(stored):
            raise LedgerDamaged(f"{self._path} is no device ledger of this version")
        self._end, self._tip, compacted = len(MAGIC), START, 0
        for body, end, seal in records(stored):
            kind = self._state.replay(body, self._end)
            self._end, self._tip = end, seal
            compacted = compacted or (end if kind == "state" else 0)
        self._compact_at = max(self._compact_bytes, 2 * compacted)
        self.cut_bytes = len(stored) - (self._end if made else 0)
        os.fchmod(self._file.fileno(), 0o600)
        if self.cut_bytes:
            os.ftruncate(self._file.fileno(), len(stored) - self.cut_bytes)
        if self._end > len(MAGIC) and stored[self._end - len(self._tip) : self._end] != self._tip:
            _write(self._file, self._tip, self._end - len(self._tip))  # its last bytes were lost
        # What a killed process wrote may be in the system's memory only: all of it is made durable now.
        _write(self._file, b"" if made else MAGIC, 0)
        _sync_directory(self._path)

    # Writing

    @contextlib.contextmanager
    def _held(self) -> Iterator[State]:
        if os.getpid() != self._process:
            raise LedgerError("a ledger is not carried over a fork: open it again in the child")
        with self._guard:
            if self._file.closed:
                raise LedgerError("the ledger is closed")
            if self._unsure:
                raise LedgerError("the ledger was interrupted while writing: open it again")
            yield self._state

    def _append(self, record: Record) -> None:
        """Make a checked record durable, then let it count; or leave file and state as they were."""
        text, tip = framed(self._tip, record)
        self._unsure = True  # unless the next lines all come to pass
        with _trouble("could not be written"):
            try:
                for part, place in _in_order(text, self._end):
                    _write(self._file, part, place)
            except OSError:
                os.ftruncate(self._file.fileno(), self._end)
                self._unsure = False
                raise
        self._state.apply(record)
        self._end, self._tip = self._end + len(text), tip
        self._unsure = False
        if self._end > self._compact_at:
            self._compact()

    def _compact(self) -> None:
        """Replace the file by one that begins with the state, if it can be done: nothing depends on it.

        The new file is durable and locked before it gets the name. If the directory cannot be made durable
        after that, the old file might come back, so nothing more is written until the ledger is opened again.
        """
        record, tip = framed(START, self._state.dump(self._tip))
        if 4 * (len(MAGIC) + len(record)) > 3 * self._end:  # little to gain yet
            self._compact_at = 2 * self._end
            return
        self._unsure = True
        try:
            fresh = self._prepared(MAGIC + record)
        except OSError:
            self._compact_at, self._unsure = 2 * self._end, False
            return
        old, self._file = self._file, fresh
        old.close()
        self._end, self._tip = len(MAGIC) + len(record), tip
        self._compact_at = max(self._compact_bytes, 2 * self._end)
        with contextlib.suppress(OSError):
            _sync_directory(self._path)
            self._unsure = False

    def _prepared(self, text: bytes) -> FileIO:
        """A new locked file with this content, at the ledger's path."""
        beside = f"{self._path}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)  # left by a crash  # noqa: PTH108
        fresh = _opened(beside, os.O_CREAT | os.O_EXCL)
        try:
            if not _lock(fresh):
                raise BlockingIOError(f"{beside} is in use")
            _write(fresh, text, 0)
            os.replace(beside, self._path)  # noqa: PTH105
        except BaseException:
            fresh.close()
            with contextlib.suppress(OSError):
                os.unlink(beside)  # noqa: PTH108
            raise
        return fresh

    def _open(self, terms: Terms) -> Balance:
        with self._held() as state:
            if terms.name not in state.accounts:
                self._append(["open", *terms_texts(terms)])
            held = state.accounts[terms.name]
            if held.terms != terms:
                raise AccountConflict(f"account {terms.name} is open with other terms")
            return held.balance()

    def _request(self, terms: Terms, key: str, information: int, idempotency: str | None) -> Grant:
        with self._held():
            held = self._find(terms.name)
            earlier = self._earlier(held, "request", key, information, idempotency)
            return earlier or self._charge(held, "request", key, information, idempotency)

    def _pay(self, terms: Terms, key: str, units: int, idempotency: str | None) -> Grant:
        """Charge and record with no values, by one record; a retry is recognised by its idempotency key."""
        with self._held():
            held = self._find(terms.name)
            earlier = self._earlier(held, "pay", key, units, idempotency)
            if earlier is None and key in held.keys:
                raise KeyUsed(f"account {terms.name}: a payment needs a fresh key")
            return earlier or self._charge(held, "pay", key, units, idempotency)

    @staticmethod
    def _earlier(
        held: Account, verb: str, key: str, information: int, idempotency: str | None
    ) -> Grant | None:
        """The answer that was given before under this idempotency key."""
        if idempotency is None or idempotency not in held.answered:
            return None
        *body, bought, charged = held.answered[idempotency]
        if body != [verb, key, information]:
            raise IdempotencyConflict(f"idempotency key {idempotency} was used for another request")
        return held.grant(key, bought, charged)

    def _charge(self, held: Account, verb: str, key: str, information: int, idempotency: str | None) -> Grant:
        terms = held.terms
        charge = increment(terms, held.keys.get(key, Key()).requested, information)
        if held.spent + charge > terms.cap:
            raise BudgetExceeded(terms.name, charge, terms.cap - held.spent)
        record = [verb, str(held.number), key, str(charge)]
        if idempotency is not None:
            self._append([*record, str(information), idempotency])
        elif charge:
            self._append(record)
        return held.grant(key, held.keys[key].requested, charge)

    def _fulfil(self, number: int, values: tuple[int, ...]) -> Reading:
        with self._held() as state:
            if number >= state.measured:
                raise UnknownMeasurement(f"measurement {number} was never asked for")
            if number not in state.waiting:
                raise AlreadyFulfilled(f"measurement {number} has its values")
            held, key = state.waiting[number]
            under = held.keys[key]
            if under.information and len(values) != len(under.sums):
                raise ParameterError(f"values must be {len(under.sums)} under this key, got {len(values)}")
            self._append(["fulfil", str(number), values_text(values)])
            return held.reading(key)

    # Reading

    def _find(self, account: str) -> Account:
        if account not in self._state.accounts:
            raise UnknownAccount(f"account {account} was never opened")
        return self._state.accounts[account]

    def balance(self, account: str) -> Balance:
        """The account's terms and what is spent."""
        with self._held():
            return self._find(account).balance()

    def accounts(self) -> list[Balance]:
        """Every account, by name."""
        with self._held() as state:
            return [held.balance() for _, held in sorted(state.accounts.items())]

    def reading(self, account: str, key: str) -> Reading:
        """What is recorded under a key."""
        with self._held():
            return self._find(account).reading(key)

    def recorded(self, account: str, key: str) -> tuple[int, ...] | None:
        """The values recorded last under a key, to be sent again as they are; None if there are none.

        Reference: MATH.md 7.2, memoisation per (survey, attribute, period).
        """
        with self._held():
            under = self._find(account).keys.get(key, Key())
            return under.last if under.information else None

    def pending(self, account: str) -> list[Measurement]:
        """Measurements that are paid for and not recorded."""
        with self._held() as state:
            held = self._find(account)
            return [
                Measurement(number, account, key, owner.keys[key].waiting[number], fulfilled=False)
                for number, (owner, key) in state.waiting.items()
                if owner is held
            ]

    def close(self) -> None:
        """Give the file up; everything answered is durable already."""
        if os.getpid() == self._process:  # in a child the file is closed and the guard may stay held
            with self._guard:
                self._file.close()


class Budgeted:
    """Whoever spends a lifetime budget of its own: one account in a ledger, given up together.

    Args:
        path: of the ledger; made if there is none.
        terms: of the account; those of an existing one must be the same.
    """

    def __init__(self, path: str | os.PathLike[str], terms: Terms) -> None:
        self.ledger = DeviceLedger(path)
        try:
            self.ledger.open(terms)
        except BaseException:
            self.ledger.close()
            raise

    def close(self) -> None:
        """Give the ledger up."""
        self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# A lock belongs to whoever holds the open file, and a forked child holds the parent's files: it must close
# them, or the lock outlives the parent there. No fork comes between the opening of a file and its entry here.
_FILES: weakref.WeakSet[FileIO] = weakref.WeakSet()
_FORKING = threading.RLock()


def _opened(path: str, flags: int) -> FileIO:
    """A file, readable and writable by its owner, that forked children close."""
    with _FORKING:
        file = FileIO(os.open(path, flags | os.O_RDWR | os.O_CLOEXEC, 0o600), "r+")
        _FILES.add(file)
    return file


def _before_fork() -> None:
    _FORKING.acquire()


def _after_fork() -> None:
    _FORKING.release()


def _let_go() -> None:
    """In a forked child."""
    for file in list(_FILES):
        file.close()
    _FORKING.release()


if fcntl is not None:
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_let_go)
