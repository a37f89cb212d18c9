"""KRR: tell the true category with probability p, else another one at random.

The law is a count of places out of 2^50: every other category has `other` places, the true one the
rest. `other` is rounded up, so the realised ratio is at most e^epsilon; the estimator uses the counts
really drawn, so rounding costs a little accuracy, never privacy, never a bias.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.mechanisms.base import Channel, Floats, Symbols, exp_below, require_ratio
from reticent.mechanisms.categorical.base import Categories, FrequencyOracle
from reticent.mechanisms.categorical.kernels import PLACES_BITS, response_run_for
from reticent.randomness import Stream, secure_or

PLACES = 1 << PLACES_BITS


@dataclass(frozen=True)
class Response:
    """Counts of k-ary randomised response: `other` places for each other symbol, `keep` for the true one.

    Reference: Kairouz et al. 2016, k-RR: keep : other = e^epsilon : 1.
    """

    size: int
    other: int

    @classmethod
    def made(cls, epsilon: float, size: int) -> Response:
        """Round the real-number law to counts that keep e^epsilon."""
        response = cls(size, math.ceil(PLACES / (exp_below(epsilon) + size - 1)))
        if response.keep <= response.other:
            raise ParameterError(f"categories must be fewer at epsilon {epsilon:g}, got {size}")
        return response

    @property
    def keep(self) -> int:
        """Places of the true symbol."""
        return PLACES - (self.size - 1) * self.other

    def check(self, epsilon: float, what: str) -> None:
        """Exact check: the symbol that is true for one input and another one for the next."""
        if self.other < 1 or self.keep < 1:
            raise GuaranteeError(f"{what}: a possible report has no place")
        require_ratio(max(self.keep, self.other), min(self.keep, self.other), epsilon, what)

    def law(self) -> tuple[float, float]:
        """Return the kernel's parameters."""
        return float((self.size - 1) * self.other), math.nextafter(1.0 / self.other, math.inf)

    def sample(self, indices: Any, count: int, stream: Stream) -> Symbols:
        """Return one symbol per value; `indices(start, stop)` gives the true ones of a block."""
        symbols = np.empty(count, dtype=np.int64)
        run, law, start = response_run_for(count), self.law(), 0
        for units in stream.unit_blocks(count):
            stop = start + units.size
            run(indices(start, stop), units, symbols[start:stop], *law)
            start = stop
        return symbols


class KRR(Channel, FrequencyOracle):
    """k-ary randomised response. Least variance of the three for k < 3 e^epsilon + 2.

    Symbols are category indices. See `FrequencyOracle` for the arguments.

    Reference: Kairouz et al. 2016, k-RR; Warner 1965 for k = 2.

    Privacy: epsilon-LDP for one report, between any two categories, against everybody.
    """

    name = "KRR"
    travels = ()

    def _prepare(self) -> None:
        self._response = Response.made(self.epsilon, self.categories.size)

    def check(self) -> None:
        """Verify the ratio of the two counts in exact integers."""
        self._response.check(self.epsilon, self.name)
        self._require_information()

    @property
    def size(self) -> int:
        """The number of symbols: one per category."""
        return self.categories.size

    @property
    def alphabet(self) -> NDArray[Any]:
        """The categories, indexed by symbol."""
        return self.categories.alphabet

    @property
    def p(self) -> Fraction:
        """The probability of the true category."""
        return Fraction(self._response.keep, PLACES)

    @property
    def q(self) -> Fraction:
        """The probability of each other category."""
        return Fraction(self._response.other, PLACES)

    def exact_probabilities(self, value: Any) -> list[Fraction]:
        """Return the law that the sampler really draws from, as rationals that sum to one."""
        row = [self.q] * self.size
        row[self.categories.index(value)] = self.p
        return row

    def probabilities(self, values: ArrayLike) -> Floats:
        """Return the law in doubles: shape values.shape + (k,)."""
        indices = self.categories.indices(self.categories.array(values))
        law = np.full((*indices.shape, self.size), float(self.q))
        np.put_along_axis(law, indices[..., None], float(self.p), axis=-1)
        return law

    def sample(self, values: ArrayLike, rng: Stream | None = None) -> Symbols:
        """Return one symbol index per value (same shape as `values`)."""
        stream = secure_or(rng)
        array = self.categories.array(values)
        block = block_indices(self.categories, array)
        symbols = self._response.sample(block, array.size, stream).reshape(array.shape)
        return symbols[()]

    def perturb(self, values: ArrayLike, rng: Stream | None = None) -> NDArray[Any]:
        """Return one private category per value: alphabet[sample(values)]."""
        reports: NDArray[Any] = self.alphabet[self.sample(values, rng)]
        return reports

    def support_counts(self, reports: ArrayLike) -> Symbols:
        """Count the symbols of each category."""
        symbols = np.asarray(reports)
        if not np.issubdtype(symbols.dtype, np.integer):
            raise ParameterTypeError(f"reports must be symbol indices, got dtype {symbols.dtype}")
        if symbols.size and (symbols.min() < 0 or symbols.max() >= self.size):
            raise ParameterError(f"reports must be >= 0 and < {self.size}")
        return np.bincount(symbols.reshape(-1), minlength=self.size).astype(np.int64)


def block_indices(categories: Categories, array: NDArray[Any]) -> Any:
    """Return a function (start, stop) -> category indices of that block: memory stays one block."""
    flat = array.reshape(-1)
    return lambda start, stop: categories.indices(flat[start:stop])
