"""Making a follow-up: what was published of a survey that learns becomes the mechanisms of the others.

The order is fixed here, in one function: what shapes is entered in the operator's record first, then looked
at, and then it is solved for. So nothing unpublished shapes a mechanism, and whoever cannot write the ledger
cannot look. The guess (mean and deviation, on a public grid) stands in the follow-up's text.

How many attributes a report of the second wave holds is chosen together with the mechanisms: one more and one
less are tried for what all numbers that learn have in common, by the product of the attributes' variances.

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
    """What is asked of a collector."""

    def periods(self, survey: Survey) -> dict[int, int]:
        """How many reports were counted in each period."""

    def is_closed(self, survey: Survey, period: int) -> bool:
        """Whether a period takes no reports any more."""

    def tallies(self, survey: Survey, periods: Sequence[int]) -> list[Tally]:
        """What was counted, of the survey's own text and of its follow-ups."""


def sources(survey: Survey, period: int) -> list[int]:
    """The periods whose reports shape the follow-up of a period."""
    waves = _waves(survey)
    number = survey.checked_period(period)
    if waves.source == FIRST_WAVE:
        return [number]
    if not number:
        raise ParameterError("period must be > 0: all report by the survey's own mechanisms in the first")
    return [number - 1]


def learn(survey: Survey, periods: Sequence[int], collector: Counting, record: Record) -> None:
    """Enter into the ledger, before anything is made of it, that the reports of these periods are looked at.

    Raises:
        LedgerError: it could not be entered; nothing may be looked at.
    """
    closed = {period: collector.is_closed(survey, period) for period in periods}
    counts = collector.periods(survey)  # of a closed period this is its last word
    told = {period: counts.get(period, 0) if is_closed else None for period, is_closed in closed.items()}
    record.learn(of_survey(survey), told)


def follow_up(survey: Survey, period: int, collector: Counting, record: Record) -> Survey:
    """The follow-up of a period, to be signed: recorded, then looked at, then solved for.

    Args:
        survey: one that learns.
        period: that it is for.
        collector: that counted its reports.
        record: the operator's, where it is entered first that they are looked at.

    Raises:
        LedgerError: it could not be entered. Nothing was looked at.
        ParameterError: the survey does not learn, or nobody reported yet what it learns from.
    """
    shaping = sources(survey, period)
    learn(survey, shaping, collector, record)
    return shaped(survey, period, collector.tallies(survey, shaping))


def shaped(survey: Survey, period: int, tallies: Sequence[Tally]) -> Survey:
    """The follow-up that counts give; of reports that were published."""
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
    """The mechanism of a number that learns, where a report holds `size` attributes."""
    from reticent.mechanisms.numeric.tailored import Tailored

    each, regret = epsilon_each(survey.epsilon, size), _waves(survey).regret
    if each < LEAST_EPSILON:
        return Optimal(epsilon=each, bounds=bounds)
    return Tailored(epsilon=each, prior=shape.prior, regret=regret, bounds=bounds)


def expected_errors(survey: Survey, follow: Survey, place: int, devices: int) -> tuple[float, float]:
    """The standard errors that are expected of so many devices if the guess is right: learning, and not.

    The first wave by the survey's own mechanism and the others by the follow-up's, against all by the former.
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
    """The variance of a report, averaged over a guess."""
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
    """What was reported of an attribute, text by text."""
    rounds: list[Round] = []
    for tally in tallies:
        instrument = tally.survey.instruments[place]
        assert isinstance(instrument, NumericChannel)
        rounds.append((instrument, tally.counts[place].sum(axis=0)))
    return rounds


def _sample_size(survey: Survey, shares: Mapping[int, Floats], common: Shape) -> int:
    """How many attributes a report of the second wave holds: as many as in the survey, one more or one less.

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
    """The mechanisms of all attributes where a report holds `size` of them: the survey's own, or the best."""
    if size == survey.sample_size:
        return survey.instruments
    record = RecordOfOne(survey.attributes, survey.epsilon, size)
    return tuple(record.mechanisms[one.name] for one in survey.attributes)
