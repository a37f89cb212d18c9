"""Validation of genuine reports of one survey: their values, and the faults of those that are refused.

The collector counts the reports that pass here, and the market pays for them: one rule for both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.collect.tally import Tally
from reticent.collect.wire import HEAD_BYTES, Layout, Outcome, heads
from reticent.fleet.enrolment import TAG_BYTES

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Judged:
    """The valid and the refused reports among reports of one survey and one length.

    Attributes:
        refused: Refused rows with their reason; of several reasons, the first.
        kept: Rows that may be counted.
        periods: Periods of the valid reports; the next fields are about these, too.
        groups: Groups of their reporters.
        symbols: Indices among the valid reports and what the mechanism drew, by attribute; for `OneBit` 2 *
            level + bit.
    """

    refused: list[tuple[Outcome, Rows]]
    kept: Rows
    periods: Rows
    groups: Rows
    symbols: dict[int, tuple[Rows, NDArray[Any]]]

    def add_to(self, tally: Tally) -> None:
        """Count all valid reports."""
        for attribute, (members, drawn) in self.symbols.items():
            tally.add(attribute, self.groups[members], drawn)


def judged(layout: Layout, table: NDArray[np.uint8], is_open: Callable[[Rows], NDArray[np.bool_]]) -> Judged:
    """Validate the form of genuine reports.

    Args:
        layout: Layout of the survey's reports.
        table: Bytes of the reports, one in each row.
        is_open: Function that returns which of some periods take reports.
    """
    survey = layout.survey
    head = heads(table)
    periods, ids = head["period"].astype(np.int64), head["reporter"].astype(np.uint64)
    read = layout.read(table[:, HEAD_BYTES:-TAG_BYTES])
    wrong = read.wrong
    if survey.assigned:
        lots = survey.lots.attributes(ids, periods, survey.sample_size, len(survey.attributes))
        wrong = wrong | (lots != read.asked).any(axis=1)
    is_open_now, wave = is_open(periods), survey.is_first(ids, periods) == (survey.follows is None)
    if survey.follows is not None:
        is_open_now = is_open_now & (periods == survey.follows.period)
    is_kept = np.ones(len(table), dtype=np.bool_)
    refused = []
    for reason, fault in (  # only the first fault is reported
        (Outcome.PERIOD, ~is_open_now),
        (Outcome.WAVE, ~wave),
        (Outcome.ATTRIBUTES, wrong),
        (Outcome.LENGTH, read.misfit),
        (Outcome.SYMBOL, read.illegal),
    ):
        refused.append((reason, np.flatnonzero(fault & is_kept)))
        is_kept &= ~fault
    kept = np.flatnonzero(is_kept)
    place_of = np.cumsum(is_kept) - 1
    symbols = {}
    for attribute, (rows, drawn) in read.symbols.items():
        good = is_kept[rows]
        rows, drawn = rows[good], drawn[good]
        instrument = survey.instruments[attribute]
        if hasattr(instrument, "dither_levels"):
            levels = survey.lots.dither(ids[rows], periods[rows], attribute, instrument.dither_levels)
            drawn = 2 * levels + drawn
        if rows.size:
            symbols[attribute] = (place_of[rows], drawn)
    groups = survey.lots.group(ids[kept], survey.groups)
    return Judged(refused, kept, periods[kept], groups, symbols)
