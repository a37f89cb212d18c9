"""Findings of checks: frozen records that describe a result in one line.

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
        check: Name of the check: "exact", "fit", "black box", "support", "total", "streams".
        passed: True if nothing was found against the claim.
        detail: Line that describes the result, without private data.
    """

    check: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class ExactFinding(Finding):
    """Outcome of a check without sampling.

    Attributes:
        loss: Largest log-ratio found (per unit of distance for metric privacy); infinite where
            something is possible under one input alone; NaN where rows are no distributions.
        delta: Largest delta over sets at the claimed epsilon.
        inputs: Number of inputs that were compared with each other.
    """

    loss: float = math.nan
    delta: float = 0.0
    inputs: int = 0


@dataclass(frozen=True)
class FitFinding(Finding):
    """Outcome of a comparison of the sampler with its distribution.

    Attributes:
        p_value: Smallest p-value times the number of tests made (Bonferroni), at most 1.
        draws: Draws per input.
        tests: Number of tests that the p-value was corrected for.
    """

    p_value: float = 1.0
    draws: int = 0
    tests: int = 0


@dataclass(frozen=True)
class BlackBoxFinding(Finding):
    """Outcome of a black-box audit.

    Attributes:
        lower: Lower bound on the true loss, with the stated confidence; 0 where nothing was found.
        claimed: Loss that is claimed, in the same unit.
        event: Outputs that distinguish the two inputs best, in words.
        pair: Numbers of the two inputs, the likelier one first.
        samples: Outputs drawn per input.
        likely: Lower bound that holds with 95 %; it may be above a true claim in 5 % of audits.
        false_alarm: Chance that a mechanism which keeps its claim is said to break it.
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
        delta: Delta of the claim.
        least_delta: Lower bound on delta at the claimed epsilon, with the same confidence as `lower`.
        likely_delta: Lower bound on delta that holds with 95 %.
        guesses: Number of canaries that were guessed, where that proved most.
        right: Number of the guesses that were right.
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
        impossible: Number of outputs of one input that cannot come (or never came) from another one.
        outputs: Number of outputs that were looked at; for exact checks the symbols.
    """

    impossible: int = 0
    outputs: int = 0
