"""Explanations of a survey, in sentences for its operator and for the people who answer."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence

from reticent.collect.instruments import worst_variance
from reticent.collect.shaping import expected_errors
from reticent.collect.survey import Survey
from reticent.collect.waves import FIRST_WAVE
from reticent.collect.wire import Layout
from reticent.errors import ParameterError
from reticent.mechanisms.numeric.base import NumericChannel
from reticent.mechanisms.record import Category

FLEET = 10_000  # devices for which errors are given


def explain(survey: Survey) -> list[str]:
    """Return one sentence for each fact about a survey that a person should know."""
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
        *_learning(survey),
        "The collector sees reports, never what was measured. Whether a device reports does not depend "
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


def _learning(survey: Survey) -> list[str]:
    """Explain how a survey learns, if it does."""
    waves = survey.waves
    if waves is None:
        return []
    others = "what that came to" if waves.source == FIRST_WAVE else "what the period before came to"
    who = f"{100 * waves.share:g} % of the devices, drawn by lot for each period,"
    if waves.source != FIRST_WAVE:
        who = f"In the first period all devices{f', later {who}' if waves.share else ''}"
    return [
        f"{who} report by the mechanisms below. The others wait for a follow-up, signed like the survey and "
        f"shaped by {others}, which is published first. It changes mechanisms alone, for "
        f"{_list(waves.learns)}. "
        "A device reports once in a period and pays once, at the same epsilon, whichever text it answers. "
        f"Whatever was reported, no value has more than {1.0 + waves.regret:g} times the least variance in "
        "the worst case."
    ]


def gains(survey: Survey, follow: Survey) -> list[str]:
    """Explain the expected gain of a follow-up, one sentence for each number that learns."""
    if follow.follows is None:
        raise ParameterError(f"follow must be a follow-up, got {follow.name}")
    sentences = []
    for name, mean, deviation in follow.follows.shapes:
        place = next(at for at, one in enumerate(survey.attributes) if one.name == name)
        of = survey.attributes[place]
        assert not isinstance(of, Category)
        with_it, without = expected_errors(survey, follow, place, FLEET)
        sentences.append(
            f"{name}: made for values around {of.middle + mean * of.half:.4g}, give or take "
            f"{deviation * of.half:.3g}. If that is so, {FLEET:,} devices give a standard error of "
            f"{with_it:.3g}, and {without:.3g} without learning."
        )
    return sentences


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def told(epsilon: float) -> str:
    """Explain what one report reveals about two equally likely answers."""
    return (
        f"It is private at epsilon {epsilon:g}: somebody who holds two answers equally likely and sees the "
        f"report is at most {sure(epsilon)} sure of one of them."
    )


def sure(epsilon: float) -> str:
    """Return the largest certainty about two equally likely answers, in percent."""
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
    """Return the standard error of an attribute's estimate from so many devices, in the worst case."""
    rate = survey.sample_size / len(survey.attributes)
    return math.sqrt(worst_variance(survey.instruments[place], rate) / (rate * devices))


def answer_bits(survey: Survey) -> int:
    """Return the largest number of bits that the answers of one report take."""
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
