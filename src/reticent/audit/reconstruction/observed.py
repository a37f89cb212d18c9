"""The update and the knowledge of a server that wants its client's records back, and its result.

Everything here is numpy; `matching` and `imprint` need the part `torch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats


@dataclass(frozen=True)
class LocalSteps:
    """The local steps of a client before it sent anything (FedAvg).

    Attributes:
        rate: Learning rate of a step.
        epochs: Passes over all its records.
        batch: Records of a step, in order; None for all.
    """

    rate: float
    epochs: int = 1
    batch: int | None = None

    def __post_init__(self) -> None:
        real("rate", self.rate, low=0.0, open_low=True)
        whole("epochs", self.epochs, low=1)
        if self.batch is not None:
            whole("batch", self.batch, low=1)


@dataclass(frozen=True)
class Observed:
    """An update, and what the server knows beside it.

    Attributes:
        network: a `torch_models.Network`.
        theta: Parameters that the client started from; the server sent them.
        update: the mean gradient of the client's records, or what local steps moved by: start minus end.
        shape: Shape of one record: (28, 28), or (features,).
        labels: Labels of the records, if they are known; otherwise those that the last layer tells.
        records: Number of records.
        low: no feature is lower.
        high: no feature is higher.
        local: None if the update is a gradient.
    """

    network: Any
    theta: Floats
    update: Floats
    shape: tuple[int, ...]
    labels: Any = None
    records: int = 1
    low: float = 0.0
    high: float = 1.0
    local: LocalSteps | None = None

    def __post_init__(self) -> None:
        whole("records", self.records, low=1)
        if not real("low", self.low) < real("high", self.high):
            raise ParameterError(f"low must be below high, got {self.low:g} and {self.high:g}")
        for name in ("theta", "update"):
            object.__setattr__(self, name, _vector(name, getattr(self, name), self.network.dimensions))
        if not self.update.any():
            raise ParameterError("update must not be zero: it says nothing about its records")
        if self.labels is not None:
            object.__setattr__(self, "labels", self._checked_labels())

    def _checked_labels(self) -> NDArray[Any]:
        labels = np.asarray(self.labels)
        if labels.shape != (self.records,):
            raise ParameterError(f"labels must be {self.records}, one a record, got shape {labels.shape}")
        classes = self.network.outputs
        if classes > 1 and not np.isin(labels, np.arange(classes)).all():
            raise ParameterError(f"labels must be classes 0 to {classes - 1}")
        return labels

    @property
    def known(self) -> NDArray[Any]:
        """The labels, as they were given or as the last layer tells them."""
        return likely_labels(self) if self.labels is None else np.asarray(self.labels)


@dataclass(frozen=True)
class Rebuilt:
    """The result of an attack on an update.

    Attributes:
        records: Rebuilt records, shape (records, *shape), within the bounds.
        labels: Labels of the records.
        objective: Objective of the attack, in the end: what is left between the update and that of the
            records.
        evaluations: Number of gradients of the network that the attack took.
    """

    records: Floats
    labels: NDArray[Any]
    objective: float
    evaluations: int


def likely_labels(observed: Observed) -> NDArray[np.int64]:
    """Return the classes of the records, from the gradient of the last layer.

    The gradient of the last bias is the mean probability of each class minus its share of the records.
    A record at a time, the lowest class is taken and its share added back. For a single record this is the
    sign rule, exact without noise. Without a bias the sums of the rows of the last weights take its place.

    Reference: Zhao, Mopuri and Bilen 2020, Section 3, for one record; Yin et al. 2021, Section 3.1, for
        several.
    """
    classes, k = observed.network.outputs, observed.records
    if classes == 1:
        raise ParameterError("labels must be given: the network has one output, whose target is a number")
    scale = 1.0 if observed.local is None else _steps(observed) * observed.local.rate
    shape = observed.network.last_shape
    if len(shape) == 1:
        slope = observed.update[-classes:] / scale
    else:
        slope = observed.update[-classes * shape[1] :].reshape(classes, -1).sum(axis=1) / scale
        slope = slope / max(float(np.abs(slope).sum()) / 2.0, 1e-300)  # a record's own: 1 - p, at most 1
    found = []
    for _ in range(k):
        found.append(int(slope.argmin()))
        slope[found[-1]] += 1.0 / k
    return np.sort(np.asarray(found, dtype=np.int64))


def _steps(observed: Observed) -> int:
    assert observed.local is not None
    size = observed.local.batch or observed.records
    return observed.local.epochs * -(-observed.records // size)


def _vector(name: str, given: Any, dimensions: int) -> Floats:
    try:
        found = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{name} must be {dimensions} numbers, as the network has") from error
    if found.shape != (dimensions,):
        raise ParameterError(
            f"{name} must be {dimensions} numbers, as the network has, got shape {found.shape}"
        )
    if not np.isfinite(found).all():
        raise ParameterError(f"{name} must be finite numbers, got NaN or infinite ones")
    return found
