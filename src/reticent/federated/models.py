"""Models that clients train together: linear, logistic and support vector machine, with L2.

A model is arithmetic: it holds no parameters and no data. `theta` is the vector that is learnt, of
`dimensions` numbers; the intercept, if there is one, is its last. Everything is vectorised over records, so
that a simulation of a million clients is a few lines of numpy.

Targets are numbers for `Linear`, and -1 or 1 for `Logistic` and `SVM`.

How the family may evolve: a new model is a new class in `MODELS`. Networks come through `torch_models`, which
gives updates of a flat `theta` too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats
from reticent.mechanisms.sampling import MAX_DIMENSIONS


class Model(ABC):
    """A score f(x) = w.x + b, a loss of it, and lambda/2 |theta|^2.

    Args:
        inputs: the number of features.
        l2: lambda, the weight of the penalty; the documents take 1e-4.
        intercept: whether a constant is learnt too.
    """

    kind: ClassVar[str]

    def __init__(self, inputs: int, *, l2: float = 1e-4, intercept: bool = True) -> None:
        self.inputs = whole("inputs", inputs, low=1, high=MAX_DIMENSIONS - 1)
        self.l2 = real("l2", l2, low=0.0)
        self.intercept = bool(intercept)

    @property
    def dimensions(self) -> int:
        """How many numbers are learnt."""
        return self.inputs + self.intercept

    def described(self) -> dict[str, Any]:
        """The numbers that make the model again."""
        return {"kind": self.kind, "inputs": self.inputs, "l2": self.l2, "intercept": self.intercept}

    def start(self) -> Floats:
        """Where training begins: at zero, which is public."""
        return np.zeros(self.dimensions)

    def scores(self, theta: Floats, features: Floats) -> Floats:
        """f(x) of each record."""
        if self.intercept:
            return np.asarray(features @ theta[:-1] + theta[-1])
        return np.asarray(features @ theta)

    @abstractmethod
    def losses(self, theta: Floats, features: Floats, targets: Floats) -> Floats:
        """The loss of each record, without the penalty."""

    @abstractmethod
    def slopes(self, theta: Floats, features: Floats, targets: Floats) -> Floats:
        """The derivative of each record's loss with respect to its score."""

    def gradients(self, theta: Floats, features: Floats, targets: Floats) -> Floats:
        """The gradient of each record's loss and the penalty: shape (records, dimensions)."""
        slope = self.slopes(theta, features, targets)[:, None]
        found = np.empty((len(features), self.dimensions))
        np.multiply(slope, features, out=found[:, : self.inputs])
        if self.intercept:
            found[:, -1] = slope[:, 0]
        return found + self.l2 * theta

    def mean_gradient(self, theta: Floats, features: Floats, targets: Floats) -> Floats:
        """The mean of `gradients` over at least one record, without a matrix of them all."""
        slope = self.slopes(theta, features, targets)
        found = [slope @ features / len(features)]
        if self.intercept:
            found.append(np.mean(slope, keepdims=True))
        return np.concatenate(found) + self.l2 * theta

    def coordinates(
        self, theta: Floats, features: Floats, targets: Floats, asked: NDArray[np.int64]
    ) -> Floats:
        """Only the coordinates `asked` of each record's gradient, shape (records, k)."""
        slope = self.slopes(theta, features, targets)[:, None]
        inside = np.minimum(asked, self.inputs - 1)
        value = np.take_along_axis(features, inside, axis=1)
        if self.intercept:
            value = np.where(asked == self.inputs, 1.0, value)
        return np.asarray(slope * value + self.l2 * theta[asked])

    def predict(self, theta: Floats, features: Floats) -> Floats:
        """What the model says of each record: -1 or 1; `Linear` says a number."""
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
        """What the model says of each record: a number."""
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
    if not isinstance(given, dict) or set(given) != {"kind", "inputs", "l2", "intercept"}:
        raise ParameterError("model must have the fields kind, inputs, l2, intercept")
    if not isinstance(given["kind"], str) or given["kind"] not in MODELS:
        raise ParameterError(f"model: kind must be one of {', '.join(MODELS)}, got {given['kind']!r:.60}")
    if not isinstance(given["intercept"], bool):
        raise ParameterError(f"model: intercept must be true or false, got {given['intercept']!r:.60}")
    return MODELS[given["kind"]](given["inputs"], l2=given["l2"], intercept=given["intercept"])
