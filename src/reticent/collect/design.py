"""Design of a survey: the best mechanism for each attribute, and how many attributes a report should hold.

This module solves and searches, which is the operator's work; devices get the result (`survey`,
`instruments`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence

from reticent.collect import instruments
from reticent.collect.instruments import Instrument
from reticent.collect.survey import Survey
from reticent.collect.waves import Waves
from reticent.errors import ParameterError
from reticent.fleet.lots import KEY_BYTES
from reticent.mechanisms.catalogue import loaded
from reticent.mechanisms.numeric.priors import Guess, as_prior
from reticent.mechanisms.record import Attribute, Category, Number, Record
from reticent.mechanisms.sampling import epsilon_each, sample_sizes


def designed(
    name: str,
    attributes: Sequence[Attribute],
    *,
    epsilon: float,
    purpose: str,
    start: int,
    period_s: int,
    periods: int,
    version: str = "1",
    sample_size: int | None = None,
    assigned: bool = False,
    groups: int = 1,
    mechanisms: Mapping[str, str | Instrument] | None = None,
    guesses: Mapping[str, Guess] | None = None,
    regret: float | None = None,
    waves: Waves | None = None,
) -> Survey:
    """Design a survey whose mechanisms have the least variance.

    Args:
        name: Name of the survey; see `Survey`, also for arguments that are not listed here.
        attributes: Attributes of a record.
        epsilon: LDP level of the report of one period.
        purpose: Reason for the survey, in words for the person behind a device.
        start: Beginning of the first period, in seconds since 1970.
        period_s: Length of a period in seconds.
        periods: Number of periods.
        version: Version of the survey's text.
        sample_size: Number of attributes in a report; the number of least variance if not given.
        assigned: True if the survey draws which attributes a device reports.
        groups: Number of groups of reporters, a power of two.
        mechanisms: Kind of mechanism to take instead of the best, by attribute; or the mechanism itself, such
            as a `Tailored` for a guess.
        guesses: Guess of where the values of a number lie, by its name: its mechanism is a `Tailored` for
            that, and the number of attributes in a report is chosen together with it.
        regret: Regret of these mechanisms; none if not given.
        waves: Waves of a survey that learns, if it does.
    """
    chosen: dict[str, str | Instrument] = dict(mechanisms or {})
    if guesses and sample_size is None:
        sample_size = _sample_size(attributes, epsilon, guesses, regret)
    record = Record(attributes, epsilon, sample_size)
    by_name = {attribute.name: attribute for attribute in record.attributes}
    for guessed, guess in (guesses or {}).items():
        number = by_name.get(guessed)
        if not isinstance(number, Number) or guessed in chosen:
            raise ParameterError(f"guesses must be of numbers without another mechanism, got {guessed!r:.60}")
        chosen[guessed] = loaded("Tailored")(
            epsilon=record.epsilon_each, prior=guess, regret=regret, bounds=number.bounds
        )
    made: list[Instrument] = []
    for attribute in record.attributes:
        kind = chosen.pop(attribute.name, None)
        found = record.mechanisms[attribute.name]
        if isinstance(kind, str):
            found = _of_kind(attribute, kind, record.epsilon_each)
        elif kind is not None:
            found = kind
        made.append(found)
    if chosen:
        raise ParameterError(f"mechanisms must be of the attributes, got {next(iter(chosen))!r:.60}")
    return Survey(
        name=name,
        version=version,
        purpose=purpose,
        attributes=record.attributes,
        instruments=tuple(made),
        epsilon=record.epsilon,
        start=start,
        period_s=period_s,
        periods=periods,
        sample_size=record.sample_size,
        assigned=assigned,
        groups=groups,
        key=os.urandom(KEY_BYTES),
        waves=waves,
    )


def _sample_size(
    attributes: Sequence[Attribute], epsilon: float, guesses: Mapping[str, Guess], regret: float | None
) -> int:
    """Return the number of attributes in a report: the least product of their expected variances."""
    d = len(attributes)

    def objective(size: int) -> float:
        record, rate = Record(attributes, epsilon, size), size / d
        total = 0.0
        for one in record.attributes:
            variance = record.variances[one.name]
            if one.name in guesses and isinstance(one, Number):
                prior = as_prior(guesses[one.name])
                made = loaded("Tailored")(epsilon=epsilon_each(epsilon, size), prior=prior, regret=regret)
                spread = (1.0 - rate) * (prior.second_moment - prior.mean**2)
                variance = (made.expected_variance() + spread) / rate * one.half**2
            total += math.log(variance)
        return total

    sizes = sample_sizes(epsilon, d)
    if len(sizes) == 1:
        return sizes[0]
    own = Record(attributes, epsilon).sample_size
    return min((size for size in sizes if abs(size - own) <= 1), key=objective)


def _of_kind(attribute: Attribute, kind: str, epsilon: float) -> Instrument:
    """Build a mechanism of a given kind, and solve what must be solved for it."""
    if kind in ("Window", "Tailored") and not isinstance(attribute, Category):
        made: Instrument = loaded(kind)(epsilon=epsilon, bounds=attribute.bounds)
        return made
    return instruments.made(attribute, {"kind": kind, "epsilon": epsilon})
