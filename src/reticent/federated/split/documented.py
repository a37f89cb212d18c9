"""The documents' split: convolutions on the phone, the rest at the edge, Laplace noise on each feature.

THIS PROTECTS NO RECORD, whatever epsilon is chosen. The documents' epsilon is that of one value of one
feature in one pass. A record has hundreds of values and is sent again in every epoch, its label is sent in
clear, and the front layers are learnt from raw records and uploaded as they are. `Spent` says what can be
derived; none of it enters a ledger. For a guarantee take `noised` or `on_device`.

Needs the part `torch`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.federated.networks import public_start
from reticent.federated.record_conversion import convert_classes, convert_records, convert_rows
from reticent.federated.softmax import Labels
from reticent.federated.torch_models import torch_or_error
from reticent.mechanisms.base import Floats
from reticent.randomness import Stream, secure_or

PUBLIC, THEIRS, BATCH = "public bounds", "batch bounds", "batch normalisation"
NORMALISATIONS = (PUBLIC, THEIRS, BATCH)
CHANNELS, KERNEL = (30, 80), 3
MOMENTUM = 0.9
HIGHEST = 1.0  # of a feature: what is larger is cut, with public bounds
_LEAST_RANGE = 1e-6  # of a feature in a batch
_MAX_PIXEL = 3e38  # what a float32 holds
NOT_PROTECTED = "not protected"

Singles = NDArray[np.float32]


class Slopes(Protocol):
    """An edge: features of a batch in, the slopes of its loss by them out; its own half moves."""

    def slopes(self, features: Singles, labels: Labels) -> Singles:
        """The derivative of the batch's mean loss by each feature."""


@dataclass(frozen=True)
class Spent:
    """The privacy that the documents' split gives away of one record, in all rounds.

    Attributes:
        of_a_value: the documents' epsilon: one feature value, one pass, everything else as it is.
        of_a_pass: all features of a record in one pass.
        of_all: all features of a record in all epochs and rounds.
        of_the_record: with its label, and the layers that are learnt from it: no finite number.

    Privacy: pure differential privacy, one record replaced, against the edge. `of_all` would be that of
        features alone, were labels and front layers private; as they are not, there is no guarantee.
    """

    of_a_value: Fraction
    of_a_pass: Fraction
    of_all: Fraction
    of_the_record: float = math.inf

    @property
    def words(self) -> str:
        """The warning that must be read before epsilon is chosen."""
        return (
            f"NO PROTECTION OF A RECORD. epsilon {float(self.of_a_value):g} is that of one value of one "
            f"feature in one pass; all features of a record cost {float(self.of_a_pass):,.0f} in a pass and "
            f"{float(self.of_all):,.0f} in all, its label is sent in clear, and the front layers are learnt "
            "from raw records: no finite epsilon holds for a record. Nothing of this is charged to a ledger."
        )


@dataclass(frozen=True)
class Documented:
    """The documents' split and its parameters.

    Attributes:
        side: pixels of an image each way, a multiple of 4 or 2 more.
        classes: that are told apart.
        hidden: units of the layer between features and classes.
        normalisation: of the features, see `normalised`.
        epsilon: of one value of one feature in one pass; None without noise. No protection of a record.
        batch: records of a step.
        epochs: over all records, in a round.
        rate: of a step, with momentum 0.9.

    Reference: Zhao 2022, Section 5.3.1: 30 and 80 channels, each with pooling, 3,920 features.
    Departure: kernels of 3 x 3, one hidden layer where the text has four of sizes that it does not tell, and
        momentum, without which the printed rate of 0.01 learns nothing in the printed epochs.
    """

    side: int = 28
    classes: int = 10
    hidden: int = 64
    normalisation: str = PUBLIC
    epsilon: float | None = 2.0
    batch: int = 64
    epochs: int = 40
    rate: float = 0.01

    def __post_init__(self) -> None:
        whole("side", self.side, low=4, high=64)
        whole("classes", self.classes, low=2, high=1024)
        whole("hidden", self.hidden, low=1, high=1024)
        if self.normalisation not in NORMALISATIONS:
            raise ParameterError(
                f"normalisation must be one of {', '.join(NORMALISATIONS)}, got {self.normalisation!r:.60}"
            )
        if self.epsilon is not None:
            real("epsilon", self.epsilon, low=1e-3, high=1e3)
        whole("batch", self.batch, low=2, high=4096)
        whole("epochs", self.epochs, low=1, high=1000)
        real("rate", self.rate, low=0.0, high=10.0, open_low=True)

    @property
    def features(self) -> int:
        """Numbers that leave the phone for each record: 3,920 for 28 x 28 pixels."""
        return CHANNELS[1] * (self.side // 2 // 2) ** 2

    @property
    def front_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the phone's half."""
        first, second = CHANNELS
        return [(first, 1, KERNEL, KERNEL), (first,), (second, first, KERNEL, KERNEL), (second,)]

    @property
    def back_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the edge's half."""
        return [(self.hidden, self.features), (self.hidden,), (self.classes, self.hidden), (self.classes,)]

    @property
    def front_dimensions(self) -> int:
        """Numbers of the phone's half."""
        return sum(math.prod(shape) for shape in self.front_shapes)

    @property
    def back_dimensions(self) -> int:
        """Numbers of the edge's half."""
        return sum(math.prod(shape) for shape in self.back_shapes)

    @property
    def dimensions(self) -> int:
        """Numbers of the model: the phone's half, then the edge's."""
        return self.front_dimensions + self.back_dimensions

    def start(self, seed: int | bytes) -> Floats:
        """Return the public parameters at which training begins, see `networks.public_start`."""
        pieces, fan = [], 1
        for shape in (*self.front_shapes, *self.back_shapes):
            if len(shape) > 1:  # a bias follows its weights and takes their inputs
                fan = math.prod(shape[1:])
            pieces.append((math.prod(shape), fan))
        return public_start(pieces, seed)

    def spent(self, rounds: int) -> Spent | None:
        """Return the loss of a record in so many rounds; None without noise: everything.

        With public bounds a record moves its own features only, each by the whole range. Bounds or statistics
        of a batch depend on each of its records, so one of them moves the features of all.
        """
        if self.epsilon is None:
            return None
        moved = self.features * (1 if self.normalisation == PUBLIC else self.batch)
        of_a_pass = moved * Fraction(self.epsilon)
        passes = self.epochs * whole("rounds", rounds, low=1)
        return Spent(Fraction(self.epsilon), of_a_pass, of_a_pass * passes)

    def predicted(self, theta: Floats, images: Any) -> Labels:
        """Return the model's predictions for images, without noise."""
        phone, edge = self.phone(theta), self.edge(theta)
        pieces = [
            edge.scores(phone.quiet(images[at : at + self.batch])).argmax(axis=1)
            for at in range(0, len(images), self.batch)
        ]
        return np.concatenate(pieces).astype(np.int64)

    def phone(self, theta: Floats, rng: Stream | None = None) -> Phone:
        """The phone's half of a model."""
        return Phone(self, np.asarray(theta)[: self.front_dimensions], rng)

    def edge(self, theta: Floats) -> Edge:
        """The edge's half of a model."""
        return Edge(self, np.asarray(theta)[self.front_dimensions :])


class _Half:
    """Layers that move against slopes, with momentum."""

    def __init__(self, task: Documented, theta: Floats, shapes: list[tuple[int, ...]]) -> None:
        self.task, self._torch = task, torch_or_error()
        flat = self._torch.tensor(np.asarray(theta, dtype=np.float32))
        parts = flat.split([math.prod(shape) for shape in shapes])
        self._layers = [
            part.reshape(shape).clone().requires_grad_() for part, shape in zip(parts, shapes, strict=True)
        ]
        self._speeds = [self._torch.zeros_like(layer) for layer in self._layers]

    @property
    def theta(self) -> Singles:
        """The layers as one vector."""
        return self._flat(self._layers)

    @property
    def speed(self) -> Singles:
        """The speeds of the parameters, as one vector."""
        return self._flat(self._speeds)

    def _flat(self, parts: list[Any]) -> Singles:
        return np.asarray(self._torch.cat([part.detach().reshape(-1) for part in parts]).numpy())

    def _move(self, slopes: Any) -> None:
        with self._torch.no_grad():
            for layer, speed, slope in zip(self._layers, self._speeds, slopes, strict=True):
                speed.mul_(MOMENTUM).add_(slope)
                layer.sub_(self.task.rate * speed)


class Phone(_Half):
    """Extracts features, adds noise to each, and learns from the slopes that come back."""

    def __init__(self, task: Documented, theta: Floats, rng: Stream | None) -> None:
        super().__init__(task, theta, task.front_shapes)
        self._rng = rng
        self._left: Any = None  # features that left, to be moved along

    def _extracted(self, images: Any) -> Any:
        functional = self._torch.nn.functional
        side = self.task.side
        pixels = np.clip(convert_rows(images, side**2), -_MAX_PIXEL, _MAX_PIXEL).astype(np.float32)
        given = pixels.reshape(-1, 1, side, side)
        w1, b1, w2, b2 = self._layers
        first = functional.conv2d(self._torch.tensor(given), w1, b1, padding=KERNEL // 2).relu()
        second = functional.conv2d(functional.max_pool2d(first, 2), w2, b2, padding=KERNEL // 2).relu()
        return normalised(functional.max_pool2d(second, 2).flatten(1), self.task.normalisation)

    def quiet(self, images: Any) -> Singles:
        """Features without noise, which stay on the phone."""
        with self._torch.no_grad():
            return np.asarray(self._extracted(images).numpy())

    def sent(self, images: Any) -> Singles:
        """Noisy features of a batch. They protect no record."""
        self._left = self._extracted(images)
        quiet = np.asarray(self._left.detach().numpy())
        if self.task.epsilon is None:
            return quiet
        return quiet + laplace(quiet.shape, 2.0 / self.task.epsilon, self._rng)  # the range is [-1, 1]

    def learnt(self, slopes: Singles) -> None:
        """Move by the slopes of the features that were sent last."""
        given = self._torch.tensor(np.asarray(slopes, dtype=np.float32))
        self._move(self._torch.autograd.grad(self._left, self._layers, grad_outputs=given))
        self._left = None


class Edge(_Half):
    """Learns from features and labels, and tells how the features should have been."""

    def __init__(self, task: Documented, theta: Floats, speed: Floats | None = None) -> None:
        super().__init__(task, theta, task.back_shapes)
        if speed is not None:
            parts = self._torch.tensor(np.asarray(speed, dtype=np.float32))
            sizes = [layer.numel() for layer in self._layers]
            self._speeds = [
                part.reshape(layer.shape).clone()
                for part, layer in zip(parts.split(sizes), self._layers, strict=True)
            ]

    def _scores(self, features: Any) -> Any:
        w1, b1, w2, b2 = self._layers
        return (features @ w1.T + b1).relu() @ w2.T + b2

    def scores(self, features: Singles) -> Floats:
        """The score of each class."""
        with self._torch.no_grad():
            return np.asarray(
                self._scores(self._torch.tensor(np.asarray(features))).numpy(), dtype=np.float64
            )

    def slopes(self, features: Singles, labels: Labels) -> Singles:
        """Move by a batch, and return the derivative of its mean loss by its features."""
        torch = self._torch
        given = torch.tensor(np.asarray(features, dtype=np.float32), requires_grad=True)
        wanted = torch.tensor(np.asarray(labels, dtype=np.int64))
        loss = torch.nn.functional.cross_entropy(self._scores(given), wanted)
        found = torch.autograd.grad(loss, [given, *self._layers])
        self._move(found[1:])
        return np.asarray(found[0].numpy())


def normalised(features: Any, how: str) -> Any:
    """Features in [-1, 1], by batch or not; a tensor that can be differentiated.

    Reference: Zhao 2022, Section 5.1.3: "our normalization" (`THEIRS`) and that of Jiang et al. (`BATCH`),
        both in +-sqrt(N - 1).
    Departure: in units of sqrt(N - 1). The range is only a unit: noise over range is 1/epsilon whatever N.
        The bounds of `THEIRS` are least and most of each feature in the batch, those of `PUBLIC` are 0 and
        `HIGHEST`, whatever the records.
    """
    if how == PUBLIC:
        return features.clamp(0.0, HIGHEST) * (2.0 / HIGHEST) - 1.0
    if how == THEIRS:
        low, high = features.min(dim=0).values, features.max(dim=0).values
        return (features - low) / (high - low).clamp_min(_LEAST_RANGE) * 2.0 - 1.0
    spread = features.std(dim=0, unbiased=False).clamp_min(_LEAST_RANGE)
    return (features - features.mean(dim=0)) / spread / math.sqrt(max(len(features) - 1, 1))


def laplace(shape: tuple[int, ...], scale: float, rng: Stream | None) -> Singles:
    """Laplace noise in floating point: for what protects nobody anyway.

    Privacy: none is claimed. Doubles of this kind tell more than their law.
    """
    units = secure_or(rng).units(math.prod(shape)) - 1.5  # [-1/2, 1/2)
    drawn = -scale * np.sign(units) * np.log1p(-2.0 * np.minimum(np.abs(units), 0.5 - 2.0**-53))
    return drawn.reshape(shape).astype(np.float32)


def trained(
    task: Documented,
    theta: Floats,
    images: Any,
    labels: Any,
    *,
    edge: Slopes,
    rng: Stream | None = None,
    order: Stream | None = None,
) -> Phone:
    """Train a round of one home. The edge's half moves at the edge, the phone's is returned.

    Args:
        task: Task that is asked.
        theta: the model of the round.
        images: Images of the home.
        labels: theirs, which the edge is told in clear.
        edge: the other half.
        rng: Random stream of the noise; None for secure randomness.
        order: Random stream of the order of batches; None for secure randomness.
    """
    phone, shuffle = task.phone(theta, rng), secure_or(order)
    images, numbers = convert_records(images, labels, task.side**2)
    labels = convert_classes(numbers, task.classes)
    for _ in range(task.epochs):
        places = np.argsort(shuffle.words(len(images)))
        for at in range(0, len(places), task.batch):
            chosen = places[at : at + task.batch]
            if len(chosen) < 2:  # no batch statistics
                continue
            phone.learnt(edge.slopes(phone.sent(images[chosen]), labels[chosen]))
    return phone
