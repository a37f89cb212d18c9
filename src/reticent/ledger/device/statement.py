"""The statement of a device's ledger for its owner: who learnt what, when, for how much, what is left.

The file is read as it stands. Nothing is opened for writing, locked or changed: anybody who may read the file
can do so at any time, also while a program has it open. A record that is being written at that moment is not
part of the statement.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reticent.errors import LedgerDamaged, LedgerError
from reticent.ledger.base import Balance, Terms, Unit
from reticent.ledger.device.lifetime import ACCOUNT, COUNTED, key_of, stated
from reticent.ledger.device.records import MAGIC, Account, State, is_begun, records
from reticent.ledger.device.told import Told, note_name
from reticent.privacy.budget import UNITS_PER_ONE, spent_epsilon


@dataclass(frozen=True)
class Series:
    """A series of reports to one asker, with their number and cost.

    Attributes:
        head: Common beginning of the series' keys in the ledger.
        told: Note of who asked, and on which days; None if an earlier release did not note it.
        reports: Number of reports.
        units: Cost of the reports to their account.
        of_lifetime: Cost of the reports to the lifetime, in its units; 0 without a lifetime.
        uncounted: Number of reports that the lifetime was not charged for yet.
    """

    head: str
    told: Told | None
    reports: int
    units: int
    of_lifetime: int
    uncounted: int


@dataclass(frozen=True)
class Room:
    """An account below the lifetime, and the series of reports that it paid for."""

    balance: Balance
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Statement:
    """All accounts and the lifetime of a ledger.

    Attributes:
        rooms: Accounts with their series, in the order in which the accounts were opened.
        total: Balance of the lifetime over all accounts; None if the ledger has none.
    """

    rooms: tuple[Room, ...]
    total: Balance | None

    @property
    def is_counted(self) -> bool:
        """Whether the lifetime was charged for all reports.

        Reports of an earlier release are charged when the ledger is opened next.
        """
        return not any(
            one.uncounted for room in self.rooms if room.balance.terms.unit in COUNTED for one in room.series
        )


def read(path: str | os.PathLike[str]) -> Statement:
    """Read the statement of the ledger at a path.

    Raises:
        LedgerError: There is no ledger, or it cannot be read.
        LedgerDamaged: The ledger does not verify.
    """
    try:
        stored = Path(path).read_bytes()
    except OSError as error:
        raise LedgerError(f"the ledger {os.fspath(path)} cannot be read: {error.strerror}") from error
    if not stored.startswith(MAGIC) or is_begun(stored):
        if stored == MAGIC:
            return Statement((), None)
        raise LedgerDamaged(f"{os.fspath(path)} is no device ledger of this version")
    state, at = State(), len(MAGIC)
    for body, end, _ in records(stored):
        state.replay(body, at)
        at = end
    total = state.accounts.get(ACCOUNT)
    rooms = [_room(held, total, state.notes) for name, held in state.accounts.items() if name != ACCOUNT]
    return Statement(tuple(rooms), None if total is None else total.balance())


def _room(held: Account, total: Account | None, notes: dict[str, str]) -> Room:
    name = held.terms.name
    reports, units, above, uncounted = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for key, under in held.keys.items():
        head = key.rpartition("/")[0]
        reports[head] += 1
        units[head] += under.requested
        paid = None if total is None else total.keys.get(key_of(name, key))
        above[head] += 0 if paid is None else paid.requested
        uncounted[head] += paid is None
    series = []
    for head, times in reports.items():
        note = notes.get(note_name(name, head))
        told = None if note is None else Told.read(note)
        series.append(Series(head, told, times, units[head], above[head], uncounted[head]))
    return Room(held.balance(), tuple(series))


# In words


def kind(terms: Terms) -> str:
    """Return the name of the activity that an account pays for."""
    known = {
        "reports": "Surveys",
        "training": "Trainings",
        "personalised-training": "Personalised trainings",
        "places": "Places",
    }
    return known.get(terms.name, terms.name)


def amount(unit: Unit, units: int) -> str:
    """Format an amount of an account, rounded up."""
    if unit is Unit.MONEY:
        return f"{units} cents"
    words = {Unit.EPSILON: "epsilon", Unit.EPSILON_PER_KM: "per km", Unit.METRIC_DELTA: "delta"}
    number = _number(units)
    return f"{number} per km" if unit is Unit.EPSILON_PER_KM else f"{words.get(unit, unit.value)} {number}"


def _number(units: int) -> str:
    """Format a number of units with four digits, rounded up."""
    if not units:
        return "0"
    step = 10 ** max(0, len(str(units)) - 4)
    return f"{-(-units // step) * step / UNITS_PER_ONE:.6g}"


def epsilon(terms: Terms, units: int) -> float:
    """Return the epsilon of an amount of a lifetime: pure, or at its delta; rounded up."""
    delta, _ = stated(terms)
    return units / UNITS_PER_ONE if delta is None else spent_epsilon(units, delta) if units else 0.0


def certainty(terms: Terms, units: int) -> float:
    """Return how often an observer of all reports can at most tell which of two lives is the person's.

    The two lives are equally likely before: e^epsilon / (1 + e^epsilon) for a pure epsilon, Phi(mu/2) for
    mu-GDP (mathematics 2). Rounded up to a thousandth.
    """
    spent = units / UNITS_PER_ONE
    delta, _ = stated(terms)
    right = 1 / (1 + math.exp(-spent)) if delta is None else 0.5 * (1 + math.erf(math.sqrt(spent / 8)))
    return min(1.0, math.ceil(right * 1000 - 1e-9) / 1000)


def sentences(found: Statement) -> Sequence[str]:
    """Say in sentences how much is left, and what the numbers mean."""
    if found.total is None:
        return (
            "No lifetime over all of it is set. Each kind has a limit of its own, and nobody adds them up.",
        )
    terms, spent = found.total.terms, found.total.spent
    delta, distance = stated(terms)
    at = "" if delta is None else f" at delta {delta:g}"
    said = [
        f"Of epsilon {epsilon(terms, terms.cap):.4g}{at} in all, {100 * spent / terms.cap:.3g} % is spent: "
        f"so far epsilon {epsilon(terms, spent):.4g}. "
        f"{1000 * (terms.cap - spent) // terms.cap / 10:g} % is left.",
        f"Somebody who saw everything, knew all else, and had to say which of two equally likely lives is "
        f"yours, would be right at most {100 * certainty(terms, spent):.1f} % of the time; with nothing "
        "told, 50 %.",
    ]
    if distance is not None:
        said.append(f"For places that holds between any two that are at most {distance:g} km apart.")
    deltas = [room for room in found.rooms if room.balance.terms.unit is Unit.METRIC_DELTA]
    spent_delta = sum(room.balance.spent for room in deltas)
    if spent_delta:
        said.append(f"But for a chance of {_number(spent_delta)}, which reports of places add to it.")
    if not found.is_counted:
        said.append("An earlier release spent something that counts when the ledger is opened next.")
    return said
