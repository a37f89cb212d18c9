"""Answers and prices for an analyst, with everything needed to judge them.

Amounts are ledger units of 1e-12 mu^2; epsilons are computed from them on demand.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.privacy import spent_epsilon
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query import rendering
from reticent.query.combined import MAX_UNITS, Combined
from reticent.query.estimates import widest
from reticent.query.kinds.intervals import Cell, Estimate
from reticent.query.kinds.listed import KIND
from reticent.query.language.tree import Query, from_json, to_json

if TYPE_CHECKING:
    import pandas
    import pyarrow


_LAST_DIGITS = 1e-9
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters that make a cell a formula in a spreadsheet
_PARTS = ("value", "standard_error", "low", "high")
_MAX_NOTES, _MAX_NOTE_LENGTH = 20, 500


@lru_cache(maxsize=4096)  # many readers of the same account
def _epsilon(units: int, delta: float) -> float:
    return spent_epsilon(units, delta) if units else 0.0


class Case(Enum):
    """The case of a request, by how it relates to earlier purchases (Algorithm 7 of the thesis)."""

    FRESH = "1"  # nothing was bought under the question, or nothing of it was to be reused
    EQUAL = "2A"  # exactly this was bought: nothing to pay
    REFINED = "2B"  # the missing part was bought and combined with the old
    COARSER = "2C"  # more was bought already: nothing to pay
    SPAN = "3"  # other purchases, or the public number of rows, answer part or all of it: less to pay
    PUBLIC = "public"  # the declaration answers it


@dataclass(frozen=True)
class Receipt:
    """A reference to the ledger entries that show the payment.

    Attributes:
        account: Account of the data set.
        key: Key of the question.
        measurements: Numbers of the measurements that this answer added.
        log_size: Entries of the log when the answer was given; None for ledgers without a log.
        log_root: Root of those entries, in hex.
    """

    account: str
    key: str
    measurements: tuple[int, ...] = ()
    log_size: int | None = None
    log_root: str | None = None


@dataclass(frozen=True)
class Assumed:
    """The number of rows that a group is assumed to have, if an error depends on this private number.

    Attributes:
        rows: Rows of each group.
        guessed: True if the analyst guessed the number; if not, it is all rows, or an even part of them.
        otherwise: Errors with fewer rows: pairs of rows and half widths, in falling order of rows.
    """

    rows: float
    guessed: bool
    otherwise: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Price:
    """The price of an answer, known before paying and without touching data.

    Attributes:
        information: Units that must be bought under the question in all.
        bought: Units that are bought already.
        cost: Units that would be charged.
        remaining: Units left in the account before paying.
        error: Predicted half width of the interval; None if it depends on a private number of rows that
            was not guessed.
        free_error: Half width of the recorded answer, which `known` returns for free; None if there is none.
        assumed: Row count that `error` depends on; None if it depends on nothing private.
        useless: True if an interval of this width would contain every possible value.
        budget: Units of the whole account; 0 if the service that sent the price did not send it.
        fresh_cost: Units that a fresh draw would cost, reusing nothing.
    """

    query: Query
    information: int
    bought: int
    cost: int
    remaining: int
    delta: float
    error: float | None
    case: Case
    free_error: float | None = None
    assumed: Assumed | None = None
    useless: bool = False
    budget: int = 0
    fresh_cost: int = 0

    def __str__(self) -> str:
        return rendering.price_text(self)

    @property
    def share(self) -> float | None:
        """The cost as a share of the whole budget: shares add up. None if the budget is not known."""
        return self.cost / self.budget if self.budget else None

    @property
    def mu2(self) -> float:
        """The cost in mu^2, in which the ledger counts."""
        return as_mu2(self.cost)

    @property
    def affordable(self) -> bool:
        """True if the account has enough left for the cost."""
        return self.cost <= self.remaining

    @cached_property
    def epsilon(self) -> float:
        """The cost alone as epsilon at the budget's delta."""
        return _epsilon(self.cost, self.delta)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON, with amounts as decimal strings of units."""
        return {
            "query": to_json(self.query),
            "case": self.case.value,
            "information": str(self.information),
            "bought": str(self.bought),
            "cost": str(self.cost),
            "cost_epsilon": self.epsilon,
            "remaining": str(self.remaining),
            "delta": self.delta,
            "error": self.error,
            "free_error": self.free_error,
            "assumed": None if self.assumed is None else asdict(self.assumed),
            "useless": self.useless,
            "affordable": self.affordable,
            "budget": str(self.budget),
            "cost_share": self.share,
            "fresh_cost": str(self.fresh_cost),
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Price:
        """Parse a price from the output of `to_json`."""
        return cls(
            from_json(given["query"]),
            information=read_units(given["information"]),
            bought=read_units(given["bought"]),
            cost=read_units(given["cost"]),
            remaining=read_units(given["remaining"]),
            delta=real("delta", given["delta"]),
            error=_error("error", given["error"]),
            case=Case(given["case"]),
            free_error=_error("free_error", given.get("free_error")),
            assumed=_assumed(given.get("assumed")),
            useless=bool(given.get("useless", False)),
            budget=read_units(given.get("budget", 0)),
            fresh_cost=read_units(given.get("fresh_cost", 0)),
        )


def read_units(given: Any, *, low: int = 0) -> int:
    """Parse an amount from a service's reply, rejecting amounts above 2^256 that no honest service sends.

    Args:
        given: Decimal text or whole number.
        low: Least amount that makes sense.
    """
    return whole("units", int(given), low=low, high=MAX_UNITS)


def _error(name: str, given: Any) -> float | None:
    return None if given is None else real(name, given, low=0.0)


def _assumed(given: Mapping[str, Any] | None) -> Assumed | None:
    if given is None:
        return None
    otherwise = tuple((float(rows), float(error)) for rows, error in given["otherwise"])
    return Assumed(float(given["rows"]), bool(given["guessed"]), otherwise)


@dataclass(frozen=True)
class Answer:
    """An answer with its error, its price and its receipt.

    Attributes:
        query: Query that was answered.
        cells: One estimate for each group, or a single one.
        confidence: Confidence of the intervals.
        case: Relation of the request to earlier purchases.
        information: Units of mu^2 that the answer is worth.
        cost: Units that were charged for the answer.
        without_reuse: Units that the same answer would have cost with nothing to reuse.
        spent: Units of the account spent after the answer.
        remaining: Units of the account left after the answer.
        delta: Delta of the budget.
        receipt: Reference to the ledger entries of the payment.
        combined: Account of how the answer was made from several purchases; None if it uses only those of
            its own question.
        notes: Public facts of the declaration that a reader of the numbers must know, a sentence each.
    """

    query: Query
    cells: tuple[Cell, ...]
    confidence: float
    case: Case
    information: int
    cost: int
    without_reuse: int
    spent: int
    remaining: int
    delta: float
    receipt: Receipt
    combined: Combined | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return rendering.answer_text(self)

    def _repr_html_(self) -> str:
        """Render the answer for Jupyter notebooks."""
        return rendering.answer_html(self)

    @property
    def reused(self) -> int:
        """Units of earlier answers that this one rests on."""
        return self.information - self.cost if self.information > self.cost else 0

    @cached_property
    def epsilon(self) -> float:
        """The cost of this answer alone as epsilon at the budget's delta."""
        return _epsilon(self.cost, self.delta)

    @property
    def share(self) -> float:
        """The cost of this answer as a share of the whole budget: shares add up."""
        return self.cost / (self.spent + self.remaining) if self.cost else 0.0

    @property
    def mu2(self) -> float:
        """The cost of this answer in mu^2, in which the ledger counts."""
        return as_mu2(self.cost)

    @cached_property
    def epsilon_spent(self) -> float:
        """Everything spent so far as epsilon at the budget's delta."""
        return _epsilon(self.spent, self.delta)

    def _only(self) -> Cell:
        if len(self.cells) != 1:
            raise ParameterError(f"the answer has {len(self.cells)} cells: look at cells, or use to_pandas()")
        return self.cells[0]

    @property
    def value(self) -> float:
        """The answer, if it is a single number: the best possible estimate."""
        return self._only().estimate.value

    @property
    def standard_error(self) -> float:
        """The standard deviation of the noise in the answer."""
        return self._only().estimate.standard_error

    @property
    def interval(self) -> tuple[float, float]:
        """The interval in which the exact answer lies, with the stated confidence."""
        estimate = self._only().estimate
        return estimate.low, estimate.high

    @property
    def error(self) -> float:
        """The widest half interval of any cell."""
        return widest(self.cells)

    def columns(self) -> dict[str, list[Any]]:
        """Return the cells as columns: the groups, value, standard_error, low, high, unbiased."""
        names: Sequence[str] = [by.column for by in self.query.by]
        if KIND[self.query.kind].is_rank:
            names = ["level"]
        found: dict[str, list[Any]] = {
            name: [cell.labels[i] for cell in self.cells] for i, name in enumerate(names)
        }
        for part in (*_PARTS, "unbiased"):
            found[part] = [getattr(cell.estimate, part) for cell in self.cells]
        return found

    def to_csv(self) -> str:
        """Return the cells as CSV: a header and a line for each, with texts that no spreadsheet executes."""
        columns, text = self.columns(), io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(map(_csv_cell, columns))
        lines.writerows([map(_csv_cell, row) for row in zip(*columns.values(), strict=True)])
        return text.getvalue()

    def to_pandas(self) -> pandas.DataFrame:
        """Return the cells as a data frame."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def to_arrow(self) -> pyarrow.Table:
        """Return the cells as an Arrow table."""
        import pyarrow as pa

        return pa.table(self.columns())

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON, with amounts as decimal strings of units."""
        return {
            "query": to_json(self.query),
            "cells": [
                {
                    "labels": list(cell.labels),
                    "value": cell.estimate.value,
                    "standard_error": cell.estimate.standard_error,
                    "low": cell.estimate.low,
                    "high": cell.estimate.high,
                    "unbiased": cell.estimate.unbiased,
                }
                for cell in self.cells
            ],
            "confidence": self.confidence,
            "case": self.case.value,
            "information": str(self.information),
            "cost": str(self.cost),
            "cost_epsilon": self.epsilon,
            "without_reuse": str(self.without_reuse),
            "reused": str(self.reused),
            "spent": str(self.spent),
            "spent_epsilon": self.epsilon_spent,
            "remaining": str(self.remaining),
            "delta": self.delta,
            "receipt": {
                "account": self.receipt.account,
                "key": self.receipt.key,
                "measurements": list(self.receipt.measurements),
                "log_size": self.receipt.log_size,
                "log_root": self.receipt.log_root,
            },
            "combined": None if self.combined is None else self.combined.to_json(),
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Answer:
        """Parse an answer from the output of `to_json`."""
        receipt = given["receipt"]
        return cls(
            from_json(given["query"]),
            _cells(given["cells"]),
            real("confidence", given["confidence"], low=0.0, high=1.0),
            Case(given["case"]),
            information=read_units(given["information"]),
            cost=read_units(given["cost"]),
            without_reuse=read_units(given["without_reuse"]),
            spent=read_units(given["spent"]),
            remaining=read_units(given["remaining"]),
            delta=real("delta", given["delta"]),
            receipt=Receipt(
                receipt["account"],
                receipt["key"],
                tuple(receipt["measurements"]),
                receipt["log_size"],
                receipt["log_root"],
            ),
            combined=None if given.get("combined") is None else Combined.from_json(given["combined"]),
            notes=_notes(given.get("notes", [])),
        )


def _notes(raw: Any) -> tuple[str, ...]:
    """Validate notes from a service's reply: a few short texts without control characters."""
    if not isinstance(raw, list) or len(raw) > _MAX_NOTES:
        raise ParameterError(f"notes must be a list of at most {_MAX_NOTES} texts")
    for note in raw:
        if not isinstance(note, str) or len(note) > _MAX_NOTE_LENGTH or not note.isprintable():
            raise ParameterError(f"notes must be printable texts of at most {_MAX_NOTE_LENGTH} characters")
    return tuple(raw)


def _cells(given: Sequence[Mapping[str, Any]]) -> tuple[Cell, ...]:
    """Parse the cells of a service's reply: at least one, and each interval contains its value."""
    found = []
    for one in given:
        told = {part: real(part, one[part]) for part in _PARTS}
        unbiased = None if one.get("unbiased") is None else real("unbiased", one["unbiased"])
        labels = tuple(one["labels"])
        if not all(isinstance(label, str | int | float) for label in labels):
            raise ParameterError("labels must be texts or numbers")
        slack = _LAST_DIGITS * max(1.0, abs(told["value"]))  # rounding of earlier releases
        if not told["low"] - slack <= told["value"] <= told["high"] + slack:
            raise ParameterError("value must lie within low and high")
        found.append(Cell(labels, Estimate(**told, unbiased=unbiased)))
    if not found:
        raise ParameterError("cells must be one at least")
    return tuple(found)


def _csv_cell(value: object) -> object:
    """Return a CSV value that no spreadsheet executes (owners choose labels); omit infinite numbers."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if isinstance(value, float) and not math.isfinite(value) else value


def as_mu2(units: int) -> float:
    """Convert ledger units to mu^2, for display."""
    return units / UNITS_PER_ONE
