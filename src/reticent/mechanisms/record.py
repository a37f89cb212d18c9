"""Records: numbers and categories of one person in one report, under one epsilon.

Every person reports k of the d attributes, drawn uniformly and independently of the data, each
under epsilon/k. Numbers go through a numeric mechanism, categories through a frequency oracle. Which
attributes were drawn is public.

References: Wang et al. 2019, Section IV (several numeric attributes, then categorical ones).
Departures: k is chosen by evaluating the variances (see `sampling`); numbers use `OneBit` shaped for
    the sampling rate, or `Window` where most attributes are sampled; categories the best oracle.

Not here: intervals and projections (see `estimation`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import whole
from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms import categorical, sampling
from reticent.mechanisms.attributes import Attribute, Category, Number
from reticent.mechanisms.base import Channel, Floats, as_column, checked_epsilon
from reticent.mechanisms.categorical import subset
from reticent.mechanisms.categorical.base import Categories, FrequencyOracle
from reticent.mechanisms.numeric import NumericChannel, OneBit, choose, formulas
from reticent.mechanisms.numeric.base import as_floats
from reticent.privacy import LocalDP
from reticent.randomness import Stream, secure_or

__all__ = ["Attribute", "Category", "Number", "Record", "RecordEstimates", "RecordReports"]

MOST_BITS = 1024  # of the report of a category
_GRID = np.linspace(-1.0, 1.0, 257)


@dataclass(frozen=True)
class RecordReports:
    """The reports of n people.

    Attributes:
        sampled: Attributes that each person reported, shape (n, k), increasing in each row.
        reports: Reports of each attribute by those who sampled it, in the order of the people: symbol indices
            of the mechanism (numbers, KRR), or what an oracle's `perturb` makes.
    """

    sampled: NDArray[np.int64]
    reports: Mapping[str, NDArray[Any]]

    @property
    def people(self) -> int:
        """The number of people who sent a report."""
        return len(self.sampled)


@dataclass(frozen=True)
class RecordEstimates:
    """Unbiased estimates from records.

    Attributes:
        means: the mean of each numeric attribute.
        frequencies: the shares of each categorical attribute, in the order of its categories.
        counts: Number of people who reported each attribute.
    """

    means: Mapping[str, float]
    frequencies: Mapping[str, Floats]
    counts: Mapping[str, int]


class Record:
    """A fixed list of attributes reported together under one epsilon.

    Args:
        attributes: at least one `Number` or `Category`, with distinct names.
        epsilon: the LDP level of the whole record.
        sample_size: Number of attributes that a person reports: None for the k of least variance, "documents"
            for max(1, min(d, floor(epsilon/2.5))), or a whole number.

    Privacy: epsilon-LDP for one record, between any two records: the drawn attributes do not depend
        on the data, and k reports under epsilon/k (rounded down) compose to at most epsilon.
    """

    def __init__(
        self,
        attributes: Sequence[Attribute],
        epsilon: float,
        sample_size: int | Literal["documents"] | None = None,
    ) -> None:
        self.attributes = _checked_attributes(attributes)
        self.epsilon = checked_epsilon(epsilon)
        self.guarantee = LocalDP(self.epsilon, unit="one record")
        d = len(self.attributes)
        if sample_size is None:
            self.sample_size = min(sampling.sample_sizes(self.epsilon, d), key=self._log_variance)
        elif isinstance(sample_size, str):
            if sample_size != "documents":
                raise ParameterError(f"sample_size must be a number or 'documents', got {sample_size!r}")
            self.sample_size = sampling.documents_sample_size(self.epsilon, d)
        else:
            self.sample_size = whole("sample_size", sample_size, low=1, high=d)
        self.epsilon_each = checked_epsilon(sampling.epsilon_each(self.epsilon, self.sample_size))
        self.mechanisms: dict[str, NumericChannel | FrequencyOracle] = {
            attribute.name: self._mechanism(attribute) for attribute in self.attributes
        }

    @property
    def rate(self) -> float:
        """k/d, the chance that a given attribute is reported."""
        return self.sample_size / len(self.attributes)

    def _log_variance(self, sample_size: int) -> float:
        """Return the sum of the logarithms of the attributes' variances: no unit of measurement matters."""
        d = len(self.attributes)
        numeric = min(
            sampling.worst_sampled_variance(self.epsilon, d, sample_size, name)
            for name in (sampling.ONE_BIT, *sampling.VARIANCES)
        )
        total = 0.0
        for attribute in self.attributes:
            variance = numeric
            if isinstance(attribute, Category):
                size = Categories(attribute.values).size
                rare = subset.least_variance(self.epsilon / sample_size, size)
                variance = d / sample_size * (rare + 1.0 / size) - 1.0 / size
            total += math.log(variance)
        return total

    def _mechanism(self, attribute: Attribute) -> NumericChannel | FrequencyOracle:
        if isinstance(attribute, Category):
            return categorical.best(
                self.epsilon_each, attribute.values, fallback=attribute.fallback, bits=MOST_BITS
            )
        one_bit = OneBit(epsilon=self.epsilon_each, rho=self.rate, bounds=attribute.bounds)
        # At x = 1 no unbiased mechanism has E[Y^2] below C^2 (mathematics 1.2): nothing to gain near that.
        least = formulas.duchi_worst(self.epsilon_each) / self.rate - 1.0
        nearly_least = formulas.one_bit_worst(self.epsilon_each, self.rate) <= 1.01 * least
        if nearly_least or self.epsilon_each <= formulas.EPSILON_ONEBIT_OPTIMAL:
            return one_bit
        candidates = (one_bit, choose.best(self.epsilon_each, bounds=attribute.bounds))
        return min(candidates, key=lambda mechanism: self._number_variance(attribute, mechanism))

    def _number_variance(self, attribute: Number, mechanism: NumericChannel) -> float:
        """Return the maximum over x of (d/k) E[Y^2|x] - x^2 on a fine grid, in the attribute's own unit."""
        spread = mechanism.variance(attribute.middle + attribute.half * _GRID) / attribute.half**2
        return float(np.max((spread + _GRID**2) / self.rate - _GRID**2)) * attribute.half**2

    @property
    def variances(self) -> dict[str, float]:
        """For each attribute, n times the variance of the "design" estimate from n people.

        For a number the worst case over its values; for one of K categories that of a share of 1/K. Both
        hold the variance of the sampling: (d/k) E[Y^2] - E[Y]^2, Y the unbiased report of one person.
        """
        worst = {}
        for attribute in self.attributes:
            mechanism = self.mechanisms[attribute.name]
            if isinstance(attribute, Number):
                assert isinstance(mechanism, NumericChannel)
                worst[attribute.name] = self._number_variance(attribute, mechanism)
            else:
                assert isinstance(mechanism, FrequencyOracle)
                f = 1.0 / mechanism.categories.size
                worst[attribute.name] = (float(mechanism.frequency_variance(f)) + f) / self.rate - f
        return worst

    def perturb(self, table: Mapping[str, Any], rng: Stream | None = None) -> RecordReports:
        """Return the private reports of the people in `table`.

        Args:
            table: one column per attribute, all of the same length (a single value counts as one).
                What the columns hold is never judged: see `Number` and `Category`.
            rng: None for secure randomness; a SimulationStream in tests and simulations.
        """
        stream = secure_or(rng)
        columns = self._columns(table)
        n = len(columns[0])
        sampled = sampling.sampled_attributes(n, len(columns), self.sample_size, stream)
        reports: dict[str, NDArray[Any]] = {}
        groups = self._people_of_each(sampled)
        for attribute, column, people in zip(self.attributes, columns, groups, strict=True):
            reports[attribute.name] = self._reported(self.mechanisms[attribute.name], column[people], stream)
        return RecordReports(sampled, reports)

    def _columns(self, table: Mapping[str, Any]) -> list[NDArray[Any]]:
        """Return the columns in the order of the attributes; only names and shapes are judged."""
        if not isinstance(table, Mapping):
            raise ParameterTypeError(f"table must map attribute names to values, got {type(table).__name__}")
        names = [attribute.name for attribute in self.attributes]
        for name in names:
            if name not in table:
                raise ParameterError(f"table must hold every attribute, {name!r} is missing")
        if len(table) != len(names):
            unknown = next(name for name in table if name not in names)
            raise ParameterError(f"table must hold the declared attributes alone, got {unknown!r}")
        columns = []
        for attribute in self.attributes:
            given = as_column(table[attribute.name])
            if isinstance(attribute, Number):
                column: NDArray[Any] = np.atleast_1d(as_floats(given))
            else:
                mechanism = self.mechanisms[attribute.name]
                assert isinstance(mechanism, FrequencyOracle)
                column = np.atleast_1d(mechanism.categories.array(given))
            if column.ndim != 1 or column.size == 0:
                raise ParameterError(
                    f"table[{attribute.name!r}] must hold one value per person, got shape {column.shape}"
                )
            columns.append(column)
            if len(column) != len(columns[0]):
                raise ParameterError(
                    f"table[{attribute.name!r}] must hold {len(columns[0])} values like {names[0]!r}, "
                    f"got {len(column)}"
                )
        return columns

    def _people_of_each(self, sampled: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """For each attribute the people who sampled it, in increasing order."""
        order = np.argsort(sampled.reshape(-1), kind="stable") // self.sample_size
        ends = np.cumsum(np.bincount(sampled.reshape(-1), minlength=len(self.attributes)))
        return iter(np.split(order, ends[:-1]))

    @staticmethod
    def _reported(mechanism: NumericChannel | FrequencyOracle, values: Any, stream: Stream) -> NDArray[Any]:
        if isinstance(mechanism, Channel):
            return mechanism.sample(values, stream) if len(values) else np.empty(0, dtype=np.int64)
        return np.asarray(mechanism.perturb(values, stream) if len(values) else mechanism.unpack(b"", 0))

    def estimate(
        self, reports: RecordReports, weights: Literal["design", "realised"] = "design"
    ) -> RecordEstimates:
        """Return unbiased means and shares of all the people, from what they sent.

        Args:
            reports: Reports from `perturb`, or assembled from many devices.
            weights: "design" multiplies what arrived by d/k and divides by n, as the papers do: unbiased
                for any n. "realised" divides by the number of people who reported the attribute, which
                is public: unbiased given that number, less variance for means far from the middle and
                common categories, and NaN for an attribute that nobody reported.
        """
        if weights not in ("design", "realised"):
            raise ParameterError(f'weights must be "design" or "realised", got {weights!r}')
        counts = self._checked_counts(reports)
        means, frequencies = {}, {}
        for attribute in self.attributes:
            name, mechanism = attribute.name, self.mechanisms[attribute.name]
            effective = self.rate * reports.people if weights == "design" else float(counts[name])
            sent = reports.reports[name]
            with np.errstate(invalid="ignore"):
                if isinstance(attribute, Number):
                    assert isinstance(mechanism, NumericChannel)
                    total = np.sum(mechanism.alphabet[sent] - attribute.middle)
                    means[name] = float(attribute.middle + total / np.float64(effective))
                else:
                    assert isinstance(mechanism, FrequencyOracle)
                    # Sum over the reports of (support - q)/(p - q), which is unbiased for each of them.
                    p, q = float(mechanism.p), float(mechanism.q)
                    total = (mechanism.support_counts(sent) - counts[name] * q) / (p - q)
                    frequencies[name] = total / np.float64(effective)
        return RecordEstimates(means, frequencies, counts)

    def _checked_counts(self, reports: RecordReports) -> dict[str, int]:
        """Return the number of people who reported each attribute.

        The reports must be such as `perturb` makes.
        """
        sampled, d = np.asarray(reports.sampled), len(self.attributes)
        if sampled.ndim != 2 or sampled.shape[1] != self.sample_size or not len(sampled):
            raise ParameterError(f"sampled must have shape (n, {self.sample_size}), got {sampled.shape}")
        if sampled.dtype.kind not in "iu" or sampled.min() < 0 or sampled.max() >= d:
            raise ParameterError(f"sampled must hold attribute numbers >= 0 and < {d}")
        if (np.diff(sampled.astype(np.int64), axis=1) <= 0).any():
            raise ParameterError("sampled must be increasing in each row")
        counts = np.bincount(sampled.reshape(-1), minlength=d)
        for attribute, count in zip(self.attributes, counts, strict=True):
            sent = reports.reports.get(attribute.name)
            if sent is None or len(sent) != count:
                raise ParameterError(f"reports[{attribute.name!r}] must hold {count} reports as sampled")
            mechanism = self.mechanisms[attribute.name]
            if isinstance(mechanism, NumericChannel):
                _check_symbols(attribute.name, sent, mechanism.size)
        return {a.name: int(count) for a, count in zip(self.attributes, counts, strict=True)}

    def describe(self) -> str:
        """Describe what a person sends, by which mechanism, and how well it can be learnt."""
        d, k = len(self.attributes), self.sample_size
        lines = [
            f"Each person reports {k} of {d} attributes under epsilon {self.epsilon_each:g} each, "
            f"{self.epsilon:g} in all. {self.guarantee.describe()}"
        ]
        for attribute in self.attributes:
            mechanism = self.mechanisms[attribute.name]
            error = math.sqrt(self.variances[attribute.name] / 10_000)
            if isinstance(attribute, Number):
                what = f"number in [{attribute.bounds[0]:g}, {attribute.bounds[1]:g}]"
            else:
                what = f"{Categories(attribute.values).size} categories"
            size = "1 bit" if mechanism.bits == 1 else f"{mechanism.bits} bits"
            lines.append(
                f"{attribute.name}: {what}, {mechanism.name}, {size}; "
                f"standard error {error:.3g} from 10000 people"
            )
        return "\n".join(lines)


def _check_symbols(name: str, sent: NDArray[Any], size: int) -> None:
    symbols = np.asarray(sent)
    if symbols.dtype.kind not in "iu" or (symbols.size and (symbols.min() < 0 or symbols.max() >= size)):
        raise ParameterError(f"reports[{name!r}] must hold symbols >= 0 and < {size}")


def _checked_attributes(attributes: Any) -> tuple[Attribute, ...]:
    if isinstance(attributes, (str, bytes)) or not isinstance(attributes, Sequence):
        raise ParameterTypeError(
            f"attributes must be a sequence of Number and Category, got {type(attributes).__name__}"
        )
    if not attributes:
        raise ParameterError("attributes must hold at least one attribute, got none")
    names = set()
    for place, attribute in enumerate(attributes):
        if not isinstance(attribute, (Number, Category)):
            raise ParameterTypeError(
                f"attributes[{place}] must be a Number or a Category, got {type(attribute).__name__}"
            )
        if attribute.name in names:
            raise ParameterError(f"attributes must have distinct names, got {attribute.name!r} twice")
        names.add(attribute.name)
    return tuple(attributes)
