"""What is sent keeps what it says it keeps, and nothing where it says nothing."""

import numpy as np
import pytest

from reticent.audit.reconstruction import updates
from reticent.errors import ParameterError
from reticent.randomness import SimulationStream

GRADIENT = 3.0 * np.cos(np.arange(2000.0))


def test_raw_and_clipped_keep_nothing():
    for sent in (updates.raw(GRADIENT), updates.clipped(GRADIENT, 1.0)):
        assert (sent.noise, sent.mu, sent.epsilon) == (0.0, None, None)
    assert np.linalg.norm(updates.clipped(GRADIENT, 1.0).update) == pytest.approx(1.0)
    assert updates.clipped(GRADIENT, 1e9).update.tolist() == GRADIENT.tolist()


@pytest.mark.parametrize("mu", [0.3, 1.0, 8.0])
def test_gaussian_keeps_the_mu_that_was_asked_for(mu):
    sent = updates.gaussian(GRADIENT, 1.0, mu, SimulationStream(1))
    assert 0.95 * mu < sent.mu <= mu
    assert sent.noise >= 2.0 / mu
    # 2000 squares of normals: beyond 5 standard errors once in 2e6
    noise = sent.update - updates.clipped(GRADIENT, 1.0).update
    assert abs(np.mean(noise**2) / sent.noise**2 - 1.0) < 5.0 * np.sqrt(2.0 / noise.size)


def test_laplace_keeps_the_epsilon_that_was_asked_for():
    sent = updates.laplace(GRADIENT, 1.0, 4.0, SimulationStream(2))
    assert 3.9 < sent.epsilon <= 4.0
    assert sent.mu is None
    # the radius has a gamma law of shape 2000, whose standard deviation is 1 / sqrt(2000) of its mean
    radius = np.linalg.norm(sent.update - updates.clipped(GRADIENT, 1.0).update)
    assert radius == pytest.approx(sent.noise * np.sqrt(2000.0), rel=6.0 / np.sqrt(2000.0))


def test_the_documents_rule_keeps_nothing_and_scales_with_the_secret():
    small, large = (updates.documents(size * GRADIENT, 1.0, SimulationStream(3)) for size in (1.0, 10.0))
    assert (small.mu, small.epsilon) == (None, None)
    assert large.noise == pytest.approx(10.0 * small.noise)  # whoever sees the noise knows the length
    found = np.linalg.norm(small.update - GRADIENT) / np.linalg.norm(GRADIENT)
    assert found == pytest.approx(1.0, rel=6.0 / np.sqrt(2000.0))
    private = [updates.gaussian(size * GRADIENT, 1.0, 1.0, SimulationStream(3)) for size in (1.0, 10.0)]
    assert private[0].noise == private[1].noise


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda: updates.raw([1.0, float("nan")]), "gradient must be a vector of finite numbers"),
        (lambda: updates.clipped(GRADIENT, 0.0), "radius must be > 0"),
        (lambda: updates.gaussian(GRADIENT, 1.0, -1.0), "mu must be > 0, got -1.0"),
    ],
)
def test_refusals_are_one_line(call, part):
    with pytest.raises(ParameterError) as raised:
        call()
    assert part in str(raised.value)
    assert "\n" not in str(raised.value)
