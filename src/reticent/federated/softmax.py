"""Softmax regression: one linear score for each class, and the loss of the right one.

The same arithmetic interface as `models.Model`, for a `theta` that has several scores: the weights of the
classes by rows, then one constant for each. Leading axes are clients: `theta` of shape (..., d) with
`features` of shape (..., records, inputs) is a model for each of them. Targets are classes, from 0.

A task of it has no `model` (only `dimensions`), and clients give gradients to `Client.report`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import real, whole
from reticent.mechanisms.base import Floats
from reticent.mechanisms.sampling import MAX_DIMENSIONS

Labels = NDArray[np.int64]
_FARTHEST = 1e100  # of a feature, so that squares stay finite


class Softmax:
    """-ln softmax(W x + b)[y], and lambda/2 |theta|^2.

    Args:
        inputs: the number of features.
        classes: Number of classes.
        l2: lambda, the weight of the penalty; the documents take 1e-4 for other models.
    """

    def __init__(self, inputs: int, classes: int, *, l2: float = 1e-4) -> None:
        self.classes = whole("classes", classes, low=2, high=1 << 16)
        self.inputs = whole("inputs", inputs, low=1, high=MAX_DIMENSIONS // self.classes - 1)
        self.l2 = real("l2", l2, low=0.0)

    @property
    def dimensions(self) -> int:
        """The number of numbers that are learnt."""
        return self.classes * (self.inputs + 1)

    def start(self) -> Floats:
        """Return the parameters at which training begins: zero, which is public."""
        return np.zeros(self.dimensions)

    def scores(self, theta: Floats, features: Floats) -> Floats:
        """The score of each class, shape (..., records, classes)."""
        weights = theta[..., : -self.classes].reshape(*theta.shape[:-1], self.classes, self.inputs)
        return np.asarray(features @ np.swapaxes(weights, -1, -2) + theta[..., None, -self.classes :])

    def losses(self, theta: Floats, features: Floats, targets: Labels) -> Floats:
        """The loss of each record, without the penalty."""
        scores = self.scores(theta, features)
        scores -= scores.max(axis=-1, keepdims=True)
        right = np.take_along_axis(scores, targets[..., None], axis=-1)[..., 0]
        return np.asarray(np.log(np.exp(scores).sum(axis=-1)) - right)

    def slopes(self, theta: Floats, features: Floats, targets: Labels) -> Floats:
        """The derivative of each record's loss with respect to its scores, shape (..., records, classes)."""
        scores = self.scores(theta, features)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        right = np.take_along_axis(scores, targets[..., None], axis=-1)
        np.put_along_axis(scores, targets[..., None], right - 1.0, axis=-1)
        return scores

    def gradients(self, theta: Floats, features: Floats, targets: Labels) -> Floats:
        """The gradient of each record's loss and the penalty, shape (..., records, d)."""
        slope = self.slopes(theta, features, targets)
        weights = (slope[..., :, None] * features[..., None, :]).reshape(*slope.shape[:-1], -1)
        return np.concatenate([weights, slope], axis=-1) + self.l2 * theta[..., None, :]

    def mean_gradient(self, theta: Floats, features: Floats, targets: Labels) -> Floats:
        """The mean of `gradients` over the records, without a matrix of them all."""
        slope = self.slopes(theta, features, targets)
        return np.asarray(self._summed(slope, features) / slope.shape[-2] + self.l2 * theta)

    def clipped_sum(self, theta: Floats, features: Floats, targets: Labels, clip: float) -> Floats:
        """The sum of each record's gradient, without penalty, shortened to `clip` if it is longer.

        A record's gradient is its slope times (x, 1), so its length is |slope| sqrt(|x|^2 + 1). What is no
        number, in a record, counts as 0: a total function of the records.
        """
        real("clip", clip, low=0.0, open_low=True)
        safe = np.clip(np.nan_to_num(features), -_FARTHEST, _FARTHEST)
        with np.errstate(all="ignore"):
            slope = np.nan_to_num(self.slopes(theta, safe, targets))
        lengths = np.linalg.norm(slope, axis=-1) * np.sqrt(np.square(safe).sum(axis=-1) + 1.0)
        slope *= np.minimum(1.0, clip / np.maximum(lengths, 1e-300))[..., None]
        return self._summed(slope, safe)

    def _summed(self, slope: Floats, features: Floats) -> Floats:
        weights = np.swapaxes(slope, -1, -2) @ features
        return np.concatenate([weights.reshape(*weights.shape[:-2], -1), slope.sum(axis=-2)], axis=-1)

    def predict(self, theta: Floats, features: Floats) -> Labels:
        """The class that the model says of each record."""
        return np.asarray(self.scores(theta, features).argmax(axis=-1))

    def error(self, theta: Floats, features: Floats, targets: Labels) -> float:
        """The share of records that are classified wrongly."""
        return float(np.mean(self.predict(theta, features) != targets))
