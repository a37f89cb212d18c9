"""One lifetime budget over all activities of a device: surveys, trainings and places in one ledger.

Each activity has an account of its own, with its own cap. A ledger with a lifetime has one more account above
them: a report charges the lifetime first and then its own account, under the same key, or it is not drawn.
Once a ledger has a lifetime, every program that opens the ledger pays it, whether the program names it or
not.

The cost of a report to the lifetime:

- in epsilon: itself. A lifetime in mu^2 counts it as mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon));
- in epsilon per km: that level times its reach, the most that two places at most the stated distance apart
  are apart to the mechanism: of cells the distance and their jump, on streets the horizon;
- in mu^2 (Gaussian noise): itself, in a lifetime with a delta. It has no epsilon: a pure one refuses it.

A mechanism that protects one record of many (`federated.on_device.Home`) has no price for the person, and is
refused.

The sum is taken again whenever a ledger is opened. So the amounts spent before there was a lifetime count,
and so do those spent by an earlier release that knows no lifetime. The reach of earlier reports of places is
not known: a lifetime is refused then.

Privacy: the lifetime bounds all that leaves by this ledger. Unit: the person behind the device. Neighbours:
any two lives of hers that differ in whatever surveys and trainings ask, and in each place by at most the
distance. Adversary: everybody whom the device reports to, together. Deltas of places (`METRIC_DELTA`) have an
account of their own, and come on top.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from reticent.arguments import real
from reticent.errors import AccountConflict, MixedGuarantees
from reticent.ledger.base import Amount, Terms, Unit
from reticent.privacy.budget import MAX_UNITS, UNITS_PER_ONE, Budget, cap_units, pure_mu2_units
from reticent.privacy.neighbours import Neighbours

if TYPE_CHECKING:
    from reticent.ledger.device.ledger import DeviceLedger

ACCOUNT = "lifetime"
_MOST_EPSILON = 10**5  # of one report: no mechanism has as much
Reach = Callable[[float], float]
COUNTED = (Unit.EPSILON, Unit.MU2, Unit.EPSILON_PER_KM)  # units of accounts that are below it
_WHOLE = (Neighbours.ANY_TWO_VALUES, Neighbours.METRIC)  # whatever a person may be, or wherever
_SUBJECT = re.compile(
    r"the person behind this device, in all(?:, at delta (\S+))?; (?:places at (\S+) km|no places)"
)


@dataclass(frozen=True)
class Lifetime:
    """A budget that a person lets her device spend, once for all.

    Args:
        epsilon: Epsilon of all reports together.
        delta: Delta of all reports together; None for pure reports alone. With a delta, reports with Gaussian
            noise can be counted, too.
        distance_km: Largest distance of two places between which this epsilon holds; None if the device may
            report no places.
    """

    epsilon: float
    delta: float | None = None
    distance_km: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", real("epsilon", self.epsilon, low=0.0, open_low=True))
        for part, high in (("delta", 1.0), ("distance_km", 1e5)):
            if (given := getattr(self, part)) is not None:
                object.__setattr__(self, part, real(part, given, low=0.0, high=high, open_low=True))

    @property
    def terms(self) -> Terms:
        """The terms of the lifetime's account."""
        delta = "" if self.delta is None else f", at delta {self.delta!r}"
        places = "no places" if self.distance_km is None else f"places at {self.distance_km!r} km"
        unit, cap = Unit.EPSILON, 0
        if self.delta is None:
            cap = cap_units(self.epsilon)
        else:
            unit, cap = Unit.MU2, Budget(self.epsilon, self.delta).mu2_cap
        subject = f"the person behind this device, in all{delta}; {places}"
        return Terms(ACCOUNT, unit, Neighbours.ANY_TWO_VALUES, subject, cap)


def stated(terms: Terms) -> tuple[float | None, float | None]:
    """Return the delta and the distance that the terms of a lifetime's account state."""
    found = _SUBJECT.fullmatch(terms.subject)
    if found is None:
        raise AccountConflict(f"account {ACCOUNT} is no lifetime of this release: {terms.subject!r:.80}")
    delta, distance = found.groups()
    return None if delta is None else float(delta), None if distance is None else float(distance)


def cost(terms: Terms, unit: Unit, units: int, reach: Reach | None) -> int:
    """Return the cost of a report to the lifetime, in the lifetime's units, rounded up.

    Args:
        terms: Terms of the lifetime.
        unit: Unit of the report's own account.
        units: Units that the report costs its own account.
        reach: Function that maps the distance of two places in km to the largest distance in km that the
            mechanism gives them; None if the report is not about a place.

    Raises:
        MixedGuarantees: The report cannot be counted in this lifetime. Nothing may be drawn.
    """
    _, distance = stated(terms)
    if unit is Unit.MU2:
        if terms.unit is not Unit.MU2:
            raise MixedGuarantees(
                "a report with Gaussian noise has no epsilon: this lifetime is without delta"
            )
        return units
    if unit is Unit.EPSILON_PER_KM:
        if distance is None:
            raise MixedGuarantees("a report of a place needs a distance, and this lifetime states none")
        if reach is None:
            raise MixedGuarantees("how far the cells of this report reach is not known")
        units = math.ceil(units * Fraction(reach(distance)))
    elif unit is not Unit.EPSILON:
        raise MixedGuarantees(f"a report in {unit.value} cannot be counted in a lifetime")
    if units > MAX_UNITS:
        raise MixedGuarantees("a report costs more than any lifetime holds")
    return units if terms.unit is Unit.EPSILON else pure_mu2_units(units)


def key_of(account: str, key: str) -> str:
    """Return the lifetime's key for charges to an account under a key."""
    return f"{account}/{key}"


def opened(ledger: DeviceLedger, given: Lifetime | None, below: Terms | None = None) -> Terms | None:
    """Open the lifetime of a ledger and charge it for all that the ledger's accounts ever spent.

    Return its terms, or None if the ledger has no lifetime and gets none.

    Args:
        ledger: Ledger of the device.
        given: Lifetime that the ledger must have, or gets if it has none; None takes the ledger's lifetime.
        below: Terms of the account that will be charged below the lifetime; None if there is none.

    Raises:
        AccountConflict: The ledger has another lifetime.
        MixedGuarantees: The account below, or an amount spent before, cannot be counted in the lifetime.
            Nothing was written.
    """
    balances = {one.terms.name: one.terms for one in ledger.accounts()}
    terms, due = balances.pop(ACCOUNT, None), None if given is None else given.terms
    if terms is not None and due is not None and terms != due:
        raise AccountConflict(f"the lifetime of this ledger is fixed: {words(terms)}; got {words(due)}")
    found = terms if terms is not None else due
    if found is None:
        return None
    for one in balances.values() if below is None else (below, *balances.values()):
        _check_person(one)
    if below is not None:
        cost(found, below.unit, 1, float)
    missing = [
        (key_of(name, key), amount)
        for name, one in balances.items()
        if one.unit in COUNTED
        for key, units in ledger.requested(name).items()
        if (amount := _missing(ledger, found, name, key, one.unit, units, is_new=terms is None))
    ]
    ledger.open(found)
    for key, amount in missing:
        pay_what_is_left(ledger, found, key, amount)
    return found


def _check_person(terms: Terms) -> None:
    """Refuse an account that hides less than the whole person.

    An account that protects one record of many has no price for her.
    """
    if terms.unit in COUNTED and terms.neighbours not in _WHOLE:
        raise MixedGuarantees(
            f"account {terms.name} protects {terms.subject}, and a lifetime the person: take another ledger"
        )


def _missing(
    ledger: DeviceLedger, terms: Terms, account: str, key: str, unit: Unit, units: int, *, is_new: bool
) -> int:
    """Return the lifetime's cost under a key if the lifetime has paid less than that, else 0."""
    paid = 0 if is_new else ledger.requested(ACCOUNT).get(key_of(account, key), 0)
    if unit is Unit.EPSILON_PER_KM:
        if paid:  # when it was paid for, the reach was known
            return 0
        raise MixedGuarantees(
            f"account {account} was charged without a lifetime: how far the cells of its reports reach is "
            "not known, so nobody can say what they cost"
        )
    due = cost(terms, unit, units, None)
    return due if due > paid else 0


def pay_what_is_left(ledger: DeviceLedger, terms: Terms, key: str, units: int) -> None:
    """Charge the lifetime for a report that has left, or charge all that is left of the lifetime.

    Nothing more is drawn in the second case.
    """
    held = ledger.reading(ACCOUNT, key)
    most = held.information + held.pending + ledger.balance(ACCOUNT).remaining
    if min(units, most) > 0:
        charge(ledger, terms, key, min(units, most))


def charge(ledger: DeviceLedger, terms: Terms, key: str, units: int) -> None:
    """Charge the lifetime once, however often the function is called with the same key.

    Raises:
        BudgetExceeded: The lifetime does not hold the amount; nothing was written.
    """
    grant = ledger.request(ACCOUNT, key, Amount(units, terms.unit, terms.neighbours))
    for measurement in grant.pending:
        ledger.fulfil(measurement.number, [])


def epsilon_left(terms: Terms, remaining: int) -> int:
    """Return the largest epsilon, in units, of a single pure report that the remaining lifetime pays for."""
    if terms.unit is Unit.EPSILON:
        return remaining
    low, high = 0, _MOST_EPSILON * UNITS_PER_ONE
    while low < high:  # the price rises with the epsilon
        middle = (low + high + 1) // 2
        low, high = (middle, high) if pure_mu2_units(middle) <= remaining else (low, middle - 1)
    return low


def words(terms: Terms) -> str:
    """Describe the terms of a lifetime in words."""
    from reticent.privacy.budget import spent_epsilon

    delta, distance = stated(terms)
    epsilon = terms.cap / UNITS_PER_ONE if delta is None else spent_epsilon(terms.cap, delta)
    level = f"epsilon {epsilon:.6g}" + ("" if delta is None else f" at delta {delta:g}")
    return level + (", no places" if distance is None else f", places at {distance:g} km")
