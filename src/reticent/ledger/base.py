"""The interface of a ledger, its value types, and the checks that every back end shares.

An account is an additive meter with a cap, in one unit. `request` charges for information about a key
before anything is measured, or refuses and changes nothing; `fulfil` records the measured values, once.
Information that is already requested under a key is never charged again: a request for information t when
b is bought costs max(0, t - b).

Stored entry types are append-only: they are never removed and never change their meaning. A back end that
leaves out an abstract method cannot be imported; the conformance suite runs on all back ends.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, NamedTuple, Self

import numpy as np

from reticent.arguments import whole
from reticent.errors import (
    IdempotencyConflict,
    LedgerDamaged,
    LedgerError,
    MixedGuarantees,
    ParameterError,
    ParameterTypeError,
)
from reticent.privacy.budget import MAX_UNITS, cost_units, mu2_cost
from reticent.privacy.neighbours import Neighbours

MOST_VALUES = 1 << 16  # values of one measurement
MOST_VALUE = (1 << 62) - 1  # size of one value in grid units
FURTHEST_GRID = (1 << 15) - 1  # log2 of the grid units in one unit, or of the units in one grid unit
PAYMENT = "payment:"  # prefix of the keys of payments
LONGEST_TEXT = 1 << 16  # characters of a question that is stored beside its key
_NAMED = re.compile(r"[a-z_]{1,40}/[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,119}")


class Unit(Enum):
    """The unit in which an account adds up charges."""

    MU2 = "mu2"  # Gaussian differential privacy: mu_i-GDP releases compose to sum mu_i^2
    EPSILON = "epsilon"  # pure or local: sequential composition
    EPSILON_PER_KM = "epsilon_per_km"  # metric privacy on a map: sequential composition
    METRIC_DELTA = "metric_delta"  # the delta of approximate metric privacy, which adds up too
    MONEY = "money"  # whole cents: a unit of such an account is one cent, not 1e-12


@dataclass(frozen=True)
class Terms:
    """The terms of an account, which are fixed when it is opened.

    Args:
        name: Name of the account.
        unit: Unit in which charges add up.
        neighbours: Neighbouring relation of every release charged to it.
        subject: Privacy unit that the account protects, as text ("one person of census-2026").
        cap: Units of 1e-12 that may be spent in all; cents, where the unit is money.
        minimum: Smallest charge of a fresh measurement, so that nearly free scans cannot
            average anything away.
    """

    name: str
    unit: Unit
    neighbours: Neighbours
    subject: str
    cap: int
    minimum: int = 1

    def __post_init__(self) -> None:
        _checked_name("name", self.name)
        if not isinstance(self.unit, Unit):
            raise ParameterTypeError(f"unit must be a Unit, got {self.unit!r}")
        if not isinstance(self.neighbours, Neighbours):
            raise ParameterTypeError(f"neighbours must be a Neighbours, got {self.neighbours!r}")
        _check_kinds(self.unit, self.neighbours)
        if (
            not isinstance(self.subject, str)
            or not 0 < len(self.subject) <= 200
            or not self.subject.isprintable()
        ):
            raise ParameterError("subject must be a printable text of 1 to 200 characters")
        object.__setattr__(self, "cap", whole("cap", self.cap, low=1, high=MAX_UNITS))
        object.__setattr__(self, "minimum", whole("minimum", self.minimum, low=1, high=self.cap))


@dataclass(frozen=True)
class Amount:
    """Information in the unit, and under the neighbours, of an account."""

    units: int
    unit: Unit
    neighbours: Neighbours

    def __post_init__(self) -> None:
        if type(self.units) is not int or not 0 < self.units <= MAX_UNITS:
            units = whole("information", self.units, low=1, high=MAX_UNITS)
            object.__setattr__(self, "units", units)  # a plain int: numpy's would wrap around
        if not isinstance(self.unit, Unit):
            raise ParameterTypeError(f"unit must be a Unit, got {_shown(self.unit)}")
        if not isinstance(self.neighbours, Neighbours):
            raise ParameterTypeError(f"neighbours must be a Neighbours, got {_shown(self.neighbours)}")
        _check_kinds(self.unit, self.neighbours)


def money(cents: int) -> Amount:
    """Return an amount of money, in cents."""
    return Amount(cents, Unit.MONEY, Neighbours.NONE)


def _check_kinds(unit: Unit, neighbours: Neighbours) -> None:
    """Refuse money with neighbours, and anything else without: neither is ever added to the other."""
    if (unit is Unit.MONEY) != (neighbours is Neighbours.NONE):
        raise MixedGuarantees(
            f"neighbours must be NONE for money, and for nothing else, got {neighbours.name} for {unit.value}"
        )


@dataclass(frozen=True)
class Order:
    """One request among several that share a commit. See `Ledger.request`."""

    account: str
    key: str
    information: Amount
    idempotency: str | None = None


# Grants and measurements are made by the thousand in one commit: the `__init__` of a frozen dataclass sets
# each field through a call; these do not.


@dataclass(frozen=True, init=False)
class Measurement:
    """One fresh measurement that was paid for: `number` names it in `fulfil`."""

    number: int
    account: str
    key: str
    information: int
    fulfilled: bool

    def __init__(self, number: int, account: str, key: str, information: int, fulfilled: bool) -> None:
        held = self.__dict__
        held["number"], held["account"], held["key"] = number, account, key
        held["information"], held["fulfilled"] = information, fulfilled


@dataclass(frozen=True, init=False)
class Grant:
    """The answer to a request.

    `information` is the total now bought under the key, `charged` the part that this request added. `pending`
    lists every measurement under the key that is paid for and not recorded: any holder of the data may
    make it; only the first record counts.
    """

    account: str
    key: str
    information: int
    charged: int
    remaining: int
    pending: tuple[Measurement, ...]

    def __init__(
        self,
        account: str,
        key: str,
        information: int,
        charged: int,
        remaining: int,
        pending: tuple[Measurement, ...],
    ) -> None:
        held = self.__dict__
        held["account"], held["key"], held["information"] = account, key, information
        held["charged"], held["remaining"], held["pending"] = charged, remaining, pending


@dataclass(frozen=True)
class Reading:
    """The measurements recorded under a key, as exact sums that are divided on reading.

    Attributes:
        information: Sum of the information of the recorded measurements.
        sums: Sum of information * value, for each value of the vector.
        pending: Information paid for and not recorded yet.
    """

    account: str
    key: str
    information: int
    sums: tuple[int, ...]
    pending: int

    def estimate(self) -> tuple[Fraction, ...]:
        """Return the precision-weighted mean of all measurements, exactly; empty if there are none."""
        return tuple(Fraction(total, self.information) for total in self.sums) if self.information else ()

    def nearest(self) -> list[float]:
        """Return `estimate` as doubles, each rounded once, as `float` of a fraction is."""
        return [total / self.information for total in self.sums] if self.information else []


class Worded(NamedTuple):
    """The texts of questions that were paid for.

    Attributes:
        texts: Texts by key. If a key does not end with the SHA-256 of its text, do not trust the text.
        number: Number of measurements that were paid for, over all accounts.
    """

    texts: dict[str, str]
    number: int


class Recorded(NamedTuple):
    """The reading of a key, and the numbers of the measurements that it sums up."""

    reading: Reading
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Balance:
    """An account and what is spent of it. Invariant: spent + remaining == cap."""

    terms: Terms
    spent: int

    @property
    def remaining(self) -> int:
        """Units that can still be spent."""
        return self.terms.cap - self.spent


class Ledger(ABC):
    """A set of accounts with caps that cannot be exceeded unnoticed.

    Attributes:
        measured_by_oracle: True if an oracle holds the data, and records the measurements paid for here.
        charges_values: True if the minimum is charged for each value that a key is declared with.
    """

    measured_by_oracle: bool = False
    charges_values: bool = False

    def __init_subclass__(cls, *, is_part: bool = False, **given: Any) -> None:
        """Refuse a back end that leaves an abstract method out, unless it is declared as a part of one."""
        super().__init_subclass__(**given)
        due = sorted(Ledger.__abstractmethods__)
        missing = [name for name in due if getattr(getattr(cls, name), "__isabstractmethod__", False)]
        if missing and not is_part:
            raise TypeError(f"{cls.__name__} must have {', '.join(missing)}")

    def open(self, terms: Terms) -> Balance:
        """Open an account, or return it if it is open with exactly these terms."""
        if not isinstance(terms, Terms):
            raise ParameterTypeError(f"terms must be Terms, got {type(terms).__name__}")
        return self._open(terms)

    def request(
        self, account: str, key: str, information: Amount, *, idempotency: str | None = None
    ) -> Grant:
        """Charge max(0, information - already requested under the key), or refuse and write nothing.

        Args:
            account: Name of the account.
            key: Name of the question; information bought under it is reused for ever.
            information: Total that must be bought under the key, in the account's unit.
            idempotency: Idempotency key. A repeated call with the same key and arguments is answered as the
                first was (with the present `remaining` and `pending`) and charges nothing; with other
                arguments, or after a payment with this key, it is refused.

        Raises:
            BudgetExceeded: the cap would be passed.
        """
        terms = self._checked_request(account, key, information, idempotency)
        return self._request(terms, key, information.units, idempotency)

    def request_many(self, orders: Sequence[Order]) -> list[Grant | LedgerError]:
        """Decide each order in turn, as `request` would, with as few commits as the back end can.

        Every order is checked before any is decided; a refused order does not stop the following ones.

        Returns:
            The grant of each order, or the error that `request` would have raised.
        """
        checked: list[tuple[Terms, Order] | LedgerError] = []
        for order in orders:
            if not isinstance(order, Order):
                raise ParameterTypeError(f"orders must be Order, got {type(order).__name__}")
            try:
                terms = self._checked_request(order.account, order.key, order.information, order.idempotency)
            except LedgerDamaged:
                raise
            except LedgerError as refusal:  # no such account
                checked.append(refusal)
            else:
                checked.append((terms, order))
        answers = iter(self._request_many([pair for pair in checked if isinstance(pair, tuple)]))
        return [next(answers) if isinstance(pair, tuple) else pair for pair in checked]

    def _checked_request(
        self, account: str, key: str, information: Amount, idempotency: str | None, *, pays: bool = False
    ) -> Terms:
        _checked_name("account", account)
        if not pays:
            _asked_key(key)
        if not isinstance(information, Amount):
            raise ParameterTypeError(f"information must be an Amount, got {type(information).__name__}")
        if idempotency is not None:
            _checked_name("idempotency", idempotency)
        terms = self._terms(account)
        if information.unit is not terms.unit or information.neighbours is not terms.neighbours:
            raise MixedGuarantees(
                f"account {account} is in {terms.unit.value} ({terms.neighbours.name}), "
                f"got {information.unit.value} ({information.neighbours.name})"
            )
        return terms

    def declare(self, account: str, key: str, *, question: str, grid: int, dimension: int) -> None:
        """Declare the question that a key stands for, before it is requested.

        A ledger beside the data stores the text with the first charge under the key, if the key is named
        after it (`is_named_after`), so that others can tell what was bought: see `worded`. An oracle that
        measures for somebody else knows the question by this text alone.

        Args:
            account: Name of the account that pays.
            key: Name of the question in `request`.
            question: Text of the question, as the party that measures reads it.
            grid: Logarithm of the grid: 2^grid units of a value are one unit of the measured quantity.
            dimension: Number of values in the answer.

        Raises:
            ParameterError: an argument breaks its rule, or the ledger cannot hold the text.
        """
        _checked_name("account", account)
        _asked_key(key)
        if not isinstance(question, str):
            raise ParameterTypeError(f"question must be a text, got {type(question).__name__}")
        if not question:
            raise ParameterError("question must not be empty")
        grid = whole("grid", grid, low=-FURTHEST_GRID, high=FURTHEST_GRID)
        dimension = whole("dimension", dimension, low=1, high=MOST_VALUES)
        self._declare(account, key, question, grid, dimension)

    def fulfil(self, number: int, values: Sequence[int]) -> Reading:
        """Record the values of a measurement, in grid units, once and for ever.

        Raises:
            AlreadyFulfilled: its values are recorded; the first values stay.
            UnknownMeasurement: this ledger never requested the measurement.
        """
        number = whole("number", number, low=0, high=MAX_UNITS)
        if isinstance(values, (str, bytes)) or not isinstance(values, (Sequence, np.ndarray)):
            raise ParameterTypeError(f"values must be a list of whole numbers, got {type(values).__name__}")
        if len(values) > MOST_VALUES:
            raise ParameterError(f"values must be at most {MOST_VALUES}, got {len(values)}")
        checked = tuple(
            value
            if type(value) is int and -MOST_VALUE <= value <= MOST_VALUE
            else whole(f"values[{i}]", value, low=-MOST_VALUE, high=MOST_VALUE)
            for i, value in enumerate(values)
        )
        return self._fulfil(number, checked)

    def pay(self, account: str, event: Any, *, key: str, idempotency: str | None = None) -> Grant:
        """Charge a release made outside Reticent, given as a dp-accounting event (Gaussian or pure).

        The release is charged in full and recorded as measured, with no values, under the fresh name `key`: a
        purchase made here never covers a release made elsewhere. Payments have keys of their own, "payment:"
        and the name, under which nothing can be requested: so an analyst cannot take a payment's name before
        it is paid. A repeated call with the same idempotency key charges nothing; an idempotency key that a
        request used is refused.

        Raises:
            KeyUsed: something was paid under the name before.
        """
        _checked_name("account", account)
        terms = self._terms(account)
        from reticent.privacy.composition import from_event  # devices need none of it
        from reticent.privacy.guarantees import PureDP

        guarantee = from_event(event, neighbours=terms.neighbours)
        if terms.unit is Unit.MU2:
            units = mu2_cost(guarantee)
        elif terms.unit is Unit.EPSILON and isinstance(guarantee, PureDP):
            units = cost_units(guarantee.epsilon)
        else:
            raise MixedGuarantees(f"account {account} is in {terms.unit.value}, got {guarantee.describe()}")
        return self.charge(account, key, Amount(units, terms.unit, terms.neighbours), idempotency=idempotency)

    def charge(self, account: str, key: str, information: Amount, *, idempotency: str | None = None) -> Grant:
        """Charge information under a fresh name, and record it as measured, with no values; see `pay`.

        Raises:
            KeyUsed: something was paid under the name before.
        """
        paid = payment_key(key)
        terms = self._checked_request(account, paid, information, idempotency, pays=True)
        try:
            return self._pay(terms, paid, information.units, idempotency)
        except IdempotencyConflict:
            if self.measured_by_oracle:
                raise
            # Earlier releases paid under the name alone: a repeated call is answered as it was then. As the
            # idempotency key is used already, this charges nothing, for whatever it was used.
            return self._pay(terms, key, information.units, idempotency)

    def _request_many(self, orders: list[tuple[Terms, Order]]) -> list[Grant | LedgerError]:
        """Decide checked orders in turn. Back ends that can share a commit override this."""
        return decided(orders, self._request)

    def _terms(self, account: str) -> Terms:
        return self.balance(account).terms

    @abstractmethod
    def balance(self, account: str) -> Balance:
        """Return the account's terms and what is spent. Raises UnknownAccount."""

    @abstractmethod
    def accounts(self) -> list[Balance]:
        """Return every account."""

    @abstractmethod
    def reading(self, account: str, key: str) -> Reading:
        """Return the reading of a key; empty if nothing was ever requested under it."""

    def worded(self, account: str, after: int = 0) -> Worded:
        """Return the stored texts of the questions that were paid for.

        A text may be forged: check `is_named_after` before use, as `verify` does. A ledger that stores no
        texts returns none.

        Args:
            account: Name of the account.
            after: Number of the first measurement to look at; 0 returns all texts.
        """
        return Worded({}, 0)

    def purchases(self, account: str, keys: Sequence[str]) -> list[Recorded]:
        """Return the readings of several keys whose texts are stored, in one consistent view."""
        return [Recorded(self.reading(account, key), ()) for key in keys]

    @abstractmethod
    def pending(self, account: str) -> list[Measurement]:
        """Return the measurements that are paid for and not recorded."""

    @abstractmethod
    def _open(self, terms: Terms) -> Balance: ...

    def _declare(self, account: str, key: str, question: str, grid: int, dimension: int) -> None:
        """Keep a checked question until it is paid for."""
        return

    @abstractmethod
    def _request(self, terms: Terms, key: str, information: int, idempotency: str | None) -> Grant: ...

    @abstractmethod
    def _pay(self, terms: Terms, key: str, units: int, idempotency: str | None) -> Grant:
        """Charge and record without values, in one atomic step."""

    @abstractmethod
    def _fulfil(self, number: int, values: tuple[int, ...]) -> Reading: ...

    @abstractmethod
    def close(self) -> None:
        """Release files and connections; recorded entries are durable already."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def decided(
    orders: Sequence[tuple[Terms, Order]], request: Callable[[Terms, str, int, str | None], Grant]
) -> list[Grant | LedgerError]:
    """Decide orders in turn and return the grant or refusal of each; raise if the ledger is damaged."""
    answers: list[Grant | LedgerError] = []
    for terms, order in orders:
        try:
            answers.append(request(terms, order.key, order.information.units, order.idempotency))
        except LedgerDamaged:
            raise
        except LedgerError as refusal:
            answers.append(refusal)
    return answers


def increment(terms: Terms, requested: int, information: int, values: int = 1) -> int:
    """Return the charge of a request, given the information already requested under its key.

    This is the only pricing rule. `values` is the number of values that the key was declared with, where each
    must be paid for to be recorded: on a chain.
    """
    missing = information - requested
    if missing <= 0:
        return 0
    least = terms.minimum * values
    return missing if missing > least else least


def is_question(key: str) -> bool:
    """Return whether a key has the form of a key that is named after a text: a prefix and a SHA-256."""
    return _NAMED.fullmatch(key) is not None


def is_named_after(key: str, text: str) -> bool:
    """Return whether a key ends with the SHA-256 of a text, so that the text is what was paid for."""
    return is_question(key) and key[-64:] == hashlib.sha256(text.encode(errors="replace")).hexdigest()


class Wordings:
    """A cache of recently declared texts, for several threads. Losing a text does no harm."""

    _MOST = 512

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], str] = {}

    def keep(self, account: str, key: str, text: str) -> None:
        """Store a text, if it is short enough and its key is named after it."""
        if len(text) > LONGEST_TEXT or not is_named_after(key, text):
            return
        self._held[account, key] = text
        for oldest in list(self._held)[: -self._MOST]:
            self._held.pop(oldest, None)

    def of(self, account: str, key: str) -> str:
        """Return the text under a key; empty if there is none."""
        return self._held.get((account, key), "")


def _checked_name(field: str, given: Any) -> str:
    if not isinstance(given, str) or not _NAME.fullmatch(given):
        raise ParameterError(f"{field} must be 1 to 120 letters, digits or ._:/@-, got {_shown(given)}")
    return given


def _checked_key(given: Any) -> str:
    if not isinstance(given, str) or not 0 < len(given) <= 1000 or not given.isprintable():
        raise ParameterError(f"key must be a printable text of 1 to 1000 characters, got {_shown(given)}")
    return given


def payment_key(name: Any) -> str:
    """Return the key of a payment, in a name space of its own."""
    return _checked_key(PAYMENT + _checked_key(name))


def _asked_key(given: Any) -> str:
    """Validate a key under which information may be requested, and return it."""
    key = _checked_key(given)
    if key.startswith(PAYMENT):
        raise ParameterError(f"key must not begin with {PAYMENT}, which names payments, got {_shown(given)}")
    return key


def _shown(given: Any) -> str:
    try:
        text = repr(given)
    except ValueError:  # an int with too many digits to print
        text = "a huge number"
    return text if len(text) <= 40 else text[:37] + "..."
