"""The consequences of a round for those who took part: an evaluation, and a reputation by whole numbers.

Pure functions: a contract that pays by them must give the same numbers. Everybody who comes with a new key
starts with `LOWEST`, so that throwing a key away gains nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum

from reticent.arguments import whole

LOWEST = 0
MULTIPLE = 2  # of the median score, which a rejected score must pass to be called low
MOST_REPUTATION = 1 << 32


class Evaluation(Enum):
    """The evaluation of an update."""

    HIGH = "high"  # accepted
    KEPT = "kept"  # rejected, and not far from others: reputation stays
    LOW = "low"  # rejected and far from others, or refused


def evaluations(
    scores: Sequence[int], accepted: Collection[int], *, multiple: int = MULTIPLE
) -> tuple[Evaluation, ...]:
    """Return the evaluation of each update by its score.

    Args:
        scores: Scores of Multi-Krum, exact.
        accepted: places of those that were accepted.
        multiple: a rejected update is low if its score is larger than so many times the median score.

    Reference: Zhao 2022, Section 5.3.4: poisoning is a score "significantly larger than others".
    Departure: Multi-Krum rejects f updates even when nobody lies; Eq. 5.2 takes each for low.
    """
    whole("multiple", multiple, low=1)
    count, kept = len(scores), set(accepted)
    ordered = sorted(scores)
    twice_median = ordered[(count - 1) // 2] + ordered[count // 2]
    return tuple(
        Evaluation.HIGH
        if place in kept
        else Evaluation.LOW
        if 2 * score > multiple * twice_median
        else Evaluation.KEPT
        for place, score in enumerate(scores)
    )


def average(reputations: Collection[int]) -> int:
    """The floor of the average reputation of those who take part, at least one."""
    whole("reputations", len(reputations), low=1)
    return sum(reputations) // len(reputations)


def changed(reputation: int, evaluation: Evaluation, *, average: int, most: int) -> int:
    """Return a reputation after an evaluation.

    Args:
        reputation: before.
        evaluation: Evaluation of the round.
        average: h, the floor of the average of all who took part, before the round.
        most: the largest reputation.

    Reference: Zhao 2022, Eq. 5.2.
    Departure: as printed, a low evaluation between average and average + 1 is undefined, below the average it
        gains 1, so that somebody who always lies cycles for ever, and gains there know no cap. This rule is
        total: high gains 1 up to `most`; low above h loses 1, at h loses all, below h gains nothing.
    """
    whole("most", most, low=1, high=MOST_REPUTATION)
    whole("reputation", reputation, low=LOWEST, high=most)
    whole("average", average, low=LOWEST, high=most)
    match evaluation:
        case Evaluation.HIGH:
            return min(most, reputation + 1)
        case Evaluation.KEPT:
            return reputation
        case Evaluation.LOW:
            if reputation > average:
                return reputation - 1
            return LOWEST if reputation == average else reputation
