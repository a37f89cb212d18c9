"""The noise of a report, its cost, and the most that the report may tell about a client.

The server knows the hypotheses and the task; of a report it does not know which hypothesis was chosen, nor
the update. All that matters is how far apart the vectors of two clients may be before noise: the distance. It
is worked out from public numbers, rounded up, and includes which hypothesis was chosen (mathematics 4.11).

Gaussian: whole numbers of steps, a power of two near sigma / 2^16 (four bytes a number), with the discrete
    Gaussian on them.
Laplace: `VectorLaplace`, on a grid too. Rounding to the grid moves two vectors apart by at most sqrt(numbers)
    steps, which is charged.
Privacy: between any two data sets of one client in one round (user level); the server is the adversary.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.errors import ParameterError
from reticent.federated.personalised.tasks import PersonalTask
from reticent.ledger.base import Unit
from reticent.mechanisms.base import Floats, Symbols
from reticent.mechanisms.gaussian import DiscreteGaussian
from reticent.mechanisms.vector import VectorLaplace
from reticent.privacy import UNITS_PER_ONE, GaussianDP, LocalDP, MetricDP, cost_units, epsilon_of
from reticent.randomness import Stream

PROTECTED = "all data of one client in one round"
DISTANCE_UNIT = "unit of a parameter"
DELTA = 1e-6  # at which an epsilon is shown beside mu
_STEPS = 16  # log2 of the steps in one sigma
_UP = 1.0 + 2.0**-30  # above the rounding of sums of squares of 2^22 doubles
_FAR = 64  # standard deviations, or means of the radius, after which a number is clamped
_HUGE = 1e150  # whose square is finite


class Sanitiser:
    """The noise of one round, and its charge.

    Args:
        task: Task, which says clip, kind and level.
        hypotheses: Hypotheses of the round; None for the worst that the task's reach allows.
    """

    def __init__(self, task: PersonalTask, hypotheses: Any = None) -> None:
        self.task = task
        self.hypotheses = None if hypotheses is None else task.checked_hypotheses(hypotheses)
        self.distance = self._distance()
        self.step = 2.0 ** (math.floor(math.log2(task.level)) - _STEPS)
        if task.noise == "laplace":
            self.step = self._laplace.step
        self.limit = self._limit()

    def _span(self) -> float:
        """No number of a clipped vector is larger."""
        return self.task.clip + (self.task.reach if self.task.about == "hypothesis" else 0.0)

    def _distance(self) -> float:
        """Return the largest distance of two clients' clipped vectors, with what doubles may add to it."""
        apart = 2.0 * self.task.clip
        if self.task.about == "hypothesis":
            apart += 2.0 * self.task.reach if self.hypotheses is None else _spread(self.hypotheses)
        return apart * _UP + self._span() * math.sqrt(self.task.numbers) * 2.0**-49

    def _limit(self) -> int:
        """No whole number of a report is larger; what is, is clamped."""
        typical = self.task.level if self.task.noise == "gaussian" else self.task.numbers / self.task.level
        limit = math.ceil((self._span() + _FAR * typical) / self.step)
        if limit >= 1 << 50:
            raise ParameterError(
                f"level must leave more noise at clip {self.task.clip:g} and reach {self.task.reach:g}, "
                f"got {self.task.level:g}"
            )
        return limit

    # The charge

    @cached_property
    def _laplace(self) -> VectorLaplace:
        return VectorLaplace(
            epsilon_per_unit=self.task.level, dimensions=self.task.numbers, distance_unit=DISTANCE_UNIT
        )

    @cached_property
    def _gaussian(self) -> DiscreteGaussian:
        """The discrete Gaussian of the task's sigma, at the least information that it keeps."""
        apart = math.ceil(self.distance / self.step + math.sqrt(self.task.numbers)) + 1
        variance = (Fraction(self.task.level) / Fraction(self.step)) ** 2
        information = apart * apart / (variance - Fraction(1, 6))  # mathematics 4.4
        units = Fraction(cost_units(information), UNITS_PER_ONE)
        return DiscreteGaussian(apart, units, unit=PROTECTED)

    @property
    def unit(self) -> Unit:
        """The unit in which a report is charged."""
        return Unit.MU2 if self.task.noise == "gaussian" else Unit.EPSILON

    @cached_property
    def guarantee(self) -> GaussianDP | LocalDP:
        """The guarantee of a report between any two clients."""
        if self.task.noise == "gaussian":
            return self._gaussian.guarantee
        return LocalDP(self._laplace.guarantee.within(self.distance).epsilon, unit=PROTECTED)

    @cached_property
    def units(self) -> int:
        """The cost of a report for a client's ledger, in units of 1e-12, rounded up."""
        if self.task.noise == "gaussian":
            return cost_units(self._gaussian.information)
        assert isinstance(self.guarantee, LocalDP)
        return cost_units(self.guarantee.epsilon)

    @property
    def metric(self) -> MetricDP | None:
        """The guarantee of a report between two clients whose vectors are near: Laplace only."""
        return self._laplace.guarantee if self.task.noise == "laplace" else None

    def statement(self) -> str:
        """Both promises in words, and what a client that answers in every round it may has promised."""
        times = self.task.participations
        lines = [self.guarantee.describe()]
        if isinstance(self.guarantee, GaussianDP):
            near = f"d / {self.task.level:g}"
            epsilon = epsilon_of(self.guarantee.mu, DELTA)
            lines.append(f"As (epsilon, delta): at most ({_shown(epsilon)}, {DELTA:g}).")
            lines.append(
                f"By distance: two clients whose vectors are d apart, in the {DISTANCE_UNIT}, look as alike "
                f"as two normal variables {near} standard deviations apart."
            )
            total = f"mu = {_shown(math.sqrt(times) * self.guarantee.mu)}"
        else:
            lines.append(f"By distance: {self._laplace.guarantee.describe()}")
            total = f"epsilon = {_shown(times * self.guarantee.epsilon)}"
        lines.append(
            f"Charged is a distance of {_shown(self.distance)}, the choice of the hypothesis included. "
            f"Reports that one client may send: {times}, together {total}. The server is the adversary; "
            "local perturbation, user level."
        )
        return "\n".join(lines)

    # The report

    def vectors(self, choices: NDArray[np.int64], updated: Any) -> Floats:
        """Return the vectors that clients would send without noise, whatever they hold: (clients, numbers).

        Args:
            choices: Index of each client's hypothesis.
            updated: the parameters of each after its local update, shape (clients, n).
        """
        assert self.hypotheses is not None
        start, task = self.hypotheses[choices], self.task
        with np.errstate(all="ignore"):
            if task.about == "centre":
                return clipped(np.asarray(updated) - self.centre, task.clip)
            update = clipped(np.asarray(updated) - start, task.clip)
        if task.about == "hypothesis":
            return np.asarray(start + update)
        if task.hypotheses == 1:
            return update
        slots = np.zeros((len(update), task.hypotheses, task.dimensions + 1))
        rows = np.arange(len(update))
        slots[rows, choices, :-1], slots[rows, choices, -1] = update, task.clip
        return slots.reshape(len(update), -1)

    @cached_property
    def centre(self) -> Floats:
        """The public centre of the round: the mean of its hypotheses."""
        assert self.hypotheses is not None
        return np.asarray(self.hypotheses.mean(axis=0))

    def sample(self, vectors: Floats, rng: Stream | None = None) -> Symbols:
        """Noisy vectors, as whole numbers of steps within the limit."""
        if self.task.noise == "gaussian":
            noisy = self._gaussian.perturb(np.rint(vectors / self.step).astype(np.int64), rng)
        else:
            noisy = self._laplace.sample(vectors, rng)
        return np.clip(noisy, -self.limit, self.limit)

    def decoded(self, report: Symbols) -> Floats:
        """Reports in units of the parameters."""
        decoded = np.asarray(report, dtype=np.float64) * self.step
        return np.asarray(decoded + self.centre) if self.task.about == "centre" else decoded

    @property
    def variance(self) -> float:
        """The variance of each number of a report."""
        if self.task.noise == "gaussian":
            return self._gaussian.variance * self.step**2
        return self._laplace.variance


def clipped(updates: Any, radius: float) -> Floats:
    """The nearest points of the ball, for each row; what is no number counts as 0."""
    given = np.asarray(updates, dtype=np.float64)
    finite = np.clip(np.nan_to_num(given, nan=0.0, posinf=_HUGE, neginf=-_HUGE), -_HUGE, _HUGE)
    norms = np.sqrt(np.square(finite).sum(axis=-1, keepdims=True))
    with np.errstate(divide="ignore"):
        return np.asarray(finite * np.minimum(1.0, radius / norms))


def _shown(amount: float) -> str:
    """Format an amount with four decimals, rounded up."""
    return f"{math.ceil(amount * 1e4) / 1e4:g}"


def _spread(hypotheses: Floats) -> float:
    """Return the largest distance between two hypotheses."""
    return max(float(np.sqrt(np.square(hypotheses - one).sum(axis=1)).max()) for one in hypotheses)
