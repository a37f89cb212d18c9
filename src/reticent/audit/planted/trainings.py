"""Planted bugs in trainings: a small DP-SGD in numpy, right and wrong, and scores that tell who was in it.

It learns one number for each canary by least squares with target 1. All noisy sums are given out, as the
proof of DP-SGD allows: over T steps of noise sigma times the clip norm they keep mu = sqrt(T) / sigma between
a training with a record and without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reticent.audit.findings import Finding
from reticent.audit.runs import audit_run
from reticent.mechanisms.base import Floats
from reticent.mechanisms.gaussian import simulated
from reticent.privacy import epsilon_of
from reticent.randomness import Stream, secure_or

DELTA = 1e-9  # far below the false alarms: with that chance everything may be told
_RATE, _SLOPE, _UNIT = 0.02, 0.75, 1 << 20

Seen = list[tuple[Floats, Floats]]  # parameters before each step, and its noisy sum


class DPSGD:
    """DP-SGD on all records in each step, clipped to norm 1, with Gaussian noise."""

    def __init__(
        self, canaries: int, *, sigma: float = 10.0, steps: int = 4, rng: Stream | None = None
    ) -> None:
        self.canaries, self.sigma, self.steps, self._rng = canaries, sigma, steps, secure_or(rng)

    @property
    def epsilon(self) -> float:
        """The epsilon that the training claims at `DELTA`."""
        return float(epsilon_of(math.sqrt(self.steps) / self.sigma, DELTA))

    def __call__(self, records: Sequence[int]) -> Seen:
        """Train on the records, which are numbers of canaries; return all that a server would see."""
        theta, seen = np.zeros(self.canaries), Seen()
        mine = np.asarray(records, dtype=np.int64)
        for _ in range(self.steps):
            total = np.zeros(self.canaries)
            np.add.at(total, mine, self._clipped(self.gradients(theta)[mine]))
            noisy = total + self._noise()
            seen.append((theta, noisy))
            theta = theta - _RATE * noisy
        return seen

    def gradients(self, theta: Floats) -> Floats:
        """Return the gradient of every canary, each of which has a coordinate of its own."""
        return _SLOPE * (theta - 1.0)

    def _clipped(self, gradients: Floats) -> Floats:
        return np.clip(gradients, -1.0, 1.0)

    def _noise(self) -> Floats:
        return simulated(self.sigma * _UNIT, self.canaries, self._rng) / _UNIT

    def along(self, seen: Seen, canary: int) -> float:
        """Score: the noisy sums along the canary's clipped gradients, which is all there is to know."""
        return sum(float(noisy[canary]) * self._due(theta[canary]) for theta, noisy in seen)

    def apart(self, seen: Seen, canary: int) -> float:
        """Score: whether two steps differ as the canary's gradients do; right noise hides that."""
        (before, one), (after, other) = seen[0], seen[-1]
        moved = self._due(before[canary]) - self._due(after[canary])
        return -abs(float(one[canary] - other[canary]) - moved)

    def _due(self, parameter: float) -> float:
        """Return the clipped gradient of a canary."""
        return min(1.0, max(-1.0, _SLOPE * (parameter - 1.0)))


class ClipSkipped(DPSGD):
    """DP-SGD that does not clip: a record a hundred times too large has a hundred times the say."""

    def gradients(self, theta: Floats) -> Floats:
        """Return the gradients of records with large numbers."""
        return 100.0 * super().gradients(theta)

    def _clipped(self, gradients: Floats) -> Floats:
        return gradients


class LargeRecords(ClipSkipped):
    """The right counterpart: the same large records, clipped."""

    def _clipped(self, gradients: Floats) -> Floats:
        return np.clip(gradients, -1.0, 1.0)


class NoiseReused(DPSGD):
    """DP-SGD that draws its noise once: the difference of two steps has none."""

    _drawn: Floats | None = None

    def _noise(self) -> Floats:
        if self._drawn is None:
            self._drawn = super()._noise()
        return self._drawn


class NoiseOfTheMean(DPSGD):
    """DP-SGD whose noise is divided by a batch of 32, as if sums of gradients were means."""

    def _noise(self) -> Floats:
        return super()._noise() / 32.0


def audited(score: Callable[[Any], Callable[[Any, int], float]]) -> Callable[[Any, bool], Finding]:
    """Return the check of a training by one of its scores."""

    def check(training: DPSGD, quick: bool) -> Finding:
        report = audit_run(
            training, range(training.canaries), score=score(training), epsilon=training.epsilon, delta=DELTA
        )
        assert report.black_box is not None
        return report.black_box

    return check
