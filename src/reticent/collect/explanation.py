"""What a survey means, in sentences for the people who decide on it: the operator and whoever answers."""

from __future__ import annotations

import datetime
import math

from reticent.collect.instruments import worst_variance
from reticent.collect.survey import Survey
from reticent.collect.wire import Layout
from reticent.mechanisms.numeric.base import NumericChannel
from reticent.mechanisms.record import Category

FLEET = 10_000  # devices, for which errors are told


def explain(survey: Survey) -> list[str]:
    """One sentence for each thing that a person should know."""
    total = survey.epsilon * survey.periods
    each, d = survey.sample_size, len(survey.attributes)
    chosen = "the survey draws which" if survey.assigned else "the device draws which, by chance"
    which = "all attributes" if each == d else f"{each} of {d} attributes; {chosen}"
    return [
        f"{survey.name}, version {survey.version}: {survey.purpose}",
        f"{survey.periods} periods of {_span(survey.period_s)} from {_moment(survey.start)} on; "
        "a device reports once in each, and says the same again if it is asked again.",
        f"One report holds {which}. {told(survey.epsilon)}",
        f"A device that answers in all periods spends epsilon {total:g} in all. {_warned(total)}",
        "Whoever collects sees reports, never what was measured. Whether a device reports does not depend "
        "on what it measured.",
        f"One report takes {Layout(survey).longest} bytes at most, "
        f"of which the answers take {answer_bits(survey)} bits.",
        *(
            f"{attribute.name}: {_what(survey, place)}, {type(instrument).__name__}, "
            f"{_bits(instrument.bits)}; {FLEET:,} devices give a standard error of "
            f"{standard_error(survey, place, FLEET):.3g}."
            for place, (attribute, instrument) in enumerate(
                zip(survey.attributes, survey.instruments, strict=True)
            )
        ),
    ]


def told(epsilon: float) -> str:
    """What one report reveals: how sure somebody can become who could not tell two answers apart."""
    return (
        f"It is private at epsilon {epsilon:g}: somebody who holds two answers equally likely and sees the "
        f"report is at most {sure(epsilon)} sure of one of them."
    )


def sure(epsilon: float) -> str:
    """How sure somebody becomes at most who held two answers equally likely, in percent."""
    odds = math.exp(min(epsilon, 700.0))
    share = odds / (1.0 + odds)
    return f"{100 * share:.1f} %" if share < 0.9995 else "nearly 100 %"


def _warned(total: float) -> str:
    if total <= 2.0:
        return f"All its reports together leave that at {sure(total)}."
    return (
        f"That allows {sure(total)} about somebody whose answer never changes: ask for fewer periods or a "
        "smaller epsilon, if that is too much."
    )


def standard_error(survey: Survey, place: int, devices: int) -> float:
    """Of the estimate of an attribute from so many devices, in the worst case over what they hold."""
    rate = survey.sample_size / len(survey.attributes)
    return math.sqrt(worst_variance(survey.instruments[place], rate) / (rate * devices))


def answer_bits(survey: Survey) -> int:
    """The most bits that the answers of one report take."""
    return sum(sorted((one.bits for one in survey.instruments), reverse=True)[: survey.sample_size])


def _what(survey: Survey, place: int) -> str:
    attribute = survey.attributes[place]
    if isinstance(attribute, Category):
        instrument = survey.instruments[place]
        assert not isinstance(instrument, NumericChannel)
        return f"one of {instrument.categories.size} values"
    return f"a number in [{attribute.bounds[0]:g}, {attribute.bounds[1]:g}]"


def _bits(bits: int) -> str:
    return "1 bit" if bits == 1 else f"{bits} bits"


def _span(seconds: int) -> str:
    for name, size in (("week", 604_800), ("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds % size == 0:
            return f"{seconds // size} {name}{'s' if seconds > size else ''}"
    return f"{seconds} second{'s' if seconds > 1 else ''}"


def _moment(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
