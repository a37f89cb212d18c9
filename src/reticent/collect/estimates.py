"""Estimates from a tally: means, frequencies, intervals, and how far liars could have moved them.

Estimates divide by the reports that hold an attribute, which is public. Where the survey has groups, medians
and trimmed means over them count a group once, however extreme it is. That helps where most groups contain no
liar and a lie stands out within its group: small groups, a large epsilon. Reports that are mostly noise hide
any lie.

Where a survey learns (`waves`), every report counts the same, whichever text it answers: the mean of all
reports. Weights that knew the variances would have to look at the reports, since the first wave shapes the
mechanism of the second and so its variance, and would bias the mean; these are fixed by draws and sizes (with
several attributes, the first wave decides how many a report holds, and so moves them a little: limits). That
costs little: where the second wave has r times the variance of a first wave of a tenth, (0.1 + 0.9 r) against
1 / (0.1 + 0.9 / r), 2.4 % at r = 0.6. The interval of several texts takes no variance from what the first
wave came to, but the most that a follow-up may have: (1 + regret) times the least worst case (`_joint_mean`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from reticent.estimation.intervals import bounded_deviation, deviation_bound
from reticent.estimation.means import Target, variance_bound
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric.base import NumericChannel
from reticent.mechanisms.numeric.choose import least_worst_variance

SHARES = (0.001, 0.01, 0.1)  # shares of liars for which the shift is given
_LEAST_IN_GROUP = 10  # smaller groups are left out


@dataclass(frozen=True)
class Estimate:
    """The estimate of one attribute.

    Attributes:
        name: Name of the attribute.
        reports: Number of reports that hold it.
        mean: Mean of a number among all reporters; those whose reports hold it are a sample of them.
        frequencies: Frequencies of the categories.
        robust: Median over groups of the mean, or of each frequency; None without groups.
        shifts: Largest shift of the plain estimate, by the share of liars among the reporters.
    """

    name: str
    reports: int
    mean: MeanEstimate | None
    frequencies: FrequencyEstimate | None
    robust: float | Floats | None
    shifts: dict[float, Shift]


def estimates(tally: Tally, *follow_ups: Tally, confidence: float = 0.95) -> list[Estimate]:
    """Return an estimate for each attribute of a survey; an attribute without reports has only its name.

    Args:
        tally: Counts of the survey's own text.
        follow_ups: Counts of each follow-up, for a survey that learns.
        confidence: Confidence of the intervals.
    """
    some = [one for one in (tally, *follow_ups) if any(n.any() for n in one.reports)]
    places = range(len(tally.survey.attributes))
    if len(some) > 1 or (some and some[0] is not tally):
        return [_joint(tally.survey, some, place, confidence=confidence) for place in places]
    return [_estimate(tally, place, confidence=confidence) for place in places]


def _joint(survey: Survey, tallies: Sequence[Tally], place: int, *, confidence: float) -> Estimate:
    """Estimate an attribute from several texts: every report has the same weight."""
    held = [one for one in tallies if one.reports[place].any()]
    name, n = survey.attributes[place].name, sum(int(one.reports[place].sum()) for one in held)
    shifts = {
        share: max((liars_shift(one.survey, place, share) for one in tallies), key=lambda one: one.by_outputs)
        for share in SHARES
    }
    if not held:
        return Estimate(name, 0, None, None, None, shifts)
    mean = frequencies = None
    if isinstance(survey.instruments[place], NumericChannel):
        mean = _joint_mean(survey, held, place, n, confidence)
    else:
        frequencies = _joint_frequencies(held, place, n, confidence)
    return Estimate(name, n, mean, frequencies, median_of_groups(held[0], place, *held[1:]), shifts)


def _joint_mean(
    survey: Survey, tallies: Sequence[Tally], place: int, n: int, confidence: float
) -> MeanEstimate:
    """Estimate the mean of all reports.

    Given the first wave, the reports of the second are independent and unbiased; the variance of each is at
    most a number that no report moved: that of the survey's mechanism, or the regret's. So the sum is that of
    martingale differences of bounded variance, for which the first proof of `deviation_bound` holds as it
    stands (Freedman 1975; Fan, Grama and Liu 2012, Theorem 2.1). The second replaces wave after wave by its
    normal distribution: the errors of the replacements add up, which a larger range of values accounts for.
    """
    waves = survey.waves
    whole = all(one.survey.sample_size == len(survey.attributes) for one in tallies)
    target: Target = "reporters" if whole else "population"
    if len(tallies) == 1:  # its reports are independent and its channel fixed, given what shaped its text
        (tally,) = tallies
        channel = tally.survey.instruments[place]
        assert isinstance(channel, NumericChannel)
        return mean_estimate(channel, tally.counts[place].sum(axis=0), confidence=confidence, target=target)
    total = reach = variance = apart = 0.0
    lower, upper = survey.attributes[place].bounds  # type: ignore[union-attr]
    for one in tallies:
        channel, counts = one.survey.instruments[place], one.counts[place].sum(axis=0)
        assert isinstance(channel, NumericChannel)
        most = variance_bound(channel, target)
        if one.survey.follows is not None and waves is not None:
            most = max(most, _most_variance(channel, waves.regret, target))
        size = int(counts.sum())
        total += float(counts @ channel.alphabet)
        variance += size / n * most
        reach = max(reach, float(channel.alphabet.max()) - lower, upper - float(channel.alphabet.min()))
        apart += math.sqrt(n / size)
    width = min(
        deviation_bound(n, variance, reach * apart, confidence=confidence),
        bounded_deviation(n, variance, reach, confidence=confidence),
    )
    return MeanEstimate.of(total / n, width, variance, (lower, upper), n, confidence, target)


def _most_variance(channel: NumericChannel, regret: float, target: Target) -> float:
    """Return the largest variance of a follow-up at this epsilon, known before anybody reports."""
    lower, upper = channel.bounds
    half = (upper - lower) / 2.0
    return (1.0 + regret) * least_worst_variance(channel.epsilon) * half**2 + (
        target == "population"
    ) * half**2


def _joint_frequencies(tallies: Sequence[Tally], place: int, n: int, confidence: float) -> FrequencyEstimate:
    """Estimate frequencies from several texts; estimates and widths are weighted by reports."""
    found = [
        frequency_estimate(
            one.counts[place].sum(axis=0),
            int(one.reports[place].sum()),
            p=one.survey.instruments[place].p,  # type: ignore[union-attr]
            q=one.survey.instruments[place].q,  # type: ignore[union-attr]
            confidence=1.0 - (1.0 - confidence) / len(tallies),  # all of them hold at once
        )
        for one in tallies
    ]
    if len(found) == 1:
        return found[0]
    weights = np.array([one.count / n for one in found])
    columns = {
        name: weights @ np.array([getattr(one, name) for one in found])
        for name in ("frequencies", "lower", "upper")
    }
    errors = np.sqrt(weights**2 @ np.array([one.standard_errors**2 for one in found]))
    return FrequencyEstimate(
        standard_errors=errors, count=n, confidence=confidence, simultaneous=False, **columns
    )


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


def median_of_groups(tally: Tally, place: int, *follow_ups: Tally) -> Any:
    """Return the median over groups of the mean, or of each frequency; None if too few groups are large."""
    groups = _of_groups([tally, *follow_ups], place)
    return None if groups is None else np.median(groups, axis=0)[()]


def trimmed_mean_of_groups(tally: Tally, place: int, *, trim: float = 0.1) -> Any:
    """Return the mean over groups without the share `trim` of the lowest and of the highest groups."""
    groups = _of_groups([tally], place)
    cut = real("trim", trim, low=0.0, high=0.5, open_high=True)
    if groups is None:
        return None
    left_out = int(cut * len(groups))
    return np.sort(groups, axis=0)[left_out : len(groups) - left_out].mean(axis=0)[()]


def _of_groups(tallies: Sequence[Tally], place: int) -> Floats | None:
    """Return the mean, or all frequencies, of each group; None if too few groups are large enough."""
    reports = np.sum([one.reports[place] for one in tallies], axis=0)
    full = reports >= _LEAST_IN_GROUP
    if full.sum() < 3:
        return None
    totals: Any = 0.0
    for one in tallies:
        instrument, counts = one.survey.instruments[place], one.counts[place][full]
        if isinstance(instrument, NumericChannel):
            totals = totals + counts @ instrument.alphabet
        else:
            p, q = float(instrument.p), float(instrument.q)
            totals = totals + (counts - one.reports[place][full, None] * q) / (p - q)
    by = reports[full] if totals.ndim == 1 else reports[full, None]
    return np.asarray(totals / by)


def liars_shift(survey: Survey, place: int, share: float) -> Shift:
    """Return how far a share of lying reporters can move the expected plain estimate of an attribute.

    If devices draw which attributes they report, all liars can report one attribute and become a larger share
    of its reporters.
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
    """Return the number of devices for a standard error, in the worst case over their values."""
    if not error > 0.0 or not math.isfinite(error):
        raise ParameterError(f"error must be > 0, got {error!r}")
    rate = survey.sample_size / len(survey.attributes)
    return math.ceil(worst_variance(survey.instruments[place], rate) / rate / error**2)
