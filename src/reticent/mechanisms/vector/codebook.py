"""A vector of bounded length in a few bits: which of M public random directions is nearly its own.

The vector g of the unit ball becomes the unit vector x = (g, sqrt(1 - |g|^2)) of n = d + 1 numbers. From a
public seed follow M = 2^bits directions, uniform on the sphere. The K of them that are most along x
are reported with chance A / W each, the others with B / W. What is reported is the number of the
direction; it stands for the direction's first d numbers, divided by how far a reported
direction is along x on average.

Not here: where seeds come from. Among strangers they must not be the sender's choice (`fleet.lots`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import whole
from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.base import Floats, Randomiser, checked_epsilon, exp_below, require_ratio
from reticent.mechanisms.packing import pack_bits, unpack_bits
from reticent.mechanisms.vector import directions
from reticent.mechanisms.vector.base import rows_of
from reticent.mechanisms.vector.directions import Seeds, Singles
from reticent.randomness import Stream, secure_or, uniform_below

MAX_DIMENSIONS = 1 << 20
MAX_BITS = 12
MAX_NUMBERS = 1 << 32  # M (d + 1), which a report has to go through: about 15 seconds
REPORT = np.dtype([("seed", "<u8"), ("value", "<u2")])

_TOTAL = 1 << 61  # the weights of all directions together are nearly that
_BLOCK = 1 << 17  # numbers worked on at once: for the caches
_WASTE = 0.03  # what the fewest bits may cost


class Codebook(Randomiser):
    """A vector of the unit ball of R^d, reported in `bits` bits under epsilon-LDP.

    Args:
        epsilon: the LDP level of one report.
        dimensions: d.
        bits: Bits of a report; M = 2^bits directions are gone through to make one.
        top: K, how many directions count as near; the best number if not given.

    Reference: mathematics 1.5. PrivUnit (Bhowmick et al. 2018, Algorithm 1; Asi et al. 2022) draws from a cap
        of the sphere and sends the direction; here both sides know M candidates, and ranks stand for the cap.
    Departure: directions are uniform on the sphere where the derivation has standard normal ones: the error
        is less by about 1/n, by up to a half where n is small, and the length of a report is constant.
    Privacy: epsilon-LDP between any two vectors, for one report *given its seed*, which is public and
        independent of the vector; the receiver is the adversary. Exact whatever the directions are: each of
        exactly K numbers has the whole weight A, each other one B, one uniform whole number below
        K A + (M - K) B decides, and A <= e^epsilon B as integers. Doubles decide only which K.
    """

    name = "Codebook"
    travels = ("bits", "top")

    def __init__(self, *, epsilon: float, dimensions: int, bits: int, top: int | None = None) -> None:
        self.epsilon = checked_epsilon(epsilon)
        self.dimensions = whole("dimensions", dimensions, low=1, high=MAX_DIMENSIONS)
        self.bits = whole("bits", bits, low=1, high=MAX_BITS)
        if self.size * (self.dimensions + 1) > MAX_NUMBERS:
            raise ParameterError(
                f"bits must be fewer: {self.size} directions of {self.dimensions + 1} numbers are more "
                f"than {MAX_NUMBERS}"
            )
        ratio = exp_below(self.epsilon)
        self._far = math.floor(_TOTAL / (self.size * ratio))  # B
        self._near = math.floor(ratio * self._far)  # A
        if top is None:
            top = _best_top(self.dimensions + 1, self.size, self._near, self._far)
        self.top = whole("top", top, low=1, high=self.size - 1)
        self.check()

    def __repr__(self) -> str:
        level = f"epsilon={self.epsilon:g}, dimensions={self.dimensions}"
        return f"{type(self).__name__}({level}, bits={self.bits}, top={self.top})"

    def check(self) -> None:
        """Raise `GuaranteeError` unless the two weights keep epsilon, in exact integers."""
        weights = {self._near, self._far}
        require_ratio(max(weights), min(weights), self.epsilon, "directions")

    @property
    def size(self) -> int:
        """M, the number of directions."""
        return 1 << self.bits

    @property
    def _sum(self) -> int:
        return self.top * self._near + (self.size - self.top) * self._far

    # What it draws

    def sample(
        self, values: ArrayLike, rng: Stream | None = None, *, seeds: Seeds | None = None
    ) -> NDArray[Any]:
        """Return one private (seed, value) for each row, a structured array of shape values.shape[:-1].

        Args:
            values: rows of `dimensions` numbers. Longer ones than 1 are made unit length, what is no number
                counts as 0.
            rng: None for secure randomness; a SimulationStream in tests and simulations.
            seeds: Seeds of the directions of each row, public. Drawn if not given.
        """
        stream = secure_or(rng)
        given = rows_of(values, self.dimensions)
        rows = given.reshape(-1, self.dimensions)
        reports = np.empty(len(rows), dtype=REPORT)
        reports["seed"] = stream.words(len(rows)) if seeds is None else np.reshape(seeds, -1)
        for part in self._row_blocks(len(rows)):
            order = self._ranked(lifted(rows[part]), reports["seed"][part])
            reports["value"][part] = np.take_along_axis(order, self._places(len(order), stream), axis=1)[:, 0]
        return reports.reshape(given.shape[:-1])

    def _places(self, count: int, stream: Stream) -> NDArray[np.int64]:
        """Return the ranks that are reported, each below K with chance A / W and each other with B / W."""
        drawn = uniform_below(self._sum, count, stream)
        edge = self.top * self._near
        near, far = drawn // self._near, self.top + (drawn - edge) // self._far
        return np.where(drawn < edge, near, far)[:, None]

    def _ranked(self, x: Singles, seeds: Seeds) -> NDArray[np.int64]:
        """Return the numbers of the directions, most along first, ties by number: shape (rows, M)."""
        n, scores = self.dimensions + 1, np.empty((len(x), self.size), dtype=np.float32)
        step = max(1, _BLOCK // (len(x) * n))
        for start in range(0, self.size, step):
            some = np.arange(start, min(self.size, start + step))
            numbers = directions.normals(seeds[:, None], some, n)
            scores[:, some] = directions.along(numbers, x)
        return np.argsort(-scores, axis=1, kind="stable")

    def _row_blocks(self, rows: int) -> Iterator[slice]:
        step = max(1, _BLOCK // (self.size * (self.dimensions + 1)))
        return (slice(start, min(rows, start + step)) for start in range(0, rows, step))

    def exact_probabilities(self, value: ArrayLike, seed: int) -> list[Fraction]:
        """Return the law of the reported number for one vector under one seed, as rationals."""
        row = rows_of(value, self.dimensions).reshape(1, self.dimensions)
        order = self._ranked(lifted(row), np.array([seed], dtype=np.uint64))[0]
        law = np.full(self.size, Fraction(self._far, self._sum), dtype=object)
        law[order[: self.top]] = Fraction(self._near, self._sum)
        return list(law)

    # What it stands for

    def perturb(self, values: ArrayLike, rng: Stream | None = None) -> Floats:
        """Return one unbiased private report per row: shape (..., dimensions). See `sample`."""
        return self.decode(self.sample(values, rng))

    def decode(self, reports: NDArray[Any]) -> Floats:
        """Return the vectors that reports stand for: shape (..., dimensions)."""
        given = self._checked(reports)
        found = np.empty((given.size, self.dimensions))
        for part, numbers in self._directions(given.reshape(-1)):
            found[part] = numbers
        found *= self.scale
        return found.reshape(*given.shape, self.dimensions)

    def total(self, reports: NDArray[Any]) -> Floats:
        """Return the sum of what reports stand for, without holding all of it."""
        sums = np.zeros(self.dimensions)
        for _, numbers in self._directions(self._checked(reports).reshape(-1)):
            sums += numbers.sum(axis=0, dtype=np.float64)
        return sums * self.scale

    def _directions(self, reports: NDArray[Any]) -> Iterator[tuple[slice, Singles]]:
        n = self.dimensions + 1
        step = max(1, _BLOCK // n)
        for start in range(0, reports.size, step):
            part = slice(start, min(reports.size, start + step))
            numbers = directions.normals(reports["seed"][part], reports["value"][part], n)
            yield part, directions.unit(numbers, n)[:, : self.dimensions]

    def simulate(self, values: ArrayLike, rng: Stream | None = None) -> Floats:
        """Reports of the law of `perturb`, without going through directions: for simulations alone.

        How far along its vector a direction is, is one draw; the rest of it is uniform around that.
        """
        stream = secure_or(rng)
        given = rows_of(values, self.dimensions)
        rows = given.reshape(-1, self.dimensions)
        found = np.empty(rows.shape)
        step = max(1, _BLOCK // (self.dimensions + 1))
        for start in range(0, len(rows), step):
            found[start : start + step] = self._simulated(rows[start : start + step], stream)
        return found.reshape(given.shape)

    def _simulated(self, rows: Floats, stream: Stream) -> Floats:
        x = lifted(rows).astype(np.float64)
        words = stream.words(len(x) * directions.half(x.shape[1]))
        normal = directions.gaussian(words.view(np.uint32)).reshape(2, len(x), -1)
        around = np.concatenate([normal[0], normal[1]], axis=1)[:, : x.shape[1]].astype(np.float64)
        around -= np.einsum("ij,ij->i", around, x)[:, None] * x
        around /= np.sqrt(np.einsum("ij,ij->i", around, around))[:, None]
        t = self._along.quantile(stream.units(len(x)) - 1.0)
        found = t[:, None] * x + np.sqrt(1.0 - t * t)[:, None] * around
        return np.asarray(self.scale * found[:, : self.dimensions])

    @cached_property
    def _along(self) -> Any:
        from reticent.mechanisms.vector.sphere import Along  # needed to add reports up

        return Along(self.dimensions + 1, self.size, self.top, self._near / self._sum, self._far / self._sum)

    @property
    def gain(self) -> float:
        """The mean of a reported direction along the vector: m / sqrt(n) of mathematics 1.5."""
        return float(self._along.mean)

    @property
    def scale(self) -> float:
        """The length of what a report stands for, all n numbers of it: S sqrt(n) / m for S = 1."""
        return 1.0 / self.gain

    def variance(self, values: ArrayLike) -> Floats:
        """Return the variance of each reported number of a vector in the ball."""
        g = lifted(rows_of(values, self.dimensions)).astype(np.float64)[..., :-1]
        along, d = float(self._along.square), self.dimensions
        squares = (g * g * along + (1.0 - along) * (1.0 - g * g) / d) / self.gain**2
        return np.asarray(squares - g * g)

    def error(self, length: float = 1.0) -> float:
        """E |report - g|^2 for a vector of this length, whatever its direction. Below `scale`^2, always."""
        square, along, d = length * length, float(self._along.square), self.dimensions
        return (square * along + (1.0 - along) * (d - square) / d) / self.gain**2 - square

    @property
    def worst_case_error(self) -> float:
        """The largest of them: `error` is linear in the squared length."""
        return max(self.error(0.0), self.error(1.0))

    # As bits

    def pack(self, reports: NDArray[Any]) -> bytes:
        """Pack the numbers of directions one after the other, `bits` each; seeds are known without them."""
        return pack_bits(self._checked(reports)["value"].astype(np.int64), self.bits, self.size)

    def unpack(self, data: bytes, seeds: Seeds) -> NDArray[Any]:
        """Return the reports in `data`, of directions under these seeds; refuse a wrong length."""
        reports = np.empty(np.shape(seeds), dtype=REPORT)
        reports["seed"] = seeds
        reports["value"] = unpack_bits(data, reports.size, self.bits, self.size).reshape(reports.shape)
        return reports

    def _checked(self, reports: Any) -> NDArray[Any]:
        given = np.asarray(reports)
        if given.dtype != REPORT:
            raise ParameterTypeError(f"reports must be (seed, value) records, got dtype {given.dtype}")
        if given.size and given["value"].max() >= self.size:
            raise ParameterError(f"reports must hold values < {self.size}")
        return given


def lifted(rows: Floats) -> Singles:
    """Unit vectors of d + 1 numbers: rows in the ball, and what they lack of length 1.

    A total function: what is no number counts as 0, an infinite one as the longest there is.
    """
    with np.errstate(all="ignore"):
        g = np.nan_to_num(np.asarray(rows, dtype=np.float64), nan=0.0)  # infinities become the largest
        largest = np.maximum(np.abs(g).max(axis=-1, keepdims=True), 1.0)
        g = g / largest
        squares = np.einsum("...i,...i->...", g, g)[..., None]
        length = np.sqrt(squares) * largest
        found = np.empty((*g.shape[:-1], g.shape[-1] + 1), dtype=np.float32)
        found[..., :-1] = np.where(length > 1.0, g / np.sqrt(squares), g)
        found[..., -1:] = np.sqrt(np.maximum(0.0, 1.0 - np.square(np.minimum(length, 1.0))))
    return found


def fewest_bits(epsilon: float, dimensions: int) -> int:
    """Return the fewest bits whose error is within 3 % of that of the most bits that can be gone through."""
    epsilon, dimensions = (
        checked_epsilon(epsilon),
        whole("dimensions", dimensions, low=1, high=MAX_DIMENSIONS),
    )
    most = min(MAX_BITS, (MAX_NUMBERS // (dimensions + 1)).bit_length() - 1)
    least = Codebook(epsilon=epsilon, dimensions=dimensions, bits=most).worst_case_error
    for bits in range(1, most):
        if Codebook(epsilon=epsilon, dimensions=dimensions, bits=bits).worst_case_error <= least * (
            1 + _WASTE
        ):
            return bits
    return most


@lru_cache(maxsize=4096)
def _best_top(n: int, size: int, near: int, far: int) -> int:
    """Return the K of the largest gain, which rises up to it and falls from there on."""
    from reticent.mechanisms.vector.sphere import top_mean  # needed to design alone

    @cache
    def gain(top: int) -> float:
        total = top * near + (size - top) * far
        return top_mean(n, size, top) * top * (near - far) / total

    low, high = 1, size // 2
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if gain(middle) < gain(middle + 1) else (low, middle)
    return low
