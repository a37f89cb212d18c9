"""Surveys and trainings under the account of the people whom they ask: what they show is paid for there, too.

An operator's ledger has an account for each study (`record`). If data sets about the same people share an
account in that ledger, a study may be put under it, for ever: an account `<study>/people`, opened once and
never charged, says whose. From then on each period or round is charged to the people before anything of it is
shown, or refused; and so is what was shown before.

What a report of a study costs the people, in mu^2 (mathematics 2):

- a pure epsilon: mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)), with k devices of one person k epsilon;
- mu^2 of Gaussian noise: itself, with k devices k^2 of it (group privacy of GDP; Dong, Roth and Su 2022,
  Theorem 2.14);
- epsilon per km: nothing that could be added. What it hides depends on a distance, and is not a person.

Privacy: a report hides what a device says, not that it took part. So people whose account promises that
nobody knows whether somebody is among them (add or remove one) take no study; with "replace one" the report
of the other person takes its place. The adversary sees all answers and all that operators show. The operator,
who holds the reports, is held off by each device's own ledger, and not by this account.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from reticent.errors import (
    AccountConflict,
    AlreadyFulfilled,
    BudgetExceeded,
    LedgerError,
    MixedGuarantees,
    UnknownAccount,
)
from reticent.ledger.base import Amount, Balance, Ledger, Terms, Unit
from reticent.privacy.budget import UNITS_PER_ONE, cost_units, pure_mu2_units
from reticent.privacy.neighbours import Neighbours

if TYPE_CHECKING:
    from reticent.fleet.record import Study

PEOPLE = "people:"  # how accounts of people begin
UNDER = "/people"  # how the account ends that says under whose a study is
STUDIES = ("survey:", "survey-", "campaign:", "training:")  # how accounts of studies begin
_SUBJECT = re.compile(
    r"under (people:\S{1,80}) \[([0-9a-f]{32})\], at most ([0-9]{1,4}) devices of one person"
)


@dataclass(frozen=True)
class People:
    """The account that several data sets share, as studies know it.

    Attributes:
        account: its name.
        identity: of the people, the end of the account's subject.
        devices: the most devices that one of them has enrolled.
    """

    account: str
    identity: str
    devices: int

    def note(self, study_account: str) -> Terms:
        """The account that says that a study is under theirs: one unit, never charged."""
        subject = f"under {self.account} [{self.identity}], at most {self.devices} devices of one person"
        return Terms(f"{study_account}{UNDER}", Unit.MU2, Neighbours.REPLACE_ONE, subject, 1)

    def held(self, ledger: Ledger) -> Terms:
        """The terms of their account.

        Raises:
            LedgerError: it is not in this ledger.
        """
        try:
            terms = ledger.balance(self.account).terms
        except UnknownAccount:
            terms = None
        if terms is None or not terms.subject.endswith(f"[{self.identity}]"):
            raise LedgerError(
                f"{self.account} is not in this ledger: what studies show is paid for in theirs"
            )
        return terms


def of_study(ledger: Ledger, account: str) -> People | None:
    """The people under whose account a study is; None if it is under nobody's."""
    try:
        subject = ledger.balance(f"{account}{UNDER}").terms.subject
    except UnknownAccount:
        return None
    return _noted(subject, account)


def _noted(subject: str, account: str) -> People:
    found = _SUBJECT.fullmatch(subject)
    if found is None:
        raise LedgerError(f"{account}{UNDER} does not say under whose account the study is")
    return People(found[1], found[2], int(found[3]))


def under(balances: list[Balance]) -> dict[str, str]:
    """The account of the people of each study among some accounts, by the study's."""
    found = {}
    for one in balances:
        name = one.terms.name
        if name.endswith(UNDER):
            found[name.removesuffix(UNDER)] = _noted(one.terms.subject, name.removesuffix(UNDER)).account
    return found


def not_added(balances: list[Balance]) -> list[str]:
    """What is in a ledger with accounts of people, and is not added to any of them: a sentence each."""
    if not any(one.terms.name.startswith(PEOPLE) for one in balances):
        return []
    whose, said = under(balances), []
    for one in balances:
        name = one.terms.name
        if name.startswith(STUDIES) and not name.endswith(UNDER) and name not in whose:
            why = why_not(one.terms) or "nobody said that these are the same people"
            said.append(f"{name} is added to no account of people: {why}.")
    return said


def why_not(terms: Terms) -> str | None:
    """Why what a study shows cannot be added to an account of people, in words; None if it can."""
    if terms.unit is Unit.MU2 or terms.unit is Unit.EPSILON:
        return None
    return f"{terms.unit.value.replace('_', ' ')} does not add to mu2"


def price(unit: Unit, units: int, devices: int) -> int:
    """What a part of a study costs its people, in units of 1e-12 mu^2, rounded up.

    Args:
        unit: of the study.
        units: that one device pays for the part.
        devices: the most that one person has.

    Raises:
        MixedGuarantees: the unit says nothing about a person.
    """
    if unit is Unit.MU2:
        return cost_units(Fraction(units, UNITS_PER_ONE) * devices**2)
    if unit is not Unit.EPSILON:
        raise MixedGuarantees(f"a study in {unit.value} cannot be added to an account of people, in mu2")
    return pure_mu2_units(units * devices)


def put_under(ledger: Ledger, study: Study, account: str, people: People) -> int:
    """Put a study under an account of people, for ever, and charge them for what it showed before.

    If their account does not hold that, all that is left of it is charged: the sum counts. After a crash
    anywhere, doing it again ends it.

    Args:
        ledger: of the operator, with both accounts.
        study: which.
        account: the name of its account.
        people: whose.

    Returns:
        The units of mu^2 that were charged now.

    Raises:
        MixedGuarantees: units or neighbours do not allow it. Nothing was written.
        AccountConflict: it is under another account.
    """
    terms = people.held(ledger)
    reason = why_not(study.terms)
    if reason is not None:
        raise MixedGuarantees(f"{account} cannot be put under {people.account}: {reason}")
    if terms.neighbours is not Neighbours.REPLACE_ONE:
        raise MixedGuarantees(
            f"{account} cannot be put under {people.account}, which is {terms.neighbours.value!r}: a report "
            "hides what it says, not that somebody took part"
        )
    try:
        ledger.open(people.note(account))
    except AccountConflict as error:
        raise AccountConflict(
            f"{account} is under another account, or with other devices, for ever"
        ) from error
    charged = 0
    for number in range(study.parts):
        held = ledger.reading(account, f"{study.part} {number}")
        if bought := held.information + held.pending:
            charged += charge(ledger, study, account, number, bought, people, all_that_is_left=True)
    return charged


def charge(
    ledger: Ledger,
    study: Study,
    account: str,
    number: int,
    units: int,
    people: People,
    *,
    all_that_is_left: bool = False,
) -> int:
    """Charge people for a part of a study, once however often it is called; what was charged now.

    Raises:
        BudgetExceeded: their account does not hold it; nothing may be shown.
    """
    terms, key = people.held(ledger), f"{account} {study.part} {number}"
    due = price(study.unit, units, people.devices)
    try:
        return _paid(ledger, terms, key, due)
    except BudgetExceeded as refusal:
        held = ledger.reading(terms.name, key)
        if not all_that_is_left or refusal.left < terms.minimum:
            if all_that_is_left:
                return 0
            raise
        return _paid(ledger, terms, key, held.information + held.pending + refusal.left)


def _paid(ledger: Ledger, terms: Terms, key: str, units: int) -> int:
    grant = ledger.request(terms.name, key, Amount(units, terms.unit, terms.neighbours))
    for measurement in grant.pending:
        try:
            ledger.fulfil(measurement.number, [])
        except AlreadyFulfilled:  # another process was first
            continue
    return grant.charged
