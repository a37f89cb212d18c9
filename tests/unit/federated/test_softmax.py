"""Softmax regression: gradients are derivatives of what is minimised, clipped sums keep their bound."""

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.federated import Softmax

MODEL = Softmax(4, 3, l2=0.1)


def some(seed=1, records=30):
    draw = np.random.default_rng(seed)
    return draw.normal(size=MODEL.dimensions), draw.normal(size=(records, 4)), draw.integers(0, 3, records)


def differences(theta, features, targets, step=1e-6):
    def total(at):
        return MODEL.losses(at, features, targets) + MODEL.l2 / 2.0 * at @ at

    moves = step * np.eye(MODEL.dimensions)
    return np.stack([(total(theta + one) - total(theta - one)) / (2 * step) for one in moves], axis=1)


def test_gradients_are_finite_differences():
    given = some()
    assert np.allclose(MODEL.gradients(*given), differences(*given), atol=1e-7)
    assert np.allclose(MODEL.mean_gradient(*given), MODEL.gradients(*given).mean(axis=0))


def test_planted_a_gradient_without_its_penalty_is_found():
    theta, features, targets = some()
    assert not np.allclose(
        MODEL.gradients(theta, features, targets) - 0.1 * theta,
        differences(theta, features, targets),
        atol=1e-3,
    )


def test_two_classes_are_logistic_regression():
    from reticent.federated import Logistic

    draw = np.random.default_rng(2)
    w, b, x, y = draw.normal(size=4), 0.3, draw.normal(size=(20, 4)), draw.integers(0, 2, 20)
    two = Softmax(4, 2, l2=0.0)
    theta = np.concatenate([np.zeros(4), w, [0.0, b]])
    assert np.allclose(two.losses(theta, x, y), Logistic(4).losses(np.append(w, b), x, 2.0 * y - 1.0))


def test_clients_at_once_are_clients_one_by_one():
    draw = np.random.default_rng(3)
    theta, x, y = draw.normal(size=(5, 15)), draw.normal(size=(5, 8, 4)), draw.integers(0, 3, (5, 8))
    for of in (MODEL.mean_gradient, MODEL.losses, MODEL.gradients):
        assert np.allclose(of(theta, x, y), np.stack([of(*one) for one in zip(theta, x, y, strict=True)]))


@pytest.mark.parametrize("clip", [1e-3, 0.5, 1.0, 100.0])
def test_a_clipped_sum_is_that_of_clipped_gradients(clip):
    theta, features, targets = some()
    each = Softmax(4, 3, l2=0.0).gradients(theta, features, targets)
    lengths = np.linalg.norm(each, axis=1, keepdims=True)
    wanted = (each * np.minimum(1.0, clip / lengths)).sum(axis=0)
    assert np.allclose(MODEL.clipped_sum(theta, features, targets, clip), wanted)


def moved(of, clip=1.0):
    """How far one record moves a sum, whatever it holds."""
    theta, features, targets = some()
    base = of(theta, features, targets, clip)
    found = []
    for bad in (np.nan, np.inf, -np.inf, 1e308, -1e200, 0.0, 1e-320):
        for place in range(4):
            other = features.copy()
            other[7, place] = bad
            found.append(float(np.linalg.norm(of(theta, other, targets, clip) - base)))
    return max(found)


def test_one_record_moves_a_clipped_sum_by_no_more_than_twice_the_clip():
    assert moved(MODEL.clipped_sum) <= 2.0 + 1e-9


def test_planted_a_sum_that_is_not_clipped_is_found():
    with np.errstate(all="ignore"):
        far = moved(lambda theta, x, y, _: Softmax(4, 3, l2=0.0).gradients(theta, x, y).sum(axis=0))
    assert not far <= 2.0


def test_it_learns():
    draw = np.random.default_rng(4)
    x = draw.normal(size=(300, 4))
    y = MODEL.predict(10.0 * draw.normal(size=15), x)
    model, theta = Softmax(4, 3, l2=0.0), Softmax(4, 3).start()
    for _ in range(300):
        theta -= model.mean_gradient(theta, x, y)
    assert model.error(theta, x, y) < 0.05


def test_what_cannot_be():
    for given, words in (((0, 3), "inputs"), ((4, 1), "classes"), ((1 << 20, 1 << 16), "inputs")):
        with pytest.raises(ParameterError, match=words):
            Softmax(*given)
    with pytest.raises(ParameterError, match="clip must be > 0"):
        MODEL.clipped_sum(*some(), 0.0)
