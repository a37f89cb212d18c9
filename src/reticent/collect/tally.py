"""Counts of the symbols in reports. The tables of batches and periods can be added.

A row of the table is a group of reporters (see `lots`); a column is a symbol of a channel, or a category that
a report of another mechanism supports. Memory is bounded by the survey, however many reports come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.collect.instruments import columns
from reticent.collect.survey import Survey
from reticent.errors import ParameterError
from reticent.mechanisms.base import Channel

Counts = NDArray[np.int64]


@dataclass
class Tally:
    """The counts of one survey.

    Attributes:
        counts: Counts of each attribute, shape (groups, columns).
        reports: Number of reports that hold each attribute, shape (groups,).
    """

    survey: Survey
    counts: list[Counts]
    reports: list[Counts]

    @classmethod
    def empty(cls, survey: Survey) -> Tally:
        """Create a tally without any counts."""
        return cls(
            survey,
            [np.zeros((survey.groups, columns(one)), dtype=np.int64) for one in survey.instruments],
            [np.zeros(survey.groups, dtype=np.int64) for _ in survey.instruments],
        )

    def add(self, attribute: int, groups: NDArray[np.int64], symbols: NDArray[Any]) -> None:
        """Count reports of one attribute: for `OneBit` 2 * level + bit, else what the mechanism drew."""
        instrument, counts = self.survey.instruments[attribute], self.counts[attribute]
        if not isinstance(instrument, Channel):
            for group in np.unique(groups):
                counts[group] += instrument.support_counts(symbols[groups == group])
        else:
            flat = np.bincount(groups * counts.shape[1] + symbols, minlength=counts.size)
            counts += flat.reshape(counts.shape)
        self.reports[attribute] += np.bincount(groups, minlength=self.survey.groups)

    def merge(self, other: Tally) -> None:
        """Add the counts of another table of the same survey."""
        if other.survey.id != self.survey.id:
            raise ParameterError("tallies must be of one survey")
        for mine, theirs in zip((*self.counts, *self.reports), (*other.counts, *other.reports), strict=True):
            mine += theirs
