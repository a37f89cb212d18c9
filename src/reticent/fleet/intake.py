"""Admission of reports: each report is validated, and every valid report is counted once.

Reports of surveys, campaigns and trainings all pass `Intake`, which checks length, beginning, tag and
revocation, in this order. The list of revocations is not optional: `Intake` reads it at each call and cannot
be subclassed; nothing else in the tree compares tags of reports. A kind of reports only adds the forms that
its reports may have, and how admitted reports are counted.
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

if TYPE_CHECKING:  # training does not need them
    from reticent.fleet.operator import Operator
    from reticent.fleet.revocation import Revocations

Outcome = TypeVar("Outcome", bound=Enum)
_Told = TypeVar("_Told", bound=Enum, covariant=True)


class Forms(Protocol[_Told]):
    """The forms that reports of one kind may have."""

    @property
    def use(self) -> Use:
        """Use of the reporter's key with which these reports are tagged."""

    @property
    def outcomes(self) -> type[_Told]:
        """Enum of the outcomes of a report; COUNTED, LENGTH, TAG and REVOKED are among them."""

    @property
    def start_bytes(self) -> int:
        """Number of leading bytes that say which text a report answers."""

    @property
    def reporter(self) -> slice:
        """Position of the reporter's id, the same in all reports."""

    def fault(self, length: int, start: bytes) -> _Told | None:
        """Return the fault of all reports of this length and beginning, or None. Never raises."""


@dataclass(frozen=True)
class Form(Generic[Outcome]):
    """The form that all reports to one part of a text share, whatever their content.

    Args:
        use: Use of the reporter's key with which these reports are tagged.
        length: Length of a report in bytes.
        start: Pieces that a report begins with, each with the outcome of a report that has other bytes there.
            The reporter's id follows.
        outcomes: Enum of the outcomes of a report; COUNTED, LENGTH, TAG and REVOKED are among them.
    """

    use: Use
    length: int
    start: tuple[tuple[bytes, Outcome], ...]
    outcomes: type[Outcome]

    @cached_property
    def start_bytes(self) -> int:
        """Number of bytes before the reporter's id."""
        return sum(len(piece) for piece, _ in self.start)

    @cached_property
    def reporter(self) -> slice:
        """Position of the reporter's id."""
        return slice(self.start_bytes, self.start_bytes + ID_BYTES)

    def fault(self, length: int, start: bytes) -> Outcome | None:
        """Return the fault of all reports of this length and beginning, or None. Never raises."""
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
    """Reports of one length and one beginning, all genuine and none from a revoked enrolment.

    Attributes:
        start: Bytes that the reports begin with.
        places: Indices into the caller's list of reports, in its order.
        rows: Bytes of the reports, one row each.
    """

    start: bytes
    places: NDArray[np.int64]
    rows: NDArray[np.uint8]


@final
class Intake:
    """The admission check that every report must pass.

    Args:
        master: Master key from which the keys of enrolments follow.
        revocations: List of revoked enrolments.
    """

    def __init__(self, master: bytes, revocations: Revocations) -> None:
        self._master, self._revocations = master, revocations
        self._revoked: Set[bytes] = frozenset()

    def __init_subclass__(cls) -> None:
        raise TypeError("nothing is derived from Intake: a kind of reports is given one")

    def look(self) -> None:
        """Read which enrolments have been revoked until now.

        Raises:
            LedgerError: the list cannot be read.
        """
        self._revoked = self._revocations.look()

    def admitted(
        self, reports: Sequence[bytes], forms: Forms[Outcome]
    ) -> tuple[list[Outcome], list[Admitted]]:
        """Check reports before their content is read; return all outcomes and the admitted reports.

        Raises:
            LedgerError: the list of revoked enrolments cannot be read; nothing is admitted.
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
        """Return the id of a report's author, or None.

        None means that the report is not genuine, or that the enrolment was revoked before the last call of
        `look`.
        """
        if forms.fault(len(report), report[: forms.start_bytes]) is not None:
            return None
        who = report[forms.reporter]
        is_known = who not in self._revoked and are_genuine(
            self._master, _rows([report]), forms.use, forms.reporter
        )
        return who if is_known else None


class RoundIntake(ABC, Generic[Outcome]):
    """The reports of one round, as an operator admits and counts them.

    Attributes:
        outcomes: Number of reports by outcome.

    Args:
        operator: Operator that knows the reporters, and whose ledger records what is learnt.
    """

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._intake = Intake(operator.master, operator.revocations)
        self.outcomes: Counter[Outcome] = Counter()

    def add(self, reports: Sequence[bytes]) -> list[Outcome]:
        """Count reports, each reporter once, and return the outcome of each. No report makes it raise.

        Raises:
            LedgerError: the list of revoked enrolments cannot be read; nothing is counted.
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
        """Form of the reports that are admitted."""

    @abstractmethod
    def _counted(self, reports: Sequence[bytes]) -> list[Outcome]:
        """Count admitted reports, each reporter once, and return the outcome of each."""


def _rows(reports: Sequence[bytes]) -> NDArray[np.uint8]:
    """Return reports of one length as an array with one row each."""
    return np.frombuffer(b"".join(reports), dtype=np.uint8).reshape(len(reports), -1)
