"""Intervals of combined answers, through the real session: of fixed questions, and of chosen ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reticent.query import Case

from .reusing import Town, holds, holds_however_chosen

LEVEL = 0.95
EQUAL = np.full((26, 2), 500)
SPREAD = np.array([[350 + 12 * i, 350 + 12 * i] for i in range(26)])  # from 700 to 1,300


def coverage_of_fixed(regions, sessions, seed):
    """How often the interval of one region's count holds it; half of them with a part that is drawn anew."""
    held = cases = 0
    for number in range(sessions):
        town = Town(np.full((regions, 2), 700), seed=seed + number)
        town.by_region(information=0.02)
        town.by_both(information=0.03)
        for region in range(regions):
            answer = town.among([region], information=0.022 if region % 2 else 0.05)
            assert bool(answer.cost) is not bool(region % 2)
            cases += answer.case is Case.SPAN
            held += holds(answer, 1400)
    assert cases == regions * sessions
    return held / cases


def tolerance(count, standard_errors=5.0):
    """False alarms: 6e-7."""
    return standard_errors * math.sqrt(LEVEL * (1 - LEVEL) / count)


def test_intervals_of_fixed_questions_hold():
    assert coverage_of_fixed(50, 6, 1) == pytest.approx(LEVEL, abs=tolerance(300))


@pytest.mark.slow
@pytest.mark.parametrize("sessions", [400])
def test_intervals_of_fixed_questions_hold_to_half_a_percent(sessions):
    """40,000 answers: 0.5 % is 4.6 standard errors, false alarms 4e-6."""
    found = coverage_of_fixed(100, sessions, 100)
    print(f"coverage {found:.4f} of {100 * sessions} answers")
    assert found == pytest.approx(LEVEL, abs=0.005)


def test_an_interval_that_counts_the_own_key_twice_would_be_noticed(monkeypatch):
    """Planted: 30 % less noise than there is."""
    from reticent.query.span.weights import Estimate

    right = Estimate.variance.fget
    monkeypatch.setattr(Estimate, "variance", property(lambda self: right(self) * 0.49))
    assert coverage_of_fixed(50, 6, 1) < LEVEL - tolerance(300)


def chosen_by_looking(counts, sessions, seed, information=0.0004):
    """Regions that look larger than they would on average, asked for together: three coverages."""
    narrow = wide = fresh = 0
    for number in range(sessions):
        town = Town(counts, seed=seed + number)
        table = town.by_region(information=information)
        seen = np.array([cell.estimate.unbiased for cell in table.cells])
        chosen = np.flatnonzero(seen > seen.mean())
        truth = town.counts[chosen].sum()
        answer = town.among(chosen, information=information / (2 * len(chosen)))
        assert answer.case is Case.SPAN
        assert not answer.cost
        narrow += holds(answer, truth)
        wide += holds_however_chosen(answer, truth)
        fresh += holds(town.among(chosen, information=information, reuse="none"), truth)
    return narrow / sessions, wide / sessions, fresh / sessions


def test_looking_breaks_the_interval_and_the_two_ways_out_hold():
    narrow, wide, fresh = chosen_by_looking(EQUAL, 150, 1)
    assert narrow < 0.5  # it is told with the answer, and in limits.md
    assert wide >= LEVEL - tolerance(150)
    assert fresh == pytest.approx(LEVEL, abs=tolerance(150))


@pytest.mark.slow
@pytest.mark.parametrize("sessions", [2000])
@pytest.mark.parametrize(
    ("counts", "information"), [(EQUAL, 0.0004), (SPREAD, 0.0001)], ids=["equal", "spread"]
)
def test_what_looking_costs(sessions, counts, information):
    """The numbers of limits.md."""
    narrow, wide, fresh = chosen_by_looking(counts, sessions, 1000, information)
    print(f"chosen by looking: {narrow:.3f}; any choice: {wide:.3f}; fresh: {fresh:.3f}")
    assert narrow < LEVEL - tolerance(sessions)
    assert wide >= LEVEL - tolerance(sessions)
    assert fresh == pytest.approx(LEVEL, abs=tolerance(sessions))
