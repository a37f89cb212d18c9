"""The ledger of a phone or a vehicle: one small append-only file, charged before a report leaves.

The file is a line that names the format, then records. A record is a head of eight bytes (the body's length
and the first four bytes of SHA-256(tip, length)), the body (JSON text), and the seal, SHA-256(tip, head,
body), where the tip is the seal before, at first SHA-256 of the format line. All state is in memory,
rebuilt on opening. When records outgrow the state, a new file that begins with the state replaces the old.

A request is answered when its record is on the disk. A crash leaves at most one record that nobody was
answered for, whole or not; what is not whole is cut off on opening. Anything else that does not verify
raises LedgerDamaged: an edited, moved or missing record, also in the last one, since it was paid for.

Privacy: a device protects its owner and has no witness. Whoever may write the file can rewrite it whole,
seals included, cut records off its end, put back an old copy or delete it, and so regain spent budget;
nothing in the file can tell. The chain shows damage, and tampering by those who do not redo it. The file
holds keys, amounts and released symbols, never raw data; only its owner may read it (mode 0600).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import FileIO
from typing import Any

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
from reticent.ledger.base import Balance, Grant, Ledger, Measurement, Reading, Terms, Unit, increment
from reticent.ledger.entries import values_of, values_text
from reticent.privacy import MAX_UNITS, Neighbours

try:
    import fcntl
except ImportError:  # no POSIX file locks here
    fcntl = None  # type: ignore[assignment]

MAGIC = b"reticent device ledger 1\n"
COMPACT_BYTES = 1 << 18
_START = hashlib.sha256(MAGIC).digest()
_HEAD, _SEAL = 8, 32
_UNWRITTEN = bytes(8)  # a power loss may leave the end of a lengthened file as zeros; a seal never ends so
_POLL_S = 0.01

Record = list[Any]  # a kind, then texts (whole numbers in decimal) or lists of such


@dataclass
class _Key:
    information: int = 0
    sums: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    waiting: dict[int, int] = field(default_factory=dict)  # number -> information, not recorded yet

    @property
    def requested(self) -> int:
        return self.information + sum(self.waiting.values())

    def dump(self) -> Record:
        waiting = [[str(number), str(amount)] for number, amount in self.waiting.items()]
        return [str(self.information), values_text(self.sums), values_text(self.last), waiting]


@dataclass
class _Account:
    number: int
    terms: Terms
    spent: int = 0
    keys: dict[str, _Key] = field(default_factory=dict)
    answered: dict[str, tuple[str, int, int, int]] = field(default_factory=dict)

    def balance(self) -> Balance:
        return Balance(self.terms, self.spent)

    def grant(self, key: str, information: int, charged: int) -> Grant:
        name, waiting = self.terms.name, self.keys[key].waiting.items()
        pending = [Measurement(number, name, key, amount, fulfilled=False) for number, amount in waiting]
        return Grant(name, key, information, charged, self.terms.cap - self.spent, tuple(pending))

    def reading(self, key: str) -> Reading:
        under = self.keys.get(key, _Key())
        waiting = sum(under.waiting.values())
        return Reading(self.terms.name, key, under.information, under.sums, waiting)

    def dump(self) -> Record:
        keys = [[name, *under.dump()] for name, under in self.keys.items()]
        answered = [[text, key, *map(str, amounts)] for text, (key, *amounts) in self.answered.items()]
        return [_terms_texts(self.terms), keys, answered]


class _State:
    """What the records add up to. `apply` takes each record once, when it is durable.

    Kinds are append-only: "open", "request", "fulfil", and "state" as the first of a compacted file.
    """

    def __init__(self) -> None:
        self.accounts: dict[str, _Account] = {}
        self.by_number: list[_Account] = []
        self.measured = 0  # measurements ever asked for
        self.waiting: dict[int, tuple[_Account, str]] = {}

    def apply(self, record: Record) -> None:
        kinds: dict[str, Callable[..., Any]] = {
            "open": self._open,
            "request": self._request,
            "fulfil": self._fulfil,
            "state": self._load,
        }
        kinds[record[0]](*record[1:])

    def _open(self, name: str, unit: str, neighbours: str, subject: str, cap: str, minimum: str) -> _Account:
        terms = Terms(name, Unit(unit), Neighbours[neighbours], subject, _units(cap), _units(minimum))
        if name in self.accounts:
            raise ValueError("opened twice")
        held = self.accounts[name] = _Account(len(self.by_number), terms)
        self.by_number.append(held)
        return held

    def _request(self, account: str, key: str, charged: str, asked: str = "", idempotency: str = "") -> None:
        held, charge = self.by_number[_units(account)], _units(charged)
        self._charge(held, charge)
        under = held.keys.setdefault(key, _Key())
        if charge:
            under.waiting[self.measured] = charge
            self.waiting[self.measured] = (held, key)
            self.measured += 1
        if idempotency:
            held.answered[idempotency] = (key, _units(asked), under.requested, charge)

    @staticmethod
    def _charge(held: _Account, charge: int) -> None:
        if held.spent + charge > held.terms.cap:
            raise ValueError("beyond the cap")
        held.spent += charge

    def _fulfil(self, number: str, values: str) -> None:
        held, key = self.waiting.pop(_units(number))
        under = held.keys[key]
        information = under.waiting.pop(_units(number))
        under.last = values_of(values)
        before = under.sums if under.information else (0,) * len(under.last)
        under.sums = tuple(s + information * v for s, v in zip(before, under.last, strict=True))
        under.information += information

    def dump(self, tip: bytes) -> Record:
        """Everything as one record, which names the tip that it continues."""
        return ["state", tip.hex(), str(self.measured), [held.dump() for held in self.by_number]]

    def _load(self, tip: str, measured: str, accounts: list[Any]) -> None:
        if self.by_number or len(bytes.fromhex(tip)) != _SEAL:
            raise ValueError("not the first record of a compacted file")
        self.measured = _units(measured)
        for terms, keys, answered in accounts:
            held = self._open(*terms)
            for name, information, sums, last, waiting in keys:
                under = _Key(_units(information), values_of(sums), values_of(last))
                for number, amount in waiting:
                    under.waiting[_units(number)] = _units(amount)
                    self.waiting[_units(number)] = (held, name)
                held.keys[name] = under
                self._charge(held, under.requested)
            for idempotency, key, *amounts in answered:
                asked, bought, charged = map(_units, amounts)
                held.answered[idempotency] = (key, asked, bought, charged)
        self.waiting = dict(sorted(self.waiting.items(), key=lambda item: item[0]))


def _terms_texts(terms: Terms) -> list[str]:
    unit, neighbours = terms.unit.value, terms.neighbours.name
    return [terms.name, unit, neighbours, terms.subject, str(terms.cap), str(terms.minimum)]


def _units(text: str) -> int:
    return whole("number", int(text), low=0, high=MAX_UNITS)


def _head(tip: bytes, length: int) -> bytes:
    """The length, and a check of it: a wrong length must not pass for a torn end."""
    prefix = length.to_bytes(4, "big")
    return prefix + hashlib.sha256(tip + prefix).digest()[: _HEAD - 4]


def _seal(tip: bytes, head: bytes, body: bytes) -> bytes:
    return hashlib.sha256(tip + head + body).digest()


def _framed(tip: bytes, record: Record) -> tuple[bytes, bytes]:
    """The bytes of a record after `tip`, and the new tip."""
    body = json.dumps(record, separators=(",", ":")).encode()
    head = _head(tip, len(body))
    seal = _seal(tip, head, body)
    return head + body + seal, seal


def _records(stored: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """Body, end and seal of every whole record. Stops at a torn end, raises LedgerDamaged at all else."""
    at, tip = len(MAGIC), _START
    while at + _HEAD <= len(stored):
        head = stored[at : at + _HEAD]
        length = int.from_bytes(head[:4], "big")
        if head != _head(tip, length):
            if any(stored[at + _HEAD :]):
                raise LedgerDamaged(f"the ledger is damaged at byte {at}")
            return
        end = at + _HEAD + length + _SEAL
        if end > len(stored):
            return
        body, seal = stored[at + _HEAD : end - _SEAL], stored[end - _SEAL : end]
        if seal != _seal(tip, head, body):
            if end == len(stored) and stored.endswith(_UNWRITTEN):
                return
            raise LedgerDamaged(f"the ledger is damaged at byte {at}")
        yield body, end, seal
        at, tip = end, seal


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
        self._state = _State()
        with _trouble("cannot be opened"):
            self._file = self._acquire(patience)
            try:
                self._replay()
            except BaseException:
                self._file.close()
                raise
        _OPEN.add(self)

    def _acquire(self, patience: float) -> FileIO:
        """Open and lock the file that is at the path once the lock is held."""
        deadline = time.monotonic() + patience
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
            file = FileIO(descriptor, "r+")
            try:
                status = os.fstat(descriptor)
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
        made = stored.startswith(MAGIC)  # or it is new, or torn while it was made
        if not made and (len(stored) > len(MAGIC) or not MAGIC.startswith(stored.rstrip(b"\0"))):
            raise LedgerDamaged(f"{self._path} is no device ledger of this version")
        self._end, self._tip, compacted = len(MAGIC), _START, 0
        for body, end, seal in _records(stored):
            try:
                record = json.loads(body)
                self._state.apply(record)
            except (LookupError, ValueError, TypeError, ArithmeticError, RecursionError):
                raise LedgerDamaged(f"the ledger's record at byte {self._end} makes no sense") from None
            self._end, self._tip = end, seal
            compacted = compacted or (end if record[0] == "state" else 0)
        self._compact_at = max(self._compact_bytes, 2 * compacted)
        self.cut_bytes = len(stored) - (self._end if made else 0)
        os.fchmod(self._file.fileno(), 0o600)
        if self.cut_bytes:
            os.ftruncate(self._file.fileno(), len(stored) - self.cut_bytes)
        # What a killed process wrote may be in the system's memory only: all of it is made durable now.
        _write(self._file, b"" if made else MAGIC, 0)
        _sync_directory(self._path)

    # Writing

    @contextlib.contextmanager
    def _held(self) -> Iterator[_State]:
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
        text, tip = _framed(self._tip, record)
        self._unsure = True  # unless the next lines all come to pass
        with _trouble("could not be written"):
            try:
                _write(self._file, text, self._end)
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
        record, tip = _framed(_START, self._state.dump(self._tip))
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
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fresh = FileIO(os.open(beside, flags, 0o600), "r+")
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
                self._append(["open", *_terms_texts(terms)])
            held = state.accounts[terms.name]
            if held.terms != terms:
                raise AccountConflict(f"account {terms.name} is open with other terms")
            return held.balance()

    def _request(self, terms: Terms, key: str, information: int, idempotency: str | None) -> Grant:
        with self._held():
            held = self._find(terms.name)
            if idempotency in held.answered:
                body_key, body_information, bought, charged = held.answered[idempotency]
                if (body_key, body_information) != (key, information):
                    raise IdempotencyConflict(f"idempotency key {idempotency} was used for another request")
                return held.grant(key, bought, charged)
            charge = increment(terms, held.keys.get(key, _Key()).requested, information)
            if held.spent + charge > terms.cap:
                raise BudgetExceeded(terms.name, charge, terms.cap - held.spent)
            record = ["request", str(held.number), key, str(charge)]
            if idempotency is not None:
                self._append([*record, str(information), idempotency])
            elif charge:
                self._append(record)
            return held.grant(key, held.keys[key].requested, charge)

    def _pay(self, terms: Terms, key: str, units: int, idempotency: str | None) -> Grant:
        """Charge and record with no values; a retry is recognised by its idempotency key."""
        with self._held():
            held = self._find(terms.name)
            fresh = key not in held.keys
            if not fresh and (idempotency is None or idempotency not in held.answered):
                raise KeyUsed(f"account {terms.name}: a payment needs a fresh key")
        grant = self._request(terms, key, units, idempotency)
        if fresh:
            self._fulfil(grant.pending[0].number, ())
        with self._held():
            return held.grant(key, grant.information, grant.charged)

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

    def _find(self, account: str) -> _Account:
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
            under = self._find(account).keys.get(key, _Key())
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

    def __enter__(self) -> DeviceLedger:
        return self


_OPEN: weakref.WeakSet[DeviceLedger] = weakref.WeakSet()


def _let_go() -> None:
    """In a forked child: the parent's lock must not outlive the parent there."""
    for ledger in list(_OPEN):
        ledger._file.close()


if fcntl is not None:
    os.register_at_fork(after_in_child=_let_go)
