"""Planted bugs in how noise is drawn: callables (value, size) -> outputs, as a user would write them.

Doubles are drawn from our streams, so that the bug is in the formula and not in the generator.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.mechanisms.categorical import KRR
from reticent.mechanisms.gaussian import simulated
from reticent.mechanisms.geometric import TwoSidedGeometric
from reticent.mechanisms.numeric import Duchi, PMSub
from reticent.mechanisms.numeric.base import as_floats
from reticent.mechanisms.numeric.laplace import Laplace
from reticent.mechanisms.sampling import epsilon_each
from reticent.mechanisms.vector import VectorLaplace
from reticent.randomness import SECURE, SimulationStream, Stream, secure_or

Floats = NDArray[np.float64]


def _uniform(size: int, rng: Stream | None) -> Floats:
    """Doubles in [0, 1) on the lattice of 2^-52."""
    return secure_or(rng).units(size) - 1.0


def _laplace(scale: float, size: int, rng: Stream | None) -> Floats:
    """Laplace noise on doubles by the inverse of its distribution function: the textbook line."""
    u = _uniform(size, rng) - 0.5
    return np.asarray(-scale * np.sign(u) * np.log1p(-2.0 * np.abs(u)))


class PiecewiseOnDoubles:
    """PM-SUB as in the papers, on raw doubles: a third of the reports exclude a wrong input for certain."""

    def __init__(self, epsilon: float = 1.0, rng: Stream | None = None) -> None:
        self._rng, c = rng, math.exp(epsilon)
        self._t = math.exp(epsilon / 3.0)
        self._unit = (c + self._t) / (self._t * (c - 1.0))
        self._end = self._unit * (self._t + 1.0)
        self._inside = c / (c + self._t)

    def _window(self, x: float) -> tuple[float, float]:
        return self._unit * (x * self._t - 1.0), self._unit * (x * self._t + 1.0)

    def __call__(self, value: float, size: int) -> Floats:
        """Inside the window with probability c/(c+t), else left or right of it."""
        low, high = self._window(value)
        u, inside = _uniform(size, self._rng), _uniform(size, self._rng) < self._inside
        left = low + self._end
        place = u * (left + self._end - high)
        outside = np.where(place < left, place - self._end, place - left + high)
        return np.where(inside, low + u * (high - low), outside)

    def possible(self, outputs: Floats, value: float) -> NDArray[np.bool_]:
        """Whether some u of the lattice gives the output for this value: invert, then try the neighbours."""
        low, high = self._window(value)
        left = low + self._end
        total = left + self._end - high
        found = np.zeros(outputs.size, dtype=np.bool_)
        inside = (outputs >= low) & (outputs <= high)
        on_left = outputs + self._end
        guesses = np.where(
            inside,
            (outputs - low) / (high - low),
            np.where(outputs < low, on_left, outputs - high + left) / total,
        )
        for shift in range(-8, 9):
            u = (np.rint(guesses * 2.0**52) + shift) * 2.0**-52
            place = u * total
            outside = np.where(place < left, place - self._end, place - left + high)
            forward = np.where(inside, low + u * (high - low), outside)
            found |= (forward == outputs) & (u >= 0.0) & (u < 1.0)
        return found


class GridOfSymbols:
    """The right counterpart: PM-SUB on its public grid; every level is possible for every input."""

    def __init__(self, epsilon: float = 1.0) -> None:
        self._channel = PMSub(epsilon=epsilon)

    def __call__(self, value: float, size: int) -> Floats:
        """Reports."""
        return self._channel.perturb(np.full(size, value))

    def possible(self, outputs: Floats, value: float) -> NDArray[np.bool_]:
        """Whether the output is a level of positive probability."""
        law = np.array([float(p) for p in self._channel.exact_probabilities(value)])
        return np.isin(outputs, self._channel.alphabet[law > 0.0])


class ScaleOff(Laplace):
    """Laplace noise whose scale is 1 % too small."""

    def __init__(self, *, epsilon: float = 1.0) -> None:
        super().__init__(epsilon=epsilon)
        self._drawn = TwoSidedGeometric(1.01 * self.epsilon, self._noise.sensitivity)

    def _run(self, given: Any, stream: Stream, out: Any) -> None:
        right, self._noise = self._noise, self._drawn
        try:
            super()._run(given, stream, out)
        finally:
            self._noise = right


class GaussianScaleOff:
    """Discrete Gaussian noise drawn with sigma / 1.01."""

    def __init__(self, sigma: float, factor: float = 1.01, rng: Stream | None = None) -> None:
        self._sigma, self._rng = sigma / factor, rng or SECURE

    def __call__(self, value: int, size: int) -> NDArray[np.int64]:
        """Return the value plus noise."""
        return value + simulated(self._sigma, size, self._rng)


class NarrowLaplace:
    """Laplace with sensitivity 1 for values in [-1, 1], which are 2 apart: twice the epsilon."""

    def __init__(self, epsilon: float = 1.0, sensitivity: float = 1.0) -> None:
        self._scale = sensitivity / epsilon

    def __call__(self, value: float, size: int) -> Floats:
        """Value plus noise, rounded to a public grid (so that only the scale is wrong)."""
        return np.rint((value + _laplace(self._scale, size, None)) * 1024.0) / 1024.0


class ClippedDoubles:
    """Laplace on doubles, clipped to [-1, 1]. Clipping is harmless; the last digits between the ends tell."""

    def __init__(self, epsilon: float = 1.0) -> None:
        self._scale = 2.0 / epsilon

    def __call__(self, value: float, size: int) -> Floats:
        """Value plus noise, clipped, with all its digits."""
        return np.clip(value + _laplace(self._scale, size, None), -1.0, 1.0)


class ClippedSteps(ClippedDoubles):
    """The right counterpart: Laplace on a grid, clipped to the same ends."""

    def __init__(self, epsilon: float = 1.0) -> None:
        self._mechanism = Laplace(epsilon=epsilon)

    def __call__(self, value: float, size: int) -> Floats:
        """Value plus noise, clipped."""
        return np.clip(self._mechanism.perturb(np.full(size, value)), -1.0, 1.0)


class MovingGrid:
    """A discretised report whose levels are counted from the input, not from a public origin."""

    def __init__(self, epsilon: float = 1.0, step: float = 1 / 64) -> None:
        self._scale, self._step = 2.0 / epsilon, step

    def __call__(self, value: float, size: int) -> Floats:
        """Rounds the noise alone: value + k step."""
        return value + np.rint(_laplace(self._scale, size, None) / self._step) * self._step


class FixedGrid(MovingGrid):
    """The right counterpart: the sum is rounded to multiples of the step."""

    def __call__(self, value: float, size: int) -> Floats:
        """Rounds value and noise together."""
        return np.rint((value + _laplace(self._scale, size, None)) / self._step) * self._step


class WholeEpsilonEach:
    """Two of two attributes are reported with epsilon each, where epsilon / 2 belongs."""

    def __init__(self, epsilon: float = 1.0, *, divided: bool = False) -> None:
        self._mechanism = Duchi(epsilon=epsilon_each(epsilon, 2) if divided else epsilon)

    def __call__(self, value: tuple[float, float], size: int) -> NDArray[np.int64]:
        """One row of two symbols per person."""
        return self._mechanism.sample(np.tile(value, (size, 1)))


class LargestFirst:
    """Reports the coordinate of largest magnitude, noise on its value: its number gives the data away."""

    def __init__(self, epsilon: float = 1.0, *, largest: bool = True) -> None:
        self._mechanism, self._largest = Duchi(epsilon=epsilon), largest

    def __call__(self, value: tuple[float, ...], size: int) -> NDArray[np.int64]:
        """(coordinate, symbol) per person."""
        values = np.asarray(value)
        chosen = np.full(size, int(np.abs(values).argmax()))
        if not self._largest:
            chosen = (_uniform(size, None) * values.size).astype(np.int64)
        return np.stack([chosen, self._mechanism.sample(values[chosen])], axis=1)


class NormScaled(VectorLaplace):
    """Vector Laplace whose scale is a share of the private norm (SanitizeUpdate): zero gets no noise."""

    def sample(self, points: ArrayLike, rng: Stream | None = None) -> NDArray[np.int64]:
        """Noise times the norm of the point."""
        given = np.asarray(points, dtype=np.float64)
        noise = super().sample(np.zeros_like(given), rng)
        norm = np.nan_to_num(np.sqrt(np.square(given).sum(axis=-1, keepdims=True)), nan=0.0)
        centre = np.rint(np.nan_to_num(given) / self.step)
        return np.asarray(centre + np.rint(norm * noise), dtype=np.int64)


class FixedSeed:
    """Noise with a fixed seed: every call draws the same."""

    def __call__(self, value: float, size: int) -> Floats:
        """Duchi with the author's favourite number."""
        return Duchi(epsilon=1.0).perturb(np.full(size, value), SimulationStream(42))


class SeedPerInstance:
    """Every instance starts the same stream: two devices draw the same noise."""

    def __init__(self) -> None:
        self._stream = SimulationStream(7)

    def __call__(self, value: float, size: int) -> Floats:
        """Duchi from the instance's stream."""
        return Duchi(epsilon=1.0).perturb(np.full(size, value), self._stream)


class CopiedStream:
    """A good generator that is copied when the process forks: the children draw the same noise."""

    def __init__(self) -> None:
        self._key, self._calls = SECURE.words(4).tobytes(), 0

    def __call__(self, value: float, size: int) -> NDArray[np.int64]:
        """One bit per report, from a key and a counter in memory."""
        self._calls += 1
        drawn = hashlib.shake_256(self._key + self._calls.to_bytes(8, "big")).digest(8 * size)
        chance = 0.5 + value * math.tanh(0.5) / 2.0
        return (np.frombuffer(drawn, dtype=np.uint64) < np.uint64(int(chance * 2**64))).astype(np.int64)


class SharedNoise:
    """Two attributes of one person are perturbed with one uniform: their reports can be compared."""

    def __init__(self, *, shared: bool = True) -> None:
        self._shared = shared

    def __call__(self, value: tuple[float, float], size: int) -> NDArray[np.int64]:
        """One bit per attribute by one threshold each."""
        chance = 0.5 + np.asarray(value) * math.tanh(0.5) / 2.0
        u = np.stack([_uniform(size, None) for _ in range(2)], axis=1)
        if self._shared:
            u[:, 1] = u[:, 0]
        return (u < chance).astype(np.int64)


class SharedInBatch:
    """One draw of noise per two consecutive reports of a batch."""

    def __call__(self, value: float, size: int) -> Floats:
        """Every second report repeats the noise of the one before."""
        return np.repeat(Duchi(epsilon=1.0).perturb(np.full(size // 2 + 1, value)), 2)[:size]


class Refuses:
    """Raises on a value outside of the bounds: the collector learns that it was outside."""

    def __call__(self, value: Any) -> Floats:
        """Duchi with a check of the data."""
        if not -1.0 <= float(value) <= 1.0:
            raise ValueError("value must be in [-1, 1]")
        return Duchi(epsilon=1.0).perturb([value])


class LetsNanThrough:
    """Adds noise to whatever comes: a missing value stays missing, and visible."""

    def __call__(self, value: Any) -> Floats:
        """Return the textbook line."""
        try:
            x = float(value)
        except (TypeError, ValueError, OverflowError):
            x = math.nan
        return np.asarray(np.clip(x, -1e9, 1e9) + _laplace(2.0, 1, None))


class NanOneSymbol(Duchi):
    """Reports whatever is no number by one and the same symbol, without noise."""

    def sample(self, values: ArrayLike, rng: Stream | None = None) -> NDArray[np.int64]:
        """Return symbols; 0 for what is no number."""
        symbols = np.asarray(super().sample(values, rng))
        return np.where(np.isnan(as_floats(values)), 0, symbols)


class PlainMissingCategory(KRR):
    """Reports what is no category as the fallback, without noise."""

    def sample(self, values: ArrayLike, rng: Stream | None = None) -> NDArray[np.int64]:
        """Return symbols; the fallback for what is no number of a category."""
        symbols = np.asarray(super().sample(values, rng))
        return np.where(np.isnan(as_floats(values)), self.categories.fallback, symbols)


class SkipsMissing:
    """Sends nothing for a missing value: whether a report arrives depends on the data."""

    def __call__(self, value: Any) -> Floats:
        """No value, no report."""
        return Duchi(epsilon=1.0).perturb([value]) if isinstance(value, (int, float)) else np.empty(0)


class Total:
    """The right counterpart: Duchi takes anything."""

    def __call__(self, value: Any) -> Floats:
        """One report."""
        return Duchi(epsilon=1.0).perturb([value])


class MemoByValue:
    """Remembers its answer per value: (0, 1) is possible for inputs (a, b) and impossible for (a, a)."""

    def __init__(self, epsilon: float = 1.0) -> None:
        self._mechanism, self._answers = Duchi(epsilon=epsilon), dict[Any, int]()

    def __call__(self, value: float) -> int:
        """Return the remembered answer, or a new one."""
        return self._answers.setdefault(self._key(value), int(self._mechanism.sample([value])[0]))

    def _key(self, value: float) -> Any:
        return value


class MemoByPeriod(MemoByValue):
    """The right counterpart: one answer per period, whatever the value becomes."""

    def _key(self, value: float) -> Any:
        return "this period"
