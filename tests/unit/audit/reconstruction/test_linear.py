"""The most likely record of a linear model: exact without noise, Bayes' rule with it."""

import numpy as np
import pytest

from reticent.audit.reconstruction import GaussianPrior, most_likely_linear, updates
from reticent.errors import ParameterError
from reticent.federated.models import SVM, Axes, Linear, Logistic
from reticent.randomness import SimulationStream

RNG = np.random.default_rng(7)
MIX = RNG.normal(size=(6, 6))
PUBLIC = RNG.normal(size=(4000, 6)) @ MIX + 0.5
PRIOR = GaussianPrior.of(PUBLIC)


def people(count, seed):
    return np.random.default_rng(seed).normal(size=(count, 6)) @ MIX + 0.5


@pytest.mark.parametrize("model", [Linear(6), Logistic(6), SVM(6)], ids=lambda one: one.kind)
def test_without_noise_the_record_is_exact(model):
    theta = np.linspace(-0.05, 0.05, 7)
    for record in people(5, 1):
        gradient = model.mean_gradient(theta, record[None], np.array([1.0]))
        guess = most_likely_linear(model, theta, gradient, PRIOR, 0.0)
        assert np.abs(guess.record - record).max() < 1e-6
        assert np.sign(guess.slope) == np.sign(model.slopes(theta, record[None], np.array([1.0]))[0])


def test_a_penalty_that_is_not_subtracted_is_seen():
    theta, model = np.full(7, 2.0), Logistic(6, l2=0.1)
    record = people(1, 2)[0]
    gradient = model.mean_gradient(theta, record[None], np.array([-1.0]))
    assert np.abs(most_likely_linear(model, theta, gradient, PRIOR, 0.0).record - record).max() < 1e-6
    forgetful = Logistic(6, l2=0.0)
    assert np.abs(most_likely_linear(forgetful, theta, gradient, PRIOR, 0.0).record - record).max() > 0.01


def test_with_noise_it_is_the_normal_posterior():
    """Against the dense formula with the true slope; the expected error is the one that is found."""
    model, theta, sigma = Logistic(6, l2=0.0), np.zeros(7), 0.05
    errors, expected = [], []
    for seed, record in enumerate(people(400, 3)):
        gradient = model.mean_gradient(theta, record[None], np.array([1.0]))
        noise = sigma * np.random.default_rng(100 + seed).normal(size=7)
        told = most_likely_linear(model, theta, gradient + noise, PRIOR, sigma)
        assert abs(told.slope + 0.5) < 6.0 * sigma
        guess = most_likely_linear(model, theta, gradient + noise, PRIOR, sigma, slope=-0.5)
        errors.append(np.mean((guess.record - record) ** 2))
        expected.append(guess.error)
        if seed < 20:
            cov = PRIOR.factor @ PRIOR.factor.T
            s = -0.5
            gain = s * cov @ np.linalg.inv(s * s * cov + sigma**2 * np.eye(6))
            dense = PRIOR.mean + gain @ ((gradient + noise)[:6] - s * PRIOR.mean)
            assert guess.record == pytest.approx(dense, abs=1e-9)
    # six squares a record: a relative deviation of at most 1.42 each, five standard errors of 400 are 0.36
    assert np.mean(errors) == pytest.approx(np.mean(expected), rel=0.36)


def test_under_a_guarantee_little_is_left_but_the_prior():
    model, theta = Logistic(6, l2=0.0), np.zeros(7)
    told, free, mean = 0.0, 0.0, 0.0
    for seed, record in enumerate(people(200, 4)):
        gradient = model.mean_gradient(theta, record[None], np.array([1.0]))
        sent = updates.gaussian(gradient, 1.0, 0.5, SimulationStream(seed))
        told += np.sum(
            (most_likely_linear(model, theta, sent.update, PRIOR, sent.noise).record - record) ** 2
        )
        bare = updates.clipped(gradient, 1.0)  # planted: the noise is forgotten
        free += np.sum((most_likely_linear(model, theta, bare.update, PRIOR, 0.0).record - record) ** 2)
        mean += np.sum((PRIOR.mean - record) ** 2)
    assert told > 0.9 * mean
    assert free < 1e-6 * mean


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"update": np.zeros(7)}, "update must not be zero"),
        ({"update": np.full(7, np.nan)}, "update must be finite numbers"),
        ({"update": np.ones(5)}, "theta and update must be 7 numbers"),
        ({"prior": GaussianPrior.of(PUBLIC[:, :3])}, "prior must be of 6 features, got 3"),
        ({"noise": -1.0}, "noise must be >= 0"),
        ({"model": Logistic(6, axes=Axes(np.zeros(6), np.eye(6)))}, "model must have no axes"),
    ],
)
def test_refusals_are_one_line(change, part):
    given = {"model": Logistic(6), "theta": np.zeros(7), "update": np.ones(7), "prior": PRIOR, "noise": 0.1}
    with pytest.raises(ParameterError) as raised:
        most_likely_linear(**given | change)
    assert part in str(raised.value)
    assert "\n" not in str(raised.value)
