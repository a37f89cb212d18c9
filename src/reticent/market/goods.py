"""The goods of a buyer: estimates with intervals from all levels together, and reports without names.

Before anything is shown it is entered into the operator's ledger, as for surveys: an account for each level,
for one device that sold. Devices paid for their reports already, each out of its own ledger.

Privacy: each report is epsilon-LDP at the level that its seller picked, between any two records, against
anybody who sees it, the buyer included. The estimates from all levels are post-processing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reticent.collect.estimates import SHARES, Estimate, estimates, liars_shift
from reticent.collect.judging import Judged, judged
from reticent.collect.study import of_survey
from reticent.collect.survey import Survey
from reticent.collect.tally import Tally
from reticent.collect.wire import Layout
from reticent.errors import MissingExtra, ParameterError
from reticent.estimation import Shift
from reticent.estimation.combining import (
    are_apart,
    combined_frequencies,
    combined_mean,
    support_variance,
    weighted,
)
from reticent.estimation.means import variance_bound
from reticent.files import appearing
from reticent.market.store import CLOSED, HeldBill
from reticent.market.trading import Market, first_period
from reticent.mechanisms.numeric.base import NumericChannel

GUARANTEE = b"reticent.guarantee"  # in the file of reports


@dataclass(frozen=True)
class Goods:
    """The estimates that a bill bought.

    Attributes:
        held: Bill that bought the estimates.
        levels: Estimates of each level; None where nothing was sold.
        together: Estimates from all levels; those of the level where only one was sold.
        apart: Names of attributes that sellers of one level report differently from those of others: what
            they hold and what they ask for it belong together.
    """

    held: HeldBill
    levels: tuple[list[Estimate] | None, ...]
    together: list[Estimate]
    apart: tuple[str, ...]


def goods(market: Market, held: HeldBill, *, confidence: float = 0.95) -> Goods:
    """Return what a bill bought so far, after entering the release into the ledger."""
    tallies = _tallies(market, held)
    return combined(held, tallies, confidence=confidence)


def combined(held: HeldBill, tallies: Sequence[Tally | None], *, confidence: float = 0.95) -> Goods:
    """Return the estimates of levels with these counts."""
    levels = tuple(None if one is None else estimates(one, confidence=confidence) for one in tallies)
    sold = [one for one in tallies if one is not None]
    together, apart = [], []
    for place, attribute in enumerate(held.surveys[0].attributes):
        of = [one for one in sold if one.reports[place].sum()]
        together.append(_together(held.surveys, of, place, confidence))
        if _is_apart(of, place):
            apart.append(attribute.name)
    return Goods(held, levels, together, tuple(apart))


def _tallies(market: Market, held: HeldBill) -> list[Tally | None]:
    counted = {place: market.store.reports(held, place) for place in range(len(held.layouts))}
    is_done = market.store.purse(held).state == CLOSED
    for place, reports in counted.items():
        if reports:
            told = {0: len(reports) if is_done else None}
            market.operator.record.learn(of_survey(held.surveys[place]), told)
    return [tally_of(held.layouts[place], reports) if reports else None for place, reports in counted.items()]


def tally_of(layout: Layout, reports: Sequence[bytes]) -> Tally:
    """Count each symbol in reports that were paid for."""
    found = Tally.empty(layout.survey)
    for one in _read(layout, reports):
        one.add_to(found)
    return found


def _read(layout: Layout, reports: Sequence[bytes]) -> list[Judged]:
    """Reports by their lengths."""
    alike: dict[int, list[bytes]] = {}
    for report in reports:
        alike.setdefault(len(report), []).append(report)
    return [
        judged(layout, np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), length), first_period)
        for length, rows in alike.items()
    ]


def _together(surveys: Sequence[Survey], of: Sequence[Tally], place: int, confidence: float) -> Estimate:
    name = surveys[0].attributes[place].name
    if not of:
        return Estimate(name, 0, None, None, None, {})
    counts = [int(one.reports[place].sum()) for one in of]
    joint = weighted(counts, [_variance(one, place) for one in of])
    shifts = {
        share: _worst(
            [
                (float(scale), liars_shift(one.survey, place, share))
                for scale, one in zip(joint.scales, of, strict=True)
            ]
        )
        for share in SHARES
    }
    mean = frequencies = None
    if isinstance(of[0].survey.instruments[place], NumericChannel):
        channels = [(one.survey.instruments[place], one.counts[place].sum(axis=0)) for one in of]
        mean = combined_mean(channels, confidence=confidence)  # type: ignore[arg-type]
    else:
        supports = [
            (one.counts[place].sum(axis=0), n, *_support(one, place))
            for one, n in zip(of, counts, strict=True)
        ]
        frequencies = combined_frequencies(supports, confidence=confidence)
    return Estimate(name, sum(counts), mean, frequencies, None, shifts)


def _worst(shifts: Sequence[tuple[float, Shift]]) -> Shift:
    """Liars come to the level whose reports count most."""
    return Shift(
        max(scale * one.by_outputs for scale, one in shifts),
        max(scale * one.by_inputs for scale, one in shifts),
    )


def _support(tally: Tally, place: int) -> tuple[float, float]:
    instrument: Any = tally.survey.instruments[place]
    return float(instrument.p), float(instrument.q)


def _variance(tally: Tally, place: int) -> float:
    """The largest of one report: who is at which level is a sample too."""
    instrument = tally.survey.instruments[place]
    if isinstance(instrument, NumericChannel):
        return variance_bound(instrument, "population")
    return support_variance(*_support(tally, place))


def _is_apart(of: Sequence[Tally], place: int) -> bool:
    found = [estimates(one)[place] for one in of]
    values: list[Any] = [
        one.mean.value if one.mean is not None else one.frequencies.frequencies  # type: ignore[union-attr]
        for one in found
    ]
    return are_apart(values, [one.reports for one in found], [_variance(one, place) for one in of])


# The reports themselves


def write_reports(market: Market, held: HeldBill, place: int, out: Path) -> int:
    """Write the reports of a level to a Parquet file, and return how many; entered into the ledger first.

    The columns are those that `reticent aggregate` reads; the guarantee and the survey are in the file's own
    fields. There are no names, no ids and no times in it, and the order is drawn anew.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet

        from reticent.collect.batch import reports_table
    except ImportError as error:
        raise MissingExtra("Parquet", "collect") from error
    if not 0 <= place < len(held.layouts):
        raise ParameterError(f"level must be 0 to {len(held.layouts) - 1}, got {place}")
    if out.exists():
        raise ParameterError(f"out must not exist, got {out}")
    layout, reports = held.layouts[place], market.store.reports(held, place)
    if reports:
        market.operator.record.learn(of_survey(layout.survey), {0: None})
    tables = [_table(one, layout.survey, reports_table) for one in _read(layout, reports)]
    if not tables:
        tables = [reports_table(layout.survey, [_NONE] * len(layout.survey.attributes), 0)]
    table = pa.concat_tables(tables)
    told = json.dumps(guarantee(held, place), sort_keys=True).encode()
    fields = {GUARANTEE: told, b"reticent.survey": layout.survey.text}
    with appearing(out) as file:
        pyarrow.parquet.write_table(table.replace_schema_metadata(fields), file)
    return len(reports)


_NONE = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def _table(found: Judged, survey: Survey, made: Any) -> Any:
    columns = [found.symbols.get(place, _NONE) for place in range(len(survey.attributes))]
    return made(survey, columns, len(found.kept))


def guarantee(held: HeldBill, place: int) -> dict[str, Any]:
    """Return the guarantee of a level's reports, in words that stay with the reports."""
    survey = held.surveys[place]
    return {
        "guarantee": "local differential privacy (epsilon-LDP)",
        "epsilon": survey.epsilon,
        "unit": "one report of one enrolled device",
        "neighbours": "any two records that the device may hold",
        "against": "whoever sees the report, its buyer included",
        "bill": held.bill.id.hex(),
        "level": place,
        "purpose": held.bill.purpose,
    }
