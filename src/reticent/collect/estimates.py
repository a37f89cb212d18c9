"""What a tally says: means, frequencies and distributions with intervals, and what liars could have moved.

Estimates divide by the reports that hold an attribute, which is public. Where the survey has groups, medians
and trimmed means over them count a group once, however loud it is. That helps where most groups hold no liar
and a lie is loud within its group: small groups, a large epsilon. Reports that are mostly noise hide any lie.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.arguments import real
from reticent.collect.instruments import worst_variance
from reticent.collect.survey import Survey
from reticent.collect.tally import Tally
from reticent.errors import ParameterError
from reticent.estimation import (
    FrequencyEstimate,
    MeanEstimate,
    Shift,
    frequency_estimate,
    frequency_shift,
    mean_estimate,
    mean_shift,
)
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric.base import NumericChannel

SHARES = (0.001, 0.01, 0.1)  # of liars, for which the shift is told
_LEAST_IN_GROUP = 10  # a smaller group says nothing


@dataclass(frozen=True)
class Estimate:
    """What is known of one attribute.

    Attributes:
        name: of the attribute.
        reports: that hold it.
        mean: of a number, among all reporters; those whose reports hold it are a sample of them.
        frequencies: of the categories.
        robust: the median over groups of the mean, or of each frequency; None without groups.
        shifts: by the share of liars among the reporters, how far they could have moved the plain estimate.
    """

    name: str
    reports: int
    mean: MeanEstimate | None
    frequencies: FrequencyEstimate | None
    robust: float | Floats | None
    shifts: dict[float, Shift]


def estimates(tally: Tally, *, confidence: float = 0.95) -> list[Estimate]:
    """An estimate for each attribute of a survey; those that nobody reported have none but their name."""
    return [_estimate(tally, place, confidence=confidence) for place in range(len(tally.survey.attributes))]


def _estimate(tally: Tally, place: int, *, confidence: float) -> Estimate:
    survey, instrument = tally.survey, tally.survey.instruments[place]
    counts, reports = tally.counts[place], tally.reports[place]
    name, n = survey.attributes[place].name, int(reports.sum())
    shifts = {share: liars_shift(survey, place, share) for share in SHARES}
    if not n:
        return Estimate(name, 0, None, None, None, shifts)
    mean = frequencies = None
    if isinstance(instrument, NumericChannel):
        whole = survey.sample_size == len(survey.attributes)
        mean = mean_estimate(
            instrument,
            counts.sum(axis=0),
            confidence=confidence,
            target="reporters" if whole else "population",
        )
    else:
        frequencies = frequency_estimate(
            counts.sum(axis=0), n, p=instrument.p, q=instrument.q, confidence=confidence
        )
    return Estimate(name, n, mean, frequencies, median_of_groups(tally, place), shifts)


def median_of_groups(tally: Tally, place: int) -> Any:
    """The median over groups of the mean, or of each frequency; None if too few groups say anything."""
    groups = _of_groups(tally, place)
    return None if groups is None else np.median(groups, axis=0)[()]


def trimmed_mean_of_groups(tally: Tally, place: int, *, trim: float = 0.1) -> Any:
    """As `median_of_groups`, the mean without the share `trim` of the lowest and of the highest groups."""
    groups = _of_groups(tally, place)
    cut = real("trim", trim, low=0.0, high=0.5, open_high=True)
    if groups is None:
        return None
    left_out = int(cut * len(groups))
    return np.sort(groups, axis=0)[left_out : len(groups) - left_out].mean(axis=0)[()]


def _of_groups(tally: Tally, place: int) -> Floats | None:
    """The mean, or all frequencies, of each group; None if too few groups say anything."""
    instrument, counts, reports = tally.survey.instruments[place], tally.counts[place], tally.reports[place]
    full = reports >= _LEAST_IN_GROUP
    if full.sum() < 3:
        return None
    if isinstance(instrument, NumericChannel):
        return np.asarray(counts[full] @ instrument.alphabet / reports[full])
    p, q = float(instrument.p), float(instrument.q)
    return np.asarray((counts[full] / reports[full, None] - q) / (p - q))


def liars_shift(survey: Survey, place: int, share: float) -> Shift:
    """How far a share of lying reporters can move the plain estimate of an attribute (its expectation).

    Where devices draw what they report, liars can all report one attribute and become a larger share of it.
    """
    instrument = survey.instruments[place]
    among = share
    if not survey.assigned:
        honest = (1.0 - share) * survey.sample_size / len(survey.attributes)
        among = share / (share + honest)
    if isinstance(instrument, NumericChannel):
        return mean_shift(instrument, among)
    return frequency_shift(instrument.p, instrument.q, among)


def devices_for(survey: Survey, place: int, error: float) -> int:
    """How many devices give an estimate a standard error, in the worst case over what they hold."""
    if not error > 0.0 or not math.isfinite(error):
        raise ParameterError(f"error must be > 0, got {error!r}")
    rate = survey.sample_size / len(survey.attributes)
    return math.ceil(worst_variance(survey.instruments[place], rate) / rate / error**2)
