"""Black box (T3): a lower bound on the loss of any callable, from its outputs alone.

For every ordered pair of inputs the first half of the samples chooses an event S (a threshold set of the
estimated likelihood ratio, or one symbol; a quarter orders the symbols, a quarter compares the sets). The
second half tests it: with l a lower bound on P(S | a) and u an upper bound on P(S | b), the loss is at
least ln((l - delta) / u), or Phi^-1(l) - Phi^-1(u) for a claim in mu.

False alarms: Clopper-Pearson bounds are exact and the event is fixed before the second half is looked at, so
a mechanism that keeps its claim is accused with probability at most `false_alarm` (1e-6) per audit, divided
over all pairs and both bounds. The bound at 95 % that is shown beside is above a true claim in at most 5 % of
audits, and gives no verdict. This needs outputs that are drawn independently: see `total.check_streams`.

What it cannot see: losses on events too rare for the samples, inputs not given, and small excesses. In the
notion (epsilon, delta), Gaussian noise with sigma / 1.41 was not found with 3 million samples;
in the notion mu it is. A bound below the claim proves nothing: `exact` and `fit` are
needed too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.audit.findings import BlackBoxFinding
from reticent.audit.outputs import Array, Codes, View, as_sampler, drawn, views
from reticent.audit.statistics import Floats, share_above, share_below, special
from reticent.errors import ParameterError
from reticent.randomness import Stream

FULL_SAMPLES = 1_000_000
QUICK_SAMPLES = 100_000
FALSE_ALARM = 1e-6
SHOWN = 0.05  # the error of the bound that is shown beside the verdict
_PREFIXES = 400
_SINGLES = 64


@dataclass(frozen=True)
class Claim:
    """A privacy claim: epsilon with delta, or mu (Gaussian differential privacy)."""

    level: float
    delta: float = 0.0
    gaussian: bool = False

    def loss(self, low: Floats, high: Floats) -> Floats:
        """Return the loss that chances of at least `low` and at most `high` of one event prove."""
        with np.errstate(all="ignore"):
            if self.gaussian:
                proven = special().ndtri(low) - special().ndtri(high)
            else:
                proven = np.log(np.maximum(low - self.delta, 0.0)) - np.log(high)
        return np.where(np.isfinite(proven), np.maximum(proven, 0.0), 0.0)


@dataclass(frozen=True)
class _Event:
    score: float
    view: View
    codes: Codes

    def count(self, outputs: Array) -> int:
        member = np.zeros(self.view.size + 1, dtype=np.bool_)
        member[self.codes] = True
        return int(np.count_nonzero(member[self.view.codes(outputs)]))  # code -1 is the last place


def black_box(
    mechanism: Any,
    inputs: Sequence[Any],
    *,
    epsilon: float,
    delta: float = 0.0,
    gaussian: bool = False,
    distances: Sequence[Sequence[float]] | None = None,
    samples: int = FULL_SAMPLES,
    false_alarm: float = FALSE_ALARM,
    rng: Stream | None = None,
) -> BlackBoxFinding:
    """Audit a callable against a claim.

    Args:
        mechanism: f(value), f(value, size) or f(value, size, rng) -> outputs.
        inputs: at least two private values; all ordered pairs are compared.
        epsilon: the claimed loss: epsilon, or mu if `gaussian`, per unit if `distances` is given.
        delta: Delta of an (epsilon, delta) claim. With distances it is that of `ApproximateMetricDP`: P(S |
            x) <= e^(epsilon d) (P(S | x') + delta).
        gaussian: True if the claim is mu-GDP.
        distances: d(input, input') for metric privacy: the claim for a pair is epsilon times it.
        samples: outputs per input.
        false_alarm: chance to accuse a mechanism that keeps its claim.
        rng: handed on to a mechanism that takes it.
    """
    claim = Claim(real("epsilon", epsilon, low=0.0), real("delta", delta, low=0.0, high=1.0), gaussian)
    samples = whole("samples", samples, low=100)
    if len(inputs) < 2:
        raise ParameterError(f"inputs must hold at least two values, got {len(inputs)}")
    sampler = as_sampler(mechanism, rng)
    halves = [np.array_split(drawn(sampler, value, samples), 2) for value in inputs]
    pairs = list(permutations(range(len(inputs)), 2))
    error = real("false_alarm", false_alarm, low=0.0, high=0.5, open_low=True) / len(pairs) / 2.0
    shown = SHOWN / len(pairs) / 2.0
    best, likely = (0.0, "no event tells any two inputs apart", pairs[0]), 0.0
    for a, b in pairs:
        distance = 1.0 if distances is None else float(distances[a][b])
        if distance <= 0.0:
            raise ParameterError("distances must be > 0 between different inputs")
        of_pair = claim if distances is None else replace(claim, delta=_scaled(claim, distance))
        event = _chosen(halves[a][0], halves[b][0], of_pair, error)
        if event is None:
            continue
        proven = _tested(event, halves[a][1], halves[b][1], of_pair, error) / distance
        likely = max(likely, _tested(event, halves[a][1], halves[b][1], of_pair, shown) / distance)
        if proven > best[0]:
            best = (proven, event.view.words(event.codes), (a, b))
    lower, words, pair = best
    passed = lower <= epsilon
    name = "mu" if gaussian else "epsilon"
    verdict = "no more than claimed" if passed else f"more than the claimed {epsilon:g}"
    detail = (
        f"{name} is at least {lower:.4g} (at 95 %: {likely:.4g}), {verdict} "
        f"(event: {words}; inputs {pair[0]} and {pair[1]})"
    )
    return BlackBoxFinding(
        "black box", passed, detail, lower, epsilon, words, pair, samples, likely, false_alarm=false_alarm
    )


def _scaled(claim: Claim, distance: float) -> float:
    """Return the delta between two inputs at a distance: e^(epsilon d) delta, at most 1."""
    return min(1.0, claim.delta * math.exp(min(claim.level * distance, 700.0)))


def _chosen(first_a: Array, first_b: Array, claim: Claim, error: float) -> _Event | None:
    """The event that proves most, over all views: one part of the first half orders, the other scores."""
    best: _Event | None = None
    (order_a, score_a), (order_b, score_b) = (np.array_split(half, 2) for half in (first_a, first_b))
    for view in views([order_a, order_b]):
        ratio = (_counts(view, order_a) + 0.5) / (_counts(view, order_b) + 0.5)
        counts = _counts(view, score_a), _counts(view, score_b)
        score, codes = _best_set(ratio, *counts, len(score_a), len(score_b), claim, error)
        if codes.size and (best is None or score > best.score):
            best = _Event(score, view, codes)
    return best


def _counts(view: View, outputs: Array) -> Floats:
    return np.bincount(view.codes(outputs) + 1, minlength=view.size + 1)[1:].astype(np.float64)


def _best_set(
    ratio: Floats, in_a: Floats, in_b: Floats, n_a: int, n_b: int, claim: Claim, error: float
) -> tuple[float, Codes]:
    """Threshold sets of the likelihood ratio, and the most telling single symbols."""
    order = np.flatnonzero(ratio != 1.0)
    order = order[np.argsort(-ratio[order], kind="stable")]
    if order.size == 0:
        return 0.0, order
    sum_a, sum_b = np.cumsum(in_a[order]), np.cumsum(in_b[order])
    places = np.searchsorted(sum_a, np.linspace(0.0, sum_a[-1], _PREFIXES + 1)[1:])
    places = np.unique(np.concatenate([places[places < order.size], np.arange(min(order.size, _SINGLES))]))
    sets = claim.loss(share_below(sum_a[places], n_a, error), share_above(sum_b[places], n_b, error))
    clear = (in_a[order] - in_b[order]) / np.sqrt(in_a[order] + in_b[order] + 1.0)
    singles = order[np.argsort(-clear)][:_SINGLES]
    alone = claim.loss(share_below(in_a[singles], n_a, error), share_above(in_b[singles], n_b, error))
    top_set, top_single = int(sets.argmax()), int(alone.argmax())
    if alone[top_single] > sets[top_set]:
        return float(alone[top_single]), singles[top_single : top_single + 1]
    return float(sets[top_set]), order[: places[top_set] + 1]


def _tested(event: _Event, second_a: Array, second_b: Array, claim: Claim, error: float) -> float:
    low = share_below(event.count(second_a), len(second_a), error)
    high = share_above(event.count(second_b), len(second_b), error)
    return float(claim.loss(low, high))
