"""The bytes of a device's ledger, and the state that they add up to.

No file is touched here; `device` does that. The bytes are a line that names the format, then records. A
record is a head of eight bytes (the body's length and the first four bytes of SHA-256(tip, length)), the body
(JSON text), and the seal, SHA-256(tip, head, body), where the tip is the seal before, at first SHA-256 of the
format line. docs/ledger-format.md has every field, and an example.

A crash leaves at most one record whose request was never answered, whole or not. `records` ends before a
record that is not whole. Anything else that does not verify raises LedgerDamaged: an edited, moved or missing
record, also in the last one, since it was paid for. So does a record that verifies and that no writer makes:
a file must not open with another meaning than the one it was written with.

Evolution: kinds of records are append-only, never removed, never given a new meaning.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from reticent.errors import LedgerDamaged
from reticent.ledger.base import (
    MOST_VALUE,
    MOST_VALUES,
    Balance,
    Grant,
    Measurement,
    Reading,
    Terms,
    Unit,
    _checked_name,
    increment,
)
from reticent.ledger.values import values_of, values_text
from reticent.privacy.budget import MAX_UNITS
from reticent.privacy.neighbours import Neighbours

MAGIC = b"reticent device ledger 1\n"
START = hashlib.sha256(MAGIC).digest()  # the first tip
HEAD, _SEAL = 8, 32  # bytes
_UNWRITTEN = bytes(8)  # a power loss may leave the end of a lengthened file as zeros; a seal never ends so

Record = list[Any]  # a kind, then texts (whole numbers in decimal) or lists of such
Answer = tuple[str, str, int, int, int]  # verb, key, asked, then bought, charged

_NUMBER = re.compile("0|[1-9][0-9]{0,18}", re.ASCII)
_VALUES = re.compile("(?:(?:0|-?[1-9][0-9]*)(?:,(?:0|-?[1-9][0-9]*))*)?", re.ASCII)
_TIP = re.compile("[0-9a-f]{64}", re.ASCII)
# Which characters are printable depends on the Python; that these are not, does not.
LONGEST_NOTE = 1000
_KEY = re.compile(f"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{{1,{LONGEST_NOTE}}}")


def _head(tip: bytes, length: int) -> bytes:
    """Return the length and a check of the length: a wrong length must not pass for a torn end."""
    prefix = length.to_bytes(4, "big")
    return prefix + hashlib.sha256(tip + prefix).digest()[: HEAD - 4]


def _seal(tip: bytes, head: bytes, body: bytes) -> bytes:
    return hashlib.sha256(tip + head + body).digest()


def _encoded(record: Record) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def framed(tip: bytes, record: Record) -> tuple[bytes, bytes]:
    """Return the bytes of a record after `tip`, and the new tip."""
    body = _encoded(record)
    head = _head(tip, len(body))
    seal = _seal(tip, head, body)
    return head + body + seal, seal


def has_passed(stored: bytes, number: int, tip: bytes) -> bool:
    """Return whether a ledger with these bytes had this tip when it had this number of records.

    Records that were compacted away are assumed to match: a "state" record names only the tip that it
    continues.
    """
    at, tips = 0, {START}
    for body, _, seal in records(stored):
        kind, *fields = json.loads(body)
        if kind == "state":
            at, tips = (int(fields[4]) if len(fields) > 4 else 0), {bytes.fromhex(fields[0]), seal}
            if number < at:
                return True
        elif at == number:
            break
        else:
            at, tips = at + 1, {seal}
    return at == number and tip in tips


def is_begun(stored: bytes) -> bool:
    """Return whether these bytes are no ledger yet: empty, or a torn format line that a crash may leave."""
    return len(stored) <= len(MAGIC) and MAGIC.startswith(stored.rstrip(b"\0"))


def records(stored: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """Yield body, end and seal of every whole record.

    Stops at a torn end, raises LedgerDamaged at all else.

    The last record is whole too if zeros stand for a few last bytes of its seal: 25 of them still tell.
    """
    at, tip = len(MAGIC), START
    while at + HEAD <= len(stored):
        head = stored[at : at + HEAD]
        length = int.from_bytes(head[:4], "big")
        if head != _head(tip, length):
            if any(stored[at + HEAD :]):
                raise LedgerDamaged(f"the ledger is damaged at byte {at}")
            return
        end = at + HEAD + length + _SEAL
        if end > len(stored):
            return
        body, seal = stored[at + HEAD : end - _SEAL], stored[end - _SEAL : end]
        due = _seal(tip, head, body)
        if seal != due:
            if end == len(stored) and stored.endswith(_UNWRITTEN):
                return
            if end < len(stored) or not due.startswith(seal.rstrip(b"\0")):
                raise LedgerDamaged(f"the ledger is damaged at byte {at}")
        yield body, end, due
        at, tip = end, due


@dataclass
class Key:
    """The amounts and values bought under one key; `last` are the values recorded last."""

    information: int = 0
    sums: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    waiting: dict[int, int] = field(default_factory=dict)  # number -> information, not recorded yet

    @property
    def requested(self) -> int:
        """The total that was charged under the key, recorded or not."""
        return self.information + sum(self.waiting.values())

    def dump(self) -> Record:
        """Return the key as it stands in a "state" record, after its name."""
        waiting = [[str(number), str(amount)] for number, amount in self.waiting.items()]
        return [str(self.information), values_text(self.sums), values_text(self.last), waiting]


@dataclass
class Account:
    """An account of the ledger; `answered` maps idempotency keys to earlier answers."""

    number: int
    terms: Terms
    spent: int = 0
    keys: dict[str, Key] = field(default_factory=dict)
    answered: dict[str, Answer] = field(default_factory=dict)

    def balance(self) -> Balance:
        """Return the terms of the account and the amount that is spent."""
        return Balance(self.terms, self.spent)

    def grant(self, key: str, information: int, charged: int) -> Grant:
        """Return the answer to a request, with the amounts that are left and pending now."""
        name, waiting = self.terms.name, self.keys[key].waiting.items()
        pending = [Measurement(number, name, key, amount, fulfilled=False) for number, amount in waiting]
        return Grant(name, key, information, charged, self.terms.cap - self.spent, tuple(pending))

    def reading(self, key: str) -> Reading:
        """Return the reading that is recorded under a key."""
        under = self.keys.get(key, Key())
        waiting = sum(under.waiting.values())
        return Reading(self.terms.name, key, under.information, under.sums, waiting)

    def dump(self) -> Record:
        """Return the account as it stands in a "state" record."""
        keys = [[name, *under.dump()] for name, under in self.keys.items()]
        answered = [
            [text, key, *map(str, amounts), *(["pay"] if verb == "pay" else [])]
            for text, (verb, key, *amounts) in self.answered.items()
        ]
        return [terms_texts(self.terms), keys, answered]


class State:
    """The state that the records add up to.

    `apply` takes each record once, when it is durable.

    Kinds are append-only: "open", "request", "pay", "fulfil", "note", and "state" as the first of a compacted
    file. `entries` counts the records that ever were, if there is a note; without one, those since "state".
    """

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.by_number: list[Account] = []
        self.measured = 0  # measurements ever asked for
        self.waiting: dict[int, tuple[Account, str]] = {}
        self.notes: dict[str, str] = {}
        self.entries = 0
        self._empty = True

    def replay(self, body: bytes, at: int) -> str:
        """Apply the record stored at a byte, and return its kind.

        A record that makes no sense is damage.
        """
        try:
            record = json.loads(body)
            _must(_encoded(record) == body)
            self.apply(record)
        except (LookupError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
            raise LedgerDamaged(f"the ledger's record at byte {at} makes no sense") from error
        return str(record[0])

    def apply(self, record: Record) -> None:
        """Apply a record to the state, or raise an error if no writer makes such a record here."""
        kinds: dict[str, Callable[..., Any]] = {
            "open": self._open,
            "request": self._request,
            "pay": self._pay,
            "fulfil": self._fulfil,
            "note": self._note,
            "state": self._load,
        }
        kinds[record[0]](*record[1:])
        self.entries += record[0] != "state"
        self._empty = False

    def _open(self, name: str, unit: str, neighbours: str, subject: str, cap: str, minimum: str) -> Account:
        terms = Terms(name, Unit(unit), Neighbours[neighbours], subject, _units(cap), _units(minimum))
        _must(name not in self.accounts)
        held = self.accounts[name] = Account(len(self.by_number), terms)
        self.by_number.append(held)
        return held

    def _request(self, account: str, key: str, charged: str, *retry: str) -> None:
        self._buy("request", self.by_number[_units(account)], key, _units(charged), retry)

    def _pay(self, account: str, key: str, charged: str, *retry: str) -> None:
        """Apply a request under a fresh key and a record without values as one record.

        Nothing may come between the two.
        """
        held = self.by_number[_units(account)]
        _must(key not in held.keys)
        self._buy("pay", held, key, _units(charged), retry)
        self._record(self.measured - 1, ())

    def _buy(self, verb: str, held: Account, key: str, charge: int, retry: tuple[str, ...]) -> None:
        """Charge an account under a key.

        `retry` holds the fields that a call with an idempotency key adds: asked, idempotency key.
        """
        under = held.keys.get(key, Key())
        _must(_KEY.fullmatch(key) and (charge >= held.terms.minimum or (retry and not charge)))
        if retry:
            asked, idempotency = _units(retry[0]), _checked_name("idempotency", *retry[1:])
            _must(asked > 0 and charge == increment(held.terms, under.requested, asked))
            _must(idempotency not in held.answered)
            held.answered[idempotency] = (verb, key, asked, under.requested + charge, charge)
        self._charge(held, charge)
        held.keys[key] = under
        if charge:
            under.waiting[self.measured] = charge
            self.waiting[self.measured] = (held, key)
            self.measured += 1

    @staticmethod
    def _charge(held: Account, charge: int) -> None:
        _must(held.spent + charge <= held.terms.cap)
        held.spent += charge

    def _fulfil(self, number: str, values: str) -> None:
        self._record(_units(number), _values(values))

    def _record(self, number: int, values: tuple[int, ...]) -> None:
        _must(len(values) <= MOST_VALUES and all(-MOST_VALUE <= one <= MOST_VALUE for one in values))
        held, key = self.waiting.pop(number)
        under = held.keys[key]
        information = under.waiting.pop(number)
        before = under.sums if under.information else (0,) * len(values)
        under.sums = tuple(s + information * v for s, v in zip(before, values, strict=True))
        under.last = values
        under.information += information

    def _note(self, name: str, text: str) -> None:
        """Store a text under a name, in place of an earlier text."""
        _must(_KEY.fullmatch(name) and _KEY.fullmatch(text) and self.notes.get(name) != text)
        self.notes[name] = text

    def dump(self, tip: bytes) -> Record:
        """Return the whole state as one record, which names the tip that it continues."""
        notes = [[[name, text] for name, text in self.notes.items()], str(self.entries)] if self.notes else []
        return ["state", tip.hex(), str(self.measured), [held.dump() for held in self.by_number], *notes]

    def _load(
        self,
        tip: str,
        measured: str,
        accounts: list[Any],
        notes: list[list[str]] | None = None,
        entries: str = "0",
    ) -> None:
        _must(self._empty and _TIP.fullmatch(tip))
        self.measured = _units(measured)
        recorded = 0
        for terms, keys, answered in accounts:
            held = self._open(*terms)
            for name, *under in keys:
                _must(name not in held.keys and _KEY.fullmatch(name))
                held.keys[name] = self._loaded(held, name, *under)
                recorded += held.keys[name].information > 0
            for idempotency, *answer in answered:
                _must(_checked_name("idempotency", idempotency) not in held.answered)
                held.answered[idempotency] = _answer(held, *answer)
        most = sum(held.spent // held.terms.minimum for held in self.by_number)
        _must(recorded + len(self.waiting) <= self.measured <= most)
        self.waiting = dict(sorted(self.waiting.items(), key=lambda item: item[0]))
        self.entries = _units(entries)
        _must(notes is None or (notes and self.entries >= self.measured + len(notes)))
        for name, text in notes or ():
            _must(name not in self.notes)
            self._note(name, text)

    def _loaded(
        self, held: Account, name: str, information: str, sums: str, last: str, waiting: list[list[str]]
    ) -> Key:
        """Build a key of a "state" record.

        It holds the recorded amounts, and each number that waits, under this key only.
        """
        under = Key(_units(information), _values(sums), _values(last))
        for text, amount in waiting:
            number = _units(text)
            _must(number < self.measured and number not in self.waiting)
            _must(number > next(reversed(under.waiting), -1) and _units(amount) >= held.terms.minimum)
            under.waiting[number] = _units(amount)
            self.waiting[number] = (held, name)
        _must(len(under.sums) == len(under.last) <= MOST_VALUES)
        _must(all(-MOST_VALUE <= one <= MOST_VALUE for one in under.last))
        _must(all(abs(total) <= under.information * MOST_VALUE for total in under.sums))
        if under.information:
            _must(under.information >= held.terms.minimum)
        else:
            _must(under.waiting and not under.sums)
        self._charge(held, under.requested)
        return under


def _answer(held: Account, key: str, *given: str) -> Answer:
    """Build an answer of a "state" record: asked, then bought, charged; and "pay" if it was a payment."""
    under, verb = held.keys[key], "pay" if given[3:] == ("pay",) else "request"
    asked, bought, charged = map(_units, given[:3] if verb == "pay" else given)
    _must(
        0 < asked <= bought <= under.requested and charged == increment(held.terms, bought - charged, asked)
    )
    _must(charged == bought or charged <= bought - held.terms.minimum)
    _must(verb == "request" or (bought == charged and under.information and not under.sums))
    return verb, key, asked, bought, charged


def is_note(text: str) -> bool:
    """Return whether a text may be stored as a note or as the name of a note."""
    return _KEY.fullmatch(text) is not None


def terms_texts(terms: Terms) -> list[str]:
    """Return terms as they stand in "open" and "state" records."""
    unit, neighbours = terms.unit.value, terms.neighbours.name
    return [terms.name, unit, neighbours, terms.subject, str(terms.cap), str(terms.minimum)]


def _must(holds: object) -> None:
    if not holds:
        raise ValueError("no writer makes this")


def _units(text: str) -> int:
    _must(_NUMBER.fullmatch(text))
    number = int(text)
    _must(number <= MAX_UNITS)
    return number


def _values(text: str) -> tuple[int, ...]:
    _must(_VALUES.fullmatch(text))
    return values_of(text)
