"""Mixtures through dp-accounting: never below the exact answer, and unknown events refused."""

import math
import sys
from math import comb

import mpmath
import pytest

from reticent.errors import MissingExtra, MixedGuarantees, ParameterError
from reticent.privacy import (
    ApproximateDP,
    GaussianDP,
    LocalDP,
    MetricDP,
    Neighbours,
    PureDP,
    ZeroConcentratedDP,
    delta_of,
    epsilon_of,
    from_event,
    mixture_delta,
    mixture_epsilon,
    to_event,
)

accounting = pytest.importorskip("dp_accounting")
events = accounting.dp_event


def exact_pure_delta(each: float, count: int, epsilon: float) -> mpmath.mpf:
    """`count` randomised responses together, exactly (Kairouz, Oh and Viswanath 2015)."""
    with mpmath.workdps(40):
        up = 1 / (1 + mpmath.exp(-mpmath.mpf(each)))
        total = mpmath.mpf(0)
        for flipped in range(count + 1):
            loss = each * (count - 2 * flipped)
            if loss > epsilon:
                mass = comb(count, flipped) * up ** (count - flipped) * (1 - up) ** flipped
                total += mass * -mpmath.expm1(mpmath.mpf(epsilon) - loss)
        return total


def exact_mixed_delta(mu: float, each: float, epsilon: float) -> mpmath.mpf:
    """One Gaussian and one randomised response, exactly: the loss of the latter is +-each."""
    up = 1 / (1 + math.exp(-each))

    def curve(t: float) -> mpmath.mpf:  # the Gaussian curve at any real t
        upper = mpmath.erfc((t / mu - mu / 2) / mpmath.sqrt(2)) / 2
        return upper - mpmath.exp(t) * mpmath.erfc((t / mu + mu / 2) / mpmath.sqrt(2)) / 2

    return up * curve(epsilon - each) + (1 - up) * curve(epsilon + each)


def about_one_row(event):
    """The events of other libraries are about a row that comes or goes."""
    return from_event(event, neighbours=Neighbours.ADD_REMOVE_ONE)


def test_replacing_a_row_counts_twice_for_additive_noise():
    """As dp-accounting's own accountant under REPLACE_ONE: epsilon 9.997 at delta 1e-5, not 4.377."""
    event = events.GaussianDpEvent(1.0)
    replaced = from_event(event, neighbours=Neighbours.REPLACE_ONE)
    relations, accountant = accounting.NeighboringRelation, accounting.pld.PLDAccountant
    theirs = accountant(relations.REPLACE_ONE).compose(event).get_epsilon(1e-5)
    assert replaced.mu == 2.0
    assert epsilon_of(replaced.mu, 1e-5) == pytest.approx(theirs, rel=1e-3)
    once = accountant(relations.ADD_OR_REMOVE_ONE).compose(event).get_epsilon(1e-5)
    assert epsilon_of(about_one_row(event).mu, 1e-5) == pytest.approx(once, rel=1e-3)
    assert once < 0.5 * theirs  # planted: charging the replaced row as if it only came or went is caught
    assert from_event(events.LaplaceDpEvent(2.0), neighbours=Neighbours.REPLACE_ONE).epsilon == 1.0
    assert from_event(events.DiscreteLaplaceDpEvent(0.5, 3), neighbours=Neighbours.REPLACE_ONE).epsilon == 3.0


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 5.0])
def test_gaussian_events_round_trip_upwards(mu):
    event = to_event(GaussianDP(mu))
    assert isinstance(event, events.GaussianDpEvent)
    assert mu <= from_event(event, neighbours=Neighbours.REPLACE_ONE).mu <= mu * (1 + 1e-15)


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 10.0, 300.0])
def test_pure_events_round_trip_upwards(epsilon):
    event = to_event(PureDP(epsilon))
    assert isinstance(event, events.RandomizedResponseDpEvent)
    assert epsilon <= about_one_row(event).epsilon <= epsilon * (1 + 1e-11)


def test_other_events():
    row = {"neighbours": Neighbours.ADD_REMOVE_ONE}
    assert about_one_row(to_event(ZeroConcentratedDP(0.5))) == ZeroConcentratedDP(0.5, **row)
    assert about_one_row(events.LaplaceDpEvent(2.0)) == PureDP(0.5, **row)
    assert about_one_row(events.DiscreteLaplaceDpEvent(0.25, 3)) == PureDP(0.75, **row)
    assert about_one_row(events.DiscreteLaplaceDpEvent(0.25, 1)) == PureDP(0.25, **row)
    assert about_one_row(events.RandomizedResponseDpEvent(0.5, 4)).epsilon == pytest.approx(
        math.log(5), rel=1e-14
    )


@pytest.mark.parametrize(
    "event",
    [
        events.GaussianDpEvent(2.0),
        events.LaplaceDpEvent(2.0),
        events.DiscreteLaplaceDpEvent(0.5, 2),
        events.RandomizedResponseDpEvent(0.5, 2),
        events.ZCDpEvent(0.5),
        events.SelfComposedDpEvent(events.LaplaceDpEvent(2.0), 3),
        events.ComposedDpEvent([events.GaussianDpEvent(2.0)]),
    ],
)
def test_events_are_about_what_they_are_said_to_be_about(event):
    for relation in (Neighbours.ADD_REMOVE_ONE, Neighbours.REPLACE_ONE):
        told = from_event(event, neighbours=relation, unit="one person")
        assert (told.unit, told.neighbours) == ("one person", relation)
        assert from_event(event, neighbours=relation).unit == "one row"


def test_composed_events_of_one_kind():
    event = events.ComposedDpEvent(
        [events.SelfComposedDpEvent(events.GaussianDpEvent(2.0), 15), events.NoOpDpEvent()]
    )
    total = about_one_row(events.ComposedDpEvent([event, events.GaussianDpEvent(2.0)]))
    assert 2.0 <= total.mu <= 2.0 * (1 + 1e-15)
    inner = events.SelfComposedDpEvent(events.ComposedDpEvent([events.GaussianDpEvent(2.0)] * 2), 4)
    nested = about_one_row(events.SelfComposedDpEvent(inner, 2))  # 16 releases
    assert 2.0 <= nested.mu <= 2.0 * (1 + 1e-15)
    assert mixture_epsilon(inner, inner, delta=1e-5) == epsilon_of(2.0, 1e-5)
    with pytest.raises(MixedGuarantees, match="different kinds"):
        about_one_row(events.ComposedDpEvent([events.GaussianDpEvent(1.0), events.LaplaceDpEvent(1.0)]))


@pytest.mark.parametrize(
    "event",
    [
        events.UnsupportedDpEvent(),
        events.DpEvent(),
        events.PoissonSampledDpEvent(0.1, events.GaussianDpEvent(1.0)),
        events.SingleEpochTreeAggregationDpEvent(1.0, 4),
        events.ZCDpEvent(0.5, 0.1),
        events.ComposedDpEvent([events.GaussianDpEvent(1.0), events.UnsupportedDpEvent()]),
        "GaussianDpEvent",
        None,
    ],
)
def test_unknown_events_are_refused(event):
    for attempt in (lambda: about_one_row(event), lambda: mixture_epsilon(PureDP(1.0), event, delta=1e-5)):
        with pytest.raises(
            ParameterError, match=r"^event \w+ is not known here, and never guessed to cost nothing$"
        ) as caught:
            attempt()
        unknown = event.events[-1] if isinstance(event, events.ComposedDpEvent) else event
        assert f"event {type(unknown).__name__} is" in str(caught.value)


@pytest.mark.parametrize(
    "event",
    [
        events.NonPrivateDpEvent(),
        events.GaussianDpEvent(0.0),
        events.LaplaceDpEvent(0.0),
        events.RandomizedResponseDpEvent(0.0, 2),
    ],
)
def test_what_is_not_private_costs_everything(event):
    assert mixture_epsilon(GaussianDP(0.1), event, delta=1e-5) == math.inf
    assert mixture_delta(GaussianDP(0.1), event, epsilon=5.0) == 1.0
    with pytest.raises(ParameterError, match=r"^event must be private, got one .* NonPrivateDpEvent$"):
        about_one_row(event)


@pytest.mark.parametrize(
    "event",
    [
        events.NoOpDpEvent(),
        events.RandomizedResponseDpEvent(1.0, 2),
        events.RandomizedResponseDpEvent(0.5, 1),
        events.ComposedDpEvent([]),
    ],
)
def test_what_costs_nothing_adds_nothing(event):
    assert mixture_epsilon(GaussianDP(1.0), event, delta=1e-5) == epsilon_of(1.0, 1e-5)
    with pytest.raises(ParameterError, match=r"^event must release something, got one that costs nothing$"):
        about_one_row(event)


@pytest.mark.parametrize("bad", [0, -1, True, 1.5])
def test_counts_of_events_are_checked(bad):
    with pytest.raises((ValueError, TypeError), match=r"^count must be "):
        about_one_row(events.SelfComposedDpEvent(events.GaussianDpEvent(1.0), bad))


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, True])
@pytest.mark.parametrize("kind", [events.GaussianDpEvent, events.LaplaceDpEvent])
def test_noise_of_events_is_checked(kind, bad):
    with pytest.raises((ValueError, TypeError), match=rf"^noise_multiplier must be .*, got {bad}$"):
        about_one_row(kind(bad))


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (events.SelfComposedDpEvent(events.GaussianDpEvent(1.0), 0), "count must be >= 1, got 0"),
        (events.GaussianDpEvent(-1.0), "noise_multiplier must be >= 0, got -1.0"),
        (events.LaplaceDpEvent(-1.0), "noise_multiplier must be >= 0, got -1.0"),
        (events.DiscreteLaplaceDpEvent(0.0, 1), "noise_parameter must be > 0, got 0.0"),
        (events.DiscreteLaplaceDpEvent(0.5, 0), "sensitivity must be >= 1, got 0"),
        (events.RandomizedResponseDpEvent(-0.1, 2), "noise_parameter must be >= 0 and <= 1, got -0.1"),
        (events.RandomizedResponseDpEvent(1.5, 2), "noise_parameter must be >= 0 and <= 1, got 1.5"),
        (events.RandomizedResponseDpEvent(0.5, 0), "num_buckets must be >= 1, got 0"),
        (events.ZCDpEvent(-0.5), "rho must be > 0, got -0.5"),
    ],
)
def test_parameters_of_events_are_named(event, message):
    for attempt in (lambda: about_one_row(event), lambda: mixture_epsilon(PureDP(1.0), event, delta=1e-5)):
        with pytest.raises(ParameterError) as caught:
            attempt()
        assert str(caught.value) == message


def test_gaussians_alone_are_exact():
    assert mixture_epsilon(GaussianDP(3.0), GaussianDP(4.0), delta=1e-5) == epsilon_of(5.0, 1e-5)
    assert mixture_delta(GaussianDP(3.0), GaussianDP(4.0), epsilon=2.0) == delta_of(5.0, 2.0)


@pytest.mark.parametrize(("each", "count"), [(0.1, 50), (0.7, 3), (0.033, 200), (2.0, 10)])
def test_pure_guarantees_together_against_the_exact_binomial(each, count):
    for delta in (1e-8, 1e-5, 1e-2):
        epsilon = mixture_epsilon(*[PureDP(each)] * count, delta=delta)
        assert exact_pure_delta(each, count, epsilon) <= delta
        assert exact_pure_delta(each, count, epsilon - 2e-3) > delta * 0.99
        assert epsilon <= PureDP(each).repeat(count).epsilon
    for epsilon in (0.0, 0.5, 1.5):
        exact = exact_pure_delta(each, count, epsilon)
        assert exact <= mixture_delta(*[PureDP(each)] * count, epsilon=epsilon) <= exact * 1.001 + 1e-9


@pytest.mark.parametrize(("mu", "each"), [(0.5, 0.3), (1.0, 2.0), (0.05, 0.1), (3.0, 1.0)])
def test_gaussian_and_pure_together_against_the_exact_mixture(mu, each):
    for delta in (1e-8, 1e-5, 1e-2):
        epsilon = mixture_epsilon(GaussianDP(mu), PureDP(each), delta=delta)
        assert exact_mixed_delta(mu, each, epsilon) <= delta
        assert exact_mixed_delta(mu, each, epsilon - 2e-3) > delta
    exact = exact_mixed_delta(mu, each, 1.0)
    assert exact <= mixture_delta(GaussianDP(mu), PureDP(each), epsilon=1.0) <= exact * 1.001 + 1e-9


def test_events_and_guarantees_mix():
    mixed = mixture_epsilon(GaussianDP(0.5), to_event(PureDP(0.3)), delta=1e-6)
    assert mixed == pytest.approx(mixture_epsilon(GaussianDP(0.5), PureDP(0.3), delta=1e-6), rel=1e-9)
    many = events.SelfComposedDpEvent(to_event(PureDP(0.1)), 50)
    assert mixture_epsilon(many, delta=1e-6) == pytest.approx(
        mixture_epsilon(*[PureDP(0.1)] * 50, delta=1e-6), rel=1e-9
    )


def test_why_the_accountant_of_dp_accounting_is_not_used():
    """It forgets the count of randomised responses: 50 of them for the price of one. Known in 0.6.0."""
    accountant = accounting.pld.PLDAccountant(accounting.NeighboringRelation.REPLACE_ONE)
    accountant.compose(events.SelfComposedDpEvent(to_event(PureDP(0.1)), 50))
    if accountant.get_epsilon(1e-6) > 1:
        pytest.skip("corrected upstream")
    assert accountant.get_epsilon(1e-6) < 0.11 < 3.1 < mixture_epsilon(*[PureDP(0.1)] * 50, delta=1e-6)


def test_laplace_keeps_its_own_tighter_distribution():
    noise = [events.LaplaceDpEvent(2.0)] * 10
    assert mixture_epsilon(*noise, delta=1e-5) < mixture_epsilon(*[PureDP(0.5)] * 10, delta=1e-5) < 5.0
    theirs = accounting.pld.PLDAccountant()
    theirs.compose(events.SelfComposedDpEvent(noise[0], 10))
    assert mixture_epsilon(*noise, delta=1e-5) == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-4)


def test_the_plain_sum_wins_for_few_pure_releases_at_tiny_delta():
    assert mixture_epsilon(PureDP(0.5), PureDP(0.25), delta=0.0) == 0.75
    assert mixture_epsilon(PureDP(0.5), PureDP(0.25), delta=1e-15) <= 0.75
    assert mixture_delta(PureDP(0.5), PureDP(0.25), epsilon=0.75) == 0.0


def test_gdp_carries_deltas_that_a_convolution_cannot():
    epsilon = mixture_epsilon(GaussianDP(0.5), PureDP(0.01), delta=1e-30)
    assert epsilon == pytest.approx(epsilon_of(math.hypot(0.5, 0.0125331362), 1e-30), rel=1e-6)
    assert mixture_delta(GaussianDP(0.5), PureDP(0.01), epsilon=epsilon) <= 1e-30 * (1 + 1e-9)
    epsilon = mixture_epsilon(GaussianDP(0.5), PureDP(0.1), delta=1e-30)
    assert epsilon == pytest.approx(epsilon_of(0.5, 1e-30) + 0.1, rel=1e-12)
    assert mixture_delta(GaussianDP(0.5), PureDP(0.1), epsilon=epsilon) <= 1e-30 * (1 + 1e-9)
    assert mixture_epsilon(GaussianDP(0.5), PureDP(0.1), delta=0.0) == math.inf


def test_approximate_parts():
    assert mixture_epsilon(ApproximateDP(1.0, 1e-6), ApproximateDP(0.5, 1e-6), delta=2e-6) == pytest.approx(
        1.5
    )
    assert mixture_epsilon(ApproximateDP(1.0, 1e-6), ApproximateDP(0.5, 1e-6), delta=1.9e-6) == math.inf
    mixed = mixture_epsilon(GaussianDP(0.5), ApproximateDP(0.5, 1e-6), delta=1e-5)
    assert mixture_epsilon(GaussianDP(0.5), PureDP(0.5), delta=1e-5) < mixed < math.inf
    assert mixture_epsilon(GaussianDP(0.5), ApproximateDP(0.5, 1e-4), delta=1e-5) == math.inf
    assert mixture_delta(GaussianDP(0.5), ApproximateDP(0.5, 1e-4), epsilon=9.0) == pytest.approx(
        1e-4, rel=0.01
    )


@pytest.mark.parametrize(("own", "count"), [(1e-3, 1), (1e-3, 2), (0.25, 3)])
def test_approximate_parts_against_the_exact_mixture(own, count):
    """Each part fails outright with probability `own`, and is randomised response otherwise."""
    for epsilon in (0.0, 0.3, 0.45 * count):
        exact = 1 - (1 - own) ** count * (1 - exact_pure_delta(0.5, count, epsilon))
        bound = mixture_delta(*[ApproximateDP(0.5, own)] * count, epsilon=epsilon)
        assert exact <= bound <= exact * (1 + 1e-6)


@pytest.mark.parametrize("count", [1, 3, 5, 8, 9, 16, 20, 1000])
def test_parts_that_all_but_surely_fail(count):
    """dp-accounting alone raises an IndexError from 16 of these on."""
    parts = [ApproximateDP(0.5, 0.9)] * count
    assert 1 - 0.1**count <= mixture_delta(*parts, epsilon=0.5 * count) <= 1.0
    assert mixture_epsilon(*parts, delta=0.89) == math.inf
    epsilon = mixture_epsilon(*parts, GaussianDP(1.0), delta=0.9999)
    assert (epsilon < math.inf) == (count <= 3)


def test_large_losses_stay_tractable():
    for part in (PureDP(5.0), events.LaplaceDpEvent(0.4)):
        epsilon = mixture_epsilon(GaussianDP(40.0), part, delta=1e-5)
        assert epsilon_of(40.0, 1e-5) < epsilon <= epsilon_of(40.0, 1e-5) + 5.0 + 1e-12


@pytest.mark.parametrize(
    "others",
    [
        (PureDP(1.0, unit="one person"),),
        (PureDP(1.0, neighbours=Neighbours.ADD_REMOVE_ONE),),
        (LocalDP(1.0),),
        (LocalDP(1.0, unit="one row"),),
        (MetricDP(1.0, "km", unit="one row"),),
        (ZeroConcentratedDP(0.5),),
        (events.ZCDpEvent(0.5),),
    ],
)
def test_a_mixture_shares_unit_and_neighbours(others):
    for attempt in (
        lambda: mixture_epsilon(GaussianDP(1.0), *others, delta=1e-5),
        lambda: mixture_epsilon(*others, GaussianDP(1.0), delta=1e-5),
        lambda: mixture_delta(GaussianDP(1.0), *others, epsilon=1.0),
    ):
        with pytest.raises(MixedGuarantees, match=r"^(cannot mix guarantees for|a mixture takes) "):
            attempt()


def test_a_refused_mixture_says_what_differs():
    with pytest.raises(MixedGuarantees, match=r"PureDP and ApproximateDP, got ZeroConcentratedDP$"):
        mixture_epsilon(ZeroConcentratedDP(0.5), delta=1e-5)
    words = (
        r"^cannot mix guarantees for 'one row' \(REPLACE_ONE\) and 'one person' \(ADD_REMOVE_ONE\): different"
    )
    with pytest.raises(MixedGuarantees, match=words):
        mixture_epsilon(
            GaussianDP(1.0), PureDP(1.0, unit="one person", neighbours=Neighbours.ADD_REMOVE_ONE), delta=1e-5
        )


@pytest.mark.parametrize("guarantee", [ApproximateDP(1.0, 1e-5), LocalDP(1.0), MetricDP(1.0, "km")])
def test_guarantees_without_an_event(guarantee):
    with pytest.raises(ParameterError, match=f"no event for {type(guarantee).__name__}"):
        to_event(guarantee)


@pytest.mark.parametrize("bad", [-1, 1, math.nan, math.inf, True, "1", None])
def test_bad_delta(bad):
    with pytest.raises((ValueError, TypeError), match=r"^delta must be .*, got "):
        mixture_epsilon(PureDP(1.0), delta=bad)


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, True, "1", None])
def test_bad_epsilon(bad):
    with pytest.raises((ValueError, TypeError), match=r"^epsilon must be .*, got "):
        mixture_delta(PureDP(1.0), epsilon=bad)


def test_an_empty_mixture_is_refused():
    with pytest.raises(ParameterError, match=r"^a mixture needs at least one guarantee or event, got none$"):
        mixture_epsilon(delta=1e-5)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    assert mixture_epsilon(GaussianDP(1.0), delta=1e-5) == epsilon_of(1.0, 1e-5)
    for attempt in (lambda: to_event(PureDP(1.0)), lambda: mixture_epsilon(PureDP(1.0), delta=1e-5)):
        with pytest.raises(MissingExtra, match=r"pip install 'reticent\[accounting\]'"):
            attempt()
