"""Sequences of linear layers with ReLU between them, and updates of them: what is inverted.

`Layers` is arithmetic in doubles, for any number of layers: forward, backward and the update of a batch. An
`Update` holds the mean gradient of a batch by layer, with the biases' gradients where they are shared. The
models of `federated` and modules of PyTorch become `Layers` in `sources`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats

Targets = NDArray[np.float64]

LOSSES = ("cross-entropy", "logistic", "squares", "hinge")


@dataclass(frozen=True)
class Layers:
    """f(x) = W_L relu( ... relu(W_1 x + b_1) ... ) + b_L, and a loss of it.

    Attributes:
        weights: W of each layer, shape (outputs, inputs).
        biases: b of each layer; zeros where a layer has none.
        loss: "cross-entropy" of softmax and a class 0, 1, ...; of one output "logistic" (a target of -1 or
            1), "squares" (f - y)^2 or "hinge" max(0, 1 - y f); of more outputs "squares" is their mean.
    """

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    loss: str = "cross-entropy"

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ParameterError(f"loss must be one of {', '.join(LOSSES)}, got {self.loss!r:.60}")
        if not self.weights or len(self.weights) != len(self.biases):
            raise ParameterError("layers must hold the weights and the biases of at least one layer")
        for place, (w, b) in enumerate(zip(self.weights, self.biases, strict=True), 1):
            if w.ndim != 2 or b.shape != w.shape[:1]:
                raise ParameterError(f"layer {place}: weights {w.shape} do not fit biases {b.shape}")
            if place > 1 and w.shape[1] != self.weights[place - 2].shape[0]:
                raise ParameterError(f"layer {place}: takes {w.shape[1]} numbers, gets another count")
            if not (np.isfinite(w).all() and np.isfinite(b).all()):
                raise ParameterError(f"layer {place}: weights and biases must be finite")
        if self.loss in ("logistic", "hinge") and self.outputs != 1:
            raise ParameterError(f"loss {self.loss!r} is of one output, got {self.outputs}")

    @property
    def inputs(self) -> int:
        """The number of features of a record."""
        return int(self.weights[0].shape[1])

    @property
    def outputs(self) -> int:
        """The number of scores."""
        return int(self.weights[-1].shape[0])

    def __len__(self) -> int:
        return len(self.weights)

    def forward(self, records: Floats) -> tuple[list[Floats], Floats]:
        """Return the values that enter each layer, shapes (records, inputs of the layer), and the scores."""
        entering = [records]
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            entering.append(np.maximum(entering[-1] @ w.T + b, 0.0))
        return entering, np.asarray(entering[-1] @ self.weights[-1].T + self.biases[-1])

    def slopes(self, scores: Floats, targets: Targets) -> Floats:
        """The derivative of each record's loss with respect to its scores, shape (records, outputs)."""
        if self.loss == "cross-entropy":
            found = softmax(scores)
            found[np.arange(len(found)), np.asarray(targets, dtype=np.int64)] -= 1.0
            return found
        wanted = np.asarray(targets, dtype=np.float64).reshape(len(scores), -1)
        if self.loss == "squares":
            return np.asarray(2.0 * (scores - wanted) / self.outputs)
        if self.loss == "hinge":
            return np.where(wanted * scores < 1.0, -wanted, 0.0)
        return -wanted / (1.0 + np.exp(np.clip(wanted * scores, -700.0, 700.0)))

    def backward(self, entering: Sequence[Floats], slopes: Floats) -> list[Floats]:
        """Return the derivative of each record's loss with respect to what each layer gives, before ReLU."""
        found = [slopes]
        for w, values in zip(self.weights[:0:-1], entering[:0:-1], strict=True):
            found.append((found[-1] @ w) * (values > 0.0))
        return found[::-1]

    def update(self, records: Floats, targets: Targets, *, biases: bool = True) -> Update:
        """Return the mean gradient of a batch."""
        entering, scores = self.forward(np.asarray(records, dtype=np.float64))
        back = self.backward(entering, self.slopes(scores, targets))
        count = len(entering[0])
        return Update(
            tuple(d.T @ h / count for d, h in zip(back, entering, strict=True)),
            tuple(d.mean(axis=0) if biases else None for d in back),
        )


@dataclass(frozen=True)
class Update:
    """The mean gradient of a batch, by layer.

    Attributes:
        weights: Gradient of each layer's weights.
        biases: Gradient of each layer's biases; None where they are not shared, or there are none.
        precision: Rounding of the numbers, in proportion: that of float64, or of float32.
    """

    weights: tuple[Floats, ...]
    biases: tuple[Floats | None, ...]
    precision: float = float(np.finfo(np.float64).eps)

    @cached_property
    def squares(self) -> tuple[float, ...]:
        """The sum of squares of each layer's weights' gradient; not finite where these are not."""
        return tuple(_square(weights) for weights in self.weights)

    def without_biases(self) -> Update:
        """Return the update with the gradients of weights alone."""
        return Update(self.weights, (None,) * len(self.weights), self.precision)

    def rounded(self) -> Update:
        """Return the update rounded to float32."""
        return Update(
            tuple(w.astype(np.float32).astype(np.float64) for w in self.weights),
            tuple(None if b is None else b.astype(np.float32).astype(np.float64) for b in self.biases),
            float(np.finfo(np.float32).eps),
        )

    def checked(self, layers: Layers) -> Update:
        """Itself, if it is an update of these layers."""
        if len(self.weights) != len(layers) or len(self.biases) != len(layers):
            raise ParameterError(
                f"update must be of {len(layers)} layers, got {len(self.weights)}: is it of another model?"
            )
        for place, (mine, theirs) in enumerate(zip(self.weights, layers.weights, strict=True), 1):
            if mine.shape != theirs.shape:
                raise ParameterError(
                    f"update: layer {place} has weights of shape {mine.shape}, the model {theirs.shape}"
                )
        for place, (slope, b) in enumerate(zip(self.biases, layers.biases, strict=True), 1):
            if slope is not None and slope.shape != b.shape:
                raise ParameterError(
                    f"update: layer {place} has biases of shape {slope.shape}, the model {b.shape}"
                )
        return self

    def finite_from(self) -> int:
        """The first layer from which on all numbers are finite; the number of layers if there is none."""
        first = len(self.weights)
        while first and self._finite(first - 1):
            first -= 1
        return first

    def _finite(self, place: int) -> bool:
        # A sum of squares is finite if all numbers are; a huge one may overflow, and is looked at again.
        if not math.isfinite(self.squares[place]) and not np.isfinite(self.weights[place]).all():
            return False
        bias = self.biases[place]
        return bias is None or math.isfinite(_square(bias)) or bool(np.isfinite(bias).all())


def rounding_share(update: Update) -> float:
    """Return the share of a number that may be rounding: doubles have digits to spare."""
    return (4096.0 if update.precision < 1e-12 else 64.0) * update.precision


def _square(numbers: Floats) -> float:
    flat = numbers.reshape(-1)
    return float(np.dot(flat, flat))


def softmax(scores: Floats) -> Floats:
    """Probabilities of each row of scores."""
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))
