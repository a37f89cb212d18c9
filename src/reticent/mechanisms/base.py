"""Base classes of all mechanisms: a `Randomiser`; with a finite alphabet, a `Channel`.

A randomiser has a guarantee and `perturb`. A channel adds the alphabet, its exact probabilities,
symbols and their packing into bits; estimators, auditors and coders work on any channel.

How the family may evolve: a new mechanism is a new module with a new class. The meaning of a
symbol index of an existing class never changes, since packed reports outlive a release.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import real
from reticent.errors import GuaranteeError, ParameterError
from reticent.mechanisms.packing import pack_bits, unpack_bits
from reticent.randomness import Stream

if TYPE_CHECKING:
    from reticent.privacy.guarantees import LocalDP

Floats = NDArray[np.float64]
Symbols = NDArray[np.int64]

MIN_EPSILON, MAX_EPSILON = 1e-4, 20.0


def checked_epsilon(epsilon: Any) -> float:
    """Return epsilon if a local mechanism can keep it: [0.0001, 20].

    Below, the noise swamps any number of reports that fits on Earth; above, odds of e^20 protect nobody.
    """
    number = real("epsilon", epsilon, low=0.0, open_low=True)
    return real("epsilon", number, low=MIN_EPSILON, high=MAX_EPSILON)


@lru_cache(maxsize=4096)
def exp_below(exponent: float) -> Fraction:
    """Return a rational just below e^exponent (relative gap under 1e-48).

    The decimal module rounds exp correctly to the precision of its context.
    """
    context = Context(prec=50)
    exact = context.exp(Decimal(exponent))
    return Fraction(exact) * (1 - Fraction(1, 10**49))


def require_ratio(largest: int, smallest: int, epsilon: float, what: str) -> None:
    """Raise unless largest <= e^epsilon * smallest, in exact integers."""
    if largest > exp_below(epsilon) * smallest:
        raise GuaranteeError(f"{what}: weights {largest} and {smallest} differ by more than e^{epsilon:g}")


def as_objects(values: Any, *, plain: str) -> NDArray[Any]:
    """Return an array of one of the dtype kinds `plain`, else of objects; no content raises or warns.

    Only the shape is judged, which is public. Masked entries become objects, to be told by `np.ma.masked`.
    """
    if is_masked_array(values):
        shown = np.ma.getdata(values).astype(object)
        shown[np.ma.getmaskarray(values)] = None
        return np.asarray(shown)
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if kind in tuple(plain) or (isinstance(values, (list, tuple)) and not _has_masked(values)):
        try:
            array = np.asarray(values)
            if array.dtype.kind in plain:
                return array
        except Exception:  # noqa: S110 - lists or odd objects among the values: each is one value
            pass
    try:
        return np.asarray(values, dtype=object)
    except Exception:  # odd objects among the values
        return _one_by_one(values)


def as_column(values: Any) -> Any:
    """Return a list of values, one per person, so that no value is taken apart and all shapes are (people,).

    numpy makes a matrix of a list whose items are all lists of one length, and a vector if one of them is
    not: the meaning of a value would depend on the others. Arrays are returned as they are.
    """
    if not isinstance(values, (list, tuple)) or not any(_is_row(item) for item in values):
        return values
    column = np.empty(len(values), dtype=object)
    for index, item in enumerate(values):
        column[index] = item
    return column


def _one_by_one(values: Any) -> NDArray[Any]:
    """Return a vector of objects that numpy will not take, such as ones whose conversion raises."""
    if not isinstance(values, (list, tuple)) or any(_is_row(item) for item in values):
        raise ParameterError("values must be a rectangular array") from None  # numpy quotes values
    array = np.empty(len(values), dtype=object)
    for place, item in enumerate(values):
        array[place] = item
    return array


def _is_row(item: Any) -> bool:
    return isinstance(item, (list, tuple)) or (isinstance(item, np.ndarray) and item.ndim > 0)


_NOTHING = object()


def is_masked_array(given: Any) -> bool:
    """Whether entries may be masked. There are none before `numpy.ma` is loaded, which takes long."""
    kind = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)  # not there while it is being loaded
    return kind is not None and isinstance(given, kind)


def is_masked(item: Any) -> bool:
    """Whether this is a masked entry."""
    return item is getattr(sys.modules.get("numpy.ma"), "masked", _NOTHING)


def _has_masked(values: Any) -> bool:
    """Whether numpy would warn about an entry."""
    return any(is_masked(item) or (isinstance(item, (list, tuple)) and _has_masked(item)) for item in values)


def is_positive(item: Any) -> bool:
    """The sign of a number too large for a double."""
    try:
        return bool(item > 0)
    except Exception:  # a device is a total function of its data
        return True


class Randomiser(ABC):
    """A local mechanism: private data in, something safe to publish out."""

    name: str
    epsilon: float

    @cached_property
    def guarantee(self) -> LocalDP:
        """The guarantee of one report."""
        from reticent.privacy.guarantees import LocalDP  # a device never asks

        return LocalDP(self.epsilon)

    @abstractmethod
    def perturb(self, values: ArrayLike, rng: Stream | None = None) -> Any:
        """Return a private report of each value. A total function: no value raises."""


class Channel(Randomiser):
    """A randomiser whose output is one of finitely many symbols."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of symbols."""

    @abstractmethod
    def exact_probabilities(self, value: Any) -> list[Fraction]:
        """Return the law of the symbol that the sampler really draws for one input, as rationals."""

    @abstractmethod
    def probabilities(self, values: ArrayLike) -> Floats:
        """Return the law for many inputs in doubles: shape values.shape + (size,)."""

    @abstractmethod
    def sample(self, values: ArrayLike, rng: Stream | None = None) -> Symbols:
        """Return one symbol index per value."""

    @property
    def bits(self) -> int:
        """Bits that one symbol takes on the wire."""
        return max(1, (self.size - 1).bit_length())

    def pack(self, symbols: ArrayLike) -> bytes:
        """Pack symbol indices at their true bit width, first symbol first, zero padded."""
        return pack_bits(np.asarray(symbols), self.bits, self.size)

    def unpack(self, data: bytes, count: int) -> Symbols:
        """Return the `count` symbols in `data`; refuse a wrong length or an illegal symbol."""
        return unpack_bits(data, count, self.bits, self.size)
