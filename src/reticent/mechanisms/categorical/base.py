"""The common base of the categorical mechanisms: declared categories, totality, and one estimator.

A report *supports* some categories. Whatever the mechanism, it supports the true category with
probability p and any other one with probability q, so that from C supports among n reports

    (C/n - q) / (p - q)

is an unbiased estimate of the category's share (Wang et al. 2017, Section 3, "pure" protocols). Here p and q
are the exact rationals of what is really drawn, not their real-number ideals.

An unknown or missing value becomes the declared fallback category: whether and how a report
arrives never depends on the data (mathematics 4.1).

How the family may evolve: a new mechanism is a new module. A category keeps its index for ever.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import whole
from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.mechanisms.base import (
    Floats,
    Randomiser,
    Symbols,
    as_objects,
    checked_epsilon,
    is_masked,
    is_masked_array,
)
from reticent.mechanisms.catalogue import check_listed

MAX_CATEGORIES = 1 << 20

Label = str | int


class Categories:
    """The declared categories: 0..k-1, or k distinct labels in a fixed order.

    Args:
        categories: a whole number k >= 2, or a sequence of at least two distinct labels (text or
            whole numbers).
        fallback: the category that stands in for unknown and missing values; the first one by default.
    """

    def __init__(self, categories: int | Sequence[Label], fallback: Label | None = None) -> None:
        self.labels: tuple[Label, ...] | None = None
        if isinstance(categories, (int, np.integer, float, np.floating, np.bool_)):
            self.size = whole("categories", categories, low=2, high=MAX_CATEGORIES)
            self._table: dict[Any, int] = {}
        else:
            self.labels = _checked_labels(categories)
            self.size = len(self.labels)
            self._table = {label: index for index, label in enumerate(self.labels)}
        self.fallback = self._checked_fallback(fallback)

    def _checked_fallback(self, fallback: Any) -> int:
        if fallback is None:
            return 0
        if self.labels is None:
            return whole("fallback", fallback, low=0, high=self.size - 1)
        index = self._table.get(fallback) if isinstance(fallback, Hashable) else None
        if index is None:
            raise ParameterError(f"fallback must be one of the categories, got {fallback!r}")
        return index

    @cached_property
    def alphabet(self) -> NDArray[Any]:
        """The categories in order: whole numbers, text, or a mixture of both as objects."""
        if self.labels is None:
            alphabet = np.arange(self.size)
        else:
            plain = len({type(label) for label in self.labels}) == 1
            alphabet = np.array(self.labels, dtype=None if plain else object)
        alphabet.flags.writeable = False
        return alphabet

    def indices(self, array: NDArray[Any]) -> Symbols:
        """Return the index of each value, the fallback for whatever is not a category."""
        if array.dtype == object or self.labels is not None:
            found = [self.index(item) for item in array.ravel().tolist()]
            return np.array(found, dtype=np.int64).reshape(array.shape)
        with np.errstate(all="ignore"):
            known = (array >= 0) & (array < self.size)
            if array.dtype.kind == "f":
                known &= array == np.floor(array)
        found_or_zero = np.where(known, array, array.dtype.type(0)).astype(np.int64)
        return np.where(known, found_or_zero, self.fallback)

    def index(self, item: Any) -> int:
        """Return the index of one value, the fallback for whatever is not a category."""
        try:
            if is_masked(item) or isinstance(item, (complex, np.complexfloating)):
                return self.fallback
            if self.labels is not None:
                return self._table.get(item, self.fallback)
            index = int(item)
            return index if index == item and 0 <= index < self.size else self.fallback
        except Exception:  # a device is a total function of its data
            return self.fallback

    def array(self, values: ArrayLike) -> NDArray[Any]:
        """Return the values as an array whose content is not judged; only an empty shape is refused."""
        array = as_array(values, numbers=self.labels is None)
        if array.size == 0:
            raise ParameterError(f"values must hold at least one value, got shape {array.shape}")
        return array


def as_array(values: Any, *, numbers: bool) -> NDArray[Any]:
    """Return an array of integers or doubles where that loses nothing, else of objects."""
    if not numbers:
        plain = isinstance(values, np.ndarray) and not is_masked_array(values)
        return np.asarray(values) if plain else as_objects(values, plain="")
    array = as_objects(values, plain="iufb")
    if array.dtype.kind in "bf":
        return array.astype(np.int64 if array.dtype.kind == "b" else np.float64, copy=False)
    return array


def _checked_labels(categories: Any) -> tuple[Label, ...]:
    """Return the labels if they are at least two, distinct, and text or whole numbers."""
    if isinstance(categories, (str, bytes)) or not isinstance(categories, (Sequence, np.ndarray)):
        raise ParameterTypeError(
            f"categories must be a whole number or a sequence of labels, got {type(categories).__name__}"
        )
    given = categories.tolist() if isinstance(categories, np.ndarray) else list(categories)
    if not 2 <= len(given) <= MAX_CATEGORIES:
        raise ParameterError(f"categories must be >= 2 and <= {MAX_CATEGORIES}, got {len(given)}")
    labels: dict[Label, None] = {}
    for place, label in enumerate(given):
        if not isinstance(label, (str, int, np.integer)):
            raise ParameterTypeError(f"categories[{place}] must be text or a whole number, got {label!r}")
        plain = str(label) if isinstance(label, str) else label if isinstance(label, bool) else int(label)
        if plain in labels:
            raise ParameterError(f"categories must be distinct, got {label!r} twice")
        labels[plain] = None
    return tuple(labels)


class FrequencyOracle(Randomiser):
    """One category, reported so that the collector can count supports.

    Args:
        epsilon: the LDP level of one report.
        categories: a whole number k >= 2 for categories 0..k-1, or a sequence of distinct labels.
        fallback: the category (index, or label if labels are declared) that stands in for unknown
            and missing values; the first one by default.
    """

    travels: ClassVar[tuple[str, ...] | None]

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        check_listed(cls)

    def __init__(
        self, *, epsilon: float, categories: int | Sequence[Label], fallback: Label | None = None
    ) -> None:
        self.epsilon = checked_epsilon(epsilon)
        self.categories = Categories(categories, fallback)
        self._prepare()
        self.check()

    @abstractmethod
    def _prepare(self) -> None:
        """Work out the integer law for `epsilon` and `categories`."""

    @abstractmethod
    def check(self) -> None:
        """Verify in exact integers that no two inputs differ by more than e^epsilon.

        Raises:
            GuaranteeError: the law does not keep its claim, or its reports carry no information.
        """

    @property
    @abstractmethod
    def p(self) -> Fraction:
        """The exact probability that a report supports the true category."""

    @property
    @abstractmethod
    def q(self) -> Fraction:
        """The exact probability that a report supports a given other category."""

    @property
    @abstractmethod
    def bits(self) -> int:
        """Bits that one report takes on the wire."""

    @abstractmethod
    def support_counts(self, reports: Any) -> Symbols:
        """Count the reports that support each category: k counts."""

    @abstractmethod
    def pack(self, reports: Any) -> bytes:
        """Pack reports at their true bit width."""

    @abstractmethod
    def unpack(self, data: bytes, count: int) -> Any:
        """Return the `count` reports in `data`; refuse what `pack` cannot have made."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(epsilon={self.epsilon:g}, categories={self.categories.size})"

    def frequencies(self, counts: ArrayLike, n: int) -> Floats:
        """Unbiased estimates of the categories' shares from support counts among `n` reports.

        Reference: Wang et al. 2017, Section 3. They may be negative; projections are in `estimation`.
        """
        n = whole("n", n, low=1)
        p, q = self.p, self.q
        slope, offset = float(1 / (p - q)), float(q / (p - q))
        return np.asarray(counts, dtype=np.float64) * (slope / n) - offset

    def frequency_variance(self, f: ArrayLike = 0.0, n: int = 1) -> Floats:
        """Return the exact variance of the estimate of a category with true share `f` among `n` people.

        Reference: Wang et al. 2017, Section 3: q(1-q)/(n (p-q)^2) + f (1-p-q)/(n (p-q)).
        """
        n = whole("n", n, low=1)
        shares = np.asarray(f, dtype=np.float64)
        if not np.all((shares >= 0.0) & (shares <= 1.0)):
            raise ParameterError("f must be >= 0 and <= 1")
        p, q = self.p, self.q
        base, slope = q * (1 - q) / (p - q) ** 2 / n, (1 - p - q) / (p - q) / n
        variance: Floats = float(base) + shares * float(slope)
        return variance[()]

    def _require_information(self) -> None:
        if not self.p > self.q:
            raise GuaranteeError(
                f"{self.name}: a report must support the true category more often than another one"
            )
