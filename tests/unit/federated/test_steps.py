"""Steps of the server."""

import math

import numpy as np
import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.federated.steps import KINDS, Steps, made


def test_rates_fall_as_they_say():
    assert [Steps(0.5, "constant").rate_at(t) for t in (0, 3, 99)] == [0.5, 0.5, 0.5]
    assert [Steps(0.5, "inverse").rate_at(t) for t in (0, 3, 99)] == [0.5, 0.125, 0.005]
    assert [Steps(0.5, "inverse-root").rate_at(t) for t in (0, 3, 99)] == [0.5, 0.25, 0.05]
    with pytest.raises(ParameterError, match="round must be >= 0, got -1"):
        Steps(0.5).rate_at(-1)


def test_momentum_carries_on():
    """Constant gradient 1 and momentum m: the velocity is 1 + m + ... + m^t."""
    steps, theta, velocity = Steps(0.1, "constant", 0.5), np.zeros(1), np.zeros(1)
    for number in range(4):
        theta, velocity = steps.step(theta, velocity, np.ones(1), number)
        assert velocity[0] == pytest.approx(2.0 - 0.5**number)
    assert theta[0] == pytest.approx(-0.1 * (1 + 1.5 + 1.75 + 1.875))


def test_without_momentum_it_is_gradient_descent():
    theta, gradient = np.array([1.0, -2.0]), np.array([0.25, 4.0])
    stepped = Steps(0.5).step(theta, np.array([9.0, 9.0]), gradient, 2)[0]
    assert np.array_equal(stepped, theta - 0.5 / math.sqrt(3.0) * gradient)
    assert theta.tolist() == [1.0, -2.0]


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_made_again_of_their_numbers(kind):
    steps = Steps(0.25, kind, 0.9)
    assert made(steps.described()) == steps


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rate": 0.0}, "rate must be > 0, got 0.0"),
        ({"rate": math.inf}, "rate must be finite, got inf"),
        ({"rate": "1"}, "rate must be a number, got '1'"),
        ({"momentum": 1.0}, "momentum must be >= 0 and < 1, got 1.0"),
        ({"momentum": -0.1}, "momentum must be >= 0 and < 1, got -0.1"),
        ({"kind": "cosine"}, "kind of steps must be one of constant, inverse, inverse-root, got 'cosine'"),
        ({"kind": ["inverse"]}, "kind of steps must be one of"),
        ({"warmup": 3}, "steps must have the fields kind, rate, momentum"),
    ],
)
def test_numbers_that_make_no_steps_are_refused(change, words):
    with pytest.raises((ParameterError, ParameterTypeError), match=words):
        made({"kind": "constant", "rate": 1.0, "momentum": 0.0} | change)
    with pytest.raises(ParameterError, match="steps must have the fields"):
        made(None)
