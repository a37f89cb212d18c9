"""Two waves: a tenth of the people tell which mechanism suits the rest, at no price in privacy.

Everybody reports once, under the same epsilon. The first wave uses `Optimal`, whose variance is nearly
the same for every input. Its reports tell the mean square of the numbers: E[Y^2] = V + E[x^2]. Then
everybody can work out, from published reports alone, whether the second wave does better with a piecewise
mechanism, whose variance is less near 0 and more near 1.

Privacy: the second wave's mechanism depends on the data of others through their private reports only, so
    each person's guarantee is that of her own report (post-processing). What it costs is a second
    round, not budget. People are split into waves at random.
Unbiased: given the first wave, the second is unbiased whatever is chosen, and the waves are weighted by
    their sizes, fixed before.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric import PM, NumericChannel, Optimal, PMOpt, PMSub, formulas
from reticent.randomness import SimulationStream

if TYPE_CHECKING:
    from reticent.experiments.protocol import Batch

FIRST_SHARE = 0.1


class TwoWaves:
    """The mechanisms of both waves for one epsilon per report."""

    def __init__(self, epsilon: float) -> None:
        self.first: NumericChannel = Optimal(epsilon=epsilon)
        self.second = [self.first, PM(epsilon=epsilon), PMSub(epsilon=epsilon), PMOpt(epsilon=epsilon)]
        self._t = [formulas.pm_t(epsilon), formulas.pm_sub_t(epsilon), formulas.pm_opt_t(epsilon)]

    def mean_squares(self, reports: Floats) -> Floats:
        """E[x^2] from the first wave's reports, one row per repetition, clipped to what is possible."""
        squares: Floats = np.mean(reports**2, axis=1) - self.first.worst_case_variance
        return np.clip(squares, 0.0, 1.0)

    def choice(self, mean_square: float) -> int:
        """Which mechanism has the least mean variance when E[x^2] is `mean_square`.

        The variance of the piecewise family is a + b x^2, so its mean is its value at the root mean square.
        """
        root = math.sqrt(mean_square)
        spreads = [formulas.piecewise_variance(self.first.epsilon, t, root) for t in self._t]
        return int(np.argmin([self.first.worst_case_variance, *spreads]))

    def collect(self, batch: Batch, k: int, stream: SimulationStream) -> tuple[Floats, Floats]:
        """Run both waves on a batch; the estimates are weighted by the waves' sizes."""
        values, cells, _ = batch.sampled(k)
        rows, cells = values.reshape(batch.times, -1), cells.reshape(batch.times, -1)
        people = max(1, round(FIRST_SHARE * batch.n))
        split = people * k
        reports = np.empty_like(rows)
        reports[:, :split] = self.first.perturb(np.ascontiguousarray(rows[:, :split]), stream)
        chosen = np.array([self.choice(float(square)) for square in self.mean_squares(reports[:, :split])])
        for number in np.unique(chosen):
            mine = np.flatnonzero(chosen == number)
            reports[mine, split:] = self.second[number].perturb(
                np.ascontiguousarray(rows[mine, split:]), stream
            )
        design, _ = batch.estimates(k, reports.reshape(-1))
        share = people / batch.n
        realised = np.zeros((batch.times, batch.d))
        for part, weight in ((slice(0, split), share), (slice(split, None), 1.0 - share)):
            there = np.ascontiguousarray(cells[:, part]).reshape(-1)
            sums = batch.totals(there, np.ascontiguousarray(reports[:, part]).reshape(-1))
            realised += weight * sums / np.maximum(batch.totals(there, None), 1.0)
        return design, realised
