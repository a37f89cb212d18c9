"""What an operator learnt from devices, in the ledger: an entry for each part before anything of it is shown.

Devices paid for their reports already, each out of its own ledger. The operator's ledger says the same to an
auditor: an account for each survey, campaign and training, for one device that takes part in all of it; a
request for each period or round that was looked at; and, once no more reports come, how many it counted.

Accounts are called survey:<id>, campaign:<id> and training:<id>. No data set may have a colon in its name,
so nobody can open such an account before the operator does. Ledgers of earlier releases have survey-<id>,
which could be a data set's name: one that was opened with the survey's own terms goes on being charged.

A study may be under the account of people whom data sets are about, too (`people`): then they are charged, or
nothing is shown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from reticent.errors import AlreadyFulfilled, UnknownAccount
from reticent.fleet import people as peoples
from reticent.fleet.people import People
from reticent.ledger.base import Amount, Grant, Ledger, Terms, Unit
from reticent.privacy.budget import MAX_UNITS
from reticent.privacy.neighbours import Neighbours


@dataclass(frozen=True)
class Study:
    """A survey, a campaign or a training as the operator's ledger knows it.

    Args:
        kind: survey, campaign or training.
        id: of its text.
        subject: whose data the account is about, in words.
        unit: what a report costs, as devices pay it.
        neighbours: the relation of that guarantee.
        units: what one device pays for a part, at most, in units of 1e-12.
        parts: how many there are.
        part: what is learnt at once: a period, or a round.
        old_name: of the account in ledgers of earlier releases, if they had one.
    """

    kind: str
    id: bytes
    subject: str
    unit: Unit
    neighbours: Neighbours
    units: int
    parts: int
    part: str = "round"
    old_name: str | None = None

    @property
    def terms(self) -> Terms:
        """Of the account: all parts, for one device."""
        cap = min(self.units * self.parts, MAX_UNITS)
        return Terms(f"{self.kind}:{self.id.hex()}", self.unit, self.neighbours, self.subject, cap)


class Record:
    """Enters what is learnt into a ledger, each part once. What this process entered it does not ask again.

    Args:
        ledger: of the operator.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._accounts: dict[str, str] = {}  # names of accounts that are open, by the name that is due
        self._entered: set[tuple[str, int, int, bool]] = set()  # account, part, units, whether it is counted

    def account(self, study: Study) -> str:
        """The name of a study's account, which is open then."""
        terms = study.terms
        if terms.name not in self._accounts:
            self._accounts[terms.name] = self._opened(terms, study.old_name)
        return self._accounts[terms.name]

    def _opened(self, terms: Terms, old_name: str | None) -> str:
        if old_name is not None:
            with contextlib.suppress(UnknownAccount):
                held = self.ledger.balance(old_name).terms
                if held == replace(terms, name=old_name):  # else it is somebody else's
                    return old_name
        self.ledger.open(terms)
        return terms.name

    def learn(self, study: Study, parts: Mapping[int, int | None], units: int | None = None) -> None:
        """Enter that something of these parts is shown. Entering it again changes nothing.

        Args:
            study: whose reports were counted.
            parts: by number, how many reports were counted; None while more may come.
            units: what each device paid for these parts, if that is less than the most that the study says.

        Raises:
            LedgerError: it could not be entered, or the people under whose account the study is have spent
                theirs; nothing may be shown.
        """
        if not parts:
            return
        name, paid = self.account(study), study.units if units is None else units
        amount = Amount(paid, study.unit, study.neighbours)
        for number, reports in sorted(parts.items()):
            entry = (name, number, paid, reports is not None)
            if entry in self._entered:
                continue
            grant = self._requested(study, name, number, amount)
            if reports is not None:
                for measurement in grant.pending:
                    with contextlib.suppress(AlreadyFulfilled):  # another process was first
                        self.ledger.fulfil(measurement.number, [reports])
            self._entered.add(entry)

    def _requested(self, study: Study, name: str, number: int, amount: Amount) -> Grant:
        """Enter a part, then charge the people of the study, if there are any.

        In this order: `put_under` says whose a study is before it looks at what was entered, so that either
        of the two sees what the other one wrote.
        """
        grant = self.ledger.request(name, f"{study.part} {number}", amount)
        whose = peoples.of_study(self.ledger, name)
        if whose is not None:
            peoples.charge(self.ledger, study, name, number, grant.information, whose)
        return grant

    def put_under(self, study: Study, people: People) -> int:
        """Let the account of people pay for all that a study shows, before and from now on; for ever.

        Returns:
            The units of mu^2 that were charged to them now, for what was shown before.

        Raises:
            MixedGuarantees: units or neighbours do not allow it. Nothing was written.
            AccountConflict: it is under another account.
        """
        return peoples.put_under(self.ledger, study, self.account(study), people)

    def next_part(self, study: Study) -> int:
        """Enter the first part that nobody entered: for whoever holds all rows, and reports of them at once.

        Raises:
            BudgetExceeded: every part was.
        """
        name, amount = self.account(study), Amount(study.units, study.unit, study.neighbours)
        number = self.ledger.balance(name).spent // study.units
        while True:  # another process may be faster
            grant = self._requested(study, name, number, amount)
            if grant.charged:
                return number
            number += 1
