"""Accounts of the people that studies ask: what a study shows is charged to their account, too.

An operator's ledger has an account for each study (`record`). If data sets about the same people share an
account in that ledger, a study may be put under it, for ever: an account `<study>/people`, opened once and
never charged, names it. From then on each period or round is charged to the people before anything of it is
shown, or refused; what was shown before is charged as well.

The price of a report to the people, in mu^2 (mathematics 2):

- a pure epsilon: mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)), with k devices of one person k epsilon;
- mu^2 of Gaussian noise: itself, with k devices k^2 of it (group privacy of GDP; Dong, Roth and Su 2022,
  Theorem 2.14);
- epsilon per km: nothing that could be added. Its protection depends on a distance, and does not cover a
  person.

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

PEOPLE = "people:"  # prefix of accounts of people
UNDER = "/people"  # suffix of the account that names the people of a study
STUDIES = ("survey:", "survey-", "campaign:", "training:")  # prefixes of accounts of studies
_SUBJECT = re.compile(
    r"under (people:\S{1,80}) \[([0-9a-f]{32})\], at most ([0-9]{1,4}) devices of one person"
)


@dataclass(frozen=True)
class People:
    """The account that several data sets share, as studies see it.

    Attributes:
        account: Name of the account.
        identity: Identity of the people, the end of the account's subject.
        devices: Largest number of devices that one person has enrolled.
    """

    account: str
    identity: str
    devices: int

    def note(self, study_account: str) -> Terms:
        """Return the terms of the account that puts a study under these people: one unit, never charged."""
        subject = f"under {self.account} [{self.identity}], at most {self.devices} devices of one person"
        return Terms(f"{study_account}{UNDER}", Unit.MU2, Neighbours.REPLACE_ONE, subject, 1)

    def held(self, ledger: Ledger) -> Terms:
        """Return the terms of the people's account.

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
    """Return the people under whose account a study is; None if it is under no account."""
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
    """Map the account of each study among these balances to the account of its people."""
    found = {}
    for one in balances:
        name = one.terms.name
        if name.endswith(UNDER):
            found[name.removesuffix(UNDER)] = _noted(one.terms.subject, name.removesuffix(UNDER)).account
    return found


def not_added(balances: list[Balance]) -> list[str]:
    """List the studies in a ledger that are added to no account of people: one sentence each."""
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
    """Explain why a study cannot be added to an account of people; None if it can."""
    if terms.unit is Unit.MU2 or terms.unit is Unit.EPSILON:
        return None
    return f"{terms.unit.value.replace('_', ' ')} does not add to mu2"


def price(unit: Unit, units: int, devices: int) -> int:
    """Return the cost of a part of a study to its people, in units of 1e-12 mu^2, rounded up.

    Args:
        unit: Unit of the study.
        units: Units that one device pays for the part.
        devices: Largest number of devices that one person has.

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

    If the account has too little left, all that is left is charged: the sum counts. After a crash at any
    point, calling this again completes it.

    Args:
        ledger: Ledger of the operator, with both accounts.
        study: Study to put under the account.
        account: Name of the study's account.
        people: People who pay for the study.

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
    """Charge people once for a part of a study, however often this is called; return the units charged now.

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
