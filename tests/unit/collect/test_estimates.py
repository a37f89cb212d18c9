"""What a table says: without bias for every kind of mechanism, as exact as promised, robust options."""

import math

import numpy as np
import pytest
from scipy.stats import chi2

from reticent.collect.estimates import (
    devices_for,
    estimates,
    liars_shift,
    median_of_groups,
    trimmed_mean_of_groups,
)
from reticent.collect.explanation import standard_error
from reticent.collect.instruments import worst_variance
from reticent.collect.tally import Tally, columns
from reticent.errors import ParameterError
from reticent.estimation.intervals import deviation_bound
from reticent.mechanisms.base import Channel
from reticent.mechanisms.numeric.base import NumericChannel
from reticent.mechanisms.numeric.one_bit import OneBit
from reticent.mechanisms.record import Category, Number
from reticent.mechanisms.sampling import sampled_attributes
from reticent.randomness import SimulationStream

from . import fleet


def drawn(survey, place, values, ids, stream):
    """Symbols of one attribute, as the collector counts them."""
    instrument = survey.instruments[place]
    if isinstance(instrument, OneBit):
        levels = survey.lots.dither(ids, 0, place, instrument.dither_levels)
        return instrument.sample(values, stream, dither=levels)
    draw = instrument.sample if isinstance(instrument, Channel) else instrument.perturb
    return draw(values, stream)


def told(survey, columns_of, seed, only=None):
    """The table of people whose values are the columns, some attributes of each."""
    stream, rng = SimulationStream(seed), np.random.default_rng(seed)
    n = len(columns_of[0])
    ids = rng.integers(0, 1 << 64, n, dtype=np.uint64)
    d, k = len(survey.attributes), survey.sample_size
    sampled = sampled_attributes(n, d, k, stream)
    groups, tally = survey.lots.group(ids, survey.groups), Tally.empty(survey)
    for place, values in enumerate(columns_of):
        if only not in (None, place):
            continue
        rows = np.flatnonzero((sampled == place).any(axis=1))
        tally.add(place, groups[rows], drawn(survey, place, values[rows], ids[rows], stream))
    return tally


def is_unbiased(instrument, found, truth):
    """Whether an estimate is within what chance allows with probability 1 - 1e-6."""
    if isinstance(instrument, NumericChannel):
        reach = float(np.ptp(instrument.alphabet)) + instrument.bounds[1] - instrument.bounds[0]
        value = found.mean.value
    else:
        reach = float(1 / (instrument.p - instrument.q))
        value = found.frequencies.frequencies
    variance = worst_variance(instrument, 1.0)
    confidence = 1 - 1e-6 / np.size(truth)
    chance = deviation_bound(found.reports, variance, reach, confidence=confidence)
    return bool(np.all(np.abs(value - truth) <= chance))


@pytest.mark.parametrize("epsilon", [0.625, 2.0])
@pytest.mark.parametrize("kind", fleet.KINDS)
def test_estimates_have_no_bias(kind, epsilon):
    survey, n = fleet.single(kind, epsilon=epsilon, groups=8), 60_000
    instrument, rng = survey.instruments[0], np.random.default_rng(1)
    if kind in fleet.NUMERIC:
        values = rng.choice([0.0, 20.0, 100.0], n)
        truth, wrong = values.mean(), values.mean() + 10.0
    else:
        values = rng.choice(["car", "bus", "lorry"], n, p=[0.6, 0.3, 0.1])
        truth = np.array([(values == one).mean() for one in survey.attributes[0].values])
        wrong = truth[::-1]
    (found,) = estimates(told(survey, [values], seed=2))
    assert found.reports == n
    assert is_unbiased(instrument, found, truth)
    assert not is_unbiased(instrument, found, wrong) or (kind == "PM" and epsilon < 1)


def test_planted_levels_that_senders_choose_are_a_bias():
    """What `lots` is for: OneBit with every bit said to be about the highest level."""
    survey, n = fleet.single("OneBit"), 20_000
    instrument, stream = survey.instruments[0], SimulationStream(3)
    honest = instrument.sample(np.full(n, 20.0), stream)
    for symbols, right in ((honest, True), (2 * (instrument.dither_levels - 1) + (honest & 1), False)):
        tally = Tally.empty(survey)
        tally.add(0, np.zeros(n, dtype=np.int64), symbols)
        assert is_unbiased(instrument, estimates(tally)[0], 20.0) is right


def several(**changes):
    """Two numbers and two categories, of which a report holds one."""
    numbers, categories = (Number("x"), Number("y")), (Category("c", 4), Category("z", 4))
    asked = zip((*numbers, *categories), ("Window", "OneBit", "KRR", "OUE"), strict=True)
    return fleet.survey(*asked, **{"epsilon": 4.0, "sample_size": 1, "groups": 4} | changes)


def worst_people(n, rng):
    """Numbers at both ends, categories half and half: the spread that who reports adds is the largest."""
    ends = rng.permutation(np.repeat([-1.0, 1.0], n // 2))
    return [ends, rng.permutation(ends), rng.permutation(np.repeat([0, 1], n // 2)), rng.permutation(n) % 2]


def test_several_attributes_have_no_bias():
    survey, n = several(sample_size=2), 40_000
    people = worst_people(n, np.random.default_rng(4))
    found = estimates(told(survey, people, seed=5))
    assert sum(one.reports for one in found) == 2 * n
    for one, values in zip(found, people, strict=True):
        if one.mean is not None:
            assert one.mean.lower <= 0.0 <= one.mean.upper
            assert one.mean.target == "population"
        else:
            shares = np.bincount(values, minlength=4) / n
            assert ((one.frequencies.lower <= shares) & (shares <= one.frequencies.upper)).all()


@pytest.mark.parametrize("place", range(4))
def test_devices_for_is_what_a_simulation_finds(place):
    """Fleets of as many devices as an error of 0.1 takes: their errors are as large as the variances say.

    The mean square of 150 errors is within chi-square's limits but for 1e-6.
    """
    survey, error, runs = several(groups=1), 0.1, 150
    instrument, rate = survey.instruments[place], 0.25
    n = devices_for(survey, place, error) // 2 * 2
    misses = []
    for seed in range(runs):
        people = worst_people(n, np.random.default_rng(seed))
        found = estimates(told(survey, people, seed, only=place))[place]
        value = found.mean.value if found.mean else found.frequencies.frequencies[0]
        misses.append(value - (0.0 if found.mean else 0.5))
    if isinstance(instrument, NumericChannel):
        noise, spread = float(instrument.variance(1.0)), 1.0
    else:
        noise, spread = float(instrument.frequency_variance(0.5)), 0.25
    expected = (noise + (1 - rate) * spread) / rate / n
    assert 0.6 * error**2 < expected <= 1.01 * error**2  # these people are nearly the worst
    low, high = chi2.ppf([5e-7, 1 - 5e-7], runs) / runs
    measured = float(np.mean(np.square(misses)))
    assert low < measured / expected < high
    if place == 0:  # planted: the spread left out, which is most of it here
        assert measured / (noise / rate / n) > high


def test_more_devices_are_needed_for_a_smaller_error():
    survey = several()
    for place in range(4):
        n = devices_for(survey, place, 0.01)
        assert standard_error(survey, place, n) <= 0.01 < standard_error(survey, place, n - 1)
        assert n == pytest.approx(4 * devices_for(survey, place, 0.02), abs=4)
    for error in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ParameterError, match="error must be > 0"):
            devices_for(survey, 0, error)


def test_nobody_reported():
    for one in estimates(Tally.empty(several())):
        assert (one.reports, one.mean, one.frequencies, one.robust) == (0, None, None, None)


def test_groups_are_robust_in_the_middle():
    survey = several(sample_size=4, epsilon=16.0, groups=16)
    people = worst_people(20_000, np.random.default_rng(7))
    tally = told(survey, people, seed=8)
    for place, one in enumerate(estimates(tally)):
        assert np.shape(one.robust) == (() if one.mean else (4,))
        plain = one.mean.value if one.mean else one.frequencies.frequencies
        for trim in (0.0, 0.1, 0.49):
            np.testing.assert_allclose(trimmed_mean_of_groups(tally, place, trim=trim), plain, atol=0.1)
        np.testing.assert_allclose(one.robust, plain, atol=0.1)
    tally.counts[0][3] = 0
    tally.counts[0][3, -1] = tally.reports[0][3]  # one group is all lies
    assert abs(median_of_groups(tally, 0)) < 0.1
    assert abs(trimmed_mean_of_groups(tally, 0, trim=0.1)) < 0.1
    assert estimates(tally)[0].mean.value > 0.05


def test_a_trimmed_mean_leaves_out_what_it_says():
    survey = fleet.survey((Number("x"), "Duchi"), epsilon=1.0, groups=4)
    tally = Tally.empty(survey)
    tally.reports[0][:] = 10
    tally.counts[0][:, 1] = (0, 4, 6, 10)
    tally.counts[0][:, 0] = (10, 6, 4, 0)
    c = survey.instruments[0].alphabet[1]
    tally.counts[0][3] = (0, 10)
    assert trimmed_mean_of_groups(tally, 0, trim=0.25) == pytest.approx(0.0, abs=1e-12)
    tally.counts[0][1] = (5, 5)
    assert trimmed_mean_of_groups(tally, 0, trim=0.25) == pytest.approx(0.1 * c)
    assert trimmed_mean_of_groups(tally, 0, trim=0.0) == pytest.approx(0.05 * c)
    assert median_of_groups(tally, 0) == pytest.approx(0.1 * c)
    for trim in (-0.1, 0.5, math.nan):
        with pytest.raises(ParameterError, match="trim must be"):
            trimmed_mean_of_groups(tally, 0, trim=trim)


def test_too_few_say_nothing():
    survey = fleet.survey((Number("x"), "Duchi"), groups=4)
    tally = Tally.empty(survey)
    tally.reports[0][:] = (50, 50, 9, 9)
    assert median_of_groups(tally, 0) is None
    assert trimmed_mean_of_groups(tally, 0, trim=0.1) is None


def test_shifts_are_told_for_each_share():
    survey = several()
    for place, one in enumerate(estimates(told(survey, worst_people(2_000, np.random.default_rng(9)), 9))):
        assert list(one.shifts) == [0.001, 0.01, 0.1]
        assert one.shifts[0.1] == liars_shift(survey, place, 0.1)
        assert liars_shift(several(assigned=True), place, 0.01).by_outputs < one.shifts[0.01].by_outputs
    assert liars_shift(survey, 0, 0.0).by_outputs == 0.0


def test_tables_add_up():
    survey = several()
    people = worst_people(4_000, np.random.default_rng(1))
    one, other = told(survey, people, seed=1), told(survey, people, seed=2)
    before = [array.copy() for array in (*one.counts, *one.reports)]
    one.merge(other)
    for was, added, now in zip(
        before, (*other.counts, *other.reports), (*one.counts, *one.reports), strict=True
    ):
        assert (was + added == now).all()
    assert [columns(instrument) for instrument in survey.instruments] == [5, 2048, 4, 4]
    with pytest.raises(ParameterError, match="tallies must be of one survey"):
        one.merge(Tally.empty(fleet.mixed()))
