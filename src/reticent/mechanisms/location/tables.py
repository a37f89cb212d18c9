"""Channels given by a table, a row for each place, with the level worked out from it.

For small spaces: a table of n places is n x n, and checking it against all pairs of places n^3.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from reticent.arguments import real
from reticent.errors import MissingExtra, ParameterError
from reticent.mechanisms.base import Floats, Symbols
from reticent.mechanisms.location.elastic import exponential, sampled, whole_numbers, worst_level
from reticent.privacy import MetricDP
from reticent.randomness import Stream
from reticent.spaces.finite import Space

MOST_PLACES = 1024
MOST_SOLVED = 30  # places of a linear program: n^2 unknowns, n^3 conditions
_DOUBLE_BITS = 53


class TableChannel:
    """A channel by its rows.

    Args:
        space: the places.
        matrix: P(y|x), rows that are scaled to sum to one.

    Attributes:
        matrix: the rows; the sampler draws by these very doubles, as whole numbers.
        level: their largest loss per distance, rounded up.
    """

    def __init__(self, space: Space, matrix: Any) -> None:
        table = np.asarray(matrix, dtype=np.float64)
        if space.size > MOST_PLACES:
            raise ParameterError(f"a table must have at most {MOST_PLACES} places, got {space.size}")
        if table.shape != (space.size, space.size):
            raise ParameterError(f"matrix must have shape ({space.size}, {space.size}), got {table.shape}")
        if not np.isfinite(table).all() or table.min() < 0.0 or not (table.sum(axis=1) > 0.0).all():
            raise ParameterError("matrix must hold numbers >= 0 and no empty row")
        if table[:, ~space.open].any():
            raise ParameterError("matrix must be 0 in the columns of closed cells")
        self.space = space
        self.matrix: Floats = table / table.sum(axis=1, keepdims=True)
        distances = np.stack([space.distances(x) for x in range(space.size)])
        with np.errstate(divide="ignore"):
            found = worst_level(np.log(self.matrix), distances)
        if not math.isfinite(found):
            raise ParameterError("matrix must reach the same places from everywhere: some loss is infinite")
        self.level = found * (1.0 + 1e-12) + 2.0**-41 / space.shortest  # logarithms down to -745

    @property
    def guarantee(self) -> MetricDP:
        """The guarantee of one report."""
        return MetricDP(self.level, self.space.unit)

    def probabilities(self, place: int) -> Floats:
        """Return the law of the report of one place."""
        return np.asarray(self.matrix[place])

    def weights(self, place: int) -> list[int]:
        """Return the law of the report of one place as whole numbers."""
        numbers, exponents = np.frexp(self.matrix[place])
        return whole_numbers(numbers * 2.0**_DOUBLE_BITS, exponents)

    def sample(self, places: Any, rng: Stream | None = None) -> Symbols:
        """Return the report of each place."""
        return sampled(self, places, rng)

    def forward(self, theta: Floats) -> Floats:
        """Return the law of the reports of people who are distributed by theta."""
        return theta @ self.matrix

    def back(self, values: Floats) -> Floats:
        """Return the sum over y of P(y|x) values(y), for each x."""
        return self.matrix @ values

    def factors(self, theta: Floats, shares: Floats) -> Floats:
        """Return the sum over y of P(y|x) shares(y) / law(y), law that of `forward`."""
        return self.back(shares / np.maximum(self.forward(theta), 1e-300))

    def distortion(self, prior: Floats) -> float:
        """Return the mean distance between a place and its report."""
        return float(np.asarray(prior) @ self.displacement)

    @property
    def displacement(self) -> Floats:
        """The mean distance from each place to its report."""
        distances = np.stack([self.space.distances(x) for x in range(self.space.size)])
        return np.asarray((self.matrix * distances).sum(axis=1))

    @property
    def staying(self) -> Floats:
        """P(x|x)."""
        return np.asarray(self.matrix.diagonal())

    def mutual_information(self, prior: Floats) -> float:
        """Return the information of a report about the place, in nats."""
        joint = np.asarray(prior)[:, None] * self.matrix
        law = joint.sum(axis=0)
        held = joint > 0.0
        return float((joint[held] * np.log((self.matrix / np.maximum(law, 1e-300))[held])).sum())


def linear_program(space: Space, prior: Any, level: float) -> TableChannel:
    """The channel of least mean distance that keeps a level exactly: P(y|x) <= exp(level d(x, x')) P(y|x').

    A solver keeps conditions to a tolerance only, so its answer is mixed with the exponential mechanism at
    half the level until the conditions hold in rational arithmetic.

    Reference: Bordenabe, Chatzikokolakis and Palamidessi 2014.
    """
    try:
        from scipy import sparse
        from scipy.optimize import linprog
    except ImportError as error:
        raise MissingExtra("a linear program", "location") from error
    from reticent.mechanisms.location.elastic import as_prior

    level = real("level", level, low=0.0, open_low=True)
    n = space.size
    if n > MOST_SOLVED:
        raise ParameterError(f"a linear program must have at most {MOST_SOLVED} places, got {n}")
    if not space.open.all():
        raise ParameterError("a linear program must have no closed cells")
    weights = as_prior(space, prior)
    distances = np.stack([space.distances(x) for x in range(n)])
    aim = level * (1.0 - 1e-6)
    rows, columns, values, count = [], [], [], 0
    for x in range(n):
        for other in range(n):
            if x != other:
                for y in range(n):
                    rows += [count, count]
                    columns += [x * n + y, other * n + y]
                    values += [1.0, -math.exp(min(aim * distances[x, other], 700.0))]
                    count += 1
    conditions = sparse.csr_matrix((values, (rows, columns)), shape=(count, n * n))
    sums = sparse.kron(sparse.eye(n), np.ones((1, n)))
    cost = (weights[:, None] * distances).reshape(-1)
    solved = linprog(cost, A_ub=conditions, b_ub=np.zeros(count), A_eq=sums, b_eq=np.ones(n), method="highs")
    if not solved.success:
        raise ParameterError(f"the linear program has no answer: {solved.message}")
    best = np.maximum(solved.x.reshape(n, n), 0.0)
    best /= best.sum(axis=1, keepdims=True)
    safe = exponential(space, level / 2.0).matrix
    share = 1e-9
    while share <= 1.0:
        channel = TableChannel(space, (1.0 - share) * best + share * safe)
        if _keeps(channel, distances, level):
            channel.level = min(channel.level, level)
            return channel
        share *= 10.0
    raise ParameterError(f"no channel was found that keeps level {level:g}")


def _keeps(channel: TableChannel, distances: Floats, level: float) -> bool:
    """Whether the whole numbers keep a level, in rational arithmetic."""
    from reticent.mechanisms.base import exp_below

    n = len(distances)
    weights = [channel.weights(x) for x in range(n)]
    totals = [sum(row) for row in weights]
    for x in range(n):
        for other in range(n):
            if x != other:
                most = exp_below(level * float(distances[x, other])) * Fraction(totals[x], totals[other])
                if any(a > most * b for a, b in zip(weights[x], weights[other], strict=True)):
                    return False
    return True
