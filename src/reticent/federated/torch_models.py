"""Networks of PyTorch as one flat `theta`: doubles in, doubles out. Needs the part `torch`.

A network here is arithmetic, as `models.Model` is: it holds no parameters between calls. What is learnt is
released like any other vector, through a task that names its number of dimensions.

`gradients` are those of each record (`torch.func.vmap`), a matrix of records x d: for small networks.
`mean_gradient` and `updated` are of one client's records together, and hold no such matrix. `differentiable`
is either of them as tensors that can be differentiated again, by the records: what an attacker does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from reticent.arguments import whole
from reticent.errors import MissingExtra, ParameterError
from reticent.federated.networks import public_start
from reticent.mechanisms.base import Floats
from reticent.randomness import Stream

SIDE = 28  # pixels of an image of MNIST, each way
LOSSES = ("squares", "cross-entropy")
_AT_ONCE = 1024  # records of one pass


def torch_or_error() -> Any:
    """The module torch."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("a network of PyTorch", "torch") from error
    return torch


class Network:
    """A module of PyTorch with a loss.

    Args:
        module: layers; those that behave otherwise in training, batch normalisation and dropout, in
            evaluation mode. Their buffers are public and stay as they are.
        loss: "cross-entropy" of class scores and classes 0, 1, ...; or "squares": of one score the squared
            error; of class scores, after softmax, the mean squared error against the class's indicator.
    """

    def __init__(self, module: Any, *, loss: str = "cross-entropy") -> None:
        self._torch = torch_or_error()
        if loss not in LOSSES:
            raise ParameterError(f"loss must be one of {', '.join(LOSSES)}, got {loss!r:.60}")
        unsettled = next((one for one in module.modules() if one.training and _is_random(one)), None)
        if unsettled is not None:
            raise ParameterError(
                f"module must be in evaluation mode, got {type(unsettled).__name__} in training mode"
            )
        self._module, self.loss = module.eval(), loss
        self._names = [(name, held.shape) for name, held in module.named_parameters()]
        if not self._names:
            raise ParameterError("module must have parameters, got none")
        self._type = next(module.parameters()).dtype

    @property
    def module(self) -> Any:
        """The layers."""
        return self._module

    @property
    def dimensions(self) -> int:
        """The number of numbers that are learnt."""
        return sum(shape.numel() for _, shape in self._names)

    @property
    def last_shape(self) -> tuple[int, ...]:
        """The shape of the last tensor of theta: (outputs,) if it is a bias."""
        return tuple(self._names[-1][1])

    def start(self, seed: int | bytes) -> Floats:
        """Return the public parameters at which training begins, see `networks.public_start`."""
        pieces, fan = [], 1
        for _, shape in self._names:
            if len(shape) > 1:  # a bias follows its weights and takes their inputs
                fan = shape[1:].numel()
            pieces.append((shape.numel(), fan))
        return public_start(pieces, seed)

    # Between a flat vector and tensors

    def split(self, theta: Floats) -> dict[str, Any]:
        """The tensors of a flat theta, by name."""
        flat = self._torch.as_tensor(np.asarray(theta), dtype=self._type)
        if flat.shape != (self.dimensions,):
            raise ParameterError(f"theta must be {self.dimensions} numbers, got shape {tuple(flat.shape)}")
        parts = flat.split([shape.numel() for _, shape in self._names])
        return {name: part.view(shape) for (name, shape), part in zip(self._names, parts, strict=True)}

    def flat(self, tensors: dict[str, Any]) -> Floats:
        """The flat theta of tensors by name."""
        parts = [tensors[name].detach().reshape(-1) for name, _ in self._names]
        return np.asarray(self._torch.cat(parts).double().numpy())

    def _features(self, given: Any) -> Any:
        return self._torch.as_tensor(np.asarray(given), dtype=self._type)

    def _targets(self, given: Any) -> Any:
        classes = self.loss == "cross-entropy" or self.outputs > 1
        return self._torch.as_tensor(np.asarray(given), dtype=self._torch.int64 if classes else self._type)

    @property
    def outputs(self) -> int:
        """The number of outputs for a record: classes, or 1."""
        return int(self._names[-1][1][0])

    # What it says, and how wrong that is

    def _scores(self, tensors: dict[str, Any], features: Any) -> Any:
        return self._torch.func.functional_call(self._module, tensors, (features,))

    def _losses(self, tensors: dict[str, Any], features: Any, targets: Any) -> Any:
        scores, functional = self._scores(tensors, features), self._torch.nn.functional
        if self.loss == "cross-entropy":
            return functional.cross_entropy(scores, targets, reduction="none")
        if self.outputs == 1:
            return (scores[:, 0] - targets) ** 2
        wanted = targets
        if targets.dim() == 1:  # classes; otherwise their probabilities
            wanted = (targets[:, None] == self._torch.arange(self.outputs)).to(self._type)
        return ((scores.softmax(dim=1) - wanted) ** 2).mean(dim=1)

    def _in_pieces(self, work: Callable[..., Any], *arrays: Any) -> Floats:
        with self._torch.no_grad():
            pieces = [
                work(*(array[start : start + _AT_ONCE] for array in arrays))
                for start in range(0, len(arrays[0]), _AT_ONCE)
            ]
            return np.asarray(self._torch.cat(pieces).double().numpy())

    def scores(self, theta: Floats, features: Any) -> Floats:
        """The outputs for each record, shape (records, outputs)."""
        tensors = self.split(theta)
        return self._in_pieces(lambda x: self._scores(tensors, x), self._features(features))

    def losses(self, theta: Floats, features: Any, targets: Any) -> Floats:
        """The loss of each record."""
        tensors = self.split(theta)
        return self._in_pieces(
            lambda x, y: self._losses(tensors, x, y), self._features(features), self._targets(targets)
        )

    def predict(self, theta: Floats, features: Any) -> Floats:
        """Return the network's prediction for each record: its class, or a number."""
        found = self.scores(theta, features)
        return found[:, 0] if self.outputs == 1 else found.argmax(axis=1).astype(np.float64)

    def error(self, theta: Floats, features: Any, targets: Any) -> float:
        """The share of records that are classified wrongly; for one output the mean squared error."""
        if self.outputs == 1:
            return float(self.losses(theta, features, targets).mean())
        return float(np.mean(self.predict(theta, features) != np.asarray(targets)))

    # How it learns

    def gradients(self, theta: Floats, features: Any, targets: Any) -> Floats:
        """The gradient of each record's loss, shape (records, d)."""
        func = self._torch.func

        def one(tensors: dict[str, Any], x: Any, y: Any) -> Any:
            return self._losses(tensors, x[None], y[None])[0]

        each = func.vmap(func.grad(one), in_dims=(None, 0, 0))
        found = each(self.split(theta), self._features(features), self._targets(targets))
        rows = [found[name].reshape(len(features), -1) for name, _ in self._names]
        return np.asarray(self._torch.cat(rows, dim=1).double().numpy())

    def mean_gradient(self, theta: Floats, features: Any, targets: Any) -> Floats:
        """The gradient of the mean loss of the records, in one pass."""
        tensors = self.tensors(theta)
        loss = self._losses(tensors, self._features(features), self._targets(targets)).mean()
        found = self._torch.autograd.grad(loss, [*tensors.values()])
        return self.flat(dict(zip(tensors, found, strict=True)))

    def tensors(self, theta: Floats) -> dict[str, Any]:
        """The tensors of a flat theta, by name, that gradients can be taken by."""
        return {name: part.requires_grad_() for name, part in self.split(theta).items()}

    def differentiable(
        self,
        tensors: dict[str, Any],
        features: Any,
        targets: Any,
        *,
        rate: float | None = None,
        epochs: int = 1,
        batch: int | None = None,
    ) -> list[Any]:
        """`mean_gradient` as tensors that can be differentiated again; with a rate, what `updated` moves by.

        Args:
            tensors: see `tensors`.
            features: Features of the records, a tensor.
            targets: classes, or probabilities of classes, or numbers: a tensor.
            rate: Rate of local steps; None for the gradient alone.
            epochs: over all records.
            batch: records of a local step, in order; None for all.

        Returns:
            One tensor for each of `tensors`: the gradient, or the start minus the end of the local steps.
        """
        if rate is None:
            loss = self._losses(tensors, features, targets).mean()
            return list(self._torch.autograd.grad(loss, [*tensors.values()], create_graph=True))
        moved = tensors
        for chosen in _batches(len(features), whole("epochs", epochs, low=1), batch, None):
            loss = self._losses(moved, features[chosen], targets[chosen]).mean()
            found = self._torch.autograd.grad(loss, [*moved.values()], create_graph=True)
            moved = {
                name: part - rate * slope for (name, part), slope in zip(moved.items(), found, strict=True)
            }
        return [start - moved[name] for name, start in tensors.items()]

    def updated(
        self,
        theta: Floats,
        features: Any,
        targets: Any,
        *,
        rate: float,
        epochs: int = 1,
        batch: int | None = None,
        rng: Stream | None = None,
    ) -> Floats:
        """Theta after local steps over all records, in batches, shuffled if there is a stream.

        Reference: Biswas 2023, Algorithm 6, LocalUpdate.
        """
        x, y = self._features(features), self._targets(targets)
        tensors = {name: part.clone().requires_grad_() for name, part in self.split(theta).items()}
        for chosen in _batches(len(x), whole("epochs", epochs, low=1), batch, rng):
            loss = self._losses(tensors, x[chosen], y[chosen]).mean()
            found = self._torch.autograd.grad(loss, [*tensors.values()])
            with self._torch.no_grad():
                for part, slope in zip(tensors.values(), found, strict=True):
                    part -= rate * slope
        return self.flat(tensors)


def _is_random(layer: Any) -> bool:
    """Whether a layer in training mode draws, or moves buffers of its own."""
    name = type(layer).__name__
    return name.startswith("BatchNorm") or "Dropout" in name or bool([*layer.buffers(recurse=False)])


def _batches(records: int, epochs: int, batch: int | None, rng: Stream | None) -> Iterator[Any]:
    size = records if batch is None else whole("batch", batch, low=1)
    for _ in range(epochs):
        order = np.arange(records) if rng is None else np.argsort(rng.words(records))
        for start in range(0, records, size):
            yield order[start : start + size]


def two_layers(inputs: int = 3, hidden: int = 2, *, precise: bool = False) -> Network:
    """The network of `networks.TwoLayers`, with the same theta."""
    torch = torch_or_error()
    nn, kind = torch.nn, torch.float64 if precise else torch.float32
    layers = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 1)).to(kind)
    return Network(layers, loss="squares")


def convolutional(
    classes: int = 10,
    *,
    side: int = SIDE,
    kernel: int = 3,
    loss: str = "cross-entropy",
    precise: bool = False,
) -> Network:
    """The documents' network for square images: 1,199,882 numbers for 28 x 28 pixels and 10 classes.

    Reference: Biswas 2023, Table E.1.
    Departure: kernels of 3 x 3 where the table prints (2,2): with its 62 classes they have the 1,206,590
        numbers of Appendix E, where 2 x 2 would have 1,400,990. (Section 5.5.4 prints 206590: the 1 is lost.)
        No ReLU after the last layer, and none after the pooling, where it changes nothing.
    """
    torch = torch_or_error()
    nn, kind = torch.nn, torch.float64 if precise else torch.float32
    pooled = (side - 2 * (kernel - 1)) // 2
    layers = nn.Sequential(
        nn.Unflatten(1, (1, side)),
        nn.Conv2d(1, 32, kernel),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * pooled * pooled, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    ).to(kind)
    return Network(layers, loss=loss)
