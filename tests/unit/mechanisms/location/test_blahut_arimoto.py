"""Blahut-Arimoto: qif's channel, its optimum, its two other ways in, and the cap that liars cannot lift."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.errors import ParameterError
from reticent.mechanisms.location import ElasticChannel, blahut_arimoto, for_distortion
from reticent.mechanisms.location.blahut_arimoto import capped
from reticent.spaces import FiniteSpace, Grid

from .exactly import losses


def problem(seed):
    """A random space, prior and beta, and how many turns to take."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(2, 7, 2)
    space = Grid(int(rows), int(columns), *rng.uniform(0.2, 2.0, 2))
    if seed % 4 == 3:
        space = FiniteSpace.of_points(rng.normal(size=(15, 2)))
    prior = rng.dirichlet(np.full(space.size, rng.choice([0.1, 1.0, 10.0])))
    return space, prior, float(rng.uniform(0.1, 2.0)), 2 * int(rng.integers(1, 20)) - 1


def turned(space, prior, beta, turns, dense=None):
    return blahut_arimoto(space, prior, beta, turns=turns, tolerance=0.0, floor=0.0, dense=dense)


# The peer


def qif_turns(space, prior, beta, turns):
    """So many turns, an odd number: a call that may stop at once takes one, its channel's law is another."""
    qif = pytest.importorskip("qif")
    loss = qif.metric.from_distance_matrix(np.asfortranarray(beta * space.matrix))
    outputs = np.full(space.size, 1.0 / space.size)
    for _ in range(turns // 2 + 1):
        channel = np.asarray(
            qif.mechanism.shannon.max_entropy_given_same_loss(prior, outputs, loss, 9.0, 0.0)
        )
        outputs = prior @ channel
    return channel


def gap_to_qif(seed, beta_factor=1.0, dense=None):
    space, prior, beta, turns = problem(seed)
    theirs = qif_turns(space, prior, beta, turns)
    return float(np.abs(turned(space, prior, beta * beta_factor, turns, dense).matrix - theirs).max())


def test_it_is_qifs_channel_on_20_problems():
    assert max(gap_to_qif(seed) for seed in range(20)) < 1e-8


def test_it_is_qifs_channel_by_fourier_sums_too():
    assert max(gap_to_qif(seed, dense=False) for seed in range(20) if seed % 4 < 3) < 1e-8


def test_planted_another_beta_is_not_qifs_channel():
    assert all(gap_to_qif(seed, 1.001) > 1e-8 for seed in range(20))


def test_qif_in_one_go_stops_where_we_stand():
    """Its own rule: no output's mass moves by more than md."""
    qif = pytest.importorskip("qif")
    space, prior, beta, _ = problem(0)
    loss = qif.metric.from_distance_matrix(np.asfortranarray(beta * space.matrix))
    even = np.full(space.size, 1.0 / space.size)
    theirs = np.asarray(qif.mechanism.shannon.max_entropy_given_same_loss(prior, even, loss, 1e-3, 0.0))
    gaps = [float(np.abs(turned(space, prior, beta, turns).matrix - theirs).max()) for turns in range(100)]
    assert min(gaps) < 1e-8


# The optimum


@pytest.mark.parametrize("seed", range(6))
def test_turns_lead_to_the_least_information_at_a_distance(seed):
    """I + beta D falls with every turn, and no other c of the form does better in the end."""
    space, prior, beta, _ = problem(seed)
    rng = np.random.default_rng(seed)

    def cost(channel):
        return channel.mutual_information(prior) + beta * channel.distortion(prior)

    costs = [cost(turned(space, prior, beta, turns)) for turns in (0, 1, 2, 5, 10, 50, 200)]
    assert all(after <= before + 1e-12 for before, after in itertools.pairwise(costs))
    others = [ElasticChannel(space, rng.dirichlet(np.ones(space.size)), beta) for _ in range(20)]
    assert min(cost(one) for one in others) >= costs[-1] - 1e-6


@pytest.mark.parametrize("turns", [0, 1, 8, 300])
def test_every_turn_keeps_the_level(turns):
    grid = Grid(3, 4, 1.0, 1.0, closed=(5,))
    channel = blahut_arimoto(grid, [9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 1.0, turns=turns, tolerance=0.0)
    assert losses(channel) == 0
    assert (channel.marginal[grid.open] >= 0.9e-3 / 11).all()  # the floor
    assert channel.marginal[5] == 0.0
    np.testing.assert_allclose(channel.matrix.sum(axis=1), 1.0, rtol=1e-14)


def test_it_stops_when_nothing_moves():
    space, prior, beta, _ = problem(1)
    settled = blahut_arimoto(space, prior, beta, turns=100_000, tolerance=1e-6, floor=0.0)
    further = turned(space, prior, beta, 3)
    assert np.abs(settled.marginal - further.marginal).sum() > 1e-6
    c = settled.marginal * settled.kernel(prior / settled.normaliser)
    assert np.abs(c - settled.marginal).sum() < 1e-6


def test_edges():
    grid = Grid(2, 3, 1.0, 1.0)
    assert blahut_arimoto(grid, np.ones(6), 0.0).level < 1e-10
    single = blahut_arimoto(Grid(1, 1, 1.0, 1.0), [5], 1.0)
    assert (single.level, single.matrix.tolist()) == (math.nextafter(2.0, 3.0), [[1.0]])
    one_person = blahut_arimoto(grid, [0, 0, 1, 0, 0, 0], 3000.0)
    assert np.isfinite(one_person.marginal).all()
    for wrong, message in (
        ({"turns": -1}, "turns must be >= 0"),
        ({"floor": 1.5}, "floor must be >= 0 and <= 1"),
        ({"tolerance": math.nan}, "tolerance must be"),
    ):
        with pytest.raises(ParameterError, match=message):
            blahut_arimoto(grid, np.ones(6), 1.0, **wrong)


# By distortion


@pytest.mark.parametrize("wanted", [0.3, 0.8, 1.5])
def test_a_wanted_distortion_is_met(wanted):
    grid, prior = Grid(5, 6, 1.0, 1.0), np.random.default_rng(0).dirichlet(np.ones(30))
    found = for_distortion(grid, prior, wanted, turns=20)
    assert found.distortion(prior) == pytest.approx(wanted, rel=1e-9)
    assert found.level == blahut_arimoto(grid, prior, found.beta, turns=20).level


def test_a_distortion_that_cannot_be():
    grid = Grid(2, 2, 1.0, 1.0)
    with pytest.raises(ParameterError, match=r"distortion must be between .* km for this prior, got 50"):
        for_distortion(grid, np.ones(4), 50.0)
    with pytest.raises(ParameterError, match="distortion must be > 0"):
        for_distortion(grid, np.ones(4), 0.0)
    with pytest.raises(ParameterError, match="at least two places"):
        for_distortion(Grid(1, 1, 1.0, 1.0), [1], 1.0)


def test_a_distortion_on_a_long_grid():
    """Where 60 per cell would be more than a channel allows from end to end."""
    grid = Grid(1, 360, 1.0, 1.0)
    assert for_distortion(grid, np.ones(360), 2.0, turns=2).distortion(
        np.full(360, 1 / 360)
    ) == pytest.approx(2.0)


# The cap


def least_staying(channel):
    """What no c can go below everywhere: one over the largest eigenvalue of K."""
    held = channel.space.open
    return 1.0 / np.linalg.eigvalsh(np.exp(-channel.beta * channel.space.matrix)[np.ix_(held, held)])[-1]


def over_the_cap(channel, most, cap=capped):
    """Whether a place stays more often than the cap and than it must."""
    # In a space that is too sparse for the cap, power iteration comes to within 5 % of the least.
    return float(cap(channel, most).staying.max()) > max(most, least_staying(channel) * 1.05)


@st.composite
def spiky(draw):
    """A channel of a prior with a few crowded cells, as liars would have it."""
    rows, columns = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    size = rows * columns
    closed = draw(st.sets(st.integers(0, size - 1), max_size=size // 2)) if size > 1 else ()
    grid = Grid(rows, columns, 1.0, draw(st.sampled_from([0.3, 1.0])), closed=tuple(closed))
    prior = np.full(size, draw(st.sampled_from([0.0, 1e-6, 1.0])))
    for place in draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=3)):
        prior[place] += 10.0
    prior = np.where(grid.open, prior, 0.0)
    if not prior.any():
        prior = grid.open.astype(float)
    return blahut_arimoto(
        grid, prior, draw(st.floats(0.05, 4.0)), turns=draw(st.integers(0, 12)), tolerance=0.0
    )


@settings(max_examples=50, deadline=None)
@given(spiky(), st.floats(0.05, 1.0))
def test_no_place_stays_more_often_than_the_cap(channel, most):
    assert not over_the_cap(channel, most)
    assert capped(channel, most).level <= 2.0 * channel.beta * (1 + 1e-9) + 1e-8


@settings(max_examples=10, deadline=None)
@given(spiky(), st.floats(0.05, 0.9))
def test_the_cap_keeps_the_level(channel, most):
    if channel.space.size <= 20:
        assert losses(capped(channel, most)) == 0


def cut_once(channel, most):
    """Planted: cutting lowers what others hide among, so once is not enough."""
    c = channel.marginal
    room = most / (1.0 - most) * (channel.kernel(c) - c)
    return ElasticChannel(channel.space, np.minimum(c, room), channel.beta)


def test_planted_a_cap_that_cuts_once_is_found():
    prior = np.zeros(81)
    prior[0] = 1.0
    channel = blahut_arimoto(Grid(9, 9, 1.0, 1.0), prior, 0.6, turns=8)
    assert channel.staying.max() > 0.9
    assert over_the_cap(channel, 0.3, cut_once)
    assert not over_the_cap(channel, 0.3)


@pytest.mark.parametrize("dense", [True, False])
def test_a_cap_by_either_kind_of_sums(dense):
    prior = np.zeros(400)
    prior[210] = 1.0
    channel = blahut_arimoto(Grid(20, 20, 1.0, 1.0), prior, 0.6, turns=8, dense=dense)
    assert capped(channel, 0.3).staying.max() <= 0.3


def test_a_cap_that_holds_already_changes_nothing():
    channel = blahut_arimoto(Grid(9, 9, 1.0, 1.0), np.ones(81), 0.1)
    assert capped(channel, 0.3) is channel
    assert capped(channel, 1.0) is channel
    with pytest.raises(ParameterError, match="most must be > 0 and <= 1"):
        capped(channel, 0.0)
