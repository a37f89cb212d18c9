"""Updates that a client may send instead of its gradient: as it is, clipped, with noise; their guarantees.

`gaussian` and `laplace` are drawn as the library's clients draw them, on a grid. The documents' rule is here
to be attacked. For simulations and tests: nothing here charges a ledger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.arguments import real
from reticent.errors import ParameterError
from reticent.federated.personalised.noise import Sanitiser
from reticent.federated.personalised.noise import clipped as clipped_rows
from reticent.federated.personalised.simulation import documents_noise_without_guarantee
from reticent.federated.personalised.tasks import PersonalTask
from reticent.mechanisms.base import Floats
from reticent.privacy import GaussianDP
from reticent.randomness import Stream, secure_or


@dataclass(frozen=True)
class Sent:
    """An update as the server sees it.

    Attributes:
        update: Numbers of the update.
        noise: Standard deviation of each number; 0 for none.
        mu: Level mu that the update keeps between any two data sets of the client; None if it keeps none.
        epsilon: Epsilon of a pure guarantee between any two data sets of the client; None if it keeps none.
    """

    update: Floats
    noise: float = 0.0
    mu: float | None = None
    epsilon: float | None = None


def raw(gradient: Any) -> Sent:
    """Send the gradient as it is, without any guarantee."""
    return Sent(_row(gradient))


def clipped(gradient: Any, radius: float) -> Sent:
    """Clipped to a public radius. Nothing is kept: the direction is there."""
    return Sent(clipped_rows(_row(gradient), real("radius", radius, low=0.0, open_low=True)))


def gaussian(gradient: Any, radius: float, mu: float, rng: Stream | None = None) -> Sent:
    """Clipped to a public radius, with discrete Gaussian noise that keeps mu between any two updates.

    Privacy: mu-GDP, see `federated.personalised.noise.Sanitiser`, which draws it as clients do.
    """
    wanted = real("mu", mu, low=0.0, open_low=True)
    level = 2.0 * real("radius", radius, low=0.0, open_low=True) / wanted
    return _sanitised(_row(gradient), radius, "gaussian", level, wanted, rng)


def laplace(gradient: Any, radius: float, epsilon: float, rng: Stream | None = None) -> Sent:
    """Clipped, with Laplace noise in n <= 4096 dimensions that keeps epsilon between any two updates.

    Privacy: epsilon-LDP, see `gaussian`.
    """
    wanted = real("epsilon", epsilon, low=0.0, open_low=True)
    level = wanted / (2.0 * real("radius", radius, low=0.0, open_low=True))
    return _sanitised(_row(gradient), radius, "laplace", level, wanted, rng)


def _sanitised(
    row: Floats, radius: float, noise: str, level: float, wanted: float, rng: Stream | None
) -> Sent:
    """A little more noise than reals would need, since rounding to the grid is charged."""
    for _ in range(4):
        sanitiser = _sanitiser(row.size, radius, noise, level)
        kept = sanitiser.guarantee
        reached = kept.mu if isinstance(kept, GaussianDP) else kept.epsilon
        if reached <= wanted:
            break
        excess = reached / wanted * (1.0 + 1e-9)
        level = level * excess if noise == "gaussian" else level / excess
    else:
        raise ParameterError(f"noise for {wanted:g} at radius {radius:g} does not fit the grid")
    vectors = sanitiser.vectors(np.zeros(1, dtype=np.int64), row[None])
    found, spread = (
        sanitiser.decoded(sanitiser.sample(vectors, secure_or(rng)))[0],
        math.sqrt(sanitiser.variance),
    )
    if isinstance(kept, GaussianDP):
        return Sent(found, spread, mu=kept.mu)
    return Sent(found, spread, epsilon=kept.epsilon)


def _sanitiser(dimensions: int, radius: float, noise: str, level: float) -> Sanitiser:
    task = PersonalTask(
        name="update",
        version="1",
        purpose="to be attacked",
        model=None,
        dimensions=dimensions,
        hypotheses=1,
        clip=radius,
        reach=1.0,
        level=level,
        rounds=1,
        group=1,
        rate=1.0,
        noise=noise,
    )
    return Sanitiser(task, np.zeros((1, dimensions)))


def documents(gradient: Any, multiplier: float, rng: Stream) -> Sent:
    """The documents' rule: Laplace noise as long as `multiplier` times the update itself. Nothing is kept.

    Reference: Biswas 2023, Algorithm 7.
    """
    row = _row(gradient)
    found = documents_noise_without_guarantee(multiplier)(np.zeros((1, row.size)), row[None], rng)[0]
    return Sent(found, multiplier * float(np.linalg.norm(row)) * math.sqrt((row.size + 1.0) / row.size**2))


def _row(gradient: Any) -> Floats:
    row = np.asarray(gradient, dtype=np.float64)
    if row.ndim != 1 or not row.size or not np.isfinite(row).all():
        raise ParameterError(f"gradient must be a vector of finite numbers, got shape {row.shape}")
    return row
