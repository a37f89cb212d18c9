"""The difference in a model's treatment of two groups: rates in each, and gaps, with intervals.

    accuracy            P(prediction = label)
    equal opportunity   P(prediction = 1 | label = 1)
    equalised odds      the same, and P(prediction = 1 | label = 0): the larger of the two gaps
    demographic parity  P(prediction = 1)

Nothing here is free to look at (mathematics 4.12). The numbers come from records that are public
(`from_public`), or from a survey: each client answers `QUESTION` about one record of its own, through a
mechanism, and pays its own ledger for it (`collect.device`); `from_survey` reads the counts.

Reference: Biswas 2023, Definitions 5.2.1 to 5.2.3. A gap is a difference of two probabilities, unsigned.
Intervals: each gap holds with at least the stated confidence, for every number of records or reports
    (`proportion_interval`; rates share the doubt equally). Records are taken to be independent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from reticent.errors import ParameterError
from reticent.estimation import frequency_estimate, proportion_interval
from reticent.estimation.inputs import checked_confidence, checked_counts
from reticent.mechanisms.attributes import Category
from reticent.mechanisms.categorical import KRR

CELLS = tuple(product((0, 1), repeat=3))  # group, label, prediction
QUESTION = Category("outcome", [f"group {g}, label {y}, prediction {p}" for g, y, p in CELLS])
GAPS = ("accuracy", "equal opportunity", "equalised odds", "demographic parity")

Cell = tuple[int, ...]


@dataclass(frozen=True)
class Interval:
    """An estimate and where the truth is, at the report's confidence."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


ANYTHING = Interval(0.5, 0.0, 1.0)


@dataclass(frozen=True)
class Fairness:
    """Accuracy of each group and the four gaps between the groups.

    Attributes:
        accuracy: Accuracy of group 0 and group 1.
        gaps: Gaps by the names of `GAPS`.
        confidence: Confidence of each interval.
        source: Source of the numbers, and their cost.
    """

    accuracy: tuple[Interval, Interval]
    gaps: dict[str, Interval]
    confidence: float
    source: str

    def __str__(self) -> str:
        lines = [f"{self.source}; each interval holds with confidence {self.confidence:g}"]
        lines += [f"accuracy of group {group}: {rate}" for group, rate in enumerate(self.accuracy)]
        return "\n".join(lines + [f"gap in {name}: {gap}" for name, gap in self.gaps.items()])


def outcome(group: Any, label: Any, prediction: Any) -> str:
    """A client's answer to `QUESTION`; what is no group, label or prediction counts as 0."""
    cell = tuple(1 if _is_one(one) else 0 for one in (group, label, prediction))
    assert not isinstance(QUESTION.values, int)
    return str(QUESTION.values[CELLS.index(cell)])


def _is_one(given: Any) -> bool:
    try:
        return bool(given == 1)
    except Exception:  # a total function of its data
        return False


def from_public(groups: Any, labels: Any, predictions: Any, *, confidence: float = 0.95) -> Fairness:
    """Return the fairness on public records, each with its group, label and prediction, all 0 or 1."""
    given = [np.asarray(one).astype(np.int64).reshape(-1) for one in (groups, labels, predictions)]
    if len({one.size for one in given}) != 1 or given[0].size == 0:
        raise ParameterError("groups, labels and predictions must be as many, at least one")
    if any(one.min() < 0 or one.max() > 1 for one in given):
        raise ParameterError("groups, labels and predictions must be 0 or 1")
    counts = np.bincount(4 * given[0] + 2 * given[1] + given[2], minlength=8)
    return _fairness(_Counted(counts.tolist()), confidence, f"{given[0].size} public records")


def from_survey(support_counts: Any, mechanism: KRR, *, confidence: float = 0.95) -> Fairness:
    """Return the fairness from counts of a mechanism's symbols, one report per client, as in `QUESTION`."""
    counts = checked_counts("support_counts", support_counts, len(CELLS), least=0)
    if mechanism.size != len(CELLS):
        raise ParameterError(f"mechanism must have {len(CELLS)} categories, got {mechanism.size}")
    source = f"{int(counts.sum())} reports of clients, each of which paid epsilon {mechanism.epsilon:g}"
    return _fairness(_Reported(counts.tolist(), mechanism), confidence, source)


class _Rates(ABC):
    """Probabilities of cells, given others."""

    def __init__(self, counts: Sequence[int]) -> None:
        self._counts = dict(zip(CELLS, counts, strict=True))

    def count(self, cells: Sequence[Cell]) -> int:
        return int(sum(self._counts[cell] for cell in cells))

    @abstractmethod
    def rate(self, these: Sequence[Cell], others: Sequence[Cell], doubt: float) -> Interval:
        """P(these | these or others), wrong with probability at most `doubt`."""


class _Counted(_Rates):
    def rate(self, these: Sequence[Cell], others: Sequence[Cell], doubt: float) -> Interval:
        hits, trials = self.count(these), self.count(these) + self.count(others)
        if trials == 0:
            return ANYTHING
        low, high = proportion_interval([hits], trials, confidence=1.0 - doubt)
        return Interval(hits / trials, float(low[0]), float(high[0]))


class _Reported(_Rates):
    def __init__(self, counts: Sequence[int], mechanism: KRR) -> None:
        super().__init__(counts)
        self._p, self._q = mechanism.p, mechanism.q

    def _share(self, cells: Sequence[Cell], doubt: float) -> Interval:
        """The share of a union: a report is in it by p + (s - 1) q if its client is, else by s q."""
        s, n = len(cells), self.count(CELLS)
        found = frequency_estimate(
            [self.count(cells)], n, p=self._p + (s - 1) * self._q, q=s * self._q, confidence=1.0 - doubt
        )
        return Interval(*(float(one[0]) for one in (found.shown, found.lower, found.upper)))

    def rate(self, these: Sequence[Cell], others: Sequence[Cell], doubt: float) -> Interval:
        a, b = (self._share(cells, doubt / 2.0) for cells in (these, others))
        low = a.low / (a.low + b.high) if a.low > 0.0 else 0.0
        high = a.high / (a.high + b.low) if b.low > 0.0 else 1.0
        both = max(a.value, 0.0) + max(b.value, 0.0)
        return Interval(max(a.value, 0.0) / both if both > 0.0 else (low + high) / 2.0, low, high)


def _fairness(rates: _Rates, confidence: float, source: str) -> Fairness:
    doubt = 1.0 - checked_confidence(confidence)
    if rates.count(CELLS) == 0:
        raise ParameterError("there must be at least one report")

    def rate(group: int, doubt: float, given: int | None, *, right: bool = False) -> Interval:
        cells = [cell for cell in CELLS if cell[0] == group and given in (None, cell[1])]
        these = [(g, y, p) for g, y, p in cells if (p == y if right else p == 1)]
        return rates.rate(these, [cell for cell in cells if cell not in these], doubt)

    def gap(doubt: float, given: int | None, *, right: bool = False) -> Interval:
        return _apart(*(rate(group, doubt / 2.0, given, right=right) for group in (0, 1)))

    odds = [gap(doubt / 2.0, given) for given in (0, 1)]
    gaps = (
        gap(doubt, None, right=True),
        gap(doubt, 1),
        Interval(*(max(getattr(one, end) for one in odds) for end in ("value", "low", "high"))),
        gap(doubt, None),
    )
    accuracy = (rate(0, doubt, None, right=True), rate(1, doubt, None, right=True))
    return Fairness(accuracy, dict(zip(GAPS, gaps, strict=True)), 1.0 - doubt, source)


def _apart(first: Interval, second: Interval) -> Interval:
    """The difference of two probabilities, without its sign."""
    low, high = first.low - second.high, first.high - second.low
    return Interval(abs(first.value - second.value), max(0.0, low, -high), min(1.0, max(abs(low), abs(high))))
