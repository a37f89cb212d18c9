"""A ledger in memory, not durable: the reference implementation of the conformance suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from reticent.errors import (
    AccountConflict,
    AlreadyFulfilled,
    BudgetExceeded,
    IdempotencyConflict,
    KeyUsed,
    ParameterError,
    UnknownAccount,
    UnknownMeasurement,
)
from reticent.ledger.base import (
    Balance,
    Grant,
    Ledger,
    Measurement,
    Reading,
    Recorded,
    Terms,
    Worded,
    Wordings,
    increment,
)


@dataclass
class _Key:
    requested: int = 0
    information: int = 0
    sums: tuple[int, ...] = ()
    text: str = ""


@dataclass
class _Account:
    terms: Terms
    spent: int = 0
    keys: dict[str, _Key] = field(default_factory=dict)
    answered: dict[str, tuple[str, str, int, int, int]] = field(default_factory=dict)


class MemoryLedger(Ledger):
    """A ledger of plain dictionaries, for one thread."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._measurements: list[Measurement] = []
        self._wordings = Wordings()

    def _open(self, terms: Terms) -> Balance:
        held = self._accounts.setdefault(terms.name, _Account(terms))
        if held.terms != terms:
            raise AccountConflict(f"account {terms.name} is open with other terms")
        return Balance(held.terms, held.spent)

    def _find(self, account: str) -> _Account:
        if account not in self._accounts:
            raise UnknownAccount(f"account {account} was never opened")
        return self._accounts[account]

    def balance(self, account: str) -> Balance:
        """Return the account's terms and the units spent."""
        held = self._find(account)
        return Balance(held.terms, held.spent)

    def accounts(self) -> list[Balance]:
        """Return every account, by name."""
        return [self.balance(name) for name in sorted(self._accounts)]

    def _request(self, terms: Terms, key: str, information: int, idempotency: str | None) -> Grant:
        held = self._find(terms.name)
        earlier = self._earlier(held, "request", key, information, idempotency)
        return earlier or self._charge(terms, "request", key, information, idempotency)

    def _pay(self, terms: Terms, key: str, units: int, idempotency: str | None) -> Grant:
        held = self._find(terms.name)
        earlier = self._earlier(held, "pay", key, units, idempotency)
        if earlier is not None:
            return earlier
        if key in held.keys:
            raise KeyUsed(f"account {terms.name}: a payment needs a fresh key")
        grant = self._charge(terms, "pay", key, units, idempotency)
        self._fulfil(grant.pending[0].number, ())
        return self._grant(held, key, grant.information, grant.charged)

    def _earlier(
        self, held: _Account, verb: str, key: str, information: int, idempotency: str | None
    ) -> Grant | None:
        """Return the earlier grant under this idempotency key, or None."""
        if idempotency is None or idempotency not in held.answered:
            return None
        *body, bought, charged = held.answered[idempotency]
        if body != [verb, key, information]:
            raise IdempotencyConflict(f"idempotency key {idempotency} was used for another request")
        return self._grant(held, key, bought, charged)

    def _charge(self, terms: Terms, verb: str, key: str, information: int, idempotency: str | None) -> Grant:
        held = self._find(terms.name)
        under = held.keys.get(key, _Key())
        charge = increment(terms, under.requested, information)
        if held.spent + charge > terms.cap:
            raise BudgetExceeded(terms.name, charge, terms.cap - held.spent)
        if key not in held.keys:
            under.text = self._wordings.of(terms.name, key)
        held.keys[key] = under
        held.spent += charge
        under.requested += charge
        if charge:
            number = len(self._measurements)
            self._measurements.append(Measurement(number, terms.name, key, charge, fulfilled=False))
        if idempotency is not None:
            held.answered[idempotency] = (verb, key, information, under.requested, charge)
        return self._grant(held, key, under.requested, charge)

    def _grant(self, held: _Account, key: str, information: int, charged: int) -> Grant:
        name, remaining = held.terms.name, held.terms.cap - held.spent
        return Grant(name, key, information, charged, remaining, tuple(self._pending(name, key)))

    def _fulfil(self, number: int, values: tuple[int, ...]) -> Reading:
        if number >= len(self._measurements):
            raise UnknownMeasurement(f"measurement {number} was never asked for")
        measurement = self._measurements[number]
        if measurement.fulfilled:
            raise AlreadyFulfilled(f"measurement {number} has its values")
        under = self._accounts[measurement.account].keys[measurement.key]
        if under.information and len(values) != len(under.sums):
            raise ParameterError(f"values must be {len(under.sums)} under this key, got {len(values)}")
        sums = under.sums or (0,) * len(values)
        under.sums = tuple(s + measurement.information * v for s, v in zip(sums, values, strict=True))
        under.information += measurement.information
        self._measurements[number] = replace(measurement, fulfilled=True)
        return self.reading(measurement.account, measurement.key)

    def reading(self, account: str, key: str) -> Reading:
        """Return the reading of a key."""
        under = self._find(account).keys.get(key, _Key())
        return Reading(account, key, under.information, under.sums, under.requested - under.information)

    def _declare(self, account: str, key: str, question: str, grid: int, dimension: int) -> None:
        self._wordings.keep(account, key, question)

    def worded(self, account: str, after: int = 0) -> Worded:
        """Return the stored texts of the questions that were paid for."""
        keys = self._find(account).keys
        paid = [one.key for one in self._measurements[after:] if one.account == account]
        return Worded({key: keys[key].text for key in paid if keys[key].text}, len(self._measurements))

    def purchases(self, account: str, keys: Sequence[str]) -> list[Recorded]:
        """Return the readings of several keys."""
        numbers: dict[str, list[int]] = {}
        for one in self._measurements:
            if one.account == account and one.fulfilled:
                numbers.setdefault(one.key, []).append(one.number)
        return [Recorded(self.reading(account, key), tuple(numbers.get(key, ()))) for key in keys]

    def _pending(self, account: str, key: str | None = None) -> list[Measurement]:
        return [
            m
            for m in self._measurements
            if m.account == account and not m.fulfilled and (key is None or m.key == key)
        ]

    def pending(self, account: str) -> list[Measurement]:
        """Return the measurements that are paid for and not recorded."""
        self._find(account)
        return self._pending(account)

    def close(self) -> None:
        """Do nothing: a ledger in memory has nothing to release."""
