"""Lower bounds from one training: every canary is in by the toss of a coin, and an attack guesses which.

With m canaries, each in with chance 1/2 by itself, and r guesses made from what the training gave out (about
the others nobody guesses), the number of right guesses under (epsilon, delta) is hardly above that of r coins
with chance e^epsilon / (1 + e^epsilon). So v right guesses give a p-value for every claim, and with it
lower bounds on epsilon at a delta and on delta at an epsilon. Canaries may influence each other in any way.

Guesses follow from scores: the r/2 highest are said to be in, the r/2 lowest out. Several r are fixed
beforehand, and share the error: half of it is that of guessing all, the rest divides equally.

False alarms: the bound is exact, for any attack. A training that keeps its claim is accused with
probability at most `false_alarm`, over all r together.

What it cannot see: what the scores do not use. One training proves less than many draws of its mechanism:
under randomised response with epsilon 1, 1,000 canaries prove about 0.88 at 95 %; of Gaussian noise much less
is seen than it loses, since delta is lost on few outputs.

Reference: Steinke, Nasr and Jagielski 2023, Theorem 5.2 and Appendix D.
Departure: several numbers of guesses at once, by dividing the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import real, whole
from reticent.audit.black_box import FALSE_ALARM, SHOWN
from reticent.audit.findings import RunFinding
from reticent.audit.statistics import Floats, special
from reticent.errors import ParameterError

LEAST_CANARIES = 10
_FEWEST_GUESSES = 30  # with fewer, all of them right prove little at 1e-6
_STEPS = 60  # of bisection
_MOST_EPSILON = 200.0

Bits = NDArray[np.bool_]


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float = 0.0) -> float:
    """Bound the chance of so many right guesses, or more, under (epsilon, delta).

    Args:
        canaries: m, each in the training with chance 1/2.
        guesses: r, how many were guessed.
        right: v, how many of the guesses were right.
        epsilon: Epsilon of the claim.
        delta: Delta of the claim.

    Reference: Steinke, Nasr and Jagielski 2023, Theorem 5.2: beta + 2 m delta alpha, with W ~ Bin(r, q),
        beta = P(W >= v) and alpha the largest P(v > W >= v - i) / i over i.
    """
    beta, alpha = _tails(guesses, right, epsilon, is_pure=delta == 0.0)
    return min(1.0, beta + 2.0 * canaries * delta * alpha)


def _tails(guesses: int, right: int, epsilon: float, *, is_pure: bool) -> tuple[float, float]:
    """Beta and alpha; alpha only where it is needed."""
    if right <= 0:
        return 1.0, 0.0
    q = 1.0 / (1.0 + np.exp(-epsilon))
    beta = float(special().betainc(right, guesses - right + 1.0, q))
    if is_pure:
        return beta, 0.0
    steps = np.arange(1, right + 1)
    below = np.append(special().betainc(right - steps[:-1], guesses - right + steps[:-1] + 1.0, q), 1.0)
    return beta, float(np.max((below - beta) / steps))


def least_epsilon(canaries: int, guesses: int, right: int, *, delta: float, error: float) -> float:
    """A lower bound on epsilon at a delta, too high with chance at most `error`; 0 if nothing is proved."""
    low, high = 0.0, _MOST_EPSILON
    if p_value(canaries, guesses, right, low, delta) >= error:
        return 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        if p_value(canaries, guesses, right, middle, delta) < error:
            low = middle
        else:
            high = middle
    return low


def least_delta(canaries: int, guesses: int, right: int, *, epsilon: float, error: float) -> float:
    """A lower bound on delta at an epsilon, too high with chance at most `error`; 0 if nothing is proved."""
    beta, alpha = _tails(guesses, right, epsilon, is_pure=False)
    return min(1.0, (error - beta) / (2.0 * canaries * alpha)) if beta < error and alpha > 0.0 else 0.0


@dataclass(frozen=True)
class Guessed:
    """Guesses that were made and compared, and their part of the error."""

    guesses: int
    right: int
    share: float


def judged(
    included: Any,
    scores: Any,
    *,
    epsilon: float,
    delta: float = 0.0,
    guesses: Sequence[int] | None = None,
    false_alarm: float = FALSE_ALARM,
) -> RunFinding:
    """Compare guesses with the truth, and say what they prove against (epsilon, delta).

    Args:
        included: Booleans that say which canaries were in, drawn by fair coins that the training did not see
            otherwise.
        scores: one number for each canary, from what the training gave out: the higher, the likelier it was
            in. If all are -1, 0 or 1 and delta is 0, they are the guesses themselves: 0 for none.
        epsilon: Epsilon of the claim.
        delta: Delta of the claim.
        guesses: Numbers of canaries that are guessed, one or several, fixed beforehand; all of them, a half,
            a quarter and so on if not given.
        false_alarm: chance to accuse a training that keeps its claim.
    """
    claimed, slack = real("epsilon", epsilon, low=0.0), real("delta", delta, low=0.0, high=1.0)
    error = real("false_alarm", false_alarm, low=0.0, high=0.5, open_low=True)
    truth, found = np.asarray(included, dtype=np.bool_), _checked(scores, np.size(included))
    tried = _tried(truth, found, guesses, slack)
    m = truth.size

    def lower(error: float) -> tuple[float, Guessed]:
        bounds = [
            least_epsilon(m, one.guesses, one.right, delta=slack, error=error * one.share) for one in tried
        ]
        best = int(np.argmax(bounds))
        return bounds[best], tried[best]

    (sure, best), (likely, _) = lower(error), lower(SHOWN)
    least, slack_95 = (
        max(least_delta(m, one.guesses, one.right, epsilon=claimed, error=part * one.share) for one in tried)
        for part in (error, SHOWN)
    )
    passed = sure <= claimed
    verdict = "no more than claimed" if passed else f"more than the claimed {claimed:g}"
    at = f" at delta {slack:g}" if slack else ""
    words = f"{best.right} of {best.guesses} guesses on {m} canaries are right"
    extra = (
        "" if passed else f"; at epsilon {claimed:g}, delta is at least {least:.3g} (at 95 %: {slack_95:.3g})"
    )
    if all(p_value(m, one.guesses, one.guesses, 0.0, slack) >= error * one.share for one in tried):
        extra = f"; at delta {slack:g} nothing is proved at {error:g}: with that chance all may be told"
    detail = f"epsilon{at} is at least {sure:.4g} (at 95 %: {likely:.4g}), {verdict} ({words}){extra}"
    return RunFinding(
        "run", passed, detail, sure, claimed, words, (0, 1), m, likely,
        false_alarm=error, delta=slack, least_delta=least, likely_delta=slack_95,
        guesses=best.guesses, right=best.right,
    )  # fmt: skip


def _checked(scores: Any, canaries: int) -> Floats:
    """One number for each canary."""
    try:
        if np.iscomplexobj(scores):
            raise TypeError("complex numbers have no order")
        found = np.asarray(scores, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise ParameterError("scores must be one number for each canary") from error
    if found.size != canaries:
        raise ParameterError(f"scores must be one number for each of {canaries} canaries, got {found.size}")
    return found


def _ordered(scores: Floats) -> NDArray[np.int64]:
    """Canaries from the highest score to the lowest; those without a number lie in the middle."""
    order = np.argsort(-scores, kind="stable")  # what is no number comes last
    numbers = order[: scores.size - int(np.isnan(scores).sum())]
    half = numbers.size // 2
    return np.concatenate([numbers[:half], order[numbers.size :], numbers[half:]])


def _tried(truth: Bits, scores: Floats, guesses: Sequence[int] | None, delta: float) -> list[Guessed]:
    if delta == 0.0 and guesses is None and np.isin(scores, (-1.0, 0.0, 1.0)).all():
        made = scores != 0.0  # how many may depend on what was given out: the bound holds given all guesses
        return [Guessed(int(made.sum()), int(np.sum((scores > 0.0)[made] == truth[made])), 1.0)]
    order = _ordered(scores)
    numbers = _numbers(truth.size, guesses)
    shares = [1.0] if len(numbers) == 1 else [0.5] + [0.5 / (len(numbers) - 1)] * (len(numbers) - 1)
    return [
        Guessed(
            number,
            int(truth[order[: (number + 1) // 2]].sum() + (~truth[order[truth.size - number // 2 :]]).sum()),
            share,
        )
        for number, share in zip(numbers, shares, strict=True)
    ]


def _numbers(canaries: int, guesses: Sequence[int] | None) -> list[int]:
    if guesses is None:
        found = [canaries]
        while found[-1] // 2 >= _FEWEST_GUESSES:
            found.append(found[-1] // 2)
        return found
    listed = [guesses] if isinstance(guesses, int) else list(guesses)
    if not listed:
        raise ParameterError("guesses must hold at least one number")
    return sorted({whole("guesses", one, low=1, high=canaries) for one in listed}, reverse=True)
