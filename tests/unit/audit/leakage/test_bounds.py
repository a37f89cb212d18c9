"""The bounds against channels whose best attacker is known exactly."""

import math

import numpy as np
import pytest

from reticent.audit.leakage import success_under_epsilon, success_under_exchange, success_under_mu
from reticent.errors import ParameterError


def best_success(channel, prior):
    """The chance of the attacker who takes the likeliest record for each output."""
    return float((prior[:, None] * channel).max(axis=0).sum())


def test_randomised_response_reaches_the_bound_of_exchange():
    for candidates in (2, 5, 50):
        for epsilon in (0.0, 0.5, 1.0, 4.0):
            channel = np.full((candidates, candidates), 1.0) + np.eye(candidates) * math.expm1(epsilon)
            channel /= channel.sum(axis=1, keepdims=True)
            found = best_success(channel, np.full(candidates, 1.0 / candidates))
            assert found == pytest.approx(success_under_exchange(1.0 / candidates, epsilon), rel=1e-12)
            assert found <= success_under_epsilon(1.0 / candidates, epsilon) + 1e-12


def test_no_private_channel_is_above_the_bounds_and_a_broken_one_is():
    generator = np.random.default_rng(3)
    for _ in range(500):
        inputs, outputs, epsilon = *generator.integers(2, 9, 2), generator.uniform(0.0, 3.0)
        odds = np.exp(generator.uniform(0.0, epsilon, (inputs, outputs)))
        spare = odds.sum(axis=1).max() - odds.sum(axis=1)
        channel = np.column_stack([odds, spare])  # a spare output makes rows sum to the same
        channel /= channel.sum(axis=1, keepdims=True)
        if channel[:, -1].min() > 0.0:
            epsilon = max(epsilon, math.log(channel[:, -1].max() / channel[:, -1].min()))
        else:
            epsilon = math.log((channel[:, :-1].max(axis=0) / channel[:, :-1].min(axis=0)).max())
            channel = channel[:, :-1] / channel[:, :-1].sum(axis=1, keepdims=True)
            epsilon = math.log((channel.max(axis=0) / channel.min(axis=0)).max())
        prior = generator.dirichlet(np.ones(inputs))
        found = best_success(channel, prior)
        assert found <= success_under_exchange(prior.max(), epsilon) + 1e-12
        assert found <= success_under_epsilon(prior.max(), epsilon) + 1e-12
    broken = np.eye(4)  # planted: the record itself leaves
    assert best_success(broken, np.full(4, 0.25)) > success_under_exchange(0.25, 1.0)


def test_gaussian_noise_between_two_records_reaches_its_bound():
    """Two records, equal chances, means 0 and mu: the likeliest record is right with chance Phi(mu/2).

    Against a fixed reference at the middle the distance is mu/2, and the bound is exact.
    """
    for mu in (0.1, 1.0, 3.0):
        success = 0.5 * math.erfc(-mu / 2.0 / math.sqrt(2.0))
        assert success_under_mu(0.5, mu / 2.0) == pytest.approx(success, rel=1e-12)
        assert success <= success_under_mu(0.5, mu)


def test_edges_are_named():
    assert success_under_mu(0.0, 5.0) == 0.0
    assert success_under_mu(1.0, 0.0) == 1.0
    assert success_under_mu(1e-300, 100.0) == 1.0
    assert success_under_epsilon(0.0, 800.0) == 0.0
    assert success_under_epsilon(0.3, 800.0) == 1.0
    assert success_under_epsilon(0.1, 1.0, delta=1e-3) == pytest.approx(0.1 * math.e + 1e-3)
    assert success_under_exchange(0.3, 800.0) == 1.0
    for call in (success_under_epsilon, success_under_exchange, success_under_mu):
        with pytest.raises(ParameterError, match="guess must be"):
            call(1.5, 1.0)
        with pytest.raises(ParameterError, match="finite"):
            call(0.5, math.nan)
