"""Planted bugs in laws that can be written down: caught without a single draw."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reticent.mechanisms.base import Channel, Floats, Symbols, exp_below
from reticent.mechanisms.categorical import KRR, OLH, OUE, Subset
from reticent.mechanisms.categorical.krr import PLACES, Response
from reticent.mechanisms.numeric import Tailored, formulas
from reticent.mechanisms.numeric.tailored import PLACES as TAILORED_PLACES
from reticent.mechanisms.vector import VectorDuchi
from reticent.privacy import LocalDP
from reticent.randomness import LATTICE, Stream, secure_or


class Table(Channel):
    """A channel over [-1, 1] from a function x -> list of rationals; sampled by inversion."""

    name = "Table"

    def __init__(self, epsilon: float, law: Callable[[float], list[Fraction]], size: int) -> None:
        self.guarantee = LocalDP(epsilon)
        self._law, self._size = law, size

    @property
    def size(self) -> int:
        """The number of symbols."""
        return self._size

    def exact_probabilities(self, value: Any) -> list[Fraction]:
        """Return the law for one input; clamped, NaN to 0."""
        x = float(value)
        return self._law(0.0 if math.isnan(x) else min(1.0, max(-1.0, x)))

    def probabilities(self, values: ArrayLike) -> Floats:
        """Return the probabilities in doubles."""
        given = np.asarray(values, dtype=np.float64)
        rows = [[float(p) for p in self.exact_probabilities(x)] for x in given.reshape(-1)]
        return np.array(rows).reshape(*given.shape, self.size)

    def sample(self, values: ArrayLike, rng: Stream | None = None) -> Symbols:
        """One symbol per value, in doubles: good enough for a bug."""
        given = np.asarray(values, dtype=np.float64)
        flat = given.reshape(-1)
        units = secure_or(rng).units(flat.size) - 1.0
        symbols = np.empty(flat.size, dtype=np.int64)
        for x in np.unique(flat):
            here = flat == x
            edges = np.cumsum([float(p) for p in self.exact_probabilities(x)])[:-1]
            symbols[here] = np.searchsorted(edges, units[here], side="right")
        return symbols.reshape(given.shape)

    def perturb(self, values: ArrayLike, rng: Stream | None = None) -> Symbols:
        """Return the symbols themselves."""
        return self.sample(values, rng)


class _PrintedThreeOutputs(Table):
    """Three-Outputs in rationals of the printed numbers: -C, 0, C."""

    name = "Three-Outputs, as printed"

    def __init__(self, epsilon: float = 1.0) -> None:
        super().__init__(epsilon, self._printed, 3)
        self.c, self.a = Fraction(math.exp(epsilon)), Fraction(formulas.three_outputs_p00(epsilon))
        self.bound = self.c * (self.c + 1) / ((self.c - 1) * (self.c - self.a))

    def _zero(self, x: Fraction) -> Fraction:
        return self.a - self.a * (1 - 1 / self.c) * abs(x)

    def _side(self, x: Fraction) -> Fraction:
        return (1 - self._zero(x)) / 2 + x / (2 * self.bound)

    def _printed(self, x: float) -> list[Fraction]:
        raise NotImplementedError


class PrintedMiddle(_PrintedThreeOutputs):
    """Eq. 3.3 as printed: P(0|x) falls with x, not with |x|. Rows do not sum to one for x < 0."""

    def _printed(self, x: float) -> list[Fraction]:
        exact = Fraction(x)
        middle = self.a - self.a * (1 - 1 / self.c) * exact
        return [self._side(-exact), middle, self._side(exact)]


class PrintedSign(_PrintedThreeOutputs):
    """Eq. 3.1 as printed: the sign of x in P(-C|x) is that of P(C|x). Rows do not sum to one."""

    def _printed(self, x: float) -> list[Fraction]:
        exact = Fraction(x)
        return [self._side(exact), self._zero(exact), self._side(exact)]


class EvenDuchi(VectorDuchi):
    """Vector Duchi as published: for even d, ties lie in both half spaces. Loses ln(1 + e^epsilon)."""

    def exact_probabilities(self, value: ArrayLike) -> dict[tuple[int, ...], Fraction]:
        """Uniform in the closed half space on the side of v with probability c/(c+1), else in the other."""
        unit = np.asarray(value, dtype=np.float64).reshape(self.dimensions)
        agree = Fraction(self._agree, LATTICE)
        cube = list(product((0, 1), repeat=self.dimensions))
        law = dict.fromkeys(cube, Fraction(0))
        for v in cube:
            chance = Fraction(1)
            for x, bit in zip(unit, v, strict=True):
                plus = (1 + Fraction(float(x))) / 2
                chance *= plus if bit else 1 - plus
            sides = {t: 2 * sum(a == b for a, b in zip(t, v, strict=True)) - self.dimensions for t in cube}
            closed = sum(side >= 0 for side in sides.values())
            for t, side in sides.items() if chance else ():
                law[t] += chance * (agree * (side >= 0) + (1 - agree) * (side <= 0)) / closed
        return law


class WrongQ(OUE):
    """OUE whose other bits are set with probability 1/(e^epsilon + 1)^2: sharper counts, no privacy."""

    def _prepare(self) -> None:
        super()._prepare()
        self._other_count = self._other_count**2 >> 64

    def check(self) -> None:
        """The author was sure."""


class DriftingQ(OUE):
    """OUE that states the right q and draws with 3 % less."""

    def _draw(self, flat: Any, places: Any, stream: Stream) -> Any:
        right, self._other_count = self._other_count, self._other_count * 97 // 100
        try:
            return super()._draw(flat, places, stream)
        finally:
            self._other_count = right


class BinaryCoin(KRR):
    """k-RR that keeps the truth with e^epsilon / (e^epsilon + 1), right for two categories only."""

    def _prepare(self) -> None:
        k = self.categories.size
        self._response = Response(k, math.ceil(PLACES / (1 + exp_below(self.epsilon)) / (k - 1)))

    def check(self) -> None:
        """The author was sure."""


class OneCategoryShort(BinaryCoin):
    """k-RR with k - 2 where k - 1 other categories belong: keep = e^epsilon / (e^epsilon + k - 2)."""

    def _prepare(self) -> None:
        k, c = self.categories.size, exp_below(self.epsilon)
        self._response = Response(k, math.ceil(PLACES * (k - 2) / (c + k - 2) / (k - 1)))


class RoundedDown(BinaryCoin):
    """k-RR whose small probability is rounded down instead of up: one count of 2^50 too few."""

    def _prepare(self) -> None:
        self._response = Response(
            self.categories.size, math.floor(PLACES / (exp_below(self.epsilon) + self.categories.size - 1))
        )


class CountedCategories(OLH):
    """OLH whose response is computed for k categories and run over g buckets."""

    def _prepare(self) -> None:
        super()._prepare()
        c = exp_below(self.epsilon)
        keep = c / (c + self.categories.size - 1)
        self._response = Response(self.buckets, math.ceil(PLACES * (1 - keep) / (self.buckets - 1)))

    def check(self) -> None:
        """The author was sure."""


class OneSet(Subset):
    """Subset whose chance to hold the truth is worked out for all sets but one element fewer outside."""

    def _prepare(self) -> None:
        super()._prepare()
        w, m, c = self.subset_size, self.modulus, exp_below(self.epsilon)
        self._true_count = math.floor(LATTICE * c * w / (c * w + m - w - 1))

    def check(self) -> None:
        """The author was sure."""


class RoundedUp(OneSet):
    """Subset whose chance to hold the truth is rounded up instead of down: one count of 2^52 too many."""

    def _prepare(self) -> None:
        Subset._prepare(self)
        self._true_count += 1


class TellingSeed(Subset):
    """Subset that draws no seed where the set holds the truth "since it is uniform anyway"."""

    def _drawn(self, true: Any, stream: Stream) -> Any:
        reports = super()._drawn(true, stream)
        first = (true - self.elements(np.zeros_like(true), np.zeros_like(true))) % self.modulus
        holds = (self.sets(reports) == true[:, None]).any(axis=1)
        return np.where(holds, first, reports)


class _AuthorWasSure(Tailored):
    def check(self) -> None:
        """The author was sure."""


class WrongFloor(_AuthorWasSure):
    """Tailored with an unlikely place one part in 10^9 rarer than the likely ones allow."""

    def _table(self) -> Any:
        table = super()._table()
        output = int(table.max(axis=0).argmax())
        low = int(table[:, output].argmin())
        table[low, output] -= table[low, output] // 10**9
        table[low, (output + 1) % self._y.size] += TAILORED_PLACES - table[low].sum()
        return table


class OneCountMore(_AuthorWasSure):
    """Tailored with an output that has one of 2^50 places more than e^epsilon times its fewest."""

    def _table(self) -> Any:
        table = super()._table()
        output = int((table.max(axis=0) / table.min(axis=0)).argmax())
        knot, low = int(table[:, output].argmax()), int(table[:, output].min())
        more = math.floor(exp_below(self.epsilon) * low) + 1 - int(table[knot, output])
        other = int(np.where(np.arange(table.shape[1]) == output, 0, table[knot]).argmax())
        table[knot, output] += more
        table[knot, other] -= more
        return table


class DroppedDither(Tailored):
    """Tailored that takes the nearest knot where it should round at random: private, and biased."""

    def _run(self, values: Any, rng: Any, out: Any, *, symbols: bool) -> Floats:
        unit = self._clamped(np.asarray(values, dtype=np.float64))
        nearest = self.knots[np.abs(unit[..., None] - self.knots).argmin(axis=-1)]
        return super()._run(self._from_unit(nearest), rng, out, symbols=symbols)


class DroppedSymbol(Table):
    """Rare outputs are dropped "to save bandwidth": impossible for some inputs, possible for others."""

    name = "dropped symbol"

    def __init__(self, epsilon: float = 4.0, cut: Fraction = Fraction(1, 50)) -> None:
        super().__init__(epsilon, self._dropped, 5)
        self._c, self._cut = exp_below(epsilon), cut

    def _dropped(self, x: float) -> list[Fraction]:
        near = round((x + 1.0) * 2.0)
        low = 1 / (self._c + 4)
        row = [self._c * low if symbol == near else low for symbol in range(5)]
        kept = [p if p >= self._cut or symbol == 4 else Fraction(0) for symbol, p in enumerate(row)]
        kept[near] += 1 - sum(kept)
        return kept


class LooseGaussian:
    """(epsilon, delta) from the classical formula beyond epsilon 1: at 10, delta is 2.7 times the claim.

    As a matrix: integer noise with sigma = sqrt(2 ln(1.25/delta)) D / epsilon for two answers D apart.
    """

    def __init__(self, epsilon: float = 10.0, delta: float = 1e-4, *, factor: float = 1.0) -> None:
        self.epsilon, self.delta, self.reach = epsilon, delta, 64
        self.sigma = factor * math.sqrt(2.0 * math.log(1.25 / delta)) * self.reach / epsilon

    def rows(self) -> list[list[Fraction]]:
        """Return the law of both answers, cut at +-9 sigma, as rationals that sum to one."""
        ends = math.ceil(9.0 * self.sigma)
        weights = [Fraction(math.exp(-0.5 * (z / self.sigma) ** 2)) for z in range(-ends, ends + 1)]
        total = sum(weights)
        law = [weight / total for weight in weights]
        none = [Fraction(0)] * self.reach
        return [law + none, none + law]


class HalfTheRate:
    """A channel proportional to e^(-beta d(x, y)), normalised per row, that claims beta: it is 2 beta."""

    def __init__(self, beta: float = 0.4, points: int = 7, *, claim: float | None = None) -> None:
        self.claim = beta if claim is None else claim
        self.distances = [[abs(i - j) for j in range(points)] for i in range(points)]
        self._beta = beta

    def rows(self) -> list[list[Fraction]]:
        """P(y|x) = e^(-beta d(x,y)) / sum over y."""
        weights = [[Fraction(math.exp(-self._beta * d)) for d in row] for row in self.distances]
        return [[weight / sum(row) for weight in row] for row in weights]
