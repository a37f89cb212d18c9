"""What an update reveals, in the words of an information channel.

Reference: Biswas 2023, Section 6.3.5: a deterministic channel from records to updates. It reveals
    *everything* where one input alone has this update.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from reticent.audit.leakage.layers import Targets
from reticent.mechanisms.base import Floats


class Kind(Enum):
    """How many records have an update."""

    EVERYTHING = "everything"
    CANDIDATES = "one of n candidates"
    FAMILY = "a family of dimension n"
    NOTHING = "nothing"
    UNDECIDED = "undecided"  # no answer that could be checked was found; never a statement of safety


@dataclass(frozen=True)
class Candidate:
    """One batch that has the update.

    Attributes:
        records: shape (records, inputs).
        targets: their classes, or numbers.
        misfit: how far its update is from the one that was seen, in proportion, at the worst layer.
        moved: how far other roundings of the update move it, in proportion; 0 where that is not looked at.
    """

    records: Floats
    targets: Targets
    misfit: float
    moved: float = 0.0


@dataclass(frozen=True)
class Leak:
    """What the holder of an update learns of the records behind it.

    Attributes:
        kind: how many batches have the update.
        number: of candidates, or of dimensions; 1 for everything; for nothing all dimensions of the batch, or
            of one record where their number is not known. None where it is not known.
        records: how many records the batch has, as far as that is known.
        candidates: the batches that were found; each was checked against the whole update.
        labels: classes that are certainly among the batch's, whatever else is known.
        reason: why, in words.
        assumes_no_noise: whether `labels` hold only if the update carries no noise, which it does not show.
        is_first_layer: whether the records follow from the first layer alone, in any number of local steps.
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
