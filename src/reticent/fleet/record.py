"""The operator's record of what it learnt from devices: a ledger entry before anything is shown.

Devices have already paid for their reports, each out of its own ledger. The operator's ledger shows an
auditor the same: an account for each survey, campaign and training, for one device that takes part in all of
it; a request for each period or round that was looked at; and, once no more reports come, how many it
counted.

Accounts are called survey:<id>, campaign:<id> and training:<id>. No data set may have a colon in its name,
so nobody can open such an account before the operator does. Ledgers of earlier releases have survey-<id>,
which could be a data set's name: one that was opened with the survey's own terms goes on being charged.

A study may also be under the account of the people whom data sets are about (`people`): then that account is
charged, or nothing is shown.
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
        id: Id of the study's text.
        subject: Description of the people whose data the account is about.
        unit: Unit of the cost of a report, as devices pay it.
        neighbours: Neighbouring relation of that guarantee.
        units: Largest amount that one device pays for a part, in units of 1e-12.
        parts: Number of parts.
        part: Name of what is learnt at once: a period, or a round.
        old_name: Name of the account in ledgers of earlier releases, if they had one.
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
        """Terms of the study's account: all parts, for one device."""
        cap = min(self.units * self.parts, MAX_UNITS)
        return Terms(f"{self.kind}:{self.id.hex()}", self.unit, self.neighbours, self.subject, cap)


class Record:
    """A writer of ledger entries for what is learnt, each part once.

    It does not repeat an entry that this process has made.

    Args:
        ledger: Ledger of the operator.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._accounts: dict[str, str] = {}  # names of open accounts, by the name in the terms
        self._entered: set[tuple[str, int, int, bool]] = set()  # account, part, units, whether it is counted

    def account(self, study: Study) -> str:
        """Return the name of a study's account, and open the account if needed."""
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
        """Enter that something of these parts is shown. Entering a part again changes nothing.

        Args:
            study: Study whose reports were counted.
            parts: Number of reports counted, by number of the part; None while more may come.
            units: Amount that each device paid for these parts, if it is less than the study's maximum.

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

        In this order: `put_under` names the people of a study before it reads what was entered, so that at
        least one of two concurrent calls sees what the other wrote.
        """
        grant = self.ledger.request(name, f"{study.part} {number}", amount)
        whose = peoples.of_study(self.ledger, name)
        if whose is not None:
            peoples.charge(self.ledger, study, name, number, grant.information, whose)
        return grant

    def put_under(self, study: Study, people: People) -> int:
        """Let the account of people pay for everything that a study shows, past and future, for ever.

        Returns:
            The units of mu^2 that were charged to them now, for what was shown before.

        Raises:
            MixedGuarantees: units or neighbours do not allow it. Nothing was written.
            AccountConflict: it is under another account.
        """
        return peoples.put_under(self.ledger, study, self.account(study), people)

    def next_part(self, study: Study) -> int:
        """Enter the first part that is not entered yet: for an operator that holds all rows itself.

        Raises:
            BudgetExceeded: every part was entered.
        """
        name, amount = self.account(study), Amount(study.units, study.unit, study.neighbours)
        number = self.ledger.balance(name).spent // study.units
        while True:  # another process may be faster
            grant = self._requested(study, name, number, amount)
            if grant.charged:
                return number
            number += 1
