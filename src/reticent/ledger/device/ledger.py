"""The ledger of a phone or a vehicle: one small append-only file, charged before a report leaves.

The file is a chain of records, whose bytes and meaning are in `records`; every call that changes it is in
`disk`. All state is in memory, rebuilt on opening. When records outgrow the state, a new file that begins
with the state replaces the old.

A request is answered when its record is on the disk. If a crash left part of a record whose request was never
answered, this part is cut off on opening; a file that does not verify is refused and left as it is.

The file has one name, and keeps it: links are refused, and so is every call once the file is deleted, moved,
linked to or replaced by another.

Privacy: a device protects its owner and has no witness. Anybody who may write the file can rewrite it whole,
seals included, cut records off its end, put back an old copy or delete it, and so regain spent budget;
nothing in the file shows it. Marks (`marks`) exist for this case: a ledger that is older than the last report
that left is refused. The chain shows damage, and tampering by those who do not redo it. The file holds keys,
amounts and released symbols, never raw data; only its owner may read it (mode 0600).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from io import FileIO

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
    RolledBack,
    UnknownAccount,
    UnknownMeasurement,
)
from reticent.ledger.base import Balance, Grant, Ledger, Measurement, Reading, Terms, increment
from reticent.ledger.device import disk
from reticent.ledger.device.marks import NOTE, Mark, Marks
from reticent.ledger.device.records import (
    LONGEST_NOTE,
    MAGIC,
    START,
    Account,
    Key,
    Record,
    State,
    framed,
    has_passed,
    is_begun,
    is_note,
    records,
    terms_texts,
)
from reticent.ledger.values import values_text

COMPACT_BYTES = 1 << 18
_MARK_S = 1.0  # a process that was killed gives up its ledger a moment before its mark


class DeviceLedger(Ledger):
    """A durable ledger in one file, for one process at a time (threads may share it).

    Call `fulfil` before the values leave the device: a measurement that is pending after a crash is drawn
    again, and two draws must not both be seen when one was paid for. Recorded values are sent again
    unchanged.

    Args:
        path: Path of the file, which must not be a link. A new ledger is created where there is none.
        marks: Store of the ledger's mark, which reveals an older copy; None for ledgers from which nothing
            leaves.
        owner: Owner whose only ledger this is, as `owner_of` names owners; None if the ledger has no owner.
        timeout_s: Seconds to wait while another process has the ledger open.
        compact_bytes: Size of the file below which it is never compacted.

    Attributes:
        cut_bytes: Bytes of an unfinished record that opening removed.

    Raises:
        RolledBack: The mark of the ledger, or of its owner, belongs to another ledger or to a later state of
            this one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        marks: Marks | None = None,
        owner: str | None = None,
        timeout_s: float = 0.0,
        compact_bytes: int = COMPACT_BYTES,
    ) -> None:
        self._path = disk.checked_path(path)
        patience = real("timeout_s", timeout_s, low=0)
        self._compact_bytes = whole("compact_bytes", compact_bytes, low=0)
        disk.check_locks()
        self._guard = threading.Lock()
        self._process = os.getpid()
        self._unsure = False  # whether disk and memory may differ
        self._state = State()
        self._mark: Mark | None = None
        self._claim: tuple[Marks, str] | None = None  # whose ledger this is once something leaves
        self._left = 0  # of so many records is the last one by which something may leave
        with disk.trouble("cannot be opened"):
            self._file = disk.acquired(self._path, patience)
            try:
                stored = self._replay()
                if marks is not None:
                    self._bind(marks, owner, stored, max(patience, _MARK_S))
            except BaseException:
                self._give_up()
                raise

    def _check_place(self) -> None:
        """Refuse if the file was deleted, moved, replaced or linked to while it was open."""
        with disk.trouble("cannot be looked at"):
            status = os.fstat(self._file.fileno())
            if not disk.is_at(self._path, status):
                raise LedgerError(
                    f"the ledger {self._path} was deleted, moved or replaced while open: nothing is drawn"
                )
        if status.st_nlink > 1:
            raise LedgerError(disk.many_names(self._path, status))
        self._check_mark()

    def _check_mark(self) -> None:
        """Refuse if the mark's file was deleted, moved or replaced while it was open.

        The next process to open the ledger would not find there what this process writes into the mark.
        """
        if self._mark is None or self._mark.file.closed:
            return
        with disk.trouble("cannot be marked"):
            try:
                there = os.stat(self._mark.place, follow_symlinks=False)  # noqa: PTH116
                is_there = os.path.samestat(os.fstat(self._mark.file.fileno()), there)
            except (FileNotFoundError, NotADirectoryError):
                is_there = False
        if not is_there:
            raise LedgerError(
                f"the mark of the ledger {self._path} was deleted, moved or replaced while open: "
                "nothing is drawn"
            )

    def _replay(self) -> bytes:
        """Rebuild the state from the file, cut a torn end, and return the bytes that were read.

        A file that does not verify is not changed.
        """
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
            disk.shorten(self._file, len(stored) - self.cut_bytes)
        if self._end > len(MAGIC) and stored[self._end - len(self._tip) : self._end] != self._tip:
            disk.write(self._file, self._tip, self._end - len(self._tip))  # its last bytes were lost
        # What a killed process wrote may be in the system's memory only: all of it is made durable now.
        disk.write(self._file, b"" if made else MAGIC, 0)
        disk.sync_directory(self._path)
        return stored

    # Marks

    def _bind(self, marks: Marks, owner: str | None, stored: bytes, patience: float) -> None:
        """Find this ledger's mark or create its first one; refuse a ledger that lacks a report that left."""
        marks.prepare()
        identity = self._state.notes.get(NOTE)
        self._check_owner(marks, owner, identity)
        if identity is None:
            identity = os.urandom(16).hex()
            self._mark = self._open_mark(marks, identity, os.O_CREAT | os.O_EXCL, patience)
            self._put_mark(marks)  # durable before the ledger names it: a name without a mark is refused
            self._append(["note", NOTE, identity])
        else:
            is_made = marks.moved or marks.kept(identity)
            self._mark = self._open_mark(marks, identity, os.O_CREAT if is_made else 0, patience)
            if not self._mark.read():
                if not marks.moved:
                    raise self._markless(marks)
                self._put_mark(marks)
            elif not self._has_passed(self._mark, stored):
                raise RolledBack(
                    f"the ledger {self._path} was restored from an older copy: it has {self._state.entries} "
                    f"records, and had {self._mark.number} when a report last left; nothing is drawn by it"
                )
            self._left = self._state.entries
        if owner is not None and marks.owner(owner) is None:
            self._claim = (marks, owner)
            if self._state.measured:
                self._own()

    def _own(self) -> None:
        """Make this the only ledger of its owner, once something leaves by it."""
        if self._claim is None or self._mark is None:
            return
        marks, owner = self._claim
        with contextlib.closing(disk.opened(marks.at("lock"), os.O_CREAT)) as turn:
            disk.wait_for(turn, _MARK_S, f"the folder of marks {marks} is in use")
            self._check_owner(marks, owner, self._mark.identity)
            marks.give(owner, self._mark.identity)
            disk.sync_directory(marks.place(self._mark.identity))
        self._claim = None

    def _has_passed(self, mark: Mark, stored: bytes) -> bool:
        if (mark.number, mark.tip) == (self._state.entries, self._tip):
            return True  # as it mostly is
        return has_passed(stored, mark.number, mark.tip)

    def _check_owner(self, marks: Marks, owner: str | None, identity: str | None) -> None:
        known = None if owner is None else marks.owner(owner)
        if known is not None and known != identity:
            raise RolledBack(
                f"the ledger {self._path} is not the one that this enrolment has reported from, which was "
                "deleted, replaced, or restored from an older copy: nothing is drawn by another"
            )

    def _open_mark(self, marks: Marks, identity: str, flags: int, patience: float) -> Mark:
        """Open and lock the file of the mark, so that only one of two copies of a ledger can be open."""
        try:
            file = disk.opened(marks.place(identity), flags)
        except FileNotFoundError as error:
            raise self._markless(marks) from error
        mark = Mark(marks, identity, file, disk.write)
        try:
            disk.wait_for(file, patience, f"a copy of the ledger {self._path} is in use")
            if not os.path.samestat(os.fstat(file.fileno()), os.stat(mark.place, follow_symlinks=False)):  # noqa: PTH116
                raise LedgerError(f"the mark of the ledger {self._path} is a link, or was replaced just now")
        except BaseException:
            file.close()
            raise
        return mark

    def _put_mark(self, marks: Marks) -> None:
        assert self._mark is not None
        self._mark.write(self._state.entries, self._tip)
        disk.sync_directory(marks.place(self._mark.identity))

    def _markless(self, marks: Marks) -> RolledBack:
        return RolledBack(
            f"the ledger {self._path} has no mark in {marks}: it is a copy from another machine, or "
            "the mark was deleted. If it is the newest one, say so with Marks(moved=True)"
        )

    def _keep_mark(self) -> None:
        """Write the mark, before anything leaves or is sent again."""
        if self._mark is not None and self._mark.number < self._left:
            with disk.trouble("could not be marked"):
                self._own()
                self._mark.write(self._state.entries, self._tip)
            self._check_mark()

    def _give_up(self) -> None:
        if self._mark is not None:
            self._mark.file.close()  # first: the next process to lock the ledger finds the mark free
        self._file.close()

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
            self._check_place()
            self._keep_mark()
            yield self._state

    def _append(self, record: Record) -> None:
        """Make a checked record durable and then apply it, or leave file and state as they were."""
        text, tip = framed(self._tip, record)
        self._unsure = True  # unless the next lines all come to pass
        with disk.trouble("could not be written"):
            try:
                for part, place in disk.in_order(text, self._end):
                    disk.write(self._file, part, place)
            except OSError:
                disk.shorten(self._file, self._end)
                self._unsure = False
                raise
        self._state.apply(record)
        self._end, self._tip = self._end + len(text), tip
        self._unsure = False
        if record[0] not in ("open", "request") and record[:2] != ["note", NOTE]:  # these let nothing leave
            self._left = self._state.entries
            self._check_place()
            self._keep_mark()
        if self._end > self._compact_at:
            self._compact()

    def _compact(self) -> None:
        """Replace the file by one that begins with the state, if possible: nothing depends on success.

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
            disk.sync_directory(self._path)
            self._unsure = False

    def _prepared(self, text: bytes) -> FileIO:
        """Replace the file at the ledger's path by a new locked file with this content."""
        return disk.replacement(self._path, text)

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
        """Charge and record a payment without values in one record.

        A retry is recognised by its idempotency key.
        """
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
        """Return the answer given earlier under this idempotency key, or None."""
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

    def keep(self, name: str, text: str) -> None:
        """Store a text under a name, in place of an earlier text.

        Raises:
            ParameterError: The name or the text is empty, has more than 1,000 characters or a character that
                is not printable, or the name is the ledger's own; nothing is written.
        """
        with self._held() as state:
            if name == NOTE:
                raise ParameterError(f"name must not be {NOTE}, which is the ledger's own")
            for field, given in (("name", name), ("text", text)):
                if not is_note(given):
                    raise ParameterError(f"{field} must be 1 to {LONGEST_NOTE} printable characters")
            if state.notes.get(name) != text:
                self._append(["note", name, text])

    # Reading

    def kept(self, name: str) -> str | None:
        """Return the text that is stored under a name, or None."""
        with self._held() as state:
            return state.notes.get(name)

    def _find(self, account: str) -> Account:
        if account not in self._state.accounts:
            raise UnknownAccount(f"account {account} was never opened")
        return self._state.accounts[account]

    def balance(self, account: str) -> Balance:
        """Return the terms of the account and the amount that is spent."""
        with self._held():
            return self._find(account).balance()

    def accounts(self) -> list[Balance]:
        """Return the balance of every account, sorted by name."""
        with self._held() as state:
            return [held.balance() for _, held in sorted(state.accounts.items())]

    def reading(self, account: str, key: str) -> Reading:
        """Return the reading that is recorded under a key of the account."""
        with self._held():
            return self._find(account).reading(key)

    def recorded(self, account: str, key: str) -> tuple[int, ...] | None:
        """Return the values recorded last under a key, to be sent again unchanged; None if there are none.

        Reference: mathematics 4.2, memoisation per (survey, attribute, period).
        """
        with self._held():
            under = self._find(account).keys.get(key, Key())
            return under.last if under.information else None

    def requested(self, account: str) -> dict[str, int]:
        """Return the units charged to an account under each key, recorded or not."""
        with self._held():
            return {key: under.requested for key, under in self._find(account).keys.items()}

    def pending(self, account: str) -> list[Measurement]:
        """Return the measurements of an account that are paid for and not recorded."""
        with self._held() as state:
            held = self._find(account)
            return [
                Measurement(number, account, key, owner.keys[key].waiting[number], fulfilled=False)
                for number, (owner, key) in state.waiting.items()
                if owner is held
            ]

    def close(self) -> None:
        """Close the file; everything that was answered is durable already."""
        if os.getpid() == self._process:  # in a child the file is closed and the guard may stay held
            with self._guard:
                self._give_up()
