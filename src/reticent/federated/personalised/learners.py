"""The computations of clients on their own data: losses of hypotheses, and a local update. Not private.

A `Population` answers for many clients at once, so that a simulation is a few lines of numpy; a client is a
population of one. A network brings a population of its own.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from reticent.errors import ParameterError
from reticent.federated import models
from reticent.federated.models import Model
from reticent.mechanisms.base import Floats

Indices = NDArray[np.int64]


class Population(Protocol):
    """Clients with data."""

    def __len__(self) -> int:
        """Return the number of clients."""

    def losses(self, hypotheses: Floats, who: Indices) -> Floats:
        """The mean loss of each hypothesis on the data of each client: shape (clients, k)."""

    def updated(self, starts: Floats, who: Indices, *, rate: float, epochs: int) -> Floats:
        """Return the parameters of each client after its local update from its row of `starts`."""


class Records:
    """Clients with as many records each, and one of the models of `reticent.federated`.

    Args:
        model: Model to learn.
        features: shape (clients, records, inputs).
        targets: shape (clients, records).
    """

    def __init__(self, model: Model, features: Any, targets: Any) -> None:
        self.model = model
        self.features = np.asarray(features, dtype=np.float64)
        self.targets = np.asarray(targets, dtype=np.float64)
        shape = self.features.shape
        if len(shape) != 3 or shape[2] != model.inputs or self.targets.shape != shape[:2] or 0 in shape:
            raise ParameterError(
                f"features must have shape (clients, records, {model.inputs}), targets as many"
            )
        # The loss as a function of the score alone: a model of one input, which is the score.
        self._of_score = models.made(model.described() | {"inputs": 1, "l2": 0.0, "intercept": False})

    def __len__(self) -> int:
        return len(self.features)

    def scores(self, thetas: Floats, who: Indices) -> Floats:
        """f(x) of each record, under the parameters of its client: shape (clients, records)."""
        inputs = self.model.inputs
        scores = np.einsum("cmi,ci->cm", self.features[who], thetas[:, :inputs])
        return np.asarray(scores + thetas[:, inputs:] if self.model.intercept else scores)

    def losses(self, hypotheses: Floats, who: Indices) -> Floats:
        """The mean loss of each hypothesis on the data of each client: shape (clients, k)."""
        inputs = self.model.inputs
        scores = self.features[who] @ hypotheses[:, :inputs].T
        if self.model.intercept:
            scores = scores + hypotheses[:, inputs]
        found = self._of_score.losses(np.ones(1), scores[..., None], self.targets[who][..., None])
        return np.asarray(found.mean(axis=1))

    def updated(self, starts: Floats, who: Indices, *, rate: float, epochs: int) -> Floats:
        """Steps of gradient descent over all records of a client.

        Reference: Biswas 2023, Algorithm 6, LocalUpdate, with a batch of all records.
        """
        thetas, x, y = np.array(starts, dtype=np.float64), self.features[who], self.targets[who]
        for _ in range(epochs):
            slopes = self._of_score.slopes(np.ones(1), self.scores(thetas, who)[..., None], y)
            gradients = np.einsum("cm,cmi->ci", slopes, x) / y.shape[1]
            if self.model.intercept:
                gradients = np.concatenate([gradients, slopes.mean(axis=1, keepdims=True)], axis=1)
            thetas -= rate * (gradients + self.model.l2 * thetas)
        return thetas


def chosen(losses: Floats) -> Indices:
    """The hypothesis of least loss, for each client; a loss that is no number is the largest."""
    found: Indices = np.argmin(np.nan_to_num(losses, nan=np.inf, posinf=np.inf), axis=1)
    return found
