"""Waves that learn: a tenth of the people shape the mechanisms of the rest, at no price in privacy.

Where `waves` picks one of four mechanisms by one number, here each attribute gets one that is made for it.
Everybody reports once, under the same epsilon. The first wave uses `Optimal`, whose variance is nearly
the same for every input. What its reports come to, attribute by attribute, shapes the mechanisms of the
others, as in a survey that learns (`collect.shaping`): mean and deviation on a public grid (`shapes`),
a `Tailored` for a normal law with these and a regret of 0.5, and k together with it.

Privacy: the second wave's mechanism depends on the data of others through their private reports only, so
    each person's guarantee is that of her own report (post-processing). What it costs is a second
    round, not budget. People are split into waves at random.
Unbiased: given the first wave, the second is unbiased whatever is chosen, and every report counts the same.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.collect.waves import LEAST_EPSILON, REGRET, SHARE
from reticent.estimation.shapes import DEVIATIONS, Shape, learnt, shape_of, variance_of
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric import NumericChannel, Optimal, Tailored
from reticent.mechanisms.numeric.choose import least_worst_variance
from reticent.mechanisms.sampling import epsilon_each
from reticent.randomness import SimulationStream

if TYPE_CHECKING:
    from reticent.experiments.protocol import Batch

_GRID = np.linspace(-1.0, 1.0, 201)


class Shaped(NamedTuple):
    """What one first wave gives: k of the second wave, and a shape for each attribute."""

    k: int
    shapes: list[Shape]


@lru_cache(maxsize=512)
def table(epsilon: float, mean: float, deviation: float) -> NumericChannel:
    """The mechanism for a shape whose mean is not below the middle; the others are its mirror images."""
    if epsilon < LEAST_EPSILON:
        return Optimal(epsilon=epsilon)
    return Tailored(epsilon=epsilon, prior=Shape(mean, deviation).prior, regret=REGRET)


def spread(epsilon: float, shape: Shape, values: Floats) -> float:
    """The mean variance of a report of these values by the mechanism of a shape."""
    mirrored = -1.0 if shape.mean < 0.0 else 1.0
    return float(
        np.interp(mirrored * values, _GRID, _variances(epsilon, abs(shape.mean), shape.deviation)).mean()
    )


@lru_cache(maxsize=4096)
def _variances(epsilon: float, mean: float, deviation: float) -> Floats:
    found: Floats = table(epsilon, mean, deviation).variance(_GRID)
    return found


def _expected(shape: Shape, variances: Floats) -> float:
    prior = shape.prior
    return float(prior.masses @ np.interp(prior.points, _GRID, variances))


class LearningWaves:
    """Both waves of k of d numbers.

    Args:
        epsilon: of a person's numbers.
        k: how many a person of the first wave reports.
        dimensions: d.
    """

    def __init__(self, epsilon: float, k: int, dimensions: int) -> None:
        self.epsilon, self.k, self.d = epsilon, k, dimensions
        self.first: NumericChannel = Optimal(epsilon=epsilon_each(epsilon, k))

    def people(self, n: int) -> int:
        """How many are in the first wave."""
        return max(1, round(SHARE * n))

    def shaped(self, symbols: NDArray[np.int64], attributes: NDArray[np.int64]) -> Shaped:
        """What the reports of a first wave give: symbols, and the attribute of each."""
        size = self.first.size
        cells = attributes * size + symbols
        counts = np.bincount(cells, minlength=self.d * size).reshape(self.d, size)
        common = learnt([(self.first, counts.sum(axis=0))])
        shares = [learnt([(self.first, one)], start=common) for one in counts]
        apart = float(np.mean([variance_of(one) for one in shares]))
        return Shaped(self._best_k(shape_of(common), apart), [shape_of(one) for one in shares])

    def _best_k(self, shape: Shape, apart: float) -> int:
        """The k of the second wave: that of the first, one more or one less, by what both together give."""
        there = Shape(abs(shape.mean), shape.deviation)
        a = SHARE * self.k / self.d
        first = _expected(there, self.first.variance(_GRID))

        def objective(k: int) -> float:
            second = _expected(there, _variances(epsilon_each(self.epsilon, k), there.mean, there.deviation))
            b = (1.0 - SHARE) * k / self.d
            return (a * first + b * second) / (a + b) ** 2 + apart * (1.0 / (a + b) - 1.0)

        return min((k for k in (self.k, self.k - 1, self.k + 1) if 1 <= k <= self.d), key=objective)

    def expected_error(self, numbers: Floats, batch: Batch, stream: SimulationStream) -> float:
        """The expected squared error: exact given a first wave, and averaged over those of a batch.

        Per attribute with a reports of variance V_1 and b of V_2: (a V_1 + b V_2)/(a + b)^2, and the spread
        of the values of those who report it, to first order.
        """
        n, people = batch.n, self.people(batch.n)
        first = np.array(
            [np.interp(column, _GRID, self.first.variance(_GRID)).mean() for column in numbers.T]
        )
        errors = []
        for chosen in self._first_waves(batch, stream)[2]:
            each = epsilon_each(self.epsilon, chosen.k)
            second = np.array(
                [spread(each, shape, column) for shape, column in zip(chosen.shapes, numbers.T, strict=True)]
            )
            a, b = people * self.k / self.d, (n - people) * chosen.k / self.d
            noise = (a * first + b * second) / (a + b) ** 2
            errors.append(np.mean(noise + numbers.var(axis=0) * (1.0 / (a + b) - 1.0 / n)))
        return float(np.mean(errors))

    def wrong_guess(self, numbers: Floats) -> float:
        """How much more variance a report has than the least worst case if the guess is at the wrong end.

        The most over the attributes; at most 1 + regret.
        """
        found = []
        for column in numbers.T:
            far = Shape(-1.0 if column.mean() >= 0.0 else 1.0, min(DEVIATIONS))
            least = least_worst_variance(self.first.epsilon)
            found.append(spread(self.first.epsilon, far, column) / least)
        return max(found)

    def _first_waves(self, batch: Batch, stream: SimulationStream) -> tuple[Floats, Floats, list[Shaped]]:
        """Sums and counts of the first waves of a batch, and what they give."""
        values, cells, _ = batch.sampled(self.k)
        stop = self.people(batch.n) * self.k
        rows = np.ascontiguousarray(values.reshape(batch.times, -1)[:, :stop])
        places = np.ascontiguousarray(cells.reshape(batch.times, -1)[:, :stop])
        symbols = self.first.sample(rows, stream)
        chosen = [self.shaped(one, where % self.d) for one, where in zip(symbols, places, strict=True)]
        sums = batch.totals(places.reshape(-1), self.first.alphabet[symbols].reshape(-1))
        return sums, batch.totals(places.reshape(-1), None), chosen

    def collect(self, batch: Batch, k: int, stream: SimulationStream) -> tuple[Floats, Floats]:
        """Run both waves on a batch: design weights, and every report once."""
        sums, counts, chosen = self._first_waves(batch, stream)
        design = sums * (self.d / k / batch.n)
        people = self.people(batch.n)
        for repetition, one in enumerate(chosen):
            values, cells, _ = batch.sampled(one.k)
            rows = values.reshape(batch.times, batch.n, one.k)[repetition, people:].reshape(-1)
            places = cells.reshape(batch.times, batch.n, one.k)[repetition, people:].reshape(-1) % self.d
            total, number = self._second_wave(one, rows, places, stream)
            design[repetition] += total * (self.d / one.k / batch.n)
            sums[repetition] += total
            counts[repetition] += number
        return design, sums / np.maximum(counts, 1.0)

    def _second_wave(
        self, chosen: Shaped, values: Floats, attributes: NDArray[np.int64], stream: SimulationStream
    ) -> tuple[Floats, Floats]:
        """Sums and counts of the reports of each attribute."""
        each, total = epsilon_each(self.epsilon, chosen.k), np.zeros(self.d)
        for place, shape in enumerate(chosen.shapes):
            mine = values[attributes == place]
            if mine.size:
                mirrored = -1.0 if shape.mean < 0.0 else 1.0
                channel = table(each, abs(shape.mean), shape.deviation)
                total[place] = mirrored * float(channel.perturb(mirrored * mine, stream).sum())
        return total, np.bincount(attributes, minlength=self.d).astype(np.float64)
