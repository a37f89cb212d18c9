"""Models: gradients are the derivatives of what is minimised."""

import numpy as np
import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.federated.models import MAX_DIMENSIONS, MODELS, SVM, Axes, Linear, Logistic, made

KINDS = [Linear, Logistic, SVM]
RECORDS, INPUTS, STEP = 40, 5, 1e-6
PUBLIC = np.random.default_rng(3).normal(size=(200, INPUTS)) @ np.diag([5.0, 1.0, 3.0, 0.1, 0.2]) + 2.0
AXES = Axes.fitted(PUBLIC, 2)


def some(model, seed=1):
    """Parameters and records that no kink is near."""
    rng = np.random.default_rng(seed)
    theta, features = rng.normal(size=model.dimensions), rng.normal(size=(4 * RECORDS, model.inputs))
    targets = np.where(rng.random(len(features)) < 0.5, 1.0, -1.0)
    away = abs(1.0 - targets * model.scores(theta, features)) > 1e-3
    return theta, features[away][:RECORDS], targets[away][:RECORDS]


def differences(model, theta, features, targets):
    """Central differences of loss and penalty, for each record: shape (records, dimensions)."""

    def total(at):
        return model.losses(at, features, targets) + model.l2 / 2.0 * at @ at

    moves = STEP * np.eye(model.dimensions)
    return np.stack([(total(theta + one) - total(theta - one)) / (2.0 * STEP) for one in moves], axis=1)


def is_a_gradient(model):
    theta, features, targets = some(model)
    return np.allclose(
        model.gradients(theta, features, targets),
        differences(model, theta, features, targets),
        rtol=1e-6,
        atol=1e-7,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("l2", [0.0, 1e-4, 0.7])
def test_gradients_are_finite_differences(kind, intercept, l2):
    assert is_a_gradient(kind(INPUTS, l2=l2, intercept=intercept))
    assert is_a_gradient(kind(INPUTS, l2=l2, intercept=intercept, axes=AXES))


@pytest.mark.parametrize("kind", KINDS)
def test_planted_wrong_gradients_are_found(kind):
    class Half(kind):
        def slopes(self, *given):
            return 0.5 * super().slopes(*given)

    class Unpenalised(kind):
        def gradients(self, theta, features, targets):
            return super().gradients(theta, features, targets) - self.l2 * theta

    class NoIntercept(kind):
        def gradients(self, *given):
            found = super().gradients(*given)
            found[:, -1] = 0.0
            return found

    for planted in (Half, Unpenalised, NoIntercept):
        assert not is_a_gradient(planted(INPUTS, l2=0.01))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("axes", [None, AXES])
def test_coordinates_and_means_are_of_the_gradients(kind, intercept, axes):
    model = kind(INPUTS, l2=0.01, intercept=intercept, axes=axes)
    theta, features, targets = some(model)
    whole = model.gradients(theta, features, targets)
    asked = np.random.default_rng(2).integers(0, model.dimensions, (RECORDS, 3))
    asked[0] = model.dimensions - 1
    taken = np.take_along_axis(whole, asked, axis=1)
    assert np.array_equal(model.coordinates(theta, features, targets, asked), taken)
    assert np.allclose(model.mean_gradient(theta, features, targets), whole.mean(axis=0), rtol=1e-12)


def test_at_the_kink_the_slope_is_zero():
    model = SVM(1, l2=0.0, intercept=False)
    theta, features = np.array([1.0]), np.array([[1.0], [0.5], [2.0]])
    assert model.slopes(theta, features, np.ones(3)).tolist() == [0.0, -1.0, 0.0]


def test_extreme_scores_overflow_nowhere():
    """Warnings are errors here."""
    model, theta = Logistic(1, intercept=False), np.array([1e308])
    features, targets = np.array([[1.0], [-1.0]]), np.array([1.0, 1.0])
    assert model.slopes(theta, features, targets) == pytest.approx([0.0, -1.0], abs=1e-300)
    assert model.losses(theta, features, targets).tolist() == [0.0, 1e308]


def test_errors_are_counted():
    features, theta = np.array([[1.0], [-1.0], [0.0]]), np.array([1.0])
    for kind in (Logistic, SVM):
        model = kind(1, intercept=False)
        assert model.predict(theta, features).tolist() == [1.0, -1.0, 1.0]
        assert model.error(theta, features, np.array([1.0, 1.0, 1.0])) == pytest.approx(1 / 3)
    assert Linear(1, intercept=False).error(theta, features, np.zeros(3)) == pytest.approx(2 / 3)
    assert Linear(1).start().tolist() == [0.0, 0.0]


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_is_made_again_of_its_numbers(kind):
    told = {"kind": kind, "inputs": 7, "l2": 0.25, "intercept": False}
    assert made(told).described() == told
    assert made(told).dimensions == 7


# Axes


def test_axes_are_where_public_rows_differ_most():
    """By another method, the singular values of the centred rows."""
    _, _, right = np.linalg.svd(PUBLIC - PUBLIC.mean(axis=0))
    largest = np.abs(right[:2]).argmax(axis=1)
    signs = np.sign(right[[0, 1], largest])
    np.testing.assert_allclose(AXES.matrix.T, right[:2] * signs[:, None], atol=2e-6)
    np.testing.assert_allclose(AXES.centre, PUBLIC.mean(axis=0), atol=1e-6)
    again = Axes.fitted(PUBLIC[::-1], 2)
    assert again.described() == AXES.described() == Axes(**AXES.described()).described()


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_on_axes_is_a_plain_one_on_prepared_features(kind):
    model = kind(INPUTS, l2=0.01, axes=AXES)
    assert (model.inputs, model.dimensions, model.plain.inputs) == (INPUTS, 3, 2)
    theta, features, targets = some(model)
    x = (features - AXES.centre) @ AXES.matrix
    for name in ("losses", "slopes", "gradients", "mean_gradient", "error"):
        mine = getattr(model, name)(theta, features, targets)
        assert np.array_equal(mine, getattr(model.plain, name)(theta, x, targets)), name
    assert np.array_equal(model.predict(theta, features), model.plain.predict(theta, x))
    forgetful = features @ AXES.matrix  # planted: who forgets the centre has other gradients
    theirs = model.plain.gradients(theta, forgetful, targets)
    assert not np.allclose(model.gradients(theta, features, targets), theirs)


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"centre": [0.0, float("nan")], "matrix": [[1.0], [0.0]]}, "centre must be finite .* got nan"),
        ({"centre": [0.0, 0.0], "matrix": [[1e7], [0.0]]}, r"matrix must be finite .* 1e\+06 .* got 1e\+07"),
        (
            {"centre": [0.0, 0.0], "matrix": [[1.0, 0.0]]},
            r"a row for each of 2 features .* got shape \(1, 2\)",
        ),
        ({"centre": [0.0], "matrix": [[1.0]]}, "axes must be of 2 features, got 1"),
        ({"centre": [0.0, 0.0], "matrix": [[1.0], []]}, "matrix must be numbers in 2 dimensions"),
        ({"centre": [0.0, 0.0], "matrix": [[1.0, 0, 0], [0.0, 0, 0]]}, "at most as many columns"),
        ({"centre": [0.0, 0.0]}, "axes must have the fields centre, matrix"),
        (None, "axes must have the fields centre, matrix"),
    ],
)
def test_hostile_axes_are_refused(axes, words):
    with pytest.raises(ParameterError, match=words):
        made({"kind": "linear", "inputs": 2, "l2": 0.0, "intercept": True, "axes": axes})


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1.0, np.inf]], "rows must be finite"),
        ([[1.0, 2.0]] * 3, "differ"),
        (np.zeros((1, 2049)), "features of axes must be <= 2048, got 2049"),
    ],
)
def test_axes_need_rows_that_differ(rows, words):
    with pytest.raises(ParameterError, match=words):
        Axes.fitted(rows, 1)
    with pytest.raises(ParameterTypeError, match="axes must be Axes, got dict"):
        Linear(2, axes=AXES.described())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "tree"}, "kind must be one of linear, logistic, svm, got 'tree'"),
        ({"kind": ["linear"]}, "kind must be one of"),
        ({"inputs": 0}, "inputs must be >= 1, got 0"),
        ({"inputs": MAX_DIMENSIONS}, "inputs must be <= 4194303"),
        ({"inputs": "3"}, "inputs must be a whole number, got '3'"),
        ({"l2": -1.0}, "l2 must be >= 0, got -1.0"),
        ({"l2": float("nan")}, "l2 must be finite"),
        ({"intercept": 1}, "intercept must be true or false, got 1"),
        ({"depth": 3}, "model must have the fields"),
    ],
)
def test_numbers_that_make_no_model_are_refused(change, words):
    told = {"kind": "linear", "inputs": 7, "l2": 0.25, "intercept": False}
    with pytest.raises((ParameterError, ParameterTypeError), match=words.replace("[", r"\[")):
        made(told | change)
    with pytest.raises(ParameterError, match="model must have the fields"):
        made([*told])
