"""Follow-ups of surveys that learn: published results become the mechanisms of the second wave.

One function fixes the order: the reports that shape a mechanism are entered in the operator's record first,
then read, and then the mechanism is solved for. So nothing unpublished shapes a mechanism, and nothing is
read unless the ledger can be written. The guess (mean and deviation, on a public grid) is part of the
follow-up's text.

The number of attributes in a report of the second wave is chosen together with the mechanisms: one more and
one less are tried for the common shape of all numbers that learn, by the product of the attributes'
variances.

Not here: collecting and signing. Solving needs scipy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from reticent.collect.instruments import Instrument, worst_variance
from reticent.collect.study import of_survey
from reticent.collect.survey import Survey
from reticent.collect.tally import Tally
from reticent.collect.waves import FIRST_WAVE, LEAST_EPSILON, Follows, Waves
from reticent.errors import ParameterError
from reticent.estimation.shapes import Round, Shape, learnt, shape_of, variance_of
from reticent.mechanisms.attributes import Number
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric.base import NumericChannel
from reticent.mechanisms.numeric.choose import Optimal
from reticent.mechanisms.record import Record as RecordOfOne
from reticent.mechanisms.sampling import epsilon_each

if TYPE_CHECKING:
    from reticent.fleet.record import Record

_POINTS = np.linspace(-1.0, 1.0, 257)


class Counting(Protocol):
    """The part of a collector that follow-ups need."""

    def periods(self, survey: Survey) -> dict[int, int]:
        """Return the number of reports counted in each period."""

    def is_closed(self, survey: Survey, period: int) -> bool:
        """Return whether a period takes no reports any more."""

    def tallies(self, survey: Survey, periods: Sequence[int]) -> list[Tally]:
        """Return the counts of the survey's own text and of its follow-ups."""


def sources(survey: Survey, period: int) -> list[int]:
    """Return the periods whose reports shape the follow-up of a period."""
    waves = _waves(survey)
    number = survey.checked_period(period)
    if waves.source == FIRST_WAVE:
        return [number]
    if not number:
        raise ParameterError("period must be > 0: all report by the survey's own mechanisms in the first")
    return [number - 1]


def learn(survey: Survey, periods: Sequence[int], collector: Counting, record: Record) -> None:
    """Enter into the ledger that the reports of these periods are read, before anything is made of them.

    Raises:
        LedgerError: the entry could not be written; nothing may be read.
    """
    closed = {period: collector.is_closed(survey, period) for period in periods}
    counts = collector.periods(survey)  # final for a closed period
    told = {period: counts.get(period, 0) if is_closed else None for period, is_closed in closed.items()}
    record.learn(of_survey(survey), told)


def follow_up(survey: Survey, period: int, collector: Counting, record: Record) -> Survey:
    """Build the follow-up of a period, to be signed: enter it in the ledger, read the counts, solve.

    Args:
        survey: Survey that learns.
        period: Period of the follow-up.
        collector: Collector that counted the reports.
        record: Record of the operator, where the reading of the counts is entered first.

    Raises:
        LedgerError: the entry could not be written. Nothing was read.
        ParameterError: the survey does not learn, or nobody reported yet what it learns from.
    """
    shaping = sources(survey, period)
    learn(survey, shaping, collector, record)
    return shaped(survey, period, collector.tallies(survey, shaping))


def shaped(survey: Survey, period: int, tallies: Sequence[Tally]) -> Survey:
    """Build the follow-up from the counts of published reports."""
    waves = _waves(survey)
    places = [place for place, one in enumerate(survey.attributes) if one.name in waves.learns]
    reports = sum(int(tally.reports[place].sum()) for tally in tallies for place in places)
    if not reports:
        raise ParameterError(f"nobody reported yet what period {period} of {survey.name} learns from")
    common = learnt([one for place in places for one in _rounds(place, tallies)])
    shares = {place: learnt(_rounds(place, tallies), start=common) for place in places}
    shapes = {place: shape_of(one) for place, one in shares.items()}
    size = _sample_size(survey, shares, shape_of(common))
    made = list(_plain(survey, size))
    for place, shape in shapes.items():
        made[place] = tailored(survey, size, shape, survey.attributes[place].bounds)  # type: ignore[union-attr]
    told = tuple((survey.attributes[place].name, one.mean, one.deviation) for place, one in shapes.items())
    follows = Follows(survey.id, period, told, reports)
    return replace(survey, instruments=tuple(made), sample_size=size, follows=follows)


def tailored(
    survey: Survey, size: int, shape: Shape, bounds: tuple[float, float] = (-1.0, 1.0)
) -> NumericChannel:
    """Return the mechanism of a number that learns, where a report holds `size` attributes."""
    from reticent.mechanisms.numeric.tailored import Tailored

    each, regret = epsilon_each(survey.epsilon, size), _waves(survey).regret
    if each < LEAST_EPSILON:
        return Optimal(epsilon=each, bounds=bounds)
    return Tailored(epsilon=each, prior=shape.prior, regret=regret, bounds=bounds)


def expected_errors(survey: Survey, follow: Survey, place: int, devices: int) -> tuple[float, float]:
    """Return the expected standard errors with and without learning, if the guess is right.

    With learning, the first wave reports by the survey's own mechanism and the second by the follow-up's;
    without, all `devices` report by the former.
    """
    assert follow.follows is not None
    attribute, d = survey.attributes[place], len(survey.attributes)
    assert isinstance(attribute, Number)
    shape = next(Shape(*told[1:]) for told in follow.follows.shapes if told[0] == attribute.name)
    noises = []
    for text in (survey, follow):
        channel = text.instruments[place]
        assert isinstance(channel, NumericChannel)
        noises.append((text.sample_size / d, _expected(channel, shape)))
    (own_rate, own), (rate, others) = noises
    share, spread = _waves(survey).share, _spread(shape) * attribute.half**2

    def error(first: float, second: float) -> float:
        n = first + second
        return math.sqrt((first * own + second * others) / n**2 + spread * max(0.0, 1.0 / n - 1.0 / devices))

    return error(share * devices * own_rate, (1.0 - share) * devices * rate), error(devices * own_rate, 0.0)


def _expected(channel: NumericChannel, shape: Shape) -> float:
    """Return the variance of a report, averaged over a guess."""
    prior, (lower, upper) = shape.prior, channel.bounds
    variances = channel.variance(lower + (_POINTS + 1.0) / 2.0 * (upper - lower))
    return float(prior.masses @ np.interp(prior.points, _POINTS, variances))


def _spread(shape: Shape) -> float:
    prior = shape.prior
    return prior.second_moment - prior.mean**2


def _waves(survey: Survey) -> Waves:
    if survey.waves is None or survey.follows is not None:
        raise ParameterError(f"survey must be one that learns, got {survey.name}")
    return survey.waves


def _rounds(place: int, tallies: Sequence[Tally]) -> list[Round]:
    """Return the reported counts of an attribute, text by text."""
    rounds: list[Round] = []
    for tally in tallies:
        instrument = tally.survey.instruments[place]
        assert isinstance(instrument, NumericChannel)
        rounds.append((instrument, tally.counts[place].sum(axis=0)))
    return rounds


def _sample_size(survey: Survey, shares: Mapping[int, Floats], common: Shape) -> int:
    """Return the number of attributes in a report of the second wave: the survey's, one more or one less.

    With a share a of reports by the first wave and b by the second, the error of a mean is (a V_1 + b V_2) /
    (a + b)^2, and that of who is asked, S (1/(a + b) - 1), for every size; the least product counts.
    """
    d, own, first = len(survey.attributes), survey.sample_size, _waves(survey).share
    if d == 1:
        return 1
    before = _expected(Optimal(epsilon=epsilon_each(survey.epsilon, own)), common)

    def objective(size: int) -> float:
        made, a, b = _plain(survey, size), first * own / d, (1.0 - first) * size / d
        after = _expected(tailored(survey, size, common), common)
        total = 0.0
        for place in range(d):
            if place in shares:
                noise, spread = (a * before + b * after) / (a + b) ** 2, variance_of(shares[place])
                total += math.log(noise + spread * (1.0 / (a + b) - 1.0))
            else:
                worst = [worst_variance(one, a + b) for one in (survey.instruments[place], made[place])]
                total += math.log((a * worst[0] + b * worst[1]) / (a + b) ** 2)
        return total

    return min((size for size in (own, own - 1, own + 1) if 1 <= size <= d), key=objective)


def _plain(survey: Survey, size: int) -> tuple[Instrument, ...]:
    """Return the mechanisms for reports with `size` attributes: the survey's own, or the best."""
    if size == survey.sample_size:
        return survey.instruments
    record = RecordOfOne(survey.attributes, survey.epsilon, size)
    return tuple(record.mechanisms[one.name] for one in survey.attributes)
