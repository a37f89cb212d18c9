"""What a check hands back: frozen findings that say what was shown, in one line.

A check never raises because a mechanism is bad; it returns a finding that did not pass. It raises
only where it cannot be run at all (a wrong argument, a missing extra).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: the name of the check: "exact", "fit", "black box", "support", "total", "streams".
        passed: whether nothing was found against the claim.
        detail: one line in words, without private data.
    """

    check: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class ExactFinding(Finding):
    """Outcome of a check without sampling.

    Attributes:
        loss: the largest log-ratio found (per unit of distance for metric privacy); infinite where
            something is possible under one input alone; NaN where rows are no distributions.
        delta: the largest delta over sets at the claimed epsilon.
        inputs: how many inputs were compared with each other.
    """

    loss: float = math.nan
    delta: float = 0.0
    inputs: int = 0


@dataclass(frozen=True)
class FitFinding(Finding):
    """Outcome of a comparison of the sampler with its law.

    Attributes:
        p_value: the smallest p-value times the number of tests made (Bonferroni), at most 1.
        draws: per input.
        tests: how many tests the p-value was corrected for.
    """

    p_value: float = 1.0
    draws: int = 0
    tests: int = 0


@dataclass(frozen=True)
class BlackBoxFinding(Finding):
    """Outcome of a black-box audit.

    Attributes:
        lower: with the stated confidence the true loss is at least this; 0 where nothing was found.
        claimed: the loss that is claimed, in the same unit.
        event: the outputs that tell the two inputs apart best, in words.
        pair: numbers of the two inputs, the likelier one first.
        samples: outputs drawn per input.
        likely: the lower bound that holds with 95 %; it may be above a true claim in 5 % of audits.
        false_alarm: chance that a mechanism which keeps its claim is said to break it.
    """

    lower: float = 0.0
    claimed: float = math.nan
    event: str = ""
    pair: tuple[int, int] = field(default=(0, 1))
    samples: int = 0
    likely: float = 0.0
    false_alarm: float = 1e-6


@dataclass(frozen=True)
class RunFinding(BlackBoxFinding):
    """Outcome of an audit of one training; `samples` is its number of canaries.

    Attributes:
        delta: of the claim.
        least_delta: with the same confidence as `lower`, delta is at least this at the claimed epsilon.
        likely_delta: the same with 95 %.
        guesses: how many canaries were guessed, where that proved most.
        right: how many of the guesses were right.
    """

    delta: float = 0.0
    least_delta: float = 0.0
    likely_delta: float = 0.0
    guesses: int = 0
    right: int = 0


@dataclass(frozen=True)
class SupportFinding(Finding):
    """Outcome of a search for outputs that are possible under one input only.

    Attributes:
        impossible: how many outputs of one input cannot come (or never came) from another one.
        outputs: how many were looked at; for exact checks the symbols.
    """

    impossible: int = 0
    outputs: int = 0
