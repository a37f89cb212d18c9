"""How an operator takes reports in: each is judged, those that may count are counted once.

Every kind of fleet judges by a `Form`: length, beginning, tag, and whether the enrolment was taken back, in
this order. The list of those is no option of it, and `Intake` looks at the list itself, at each call; what a
kind adds is how the reports that passed are counted.
"""

from __future__ import annotations

import hmac
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeVar

from reticent.fleet.enrolment import ID_BYTES, TAG_BYTES, Use, device_key, tag

if TYPE_CHECKING:  # who trains needs none of it
    from reticent.fleet.operator import Operator

Outcome = TypeVar("Outcome", bound=Enum)


@dataclass(frozen=True)
class Form(Generic[Outcome]):
    """What every report to one part of a text has in common, whatever it says.

    Args:
        use: of the reporter's key, for its tag.
        length: of a report.
        start: what it begins with, piece by piece, each with what becomes of a report that has another. The
            reporter's id follows.
        outcomes: of reports; COUNTED, LENGTH, TAG and REVOKED are among them.
    """

    use: Use
    length: int
    start: tuple[tuple[bytes, Outcome], ...]
    outcomes: type[Outcome]

    @property
    def reporter(self) -> slice:
        """Where the reporter's id stands."""
        at = sum(len(piece) for piece, _ in self.start)
        return slice(at, at + ID_BYTES)

    def judged(self, report: bytes, master: bytes, revoked: Container[bytes]) -> Outcome:
        """What is wrong with a report, before it is looked at what it says. Never raises.

        Args:
            report: as it came.
            master: from which the keys of enrolments follow.
            revoked: ids of enrolments that were taken back.
        """
        if not isinstance(report, bytes) or len(report) != self.length:
            return self.outcomes["LENGTH"]
        at = 0
        for piece, otherwise in self.start:
            if report[at : at + len(piece)] != piece:
                return otherwise
            at += len(piece)
        reporter, content, sent = report[at : at + ID_BYTES], report[:-TAG_BYTES], report[-TAG_BYTES:]
        if not hmac.compare_digest(tag(device_key(master, reporter), self.use, content), sent):
            return self.outcomes["TAG"]
        return self.outcomes["REVOKED" if reporter in revoked else "COUNTED"]


class Intake(ABC, Generic[Outcome]):
    """The reports of one part, as an operator takes them in.

    Attributes:
        outcomes: how many reports came to what.

    Args:
        operator: who knows the reporters, and in whose ledger it is entered what is learnt.
    """

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.outcomes: Counter[Outcome] = Counter()

    def add(self, reports: Sequence[bytes]) -> list[Outcome]:
        """Count reports; each reporter once, and nothing that is not whole. None raises.

        Raises:
            LedgerError: the list of enrolments that were taken back cannot be read; nothing is counted.
        """
        master, revoked = self._operator.master, self._operator.revocations.look()
        outcomes = [self._judged(report, master, revoked) for report in reports]
        passed = [place for place, outcome in enumerate(outcomes) if outcome.name == "COUNTED"]
        counted = self._counted([reports[place] for place in passed])
        for place, outcome in zip(passed, counted, strict=True):
            outcomes[place] = outcome
        self.outcomes.update(outcomes)
        return outcomes

    @property
    @abstractmethod
    def form(self) -> Form[Outcome]:
        """Of the reports that are taken in."""

    def _judged(self, report: bytes, master: bytes, revoked: Container[bytes]) -> Outcome:
        return self.form.judged(report, master, revoked)

    @abstractmethod
    def _counted(self, reports: Sequence[bytes]) -> list[Outcome]:
        """Count those that passed, each reporter once; what became of each."""
