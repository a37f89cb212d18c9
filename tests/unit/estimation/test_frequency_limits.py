"""Frequencies near 0 and 1: intervals keep a width and hold, and exports lie in them. Seeds are fixed."""

from __future__ import annotations

import numpy as np
import pytest

from reticent.collect.estimates import Estimate
from reticent.collect.export import rows
from reticent.estimation.combining import combined_frequencies
from reticent.estimation.frequencies import frequency_estimate
from reticent.estimation.intervals import proportion_interval
from reticent.mechanisms.categorical import KRR

P, Q, REPORTS, TIMES = 0.4, 0.1, 150, 3_000


def draw_supports(frequency, seed=1):
    rng = np.random.default_rng(seed)
    own = round(REPORTS * frequency)
    return rng.binomial(own, P, TIMES) + rng.binomial(REPORTS - own, Q, TIMES)


def check_limits(lower, upper, frequency):
    assert (upper - lower).min() > 0.02, "an interval claims certainty"
    assert ((lower <= frequency) & (frequency <= upper)).mean() >= 0.95


@pytest.mark.parametrize("frequency", [0.0, 0.02, 0.5, 0.98, 1.0])
def test_intervals_keep_a_width_and_hold(frequency):
    found = frequency_estimate(draw_supports(frequency), REPORTS, p=P, q=Q)
    check_limits(found.lower, found.upper, frequency)
    assert ((found.lower <= found.shown) & (found.shown <= found.upper)).all()


def test_planted_intervals_that_are_only_cut_are_caught():
    limits = proportion_interval(draw_supports(0.0), REPORTS)
    lower, upper = (np.clip((limit - Q) / (P - Q), 0.0, 1.0) for limit in limits)
    with pytest.raises(AssertionError, match="claims certainty"):
        check_limits(lower, upper, 0.0)


def test_intervals_of_every_count_contain_those_that_are_only_cut():
    for count in (1, 2, 7, 40):
        supports = np.arange(count + 1)
        found = frequency_estimate(supports, count, p=P, q=Q)
        cut = [np.clip((limit - Q) / (P - Q), 0.0, 1.0) for limit in proportion_interval(supports, count)]
        assert (found.lower <= cut[0]).all()
        assert (found.upper >= cut[1]).all()


@pytest.mark.parametrize("frequency", [0.0, 1.0])
def test_combined_levels_keep_a_width_too(frequency):
    levels = [(draw_supports(frequency, seed), REPORTS, P, Q - 0.01 * seed) for seed in (1, 2)]
    found = combined_frequencies(levels)
    assert (found.upper - found.lower).min() > 0.02
    assert ((found.lower <= found.shown) & (found.shown <= found.upper)).all()


class OneQuestion:
    """What an export reads of a survey with one category."""

    instruments = (KRR(epsilon=1.0, categories=("a", "b", "c")),)


def test_exported_estimates_lie_in_their_intervals():
    """As told: an estimate below its own lower bound. What is unbiased stands beside it."""
    found = frequency_estimate([2, 60, 88], REPORTS, p=P, q=Q)
    assert found.frequencies[0] < found.lower[0]  # planted: the number that was exported before
    table = rows(OneQuestion(), [Estimate("kind", REPORTS, None, found, None, {})])
    for row, unbiased in zip(table, found.frequencies, strict=True):
        assert row["lower"] <= row["estimate"] <= row["upper"]
        assert row["unbiased"] == unbiased
