"""Verdicts on what an update reveals, in the words of an information channel.

Reference: Biswas 2023, Section 6.3.5: a deterministic channel from records to updates. It reveals
    *everything* where one input alone has this update.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from reticent.audit.leakage.layers import Targets
from reticent.mechanisms.base import Floats


class Kind(Enum):
    """The kind of a verdict: the number of records that have an update."""

    EVERYTHING = "everything"
    CANDIDATES = "one of n candidates"
    FAMILY = "a family of dimension n"
    NOTHING = "nothing"
    UNDECIDED = "undecided"  # no answer that could be checked was found; never a statement of safety


@dataclass(frozen=True)
class Candidate:
    """A batch that has the update.

    Attributes:
        records: Records, shape (records, inputs).
        targets: Classes of the records, or numbers.
        misfit: Distance of the batch's update from the one that was seen, in proportion, at the worst layer.
        moved: Distance by which other roundings of the update move the batch, in proportion; 0 where that is
            not looked at.
    """

    records: Floats
    targets: Targets
    misfit: float
    moved: float = 0.0


@dataclass(frozen=True)
class Leak:
    """The knowledge that the holder of an update gains of the records behind it.

    Attributes:
        kind: Kind of the verdict: how many batches have the update.
        number: Number of candidates, or of dimensions; 1 for everything; for nothing all dimensions of the
            batch, or of one record where their number is not known. None where it is not known.
        records: Number of records of the batch, as far as it is known.
        candidates: Batches that were found; each was checked against the whole update.
        labels: Classes that are certainly among the batch's, whatever else is known.
        reason: Reason of the verdict, in words.
        assumes_no_noise: True if `labels` hold only if the update carries no noise, which it does not show.
        is_first_layer: True if the records follow from the first layer alone, in any number of local steps.
    """

    kind: Kind
    number: int | None
    records: int | None
    candidates: tuple[Candidate, ...] = ()
    labels: tuple[int, ...] = ()
    reason: str = ""
    assumes_no_noise: bool = False
    is_first_layer: bool = False

    @property
    def certain(self) -> Candidate | None:
        """The batch itself, where the update leaves no choice."""
        return self.candidates[0] if self.kind is Kind.EVERYTHING else None

    def __str__(self) -> str:
        words = {
            Kind.EVERYTHING: "everything",
            Kind.CANDIDATES: f"one of {self.number} candidates",
            Kind.FAMILY: f"a family of dimension {self.number}",
            Kind.NOTHING: "nothing",
            Kind.UNDECIDED: "undecided",
        }[self.kind]
        if self.number is None and self.kind is Kind.CANDIDATES:
            words = "one of finitely many candidates"
        if self.number is None and self.kind is Kind.FAMILY:
            words = "a family of unknown dimension"
        return f"{words}: {self.reason}" if self.reason else words
