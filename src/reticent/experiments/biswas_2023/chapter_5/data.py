"""The synthetic people of the personalised experiments: two kinds, each with a linear law of its own.

Reference: Biswas 2023, Sections 5.5.2 and 5.5.5, Appendix E. How x is drawn is not printed; here it is
standard normal. The second population has a constant of 15 in one law, so its model learns an intercept.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from reticent.federated.models import Linear
from reticent.federated.personalised import Records
from reticent.federated.personalised.simulation import normals
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream, Stream

OPTIMA = np.array([[5.0, 6.0], [4.0, -4.5]])  # theta_1*, theta_2*
RECORDS = 10  # of each user
SHIFT = 15.0  # of the second group, Section 5.5.5


def two_laws(users: int, rng: Stream) -> Records:
    """Users of Section 5.5.2: y = x.theta_i + u, u uniform in [0, 1); half of them of each law."""
    groups = np.arange(users) % 2
    x = normals(users * RECORDS * 2, rng).reshape(users, RECORDS, 2)
    u = rng.units(users * RECORDS).reshape(users, RECORDS) - 1.0
    y = np.einsum("cmi,ci->cm", x, OPTIMA[groups]) + u
    return Records(Linear(2, l2=0.0, intercept=False), x, y)


@dataclass(frozen=True)
class Groups:
    """Users of Section 5.5.5 and the group of each: 0, the majority, four fifths, or 1."""

    records: Records
    group: NDArray[np.int64]

    def labels(self, y: Floats) -> NDArray[np.bool_]:
        """Whether a loan is granted, of true or predicted y: y >= 0, or for the minority y <= 15."""
        minority = (self.group == 1)[:, None]
        return np.asarray(np.where(minority, y <= SHIFT, y >= 0.0))


def two_groups(users: int, rng: Stream) -> Groups:
    """Four fifths with y = x.theta_1 + u, one fifth with y = x.theta_2 + 15 + u."""
    group = (np.arange(users) % 5 == 4).astype(np.int64)
    x = normals(users * RECORDS * 2, rng).reshape(users, RECORDS, 2)
    u = rng.units(users * RECORDS).reshape(users, RECORDS) - 1.0
    y = np.einsum("cmi,ci->cm", x, OPTIMA[group]) + SHIFT * group[:, None] + u
    return Groups(Records(Linear(2, l2=0.0), x, y), group)


def start(hypotheses: int, dimensions: int, rng: Stream) -> Floats:
    """Hypotheses drawn from a standard normal law, which is public."""
    return normals(hypotheses * dimensions, rng).reshape(hypotheses, dimensions)


def error(hypotheses: Floats) -> float:
    """How far the worse of the optima is from the hypothesis that stands for it, relative to its length."""
    lengths = np.sqrt(np.square(OPTIMA).sum(axis=1))
    found = [
        float((np.sqrt(np.square(hypotheses[list(order)] - OPTIMA).sum(axis=1)) / lengths).max())
        for order in permutations(range(len(hypotheses)), len(OPTIMA))
    ]
    return min(found)


def stream(seed: int, *path: int) -> SimulationStream:
    """The stream of one part of a run."""
    return SimulationStream(seed, path=path)
