"""The discrete Gaussian: integer noise for answers about many people, charged by information (mu^2).

The answer is a vector of whole grid units (sensitivity / 2^24 or finer). In production the noise
comes from OpenDP, whose sampler works on exact rationals; with a SimulationStream it comes from
`simulated`, which can be repeated and protects nobody. There is no way to seed the production path.

Not here: the grid, clamping and sensitivity of a query; the ledger's integers (`privacy.budget`).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import real, whole
from reticent.errors import MissingExtra, ParameterError, ParameterTypeError
from reticent.mechanisms.base import is_positive
from reticent.mechanisms.geometric import GeometricDigits
from reticent.privacy import GaussianDP, Neighbours, discrete_gaussian_sigma
from reticent.privacy.rounding import sqrt_up
from reticent.randomness import SecureStream, Stream, secure_or

Integers = NDArray[np.int64]

LARGEST_SIGMA = 2.0**56  # leaves 128 sigma between zero and the ends of int64
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


class DiscreteGaussian:
    """Integer noise Z with P(Z = z) proportional to exp(-z^2 / (2 sigma^2)), one per coordinate.

    Args:
        sensitivity: the largest Euclidean distance between the answers of neighbours, in grid units.
        information: the mu^2 that one use costs (the ledger's figure).
        unit: Unit of protection.
        neighbours: Relation between neighbouring data sets.

    Attributes:
        sigma: Standard deviation in grid units, the smallest double that keeps `information`.
        guarantee: mu-GDP with mu = sqrt(information), rounded up.

    Reference: Canonne, Kamath and Steinke 2020, Definition 1 and Algorithm 3 (as run by OpenDP).
    Privacy: sqrt(information)-GDP. The effective mu is (D/sigma)(1 + 1/(24 sigma^2)), so
        sigma^2 >= D^2/information + 1/6 and sigma >= 2^10 make `information` a true bound (mathematics 4.4).
        OpenDP takes sigma as the exact rational of this double; the variance is never rounded down.
    """

    def __init__(
        self,
        sensitivity: int,
        information: float | Fraction,
        *,
        unit: str = "one row",
        neighbours: Neighbours = Neighbours.REPLACE_ONE,
    ) -> None:
        self.sensitivity = whole("sensitivity", sensitivity, low=1)
        if not isinstance(information, Fraction):
            information = Fraction(real("information", information, low=0.0, open_low=True))
        self.information = information
        self.sigma = discrete_gaussian_sigma(self.sensitivity, information)
        if self.sigma > LARGEST_SIGMA:
            raise ParameterError(f"sigma must be <= 2^56 grid units, got {self.sigma:g}: take a coarser grid")
        self.guarantee = GaussianDP(sqrt_up(information), unit=unit, neighbours=neighbours)

    def __repr__(self) -> str:
        shown = f"sensitivity={self.sensitivity}, information={float(self.information):g}"
        return f"{type(self).__name__}({shown})"

    @property
    def variance(self) -> float:
        """The variance of one coordinate (of the discrete law: sigma^2 to 1e-300 from sigma 2^10 on)."""
        return self.sigma**2

    def perturb(self, values: ArrayLike, rng: Stream | None = None) -> Integers:
        """Return the values plus noise, same shape, as int64.

        A total function. Values beyond int64 are clamped to it, which brings no two answers further
        apart; what is no number counts as 0; a result beyond int64 is clamped (post-processing).

        Args:
            values: whole numbers of grid units, of any shape. The sensitivity must be that of the whole
                numbers: a fraction in a list is rounded first, an array of fractions is refused.
            rng: None for OpenDP's secure sampler; a SimulationStream for repeatable noise.

        Raises:
            MissingExtra: OpenDP is not installed (extra `central`), and the noise is not simulated.
        """
        stream = secure_or(rng)
        given = _as_integers(values)
        if given.size == 0:
            raise ParameterError(f"values must hold at least one value, got shape {given.shape}")
        flat = given.reshape(-1)
        if isinstance(stream, SecureStream):
            noisy = _by_opendp(flat, self.sigma)
        else:
            noisy = _saturating_sum(flat, simulated(self.sigma, flat.size, stream))
        return noisy.reshape(given.shape)[()]


def _as_integers(values: ArrayLike) -> Integers:
    """Return the values as int64 whatever they hold; the type of an array is public, its content is not."""
    if isinstance(values, np.ndarray) and values.dtype.kind not in "iubO":
        raise ParameterTypeError(f"values must be whole numbers, got dtype {values.dtype}")
    if isinstance(values, np.ndarray) and values.dtype.kind in "ib":
        return values.astype(np.int64)
    try:
        items = np.asarray(values, dtype=object)
    except ValueError:  # numpy's words are about private values
        raise ParameterError("values must be a rectangular array") from None
    return np.array([_as_integer(item) for item in items.ravel()], dtype=np.int64).reshape(items.shape)


def _as_integer(item: Any) -> int:
    try:
        number = int(item) if isinstance(item, (int, np.integer, np.bool_)) else round(float(item))
    except OverflowError:
        number = _HIGHEST if is_positive(item) else _LOWEST
    except Exception:  # a total function of its data
        number = 0
    return min(_HIGHEST, max(_LOWEST, number))


def _by_opendp(values: Integers, sigma: float) -> Integers:
    """Values plus noise by OpenDP: big integers inside, clamped to int64 at the end."""
    try:
        from opendp.domains import atom_domain, vector_domain
        from opendp.measurements import make_gaussian
        from opendp.metrics import l2_distance
        from opendp.mod import enable_features
    except ImportError as err:
        raise MissingExtra("the discrete Gaussian", "central") from err
    enable_features("contrib")
    space = vector_domain(atom_domain(T="i64")), l2_distance(T="f64")
    return np.array(make_gaussian(*space, scale=sigma)(values), dtype=np.int64)


def simulated(sigma: float, size: int, rng: Stream) -> Integers:
    """Return `size` draws of the discrete Gaussian from a stream; for tests and simulations only.

    Reference: Canonne, Kamath and Steinke 2020, Algorithm 3: a discrete Laplace proposal y with scale
        t = floor(sigma) + 1, accepted with probability exp(-(|y| - sigma^2/t)^2 / (2 sigma^2)).
    Departure: that probability is a double compared with 52 random bits, where OpenDP is exact. Events
        rarer than 2^-52 are not resolved, which no simulation sees and an adversary might.
    """
    sigma = real("sigma", sigma, low=0.0, high=LARGEST_SIGMA, open_low=True)
    scale = math.floor(sigma) + 1
    proposal = GeometricDigits.made(Fraction(1, scale))
    kept = np.empty(whole("size", size, low=0), dtype=np.int64)
    have = 0
    while have < kept.size:
        tries = max(64, 2 * (kept.size - have))
        both = proposal.sample(2 * tries, rng)
        y = both[:tries] - both[tries:]
        away = (np.abs(y) - sigma * (sigma / scale)) / sigma
        y = y[rng.units(tries) - 1.0 < np.exp(-0.5 * away * away)][: kept.size - have]
        kept[have : have + y.size] = y
        have += y.size
    return kept


def _saturating_sum(values: Integers, noise: Integers) -> Integers:
    """Values + noise, clamped to int64 where it would wrap."""
    with np.errstate(over="ignore"):
        total = values + noise
    wrapped = ((values ^ total) & (noise ^ total)) < 0
    return np.where(wrapped, np.where(noise > 0, _HIGHEST, _LOWEST), total)
