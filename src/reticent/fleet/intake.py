"""How an operator takes reports in: each is judged, those that may count are counted once.

Surveys, campaigns and trainings all come in through `Intake`: length, beginning, tag, and whether the
enrolment was taken back, in this order. The list of those is no option of it, it looks at the list itself at
each call, and it cannot be derived from; nothing else in the tree compares tags of reports. What a kind adds
is which forms its reports may have, and how those that passed are counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from reticent.fleet.enrolment import ID_BYTES, Use
from reticent.fleet.tags import are_genuine

if TYPE_CHECKING:  # who trains needs none of it
    from reticent.fleet.operator import Operator
    from reticent.fleet.revocation import Revocations

Outcome = TypeVar("Outcome", bound=Enum)
_Told = TypeVar("_Told", bound=Enum, covariant=True)


class Forms(Protocol[_Told]):
    """The forms that reports of one kind may have."""

    @property
    def use(self) -> Use:
        """Of the reporter's key, for its tag."""

    @property
    def outcomes(self) -> type[_Told]:
        """Of reports; COUNTED, LENGTH, TAG and REVOKED are among them."""

    @property
    def start_bytes(self) -> int:
        """How many bytes say what a report answers."""

    @property
    def reporter(self) -> slice:
        """Where the reporter's id stands, in all of them."""

    def fault(self, length: int, start: bytes) -> _Told | None:
        """What is wrong with all reports of this length that begin so. Never raises."""


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

    @cached_property
    def start_bytes(self) -> int:
        """How many bytes come before the reporter's id."""
        return sum(len(piece) for piece, _ in self.start)

    @cached_property
    def reporter(self) -> slice:
        """Where the reporter's id stands."""
        return slice(self.start_bytes, self.start_bytes + ID_BYTES)

    def fault(self, length: int, start: bytes) -> Outcome | None:
        """What is wrong with all reports of this length that begin so. Never raises."""
        if length != self.length:
            return self.outcomes["LENGTH"]
        at = 0
        for piece, otherwise in self.start:
            if start[at : at + len(piece)] != piece:
                return otherwise
            at += len(piece)
        return None


@dataclass(frozen=True)
class Admitted:
    """Reports of one length and one beginning: genuine, and of nobody who was taken back.

    Attributes:
        start: what they begin with.
        places: in the caller's list, in its order.
        rows: their bytes, a row each.
    """

    start: bytes
    places: NDArray[np.int64]
    rows: NDArray[np.uint8]


@final
class Intake:
    """The one way in.

    Args:
        master: from which the keys of enrolments follow.
        revocations: enrolments that were taken back.
    """

    def __init__(self, master: bytes, revocations: Revocations) -> None:
        self._master, self._revocations = master, revocations
        self._revoked: Set[bytes] = frozenset()

    def __init_subclass__(cls) -> None:
        raise TypeError("nothing is derived from Intake: a kind of reports is given one")

    def look(self) -> None:
        """See who was taken back until now.

        Raises:
            LedgerError: the list cannot be read.
        """
        self._revoked = self._revocations.look()

    def admitted(
        self, reports: Sequence[bytes], forms: Forms[Outcome]
    ) -> tuple[list[Outcome], list[Admitted]]:
        """What becomes of reports before it is looked at what they say, and those that passed. None raises.

        Raises:
            LedgerError: the list of enrolments that were taken back cannot be read; nothing is admitted.
        """
        self.look()
        outcomes, passed = [forms.outcomes["COUNTED"]] * len(reports), []
        alike: dict[tuple[int, bytes], list[int]] = {}
        size = forms.start_bytes
        for place, report in enumerate(reports):
            if isinstance(report, bytes):
                alike.setdefault((len(report), report[:size]), []).append(place)
            else:
                outcomes[place] = forms.outcomes["LENGTH"]
        for (length, start), members in alike.items():
            fault = forms.fault(length, start)
            if fault is not None:
                for place in members:
                    outcomes[place] = fault
                continue
            rows = _rows([reports[place] for place in members])
            places, is_kept = np.array(members), are_genuine(self._master, rows, forms.use, forms.reporter)
            for place in places[~is_kept].tolist():
                outcomes[place] = forms.outcomes["TAG"]
            if self._revoked:
                for row in np.flatnonzero(is_kept).tolist():
                    if reports[members[row]][forms.reporter] in self._revoked:
                        is_kept[row], outcomes[members[row]] = False, forms.outcomes["REVOKED"]
            if is_kept.any():
                passed.append(Admitted(start, places[is_kept], rows[is_kept]))
        return outcomes, passed

    def reporter(self, report: bytes, forms: Forms[Outcome]) -> bytes | None:
        """Who made a report; None if it is not genuine, or of somebody taken back until the last look."""
        if forms.fault(len(report), report[: forms.start_bytes]) is not None:
            return None
        who = report[forms.reporter]
        is_known = who not in self._revoked and are_genuine(
            self._master, _rows([report]), forms.use, forms.reporter
        )
        return who if is_known else None


class RoundIntake(ABC, Generic[Outcome]):
    """The reports of one round, as an operator takes them in.

    Attributes:
        outcomes: how many reports came to what.

    Args:
        operator: who knows the reporters, and in whose ledger it is entered what is learnt.
    """

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._intake = Intake(operator.master, operator.revocations)
        self.outcomes: Counter[Outcome] = Counter()

    def add(self, reports: Sequence[bytes]) -> list[Outcome]:
        """Count reports; each reporter once, and nothing that is not whole. None raises.

        Raises:
            LedgerError: the list of enrolments that were taken back cannot be read; nothing is counted.
        """
        outcomes, admitted = self._intake.admitted(reports, self.form)
        for alike in admitted:
            places = alike.places.tolist()
            counted = self._counted([reports[place] for place in places])
            for place, outcome in zip(places, counted, strict=True):
                outcomes[place] = outcome
        self.outcomes.update(outcomes)
        return outcomes

    @property
    @abstractmethod
    def form(self) -> Form[Outcome]:
        """Of the reports that are taken in."""

    @abstractmethod
    def _counted(self, reports: Sequence[bytes]) -> list[Outcome]:
        """Count those that passed, each reporter once; what became of each."""


def _rows(reports: Sequence[bytes]) -> NDArray[np.uint8]:
    """Reports of one length, a row for each."""
    return np.frombuffer(b"".join(reports), dtype=np.uint8).reshape(len(reports), -1)
