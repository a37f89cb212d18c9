"""T17: liars send the symbol of their choice: the shift is within the published bound, smaller with options.

Everybody's truth is as far from the lie as it can be. Where devices draw what they report, liars all report
the attribute that they want to move. Statistical checks fail by chance with probability 1e-6 each
(`deviation_bound`).
"""

import numpy as np
import pytest

from reticent.collect.estimates import estimates, liars_shift, median_of_groups, trimmed_mean_of_groups
from reticent.collect.instruments import worst_variance
from reticent.collect.tally import Tally
from reticent.estimation.intervals import deviation_bound
from reticent.mechanisms.categorical import KRR, OLH, OUE
from reticent.mechanisms.categorical.olh import buckets_of
from reticent.mechanisms.numeric.base import NumericChannel
from reticent.mechanisms.numeric.one_bit import OneBit
from reticent.mechanisms.record import Category, Number
from reticent.mechanisms.sampling import sampled_attributes
from reticent.randomness import SimulationStream

from . import fleet

SHARES = (0.001, 0.01, 0.1)
KINDS = ("Duchi", "OneBit", "PM", "Window", "KRR", "OUE", "OLH", "Subset")
ATTRIBUTES, QUICK = 5, 30_000
TARGET, TRUTH = 0, 1  # the category that liars push, and that of everybody


def asked_of(kind, **changes):
    """One of five attributes in each report, at a level where lies are loud."""
    make = (lambda name: Number(name)) if kind in fleet.NUMERIC else (lambda name: Category(name, 4))
    asked = [(make(f"a{i}"), kind) for i in range(ATTRIBUTES)]
    return fleet.survey(*asked, epsilon=4.0, **{"sample_size": 1} | changes)


def honest_symbols(instrument, ids, survey, stream):
    """What people report whose values are all at the lower end, or all the same category."""
    if isinstance(instrument, OneBit):
        levels = survey.lots.dither(ids, 0, 0, instrument.dither_levels)
        return instrument.sample(np.full(ids.size, -1.0), stream, dither=levels)
    if isinstance(instrument, NumericChannel):
        return instrument.sample(np.full(ids.size, -1.0), stream)
    draw = instrument.sample if isinstance(instrument, KRR) else instrument.perturb
    return draw(np.full(ids.size, TRUTH), stream)


def lies(instrument, symbols):
    """The legal symbols that move the mean, or the target's frequency, up the most."""
    worst = symbols.copy()
    if isinstance(instrument, OneBit):  # the level is not the liar's to choose
        return worst | 1
    if isinstance(instrument, NumericChannel):
        return np.full_like(worst, int(np.argmax(instrument.alphabet)))
    if isinstance(instrument, OUE):
        worst[:] = False
        worst[:, TARGET] = True
    elif isinstance(instrument, OLH):
        worst["value"] = buckets_of(worst["seed"], instrument._keys[TARGET], instrument.buckets)
    else:
        worst[:] = TARGET  # of Subset: seed 0, whose block begins with 0
    return worst


def tallied(survey, share, people, seed, *, copies=1):
    """The table of attribute 0; with `copies`, of liars who are counted more than once."""
    rng, stream = np.random.default_rng(seed), SimulationStream(seed)
    ids = rng.integers(0, 1 << 64, people, dtype=np.uint64)
    is_liar = np.arange(people) < round(share * people)
    d, k = len(survey.attributes), survey.sample_size
    if survey.assigned:
        holds = survey.lots.attributes(ids, 0, k, d)[:, 0]
    else:
        holds = (sampled_attributes(people, d, k, stream) == 0).any(axis=1) | is_liar
    instrument = survey.instruments[0]
    symbols = honest_symbols(instrument, ids, survey, stream)
    symbols[is_liar] = lies(instrument, symbols[is_liar])
    rows = np.flatnonzero(holds)
    rows = np.concatenate([rows, *[rows[is_liar[rows]]] * (copies - 1)])
    tally = Tally.empty(survey)
    tally.add(0, survey.lots.group(ids[rows], survey.groups), symbols[rows])
    return tally


def value(instrument, told):
    """A mean, or the target's frequency, less what is true."""
    return float(told) + 1.0 if isinstance(instrument, NumericChannel) else float(np.asarray(told)[TARGET])


def shift(tally):
    found, instrument = estimates(tally)[0], tally.survey.instruments[0]
    return value(instrument, found.mean.value if found.mean else found.frequencies.frequencies)


def allowed(survey, share, reports):
    """The published bound, and what chance adds with probability 1e-6: noise, and how many liars hold it."""
    instrument = survey.instruments[0]
    if isinstance(instrument, NumericChannel):
        reach = float(np.ptp(instrument.alphabet)) + 2.0
    else:
        reach = float(1 / (instrument.p - instrument.q))
    variance = worst_variance(instrument, 1.0) + share * reach**2
    bound = liars_shift(survey, 0, share).by_outputs
    return bound, deviation_bound(reports, variance, reach, confidence=1 - 1e-6)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("assigned", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_shift_is_within_the_published_bound(kind, assigned, share):
    survey = asked_of(kind, assigned=assigned)
    tally = tallied(survey, share, QUICK, seed=1)
    bound, chance = allowed(survey, share, int(tally.reports[0].sum()))
    assert shift(tally) <= bound + chance


@pytest.mark.parametrize("kind", ["Duchi", "PM", "KRR", "OUE", "OLH", "Subset"])
def test_the_bound_is_what_liars_reach(kind):
    """Not a bound far away: a tenth of liars moves what is published, but for chance."""
    survey = asked_of(kind)
    tally = tallied(survey, 0.1, QUICK, seed=2)
    bound, chance = allowed(survey, 0.1, int(tally.reports[0].sum()))
    assert shift(tally) > 0.85 * bound - chance


@pytest.mark.parametrize("kind", KINDS)
def test_planted_liars_counted_five_times_pass_the_bound(kind):
    survey = asked_of(kind, assigned=True)
    tally = tallied(survey, 0.1, QUICK, seed=3, copies=5)
    bound, chance = allowed(survey, 0.1, int(tally.reports[0].sum()))
    assert shift(tally) > bound + chance


@pytest.mark.parametrize("kind", ["Duchi", "PM", "KRR"])
def test_planted_a_bound_that_forgets_the_choice_of_attribute_is_passed(kind):
    """Where devices draw what they report, a tenth of liars is over a third of one attribute."""
    tally = tallied(asked_of(kind), 0.1, QUICK, seed=4)
    bound, chance = allowed(asked_of(kind, assigned=True), 0.1, int(tally.reports[0].sum()))
    assert shift(tally) > bound + chance


def median(tally):
    return value(tally.survey.instruments[0], median_of_groups(tally, 0))


def trimmed(tally):
    return value(tally.survey.instruments[0], trimmed_mean_of_groups(tally, 0, trim=0.25))


OPTIONS = (
    ({}, shift),
    ({"assigned": True}, shift),
    ({"assigned": True, "groups": 256}, median),
    ({"assigned": True, "groups": 256}, trimmed),
)


def shifts(kind, share, people, seeds):
    """The mean shift by option, over seeds; that of the same people all honest is taken off."""
    found = [
        [
            estimate(tallied(survey, share, people, seed)) - estimate(tallied(survey, 0.0, people, seed))
            for survey, estimate in ((asked_of(kind, **options), estimate) for options, estimate in OPTIONS)
        ]
        for seed in range(seeds)
    ]
    return np.mean(found, axis=0)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("kind", ["PM", "KRR"])
def test_the_options_make_it_smaller(kind, share):
    """Assigned attributes do: nearly five times where liars are few. Groups do no harm on top."""
    plain, *with_options = shifts(kind, share, QUICK // 2, 4)
    assert max(with_options) < 0.6 * plain


def test_a_median_forgets_lies_that_most_groups_do_not_hold():
    """164 liars in 1024 groups of 16 people, whose honest reports hardly ever show the lie."""
    survey = fleet.survey((Category("c", 4), "KRR"), epsilon=6.0, groups=1024)
    tally, honest = (tallied(survey, share, 16_384, seed=5) for share in (0.01, 0.0))
    assert shift(tally) - shift(honest) > 0.009
    assert abs(median(tally) - median(honest)) < 0.001
    assert abs(trimmed(tally) - trimmed(honest)) < 0.001


def test_a_median_cannot_forget_lies_that_look_like_noise():
    """The limit that `estimates` states: at a small epsilon a lie is no louder than an honest report."""
    survey = fleet.survey((Number("x"), "Duchi"), epsilon=0.5, groups=256)
    moved = np.mean(
        [
            median(tallied(survey, 0.1, QUICK, seed)) - median(tallied(survey, 0.0, QUICK, seed))
            for seed in range(8)
        ]
    )
    assert moved > 0.5 * liars_shift(survey, 0, 0.1).by_outputs
