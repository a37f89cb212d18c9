"""One write transaction of the SQL ledger: the rows read, the decisions, the rows to write.

Several requests share a transaction under load (group commit). Each is decided on the state left by the ones
before it, reads and checks everything first and then changes the batch, so that a refusal leaves no
trace. `flush` writes rows, log entries and head together, in the same transaction.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from reticent.errors import (
    AccountConflict,
    AlreadyFulfilled,
    BudgetExceeded,
    IdempotencyConflict,
    KeyUsed,
    LedgerDamaged,
    LedgerError,
    MeasurementVoid,
    ParameterError,
    UnknownAccount,
    UnknownMeasurement,
)
from reticent.ledger import entries
from reticent.ledger.base import Balance, Grant, Measurement, Reading, Terms, increment, is_question
from reticent.ledger.merkle import leaf_hash
from reticent.ledger.sql.rows import (
    ACCOUNT_COLUMNS,
    BOUGHT_COLUMNS,
    Account,
    Bought,
    Carried,
    _head_seal,
    _request_entry,
    read_head,
)
from reticent.ledger.sql.store import Store

NODE_LEVEL = 8  # perfect subtrees are stored from this level on
Answer = tuple[str, str, int, int, int]  # verb, key, asked, then bought, charged

_UNREAD: Any = object()  # marks a row not read yet; None means that there is no row
_TOGETHER = 256  # keys looked up in one query
_MOST_CARRIED = 1000  # accounts

_SET_HEAD = (
    "UPDATE head SET size = ?, accounts = ?, keys = ?, measurements = ?, frontier = ?, seal = ? WHERE id = 1"
)
ACCOUNT = f"SELECT {ACCOUNT_COLUMNS}, seal FROM account WHERE name = ?"  # noqa: S608
BOTH = (  # an account and what is bought under a key, by one statement, so that both are of one moment
    f"SELECT a.{f'{ACCOUNT_COLUMNS}, seal'.replace(', ', ', a.')}, b.{BOUGHT_COLUMNS.replace(', ', ', b.')} "  # noqa: S608
    "FROM account a LEFT JOIN bought b ON b.account = a.id AND b.name = ? WHERE a.name = ?"
)
_ADD_ACCOUNT = f"INSERT INTO account ({ACCOUNT_COLUMNS}, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_SET_ACCOUNT = "UPDATE account SET spent = ?, seal = ? WHERE id = ?"
_BOUGHT = f"SELECT {BOUGHT_COLUMNS} FROM bought WHERE account = ? AND name = ?"  # noqa: S608
_ADD_BOUGHT = f"INSERT INTO bought ({BOUGHT_COLUMNS}) VALUES (?, ?, ?, ?, 0, '', ?, ?, ?)"  # noqa: S608
_SET_BOUGHT = "UPDATE bought SET requested = ?, information = ?, sums = ?, waiting = ?, seal = ? WHERE id = ?"
_ADD_MEASUREMENT = "INSERT INTO measurement (number, bought, information) VALUES (?, ?, ?)"
_SET_MEASUREMENT = "UPDATE measurement SET recorded = ?, nonce = ? WHERE number = ?"
_ANSWERED = (
    "SELECT verb, name, asked, information, charged FROM answered WHERE account = ? AND idempotency = ?"
)
_ADD_ANSWERED = (
    "INSERT INTO answered (account, idempotency, verb, name, asked, information, charged, entry, nonce) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_NUMBERS = "SELECT numbers FROM question WHERE bought = ?"
_ADD_QUESTION = "INSERT INTO question (bought, wording, numbers) VALUES (?, ?, '')"
_SET_QUESTION = "UPDATE question SET numbers = ? WHERE bought = ?"
_ADD_ENTRY = "INSERT INTO entry (number, leaf) VALUES (?, ?)"
_ADD_NODE = "INSERT INTO node (level, number, hash) VALUES (?, ?, ?)"


class Batch:
    """A write transaction of the SQL ledger, with the rows that it read and will write.

    Args:
        store: Store in a write transaction.
        carried: State of an earlier transaction, used instead of reading it again if it is still valid.
        alone: True if the batch will get a single `request`, so that a plain charge is written at once.
    """

    def __init__(self, store: Store, carried: Carried | None = None, *, alone: bool = False) -> None:
        self._store = store
        self._alone = alone
        self._stamp = store.stamp()
        made: Sequence[int]
        if carried is not None and carried.holds_at(self._stamp):
            made, self._frontier, self._accounts = carried.made, carried.frontier, carried.accounts
        else:
            _, *made, self._frontier = read_head(store, store.locking)
            self._accounts = {}
        self.first = self._frontier.size
        self._accounts_made, self._keys_made, self._measurements_made = made
        self._changed: dict[int, Account] = {}
        self._bought: dict[tuple[int, str], Bought | None] = {}
        self._altered: dict[int, Bought] = {}
        self._measured: dict[int, tuple[str, Bought]] = {}
        self._asked: list[tuple[int, int, int]] = []  # number, key and information of a measurement
        self._recorded: list[tuple[str, bytes, int]] = []  # values, nonce, number
        self._earlier: dict[tuple[int, str], Answer | None] = {}
        self._answered: list[tuple[int, str, str, str, int, int, int, int, bytes]] = []
        self._worded: dict[int, str] = {}  # fresh key -> text of its question
        self._numbers: dict[int, str] = {}  # key with a text -> its recorded measurements
        self._leaves: list[str] = []
        self._secrets, self._used = b"", 0

    @property
    def size(self) -> int:
        """Number of entries in the log after this batch."""
        return self.first + len(self._leaves)

    @property
    def changes(self) -> int:
        """Counter that grows with everything written: no row changes without an entry."""
        return len(self._leaves) + self._measurements_made

    def log(self, kind: str, **fields: str | int) -> None:
        """Append an entry to the log."""
        self._leaves.append(entries.encode(kind, **fields))

    def _nonce(self) -> bytes:
        """Return a fresh nonce; a batch of many requests draws many at once."""
        start = self._used
        if start == len(self._secrets):
            wanted = min(len(self._bought), _TOGETHER) or 1
            self._secrets, start = os.urandom(wanted * entries.NONCE_BYTES), 0
        self._used = start + entries.NONCE_BYTES
        return self._secrets[start : self._used]

    # Reading stored rows

    def prefetch(self, wanted: Sequence[tuple[str, str, str | None]]) -> None:
        """Read the rows for many requests (account, key, idempotency key) in few queries."""
        keys: defaultdict[int, set[str]] = defaultdict(set)
        retries: defaultdict[int, set[str]] = defaultdict(set)
        for name, key, idempotency in wanted:
            held = self._accounts.get(name) or self._account(name)
            if held is not None:
                keys[held.id].add(key)
                if idempotency is not None:
                    retries[held.id].add(idempotency)
        for account, names in keys.items():
            self._bought.update(dict.fromkeys([(account, name) for name in names]))
            for row in self._chosen(f"SELECT {BOUGHT_COLUMNS} FROM bought", "name", account, names):  # noqa: S608
                self._bought[account, row[2]] = Bought.of(row)
        for account, texts in retries.items():
            self._earlier.update(dict.fromkeys([(account, text) for text in texts]))
            select = "SELECT idempotency, verb, name, asked, information, charged FROM answered"
            for row in self._chosen(select, "idempotency", account, texts):
                self._earlier[account, row[0]] = row[1:]

    def _chosen(
        self, select: str, column: str, account: int, names: Iterable[str]
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of an account whose `column` is among `names`."""
        listed = sorted(names)
        for start in range(0, len(listed), _TOGETHER):
            part = listed[start : start + _TOGETHER]
            places = 1 << (len(part) - 1).bit_length()  # few distinct statements, so that they stay prepared
            part += part[-1:] * (places - len(part))
            marks = ", ".join("?" * places)
            yield from self._store.all(
                f"{select} WHERE account = ? AND {column} IN ({marks})", (account, *part)
            )

    def _account(self, name: str) -> Account | None:
        held = self._accounts.get(name)
        if held is None:
            row = self._store.one(ACCOUNT, (name,))
            if row is None:
                return None
            held = self._accounts[name] = Account.of(row)
        return held

    def known(self, name: str) -> Account:
        """Return an open account, or raise UnknownAccount."""
        held = self._accounts.get(name) or self._account(name)
        if held is None:
            raise UnknownAccount(f"account {name} was never opened")
        return held

    def _under(self, account: int, key: str) -> Bought | None:
        place = (account, key)
        under: Bought | None = self._bought.get(place, _UNREAD)
        if under is _UNREAD:
            row = self._store.one(_BOUGHT, place)
            under = self._bought[place] = Bought.of(row) if row else None
        return under

    def requested(self, account: int, key: str) -> int:
        """Return the information bought under a key of an account, which is given by its number."""
        under = self._under(account, key)
        return under.requested if under is not None else 0

    def is_answered(self, account: int, idempotency: str) -> bool:
        """Return whether an earlier call used this idempotency key."""
        return self._store.one(_ANSWERED, (account, idempotency)) is not None

    def _both(self, name: str, key: str) -> Account:
        """Return the account, after reading it and the row of the key in one statement."""
        row = self._store.one(BOTH, (key, name))
        if row is None:
            raise UnknownAccount(f"account {name} was never opened")
        held = self._accounts[name] = Account.of(row[:10])
        self._bought[held.id, key] = Bought.of(row[10:]) if row[10] is not None else None
        return held

    def _repeated(
        self, held: Account, verb: str, key: str, information: int, idempotency: str | None
    ) -> tuple[int, int] | None:
        """Return information and charge of the same call under this idempotency key, or None."""
        if idempotency is None:
            return None
        place = (held.id, idempotency)
        if place not in self._earlier:
            row = self._store.one(_ANSWERED, place)
            self._earlier[place] = (row[0], row[1], row[2], row[3], row[4]) if row else None
        earlier = self._earlier[place]
        if earlier is None:
            return None
        if earlier[:3] != (verb, key, information):
            raise IdempotencyConflict(f"idempotency key {idempotency} was used for another request")
        return earlier[3:]

    # Changing accounts

    def open(self, terms: Terms) -> Balance:
        """Open an account, or return it if it is open with these terms."""
        held = self._account(terms.name)
        if held is None:
            held = Account(self._accounts_made, terms, 0, self._nonce(), new=True)
            self._accounts[terms.name] = self._changed[held.id] = held
            self._accounts_made += 1
            self.log(
                "open",
                account=held.id,
                cap=terms.cap,
                commitment=entries.commitment(held.nonce, terms.name, terms.subject),
                minimum=terms.minimum,
                neighbours=terms.neighbours.name,
                unit=terms.unit.value,
            )
        if held.terms != terms:
            raise AccountConflict(f"account {terms.name} is open with other terms")
        return Balance(held.terms, held.spent)

    def request(
        self,
        terms: Terms,
        key: str,
        information: int,
        idempotency: str | None,
        text: str = "",
        *,
        verb: str = "request",
    ) -> Grant:
        """Charge a request, or raise before anything changes. An idempotency key serves one verb.

        `text` is the question that the key is named after, and is kept if the key is new.
        """
        held = self._accounts.get(terms.name) or self._both(terms.name, key)
        if idempotency is not None:
            repeated = self._repeated(held, verb, key, information, idempotency)
            if repeated is not None:
                return self._again(held, key, *repeated)
        under = self._under(held.id, key)
        requested = under.requested if under is not None else 0
        charge = increment(held.terms, requested, information)
        if held.spent + charge > held.terms.cap:
            raise BudgetExceeded(terms.name, charge, held.terms.cap - held.spent)
        if charge and under is None and idempotency is None and self._alone:
            return self._charge_alone(held, key, charge, text)
        if charge:
            under = self._charge(held, under, key, charge, text)
        if idempotency is not None:
            self.answer(held.id, idempotency, (verb, key, information, requested + charge, charge))
        return self._grant(held, under, key, requested + charge, charge)

    def pay(self, terms: Terms, key: str, units: int, idempotency: str | None) -> Grant:
        """Charge under a fresh key and record it without values, or raise before anything changes."""
        held = self.known(terms.name)
        repeated = self._repeated(held, "pay", key, units, idempotency)
        under = self._under(held.id, key)
        if repeated is None:
            if under is not None:
                raise KeyUsed(f"account {terms.name}: a payment needs a fresh key")
            self.request(terms, key, units, idempotency, verb="pay")
            under = self._under(held.id, key)
            assert under is not None
            repeated = (under.requested, under.requested)
            (number,) = under.waiting
            self.fulfil(number, ())
        return self._grant(held, under, key, *repeated)

    def _charge(self, held: Account, under: Bought | None, key: str, charge: int, text: str = "") -> Bought:
        if under is None:
            under = Bought(self._keys_made, held.id, key, self._nonce())
            self._bought[held.id, key] = under
            self._keys_made += 1
            if text:
                self._worded[under.id] = text
        number = self._measurements_made
        self._measurements_made = number + 1
        held.spent += charge
        under.requested += charge
        under.waiting[number] = charge
        self._changed[held.id], self._altered[under.id] = held, under
        self._measured[number] = (held.terms.name, under)
        self._asked.append((number, under.id, charge))
        self._leaves.append(_request_entry(under, number, charge))
        return under

    def _charge_alone(self, held: Account, key: str, charge: int, text: str) -> Grant:
        """Do the work of `_charge` under a fresh key, `flush` and `_grant`, as a transaction's only work."""
        under = Bought(self._keys_made, held.id, key, self._nonce())
        number = self._measurements_made
        self._keys_made, self._measurements_made = under.id + 1, number + 1
        held.spent += charge
        waiting = f"{number}:{charge}"
        leaf = _request_entry(under, number, charge)
        nodes = self._frontier.extend((leaf_hash(leaf.encode()),), NODE_LEVEL)
        bought = (under.id, held.id, key, charge, waiting, under.nonce, under.seal(charge, waiting))
        self._store.send(
            (
                (_SET_ACCOUNT, ((held.spent, held.seal(), held.id),)),
                (_ADD_BOUGHT, (bought,)),
                (_ADD_MEASUREMENT, ((number, under.id, charge),)),
                *(((_ADD_QUESTION, ((under.id, text),)),) if text else ()),
                (_ADD_ENTRY, ((self.first, leaf),)),
                (_ADD_NODE, nodes),
                (_SET_HEAD, (self._head_row(),)),
            )
        )
        terms = held.terms
        pending = (Measurement(number, terms.name, key, charge, False),)
        return Grant(terms.name, key, charge, charge, terms.cap - held.spent, pending)

    def answer(self, account: int, idempotency: str, answer: Answer) -> None:
        """Store an answer for later calls with the same idempotency key."""
        nonce, entry = self._nonce(), self.size
        self._earlier[account, idempotency] = answer
        self._answered.append((account, idempotency, *answer, entry, nonce))
        secret = entries.commitment(nonce, *entries.answer_parts(idempotency, *answer))
        self.log("answer", account=account, commitment=secret)

    def _again(self, held: Account, key: str, information: int, charged: int) -> Grant:
        """Return the grant of a repeated call, or raise MeasurementVoid if a recovery closed its purchase."""
        under = self._under(held.id, key)
        if under is not None and under.requested < information:
            raise MeasurementVoid(
                "what this call had bought was closed in a recovery: ask anew, with another idempotency key"
            )
        return self._grant(held, under, key, information, charged)

    def _grant(self, held: Account, under: Bought | None, key: str, information: int, charged: int) -> Grant:
        terms = held.terms
        pending = under.pending(terms.name) if under is not None and under.waiting else ()
        return Grant(terms.name, key, information, charged, terms.cap - held.spent, pending)

    def fulfil(self, number: int, values: tuple[int, ...]) -> Reading:
        """Record the values of a measurement, or raise before anything changes."""
        account, under = self._measurement(number)
        if number in under.void:
            raise MeasurementVoid(f"measurement {number} was closed in a recovery: it counts as released")
        if number not in under.waiting:
            raise AlreadyFulfilled(f"measurement {number} has its values")
        sums = entries.values_of(under.sums)
        if under.information and len(values) != len(sums):
            raise ParameterError(f"values must be {len(sums)} under this key, got {len(values)}")
        text, nonce = entries.values_text(values), self._nonce()
        information = under.waiting.pop(number)
        pairs = zip(sums or (0,) * len(values), values, strict=True)
        under.sums = entries.values_text([total + information * value for total, value in pairs])
        under.information += information
        self._altered[under.id] = under
        self._recorded.append((text, nonce, number))
        if is_question(under.name):
            self._number(under.id, number)
        self.log("fulfil", commitment=entries.commitment(nonce, text), measurement=number)
        return under.reading(account)

    def _number(self, key: int, number: int) -> None:
        """Add a recorded measurement to the question of its key, if the text is stored."""
        held = self._numbers.get(key)
        if held is None:
            row = ("",) if key in self._worded else self._store.one(_NUMBERS, (key,))
            if row is None:
                return
            held = str(row[0])
        self._numbers[key] = f"{held},{number}" if held else str(number)

    def _measurement(self, number: int) -> tuple[str, Bought]:
        if number in self._measured:
            return self._measured[number]
        row = self._store.one(
            "SELECT a.name, a.id, b.name FROM measurement m JOIN bought b ON b.id = m.bought "
            "JOIN account a ON a.id = b.account WHERE m.number = ?",
            (number,),
        )
        if row is None:
            raise UnknownMeasurement(f"measurement {number} was never asked for")
        under = self._under(row[1], row[2])
        if under is None:
            raise LedgerDamaged(f"the row of measurement {number} is damaged")
        return row[0], under

    def open_lost(self, number: int, terms: Terms) -> None:
        """Open an account under a number that a witness saw; it must be the next one."""
        if number != self._accounts_made or self._account(terms.name) is not None:
            raise LedgerError(f"account {number} cannot be opened under its number: somebody else is writing")
        self.open(terms)

    def close_pending(self, head: str, account: int | None = None) -> None:
        """Close every measurement without values, of all accounts or one.

        The values may have been released since `head` was lost; or the account moves to another ledger.
        """
        for row in self._store.all(f"SELECT {BOUGHT_COLUMNS} FROM bought WHERE waiting <> ''"):  # noqa: S608
            if (row[1], row[2]) not in self._bought:
                self._bought[row[1], row[2]] = Bought.of(row)
        keys = [under for under in self._bought.values() if under is not None]
        keys = [under for under in keys if account is None or under.account == account]
        waiting = {number: under for under in keys for number in under.waiting}
        for number in sorted(waiting):
            under = waiting[number]
            under.close(number)
            self._altered[under.id] = under
            self.log("void", head=head, measurement=number)

    def charge_witnessed(self, name: str, spent: int, head: str) -> None:
        """Raise an account's spending to the total that a witness remembers, in a "recover" entry."""
        held = self.known(name)
        if spent > held.spent:
            held.spent = min(spent, held.terms.cap)
            self._changed[held.id] = held
        self.log("recover", account=held.id, head=head, spent=held.spent)

    # Writing

    def flush(self) -> None:
        """Write everything that changed; `_charge_alone` writes the same rows."""
        if not self._leaves:
            return
        opened, charged, bought, altered = [], [], [], []
        for a in self._changed.values():
            if a.new:
                a.new = False
                opened.append(a.row())
            else:
                charged.append((a.spent, a.seal(), a.id))
        for b in self._altered.values():
            paid, waiting, seal = b.sealed()
            if b.new:  # inserted without sums, which costs less; recorded sums are updated afterwards
                bought.append((b.id, b.account, b.name, paid, waiting, b.nonce, seal))
            if b.information or not b.new:
                altered.append((paid, b.information, b.sums, waiting, seal, b.id))
        nodes = self._frontier.extend([leaf_hash(leaf.encode()) for leaf in self._leaves], NODE_LEVEL)
        self._store.send(
            (
                (_ADD_ACCOUNT, opened),
                (_SET_ACCOUNT, charged),
                (_ADD_BOUGHT, bought),
                (_SET_BOUGHT, altered),
                (_ADD_MEASUREMENT, self._asked),
                (_SET_MEASUREMENT, self._recorded),
                (_ADD_ANSWERED, self._answered),
                (_ADD_QUESTION, list(self._worded.items())),
                (_SET_QUESTION, [(numbers, key) for key, numbers in self._numbers.items()]),
                (_ADD_ENTRY, list(enumerate(self._leaves, self.first))),
                (_ADD_NODE, nodes),
                (_SET_HEAD, (self._head_row(),)),
            )
        )

    def _head_row(self) -> tuple[int, int, int, int, bytes, int]:
        size, edge = self._frontier.size, b"".join(self._frontier.hashes)
        accounts, keys, measurements = self._accounts_made, self._keys_made, self._measurements_made
        seal = _head_seal(size, accounts, keys, measurements, edge)
        return size, accounts, keys, measurements, edge, seal

    def carried(self) -> Carried | None:
        """Return the state that the next transaction may use, once this one is committed."""
        if self._stamp is None:
            return None
        accounts = self._accounts if len(self._accounts) <= _MOST_CARRIED else {}
        made = (self._accounts_made, self._keys_made, self._measurements_made)
        return Carried(self._stamp, made, self._frontier, accounts)
