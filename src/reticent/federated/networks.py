"""Small networks in numpy: two layers with ReLU between them, for least squares or for classes.

The same arithmetic interface as `models.Model`, for a `theta` that has no linear score. Leading axes
of `TwoLayers` are clients: `theta` of shape (..., d) with `features` of shape (..., records, inputs) is a
network for each of them, so a simulated round is a few products. Larger ones come through `torch_models`.

A task of a network has no `model` (only `dimensions`), and clients give gradients to `Client.report`. Where
training starts is public: `start` of a number that everybody has, like the task's `key`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import whole
from reticent.federated.softmax import Labels, Softmax
from reticent.mechanisms.base import Floats
from reticent.mechanisms.sampling import MAX_DIMENSIONS
from reticent.randomness import SimulationStream


def public_start(shapes: Iterable[tuple[int, int]], seed: int | bytes) -> Floats:
    """Uniform numbers in +-1/sqrt(inputs of the layer), the law of PyTorch's layers, the same on any machine.

    Args:
        shapes: (numbers, inputs of one unit) of each piece of theta, in order.
        seed: public; the `key` of a task, or a number.
    """
    number = int.from_bytes(seed, "big") if isinstance(seed, bytes) else seed
    stream = SimulationStream(number, path=(11,))
    return np.concatenate([(2.0 * stream.units(count) - 3.0) / math.sqrt(fan) for count, fan in shapes])


class TwoLayers:
    """f(x) = v . relu(W x + b) + c, with the loss (f(x) - y)^2; theta is W by rows, b, v, c.

    Args:
        inputs: the number of features.
        hidden: units of the first layer. With 3 inputs and 2 units theta has 11 numbers, and no other two
            layers with one output have 11.

    Reference: Biswas 2023, Appendix E, "Hospital charge data": two layers, 11 parameters, ReLU.
    """

    def __init__(self, inputs: int = 3, hidden: int = 2) -> None:
        self.inputs = whole("inputs", inputs, low=1, high=1 << 16)
        self.hidden = whole("hidden", hidden, low=1, high=MAX_DIMENSIONS // (self.inputs + 2) - 1)

    @property
    def dimensions(self) -> int:
        """The number of numbers that are learnt."""
        return self.hidden * (self.inputs + 2) + 1

    def start(self, seed: int | bytes) -> Floats:
        """Return the public parameters at which training begins, see `public_start`."""
        first, second = self.inputs, self.hidden
        return public_start([(self.hidden * (self.inputs + 1), first), (self.hidden + 1, second)], seed)

    def _layers(self, theta: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        h, i = self.hidden, self.inputs
        weights = theta[..., : h * i].reshape(*theta.shape[:-1], h, i)
        return weights, theta[..., h * i : h * i + h], theta[..., h * i + h : -1], theta[..., -1]

    def _hidden(self, theta: Floats, features: Floats) -> Floats:
        weights, b, _, _ = self._layers(theta)
        return np.asarray(features @ np.swapaxes(weights, -1, -2) + b[..., None, :])

    def scores(self, theta: Floats, features: Floats) -> Floats:
        """f(x) of each record, shape (..., records)."""
        _, _, v, c = self._layers(theta)
        units = np.maximum(self._hidden(theta, features), 0.0)
        return np.asarray((units @ v[..., :, None])[..., 0] + c[..., None])

    def losses(self, theta: Floats, features: Floats, targets: Floats) -> Floats:
        """The loss of each record, shape (..., records)."""
        return np.square(self.scores(theta, features) - targets)

    def gradients(self, theta: Floats, features: Floats, targets: Floats) -> Floats:
        """The gradient of each record's loss, shape (..., records, d); at the kink ReLU has slope 0."""
        _, _, v, c = self._layers(theta)
        sums = self._hidden(theta, features)
        units = np.maximum(sums, 0.0)
        slope = 2.0 * ((units @ v[..., :, None])[..., 0] + c[..., None] - targets)[..., None]
        back = slope * v[..., None, :] * (sums > 0.0)
        weights = (back[..., :, None] * features[..., None, :]).reshape(*back.shape[:-1], -1)
        return np.concatenate([weights, back, slope * units, slope], axis=-1)

    def mean_gradient(self, theta: Floats, features: Floats, targets: Floats) -> Floats:
        """The mean of `gradients` over the records."""
        return np.asarray(self.gradients(theta, features, targets).mean(axis=-2))

    def predict(self, theta: Floats, features: Floats) -> Floats:
        """Return the network's prediction for each record: a number."""
        return self.scores(theta, features)

    def error(self, theta: Floats, features: Floats, targets: Floats) -> float:
        """The mean squared error."""
        return float(np.mean(self.losses(theta, features, targets)))


class TwoLayerClasses:
    """Scores V relu(W x + b) + c of each class, with the loss of the right one; theta is W by rows, b, V, c.

    A coordinate of a record's gradient is a product of two numbers, a slope of a unit or class and what comes
    into it, so that some coordinates (`coordinates`) cost no more than a pass.

    Args:
        inputs: the number of features.
        hidden: units of the first layer.
        classes: Number of classes.
    """

    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        self.inputs = whole("inputs", inputs, low=1, high=1 << 16)
        self.hidden = whole("hidden", hidden, low=1, high=1 << 16)
        self._last = Softmax(self.hidden, classes, l2=0.0)
        self.classes = self._last.classes
        whole("dimensions", self.dimensions, low=1, high=MAX_DIMENSIONS)
        h, i, c = self.hidden, self.inputs, self.classes
        # Slopes are those of units, then classes; what comes in is x, the units and 1.
        units, scores = np.arange(h), h + np.arange(c)
        x, one = np.arange(i), np.full(1, i + h)
        self._slope = np.concatenate([np.repeat(units, i), units, np.repeat(scores, h), scores])
        self._into = np.concatenate([np.tile(x, h), one.repeat(h), np.tile(i + units, c), one.repeat(c)])

    @property
    def dimensions(self) -> int:
        """The number of numbers that are learnt."""
        return self.hidden * (self.inputs + 1) + self._last.dimensions

    def start(self, seed: int | bytes) -> Floats:
        """Return the public parameters at which training begins, see `public_start`."""
        first = self.hidden * (self.inputs + 1)
        return public_start([(first, self.inputs), (self._last.dimensions, self.hidden)], seed)

    def _sums(self, theta: Floats, features: Floats) -> tuple[Floats, Floats]:
        """Return the sums of the units, and theta of the last layer."""
        h, i = self.hidden, self.inputs
        return features @ theta[: h * i].reshape(h, i).T + theta[h * i : h * i + h], theta[h * (i + 1) :]

    def scores(self, theta: Floats, features: Floats) -> Floats:
        """The score of each class, shape (records, classes)."""
        sums, last = self._sums(theta, features)
        return self._last.scores(last, np.maximum(sums, 0.0))

    def losses(self, theta: Floats, features: Floats, targets: Labels) -> Floats:
        """The loss of each record."""
        sums, last = self._sums(theta, features)
        return self._last.losses(last, np.maximum(sums, 0.0), targets)

    def _factors(self, theta: Floats, features: Floats, targets: Labels) -> tuple[Floats, Floats]:
        """The slopes of units and classes, and what comes into them; at the kink ReLU has slope 0."""
        sums, last = self._sums(theta, features)
        units = np.maximum(sums, 0.0)
        slopes = self._last.slopes(last, units, targets)
        back = slopes @ last[: -self.classes].reshape(self.classes, self.hidden) * (sums > 0.0)
        return np.hstack([back, slopes]), np.hstack([features, units, np.ones((len(units), 1))])

    def gradients(self, theta: Floats, features: Floats, targets: Labels) -> Floats:
        """The gradient of each record's loss, shape (records, d)."""
        slopes, into = self._factors(theta, features, targets)
        return np.asarray(slopes[:, self._slope] * into[:, self._into])

    def coordinates(
        self, theta: Floats, features: Floats, targets: Labels, asked: NDArray[np.int64]
    ) -> Floats:
        """Return the coordinates `asked`, of shape (records, k), of each record's gradient."""
        slopes, into = self._factors(theta, features, targets)
        found = np.take_along_axis(slopes, self._slope[asked], axis=1)
        found *= np.take_along_axis(into, self._into[asked], axis=1)
        return found

    def mean_gradient(self, theta: Floats, features: Floats, targets: Labels) -> Floats:
        """The mean of `gradients` over the records, without a matrix of them all."""
        slopes, into = self._factors(theta, features, targets)
        return np.asarray((slopes.T @ into)[self._slope, self._into] / len(slopes))

    def predict(self, theta: Floats, features: Floats) -> Labels:
        """The class that the network says of each record."""
        return np.asarray(self.scores(theta, features).argmax(axis=-1))

    def error(self, theta: Floats, features: Floats, targets: Labels) -> float:
        """The share of records that are classified wrongly."""
        return float(np.mean(self.predict(theta, features) != targets))
