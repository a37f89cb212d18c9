"""The charge is what the noise really loses: exact for the Gaussian, by densities for Laplace.

Planted beside them: clipping removed, a scale read off the update, the choice of the hypothesis uncharged.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from reticent.federated.personalised import Sanitiser, noise
from reticent.federated.personalised.noise import clipped
from reticent.federated.personalised.simulation import documents_noise_without_guarantee
from reticent.mechanisms.vector import VectorLaplace
from reticent.privacy import GaussianDP, LocalDP
from reticent.privacy.gaussian_curve import delta_of
from reticent.randomness import SimulationStream

from .parts import HYPOTHESES, LAPLACE

ABOUT = ("hypothesis", "centre", "slots")
APART = math.sqrt(1.0 + 10.5**2)  # of the documents' optima


def furthest(sanitiser, count=400, seed=1):
    """The largest distance on the grid between two clients, over choices and updates of every length."""
    stream = SimulationStream(seed)
    k, n = sanitiser.hypotheses.shape
    choices = (stream.words(count) % np.uint64(k)).astype(np.int64)
    ways = np.concatenate([np.eye(n), -np.eye(n)])
    toward = sanitiser.hypotheses[0] - sanitiser.hypotheses[-1]
    ways = np.concatenate([ways, [toward / max(1e-9, np.linalg.norm(toward))] * 2])
    ways[-1] *= -1.0
    scales = np.array([0.0, 0.3, 1.0, 50.0])
    updates = ways[np.arange(count) % len(ways)] * scales[(np.arange(count) // len(ways)) % 4][:, None]
    vectors = sanitiser.vectors(choices, sanitiser.hypotheses[choices] + updates)
    grid = np.rint(vectors / sanitiser.step)
    return max(float(np.sqrt(np.square(grid - one).sum(axis=1)).max()) for one in grid)


@pytest.mark.parametrize("about", ABOUT)
def test_no_two_clients_are_further_apart_than_is_charged_and_some_nearly_are(task, about):
    sanitiser = Sanitiser(task(about=about), HYPOTHESES)
    found, charged = furthest(sanitiser), sanitiser._gaussian.sensitivity
    assert found <= charged
    assert found > 0.99 * charged or about == "centre"  # the updates above do not fill the ball of a centre


def test_charged_distances(task):
    assert Sanitiser(task(about="hypothesis"), HYPOTHESES).distance == pytest.approx(2.0 + APART, rel=1e-8)
    assert Sanitiser(task(about="hypothesis")).distance == pytest.approx(2.0 + 24.0, rel=1e-8)
    assert Sanitiser(task(about="centre"), HYPOTHESES).distance == pytest.approx(2.0, rel=1e-8)
    assert Sanitiser(task(about="slots"), HYPOTHESES).distance == pytest.approx(2.0, rel=1e-8)
    for about in ABOUT:
        assert (
            Sanitiser(task(about=about), HYPOTHESES).distance
            >= Sanitiser(task(about=about, hypotheses=1), HYPOTHESES[:1]).distance
        )


def test_the_documents_example_costs_5_02_and_not_0_8(task):
    """mathematics 4.11: nu = 5, n = 2, S = 1, the hypotheses at the optima."""
    sanitiser = Sanitiser(task(about="hypothesis", **LAPLACE), HYPOTHESES)
    assert isinstance(sanitiser.guarantee, LocalDP)
    assert sanitiser.guarantee.epsilon == pytest.approx(0.4 * (2.0 + APART), rel=1e-3)
    assert round(sanitiser.guarantee.epsilon, 2) == 5.02
    assert sanitiser.units >= sanitiser.guarantee.epsilon * 1e12 * (1.0 - 1e-15)
    assert sanitiser.metric.epsilon_per_unit == 0.4


def loss_of_laplace(sanitiser, first, second, seed=3, count=4000):
    """The largest log ratio of the densities of two reports' grid points, over reports of the first."""
    step = sanitiser.step
    a, b = (np.rint(one / step) * step for one in (first, second))
    reports = sanitiser.decoded(
        sanitiser.sample(np.repeat(first[None, :], count, axis=0), SimulationStream(seed))
    )
    away = [np.sqrt(np.square(reports - one).sum(axis=1)) for one in (a, b)]
    return sanitiser.task.level * float((away[1] - away[0]).max())


def opposite(sanitiser):
    """Two clients of different choices whose updates point away from each other."""
    way = (HYPOTHESES[0] - HYPOTHESES[1]) / APART
    return sanitiser.vectors(np.array([0, 1]), HYPOTHESES + np.array([way, -way]) * 7.0)


def test_laplace_loses_no_more_than_is_charged(task):
    sanitiser = Sanitiser(task(about="hypothesis", **LAPLACE), HYPOTHESES)
    loss = loss_of_laplace(sanitiser, *opposite(sanitiser))
    assert loss <= sanitiser.guarantee.epsilon
    assert loss > 0.95 * sanitiser.guarantee.epsilon


def test_an_uncharged_choice_is_caught(task, monkeypatch):
    """Planted: 2 S alone is charged, 0.8, as the documents' claim would have it."""
    monkeypatch.setattr(noise, "_spread", lambda hypotheses: 0.0)
    sanitiser = Sanitiser(task(about="hypothesis", **LAPLACE), HYPOTHESES)
    assert sanitiser.guarantee.epsilon == pytest.approx(0.8, rel=2e-3)
    assert loss_of_laplace(sanitiser, *opposite(sanitiser)) > 4.0
    gaussian = Sanitiser(task(about="hypothesis"), HYPOTHESES)
    assert furthest(gaussian) > gaussian._gaussian.sensitivity


@pytest.mark.parametrize("about", ABOUT)
def test_missing_clipping_is_caught(task, monkeypatch, about):
    monkeypatch.setattr(noise, "clipped", lambda updates, radius: updates)
    sanitiser = Sanitiser(task(about=about), HYPOTHESES)
    assert furthest(sanitiser) > sanitiser._gaussian.sensitivity


def exact_delta(sigma, apart, mu, reach=12):
    """sum max(0, P(z) - e^eps P(z - apart)) of a discrete Gaussian, worst over epsilons, against mu-GDP."""
    z = np.arange(-int(reach * sigma), int(reach * sigma) + apart + 1)
    p, q = (np.exp(-0.5 * np.square((z - shift) / sigma)) for shift in (0, apart))
    p, q = p / p.sum(), q / q.sum()
    return max(
        float(np.maximum(0.0, p - math.exp(epsilon) * q).sum()) - delta_of(mu, epsilon)
        for epsilon in (0.0, 0.2, 0.5, 1.0, 2.0)
    )


@pytest.mark.parametrize("level", [4.33, 100.0])
def test_gaussian_is_charged_mu_of_distance_over_sigma(task, level):
    """Exact arithmetic of the discrete law on the line through two grid points; no noise is drawn."""
    sanitiser = Sanitiser(task(level=level), HYPOTHESES)
    assert isinstance(sanitiser.guarantee, GaussianDP)
    mechanism = sanitiser._gaussian
    assert sanitiser.units == math.ceil(mechanism.information * 10**12)
    assert Fraction(sanitiser.guarantee.mu) ** 2 >= mechanism.information
    assert sanitiser.guarantee.mu == pytest.approx(2.0 / level, rel=3e-4, abs=6e-5)  # and the grid's rounding
    assert mechanism.sigma * sanitiser.step == pytest.approx(level, rel=1e-9)
    assert sanitiser.variance == pytest.approx(level**2, rel=1e-9)
    assert exact_delta(mechanism.sigma, mechanism.sensitivity, sanitiser.guarantee.mu) < 1e-9
    assert exact_delta(mechanism.sigma, mechanism.sensitivity, 0.9 * sanitiser.guarantee.mu) > 1e-4  # planted


def test_the_documents_scale_tells_the_length_of_the_update():
    """Planted by the documents: a scale read off the secret. Two updates, 0.1 and 1 long, claimed 0.4 each.

    A report further than 3 from both is likelier than e^0.8 under the longer one, far more often than under
    the shorter. 4,000 reports each; the counts differ by more than 30 standard deviations.
    """
    noisy = documents_noise_without_guarantee(5.0)
    counts = []
    for length in (0.1, 1.0):
        start = np.zeros((4000, 2))
        sent = noisy(start, start + np.array([length, 0.0]), SimulationStream(5))
        counts.append(int((np.sqrt(np.square(sent).sum(axis=1)) > 3.0).sum()))
    assert counts[1] > math.exp(0.8) * counts[0] + 1000
    zero = noisy(np.zeros((1, 2)), np.zeros((1, 2)), SimulationStream(5))
    assert np.array_equal(zero, np.zeros((1, 2)))  # an update of length 0 is sent as it is


def test_the_documents_noise_has_the_printed_law():
    """Biswas 2023, Proposition 5.1: a radius of mean n/epsilon, coordinates of variance (n+1)/epsilon^2."""
    count, nu = 40_000, 5.0
    start = np.zeros((count, 2))
    sent = documents_noise_without_guarantee(nu)(start, start + np.array([1.0, 0.0]), SimulationStream(6)) - [
        1.0,
        0.0,
    ]
    assert sent.var(axis=0) == pytest.approx(3.0 * (nu / 2) ** 2, rel=0.06)  # 6 sigma, false alarm below 1e-6
    assert np.sqrt(np.square(sent).sum(axis=1)).mean() == pytest.approx(nu, rel=0.02)


@pytest.mark.parametrize("noise_kind", [{}, LAPLACE])
@pytest.mark.parametrize("about", ABOUT)
def test_reports_are_unbiased_with_the_stated_variance(task, about, noise_kind):
    sanitiser = Sanitiser(task(about=about, **noise_kind), HYPOTHESES)
    vectors = sanitiser.vectors(np.array([1]), HYPOTHESES[[1]] + 0.3)
    many = np.repeat(vectors, 20_000, axis=0)
    errors = sanitiser.sample(many, SimulationStream(7)) * sanitiser.step - many
    spread = math.sqrt(sanitiser.variance / len(many))
    assert np.abs(errors.mean(axis=0)).max() < 5.5 * spread + sanitiser.step  # false alarm below 1e-6
    assert errors.var(axis=0) == pytest.approx(sanitiser.variance, rel=0.1)


@pytest.mark.parametrize("about", ABOUT)
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1e308, "mixed"])
def test_whatever_an_update_holds_it_is_clipped(task, about, odd):
    sanitiser = Sanitiser(task(about=about), HYPOTHESES)
    updated = np.array([[np.nan, np.inf]]) if odd == "mixed" else np.full((1, 2), odd)
    vectors = sanitiser.vectors(np.array([0]), updated)
    origin = {"hypothesis": HYPOTHESES[0], "centre": 0.0, "slots": [0, 0, 1, 0, 0, 0]}[about]
    assert np.isfinite(vectors).all()
    assert np.linalg.norm(vectors - origin) <= 1.0 + 1e-12


def test_clipping_moves_to_the_nearest_point():
    given = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    assert clipped(given, 1.0) == pytest.approx(np.array([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))


def test_statements_say_both_promises(task):
    gaussian = Sanitiser(task(about="hypothesis"), HYPOTHESES).statement()
    laplace = Sanitiser(task(about="hypothesis", **LAPLACE), HYPOTHESES).statement()
    for text in (gaussian, laplace):
        assert "all data of one client in one round" in text
        assert "By distance" in text
        assert "The server is the adversary" in text
        assert "Reports that one client may send: 2, together" in text
    assert "(epsilon, delta)" in gaussian
    assert "e^(0.4 d)" in laplace


def test_too_little_noise_for_a_grid_is_refused(task):
    with pytest.raises(ValueError, match="level must leave more noise"):
        Sanitiser(task(about="hypothesis", reach=1e9, level=1e-9))


def test_laplace_law_is_that_of_the_mechanism(task):
    sanitiser = Sanitiser(task(**LAPLACE), HYPOTHESES)
    mechanism = VectorLaplace(epsilon_per_unit=0.4, dimensions=6, distance_unit="x")
    zeros = np.zeros((50, 6))
    assert np.array_equal(
        sanitiser.sample(zeros, SimulationStream(8)), mechanism.sample(zeros, SimulationStream(8))
    )


def test_every_pair_of_slots_is_within_the_charge(task):
    """All choices of two clients with updates of length S: 2 S at most, and 2 S reached by both kinds "
    "of pair."""
    sanitiser = Sanitiser(task(), HYPOTHESES)
    ways = [np.array([1.0, 0.0]), np.array([-1.0, 0.0])]
    vectors = {
        (choice, sign): sanitiser.vectors(np.array([choice]), HYPOTHESES[[choice]] + ways[sign])[0]
        for choice, sign in itertools.product((0, 1), repeat=2)
    }
    same = np.linalg.norm(vectors[0, 0] - vectors[0, 1])
    other = np.linalg.norm(vectors[0, 0] - vectors[1, 1])
    assert same == pytest.approx(2.0)
    assert other == pytest.approx(2.0)
