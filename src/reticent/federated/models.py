"""Models that clients train together: linear, logistic and support vector machine, with L2.

A model is arithmetic: it holds no parameters and no data. `theta` is the vector that is learnt, of
`dimensions` numbers; the intercept, if there is one, is its last. Everything is vectorised over records, so
that a simulation of a million clients is a few lines of numpy.

Targets are numbers for `Linear`, and -1 or 1 for `Logistic` and `SVM`.

A model may have `Axes`: then it learns from what features are along a few directions that public rows differ
in, instead of the features themselves. They are numbers of the model, so a signed task holds them, and
everybody who has the model prepares features alike.

Evolution of the family: a new model is a new class in `MODELS`. Networks come through `torch_models`, which
gives updates of a flat `theta` too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import real, whole
from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.base import Floats
from reticent.mechanisms.sampling import MAX_DIMENSIONS

DIGITS = 6  # of fitted axes
LARGEST = 1e6  # number of given ones
MOST_FITTED = 2048  # features that axes are fitted to: a matrix of their squares, and seconds


class Axes:
    """A public linear preparation of features: x becomes (x - centre) @ matrix.

    Args:
        centre: one number for each feature.
        matrix: a row for each feature, a column for each axis.

    Privacy: axes must come from PUBLIC rows. Fitted on private ones they would be a release that nobody pays
        for. A report is private whatever they are, since it is perturbed after them; only accuracy depends
        on them.
    """

    def __init__(self, centre: Any, matrix: Any) -> None:
        self.centre = _numbers("axes: centre", centre, 1)
        self.matrix = _numbers("axes: matrix", matrix, 2)
        if self.matrix.shape[0] != self.centre.size or not 1 <= self.matrix.shape[1] <= self.centre.size:
            raise ParameterError(
                f"axes: matrix must have a row for each of {self.centre.size} features and at most as many "
                f"columns, got shape {self.matrix.shape}"
            )

    @classmethod
    def fitted(cls, rows: Any, count: int) -> Axes:
        """The centre and the first principal axes of PUBLIC rows, to six digits.

        Deterministic: the largest number of each axis is positive. No row is drawn or left out.

        Reference: Pearson 1901, the directions of closest fit.

        Raises:
            ParameterError: rows are no finite numbers, have too many features, or differ in fewer
                directions.
        """
        found = _numbers("rows", rows, 2)
        whole("features of axes", found.shape[1], low=1, high=MOST_FITTED)
        count = whole("axes", count, low=1, high=found.shape[1])
        centre = found.mean(axis=0)
        values, vectors = np.linalg.eigh((found - centre).T @ (found - centre) / len(found))
        values, vectors = values[::-1], vectors[:, ::-1]
        if not values[count - 1] > 1e-9 * values[0]:
            raise ParameterError(f"axes must be at most as many as rows differ in directions, got {count}")
        vectors = np.round(vectors[:, :count], DIGITS)
        vectors *= np.sign(np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0))
        return cls(np.round(centre, DIGITS), vectors)

    @property
    def inputs(self) -> int:
        """The number of features."""
        return int(self.centre.size)

    @property
    def count(self) -> int:
        """The number of axes."""
        return int(self.matrix.shape[1])

    def of(self, features: Floats) -> Floats:
        """Return the features along the axes, shape (records, count)."""
        with np.errstate(all="ignore"):  # what is no number stays so, and counts as 0 where it is clipped
            return np.asarray((features - self.centre) @ self.matrix)

    def described(self) -> dict[str, Any]:
        """Return the numbers that make the axes again."""
        return {"centre": self.centre.tolist(), "matrix": self.matrix.tolist()}


def _numbers(field: str, given: Any, dimensions: int) -> Floats:
    """Finite numbers of a moderate size."""
    try:
        found = np.array(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError(f"{field} must be numbers in {dimensions} dimensions") from error
    if found.ndim != dimensions or not found.size:
        raise ParameterError(f"{field} must be numbers in {dimensions} dimensions, got shape {found.shape}")
    if not (np.abs(found) <= LARGEST).all():
        worst = found.reshape(-1)[int(np.argmin(np.abs(found) <= LARGEST))]
        raise ParameterError(f"{field} must be finite and at most {LARGEST:g} in size, got {worst:g}")
    found.setflags(write=False)
    return found


class Model(ABC):
    """A score f(x) = w.x + b, a loss of it, and lambda/2 |theta|^2.

    Args:
        inputs: the number of features.
        l2: lambda, the weight of the penalty; the documents take 1e-4.
        intercept: True if a constant is learnt too.
        axes: Axes of public rows: x is then what features are along them. None: the features themselves.
    """

    kind: ClassVar[str]

    def __init__(
        self, inputs: int, *, l2: float = 1e-4, intercept: bool = True, axes: Axes | None = None
    ) -> None:
        self.inputs = whole("inputs", inputs, low=1, high=MAX_DIMENSIONS - 1)
        self.l2 = real("l2", l2, low=0.0)
        self.intercept = bool(intercept)
        if axes is not None and not isinstance(axes, Axes):
            raise ParameterTypeError(f"axes must be Axes, got {type(axes).__name__}")
        if axes is not None and axes.inputs != self.inputs:
            raise ParameterError(f"axes must be of {self.inputs} features, got {axes.inputs}")
        self.axes = axes

    @property
    def dimensions(self) -> int:
        """The number of numbers that are learnt."""
        return self.plain.inputs + self.intercept

    @cached_property
    def plain(self) -> Model:
        """This model without axes, for features that are `prepared`."""
        if self.axes is None:
            return self
        return type(self)(self.axes.count, l2=self.l2, intercept=self.intercept)

    def prepared(self, features: Floats) -> Floats:
        """Return the features along the axes; the features themselves if there are no axes."""
        return features if self.axes is None else self.axes.of(features)

    def described(self) -> dict[str, Any]:
        """Return the numbers that make the model again."""
        found = {"kind": self.kind, "inputs": self.inputs, "l2": self.l2, "intercept": self.intercept}
        return found if self.axes is None else found | {"axes": self.axes.described()}

    def start(self) -> Floats:
        """Return the parameters at which training begins: zero, which is public."""
        return np.zeros(self.dimensions)

    def scores(self, theta: Floats, features: Floats) -> Floats:
        """f(x) of each record."""
        x = self.prepared(features)
        if self.intercept:
            return np.asarray(x @ theta[:-1] + theta[-1])
        return np.asarray(x @ theta)

    @abstractmethod
    def losses(self, theta: Floats, features: Floats, targets: Floats) -> Floats:
        """The loss of each record, without the penalty."""

    @abstractmethod
    def slopes(self, theta: Floats, features: Floats, targets: Floats) -> Floats:
        """The derivative of each record's loss with respect to its score."""

    def gradients(self, theta: Floats, features: Floats, targets: Floats) -> Floats:
        """The gradient of each record's loss and the penalty: shape (records, dimensions)."""
        x = self.prepared(features)
        slope = self.plain.slopes(theta, x, targets)[:, None]
        found = np.empty((len(x), self.dimensions))
        np.multiply(slope, x, out=found[:, : x.shape[1]])
        if self.intercept:
            found[:, -1] = slope[:, 0]
        return found + self.l2 * theta

    def mean_gradient(self, theta: Floats, features: Floats, targets: Floats) -> Floats:
        """The mean of `gradients` over at least one record, without a matrix of them all."""
        x = self.prepared(features)
        slope = self.plain.slopes(theta, x, targets)
        found = [slope @ x / len(x)]
        if self.intercept:
            found.append(np.mean(slope, keepdims=True))
        return np.concatenate(found) + self.l2 * theta

    def coordinates(
        self, theta: Floats, features: Floats, targets: Floats, asked: NDArray[np.int64]
    ) -> Floats:
        """Only the coordinates `asked` of each record's gradient, shape (records, k)."""
        x = self.prepared(features)
        slope = self.plain.slopes(theta, x, targets)[:, None]
        inside = np.minimum(asked, x.shape[1] - 1)
        value = np.take_along_axis(x, inside, axis=1)
        if self.intercept:
            value = np.where(asked == x.shape[1], 1.0, value)
        return np.asarray(slope * value + self.l2 * theta[asked])

    def predict(self, theta: Floats, features: Floats) -> Floats:
        """Return the model's prediction for each record: -1 or 1; a number for `Linear`."""
        return np.where(self.scores(theta, features) >= 0.0, 1.0, -1.0)

    def error(self, theta: Floats, features: Floats, targets: Floats) -> float:
        """The share of records that are classified wrongly; for `Linear` the mean squared error."""
        return float(np.mean(self.predict(theta, features) != targets))


class Linear(Model):
    """Least squares: (f(x) - y)^2."""

    kind = "linear"

    def losses(self, theta: Floats, features: Floats, targets: Floats) -> Floats:
        """The loss of each record, without the penalty."""
        return np.square(self.scores(theta, features) - targets)

    def slopes(self, theta: Floats, features: Floats, targets: Floats) -> Floats:
        """The derivative of each record's loss with respect to its score."""
        return 2.0 * (self.scores(theta, features) - targets)

    def predict(self, theta: Floats, features: Floats) -> Floats:
        """Return the model's prediction for each record: a number."""
        return self.scores(theta, features)

    def error(self, theta: Floats, features: Floats, targets: Floats) -> float:
        """The mean squared error."""
        return float(np.mean(self.losses(theta, features, targets)))


class Logistic(Model):
    """Logistic regression: ln(1 + exp(-y f(x)))."""

    kind = "logistic"

    def losses(self, theta: Floats, features: Floats, targets: Floats) -> Floats:
        """The loss of each record, without the penalty."""
        return np.logaddexp(0.0, -targets * self.scores(theta, features))

    def slopes(self, theta: Floats, features: Floats, targets: Floats) -> Floats:
        """The derivative of each record's loss with respect to its score."""
        margins = np.clip(targets * self.scores(theta, features), -700.0, 700.0)
        return -targets / (1.0 + np.exp(margins))


class SVM(Model):
    """Support vector machine: max(0, 1 - y f(x)); at the kink the derivative is 0."""

    kind = "svm"

    def losses(self, theta: Floats, features: Floats, targets: Floats) -> Floats:
        """The loss of each record, without the penalty."""
        return np.maximum(0.0, 1.0 - targets * self.scores(theta, features))

    def slopes(self, theta: Floats, features: Floats, targets: Floats) -> Floats:
        """The derivative of each record's loss with respect to its score."""
        return np.where(targets * self.scores(theta, features) < 1.0, -targets, 0.0)


MODELS: dict[str, type[Model]] = {model.kind: model for model in (Linear, Logistic, SVM)}


def made(given: Any) -> Model:
    """The model of its numbers, see `Model.described`."""
    if not isinstance(given, dict) or set(given) - {"axes"} != {"kind", "inputs", "l2", "intercept"}:
        raise ParameterError("model must have the fields kind, inputs, l2, intercept, and may have axes")
    if not isinstance(given["kind"], str) or given["kind"] not in MODELS:
        raise ParameterError(f"model: kind must be one of {', '.join(MODELS)}, got {given['kind']!r:.60}")
    if not isinstance(given["intercept"], bool):
        raise ParameterError(f"model: intercept must be true or false, got {given['intercept']!r:.60}")
    axes = given.get("axes")
    if "axes" in given and (not isinstance(axes, dict) or set(axes) != {"centre", "matrix"}):
        raise ParameterError("model: axes must have the fields centre, matrix")
    return MODELS[given["kind"]](
        given["inputs"],
        l2=given["l2"],
        intercept=given["intercept"],
        axes=None if axes is None else Axes(axes["centre"], axes["matrix"]),
    )
