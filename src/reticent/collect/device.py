"""Devices that answer surveys: one private report in each period, or a refusal on public grounds alone.

A device is a total function of its data (mathematics 4.1): missing, odd and endless values are reported like
any other. It refuses only for reasons that everybody may know: a survey that is not signed, does not keep its
guarantee or asks for more than the owner allows; a period outside of the survey; a spent ledger; a follow-up
that did not come yet (`waves`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.collect.survey import Survey
from reticent.collect.wire import Layout
from reticent.collect.wire import report as whole_report
from reticent.errors import GuaranteeError, ParameterError
from reticent.fleet.memory import ByNumber
from reticent.fleet.published import ID_BYTES
from reticent.fleet.reporter import Reporter
from reticent.mechanisms.attributes import Number
from reticent.mechanisms.base import Channel
from reticent.randomness import Stream, secure_or

if TYPE_CHECKING:  # rarely needed
    from reticent.fleet.counted import Counted

ACCOUNT = "reports"
NONCE_BYTES = 8


class Device(Reporter[Survey]):
    """An enrolled device that answers surveys and spends epsilon; see `Reporter`."""

    kind = Survey
    account = ACCOUNT
    part = "period"

    def take(self, file: bytes) -> Survey:
        """Accept a survey, or a follow-up of an accepted survey; see `Reporter.take`."""
        asked = super().take(file)
        if asked.follows is not None:
            self._following[asked.series, asked.follows.period] = asked
        return asked

    @cached_property
    def _following(self) -> dict[tuple[str, int], Survey]:
        """Follow-ups by the series and the period that they are for."""
        return {}

    def _check(self, survey: Survey) -> None:
        if survey.follows is not None:
            self._check_follow_up(survey, survey.follows.survey, survey.follows.period)
        if survey.epsilon > self._most:
            raise GuaranteeError(
                f"the survey asks for epsilon {survey.epsilon:g} a report, this device allows {self._most:g}"
            )
        try:
            for place in range(len(survey.attributes)):  # a mechanism that cannot draw must not be paid for
                self._drawn(survey, place, None, 0, secure_or(None))
        except Exception as error:
            raise GuaranteeError("a mechanism of the survey cannot draw") from error

    def _check_follow_up(self, survey: Survey, followed: bytes, period: int) -> None:
        held = self._taken.get(followed)
        if held is None:
            raise ParameterError(f"the survey that this text of {survey.name} follows must be taken first")
        survey.check_follows(held)
        other = self._following.get((survey.series, period))
        if other is not None and other.id != survey.id:
            raise GuaranteeError(f"period {period} of {survey.name} has another follow-up already")

    def report(self, survey: Survey, values: Mapping[str, Any], *, period: int | None = None) -> bytes:
        """Return the report of a period: paid for, drawn and stored, then given out; the same ever after.

        Args:
            survey: Survey that was accepted. If it learns and its draws put the device into the second wave,
                the device answers the follow-up of the period instead.
            values: Values by the names of attributes. Missing ones are reported too, see `Number` and
                `Category`; unknown names are ignored.
            period: Period of the survey; by default the current one.

        Raises:
            BudgetExceeded: the lifetime budget does not hold another report.
            ReportForgotten: one has left, as the collector says, and is not remembered.
            ParameterError: there is no such period, or its follow-up was not taken (`awaits`).
        """
        held = self._followed(survey)
        number = held.checked_period(held.period_at(time.time()) if period is None else period)
        is_first = self._is_first(held, number)
        if self.awaits(held, period=number):
            raise ParameterError(f"period {number} of {held.name} must have its follow-up: take it first")
        text = held if is_first else self._following.get((held.series, number), held)

        def drawn() -> bytes:
            named = b"" if is_first else text.id  # the follow-up that it answers, ever after
            return os.urandom(NONCE_BYTES) + named + self._body(Layout(text), values, number)

        said = bytes(self._once(text, number, drawn))
        nonce, body, identity = said[:NONCE_BYTES], said[NONCE_BYTES:], held.id
        if not is_first:
            identity, body = body[:ID_BYTES], body[ID_BYTES:]
        return whole_report(identity, self._enrolment, number, nonce, body)

    def awaits(self, survey: Survey, *, period: int) -> bool:
        """Return whether the report of a period waits for a follow-up that this device lacks."""
        held = self._followed(survey)
        number = held.checked_period(period)
        if self._is_first(held, number) or (held.series, number) in self._following:
            return False
        with self._guard:
            return self._memory(held).remembered(number) is None

    def _followed(self, survey: Survey) -> Survey:
        """Return the accepted survey; for a follow-up, the survey that it follows."""
        held = self._held(survey)
        return held if held.follows is None else self._taken[held.follows.survey]

    def _is_first(self, survey: Survey, period: int) -> bool:
        return survey.waves is None or bool(survey.is_first(self._reporter, period)[0])

    def has_reported(self, survey: Survey, *, period: int) -> bool:
        """Return whether the report of a period was paid for: giving it again costs nothing more.

        A report that was paid for and not drawn, because the device crashed, is drawn when it is next asked
        for.
        """
        held = self._held(survey)
        number = held.checked_period(period)
        with self._guard:
            return self._kept(held, self._head(held)).is_paid(number)

    def _kept(self, asked: Survey, head: str) -> ByNumber:
        """Build the storage of one report per period; the first release named no enrolment in its keys."""
        return ByNumber(self.ledger, self._terms, head, earlier_head=asked.series)

    def heed(self, survey: Survey, word: Counted) -> list[int]:
        """Apply a receipt of the collector: a counted report that is not stored here is never drawn.

        It is paid for all the same, since it has left. A collector that lies can only silence the device.

        Args:
            survey: Survey that was accepted.
            word: Receipt for this survey and this device's enrolment.

        Returns:
            The periods that were counted and that this device does not remember.
        """
        return self._heed(survey, word)

    def _number(self, survey: Survey, number: int) -> int:
        return survey.checked_period(number)

    def _price(self, survey: Survey) -> int:
        return survey.units

    def _body(self, layout: Layout, values: Mapping[str, Any], period: int) -> bytes:
        survey = layout.survey
        asked = self._asked(survey, period)
        drawn = [
            self._drawn(survey, place, values.get(survey.attributes[place].name), period, self._stream)
            for place in asked
        ]
        return layout.body(asked, drawn)

    def _drawn(self, survey: Survey, place: int, value: Any, period: int, stream: Stream) -> Any:
        """Draw the output of an attribute's mechanism for a value."""
        instrument: Any = survey.instruments[place]
        held = one_value(value, is_number=isinstance(survey.attributes[place], Number))
        if hasattr(instrument, "dither_levels"):
            level = survey.lots.dither(self._reporter, period, place, instrument.dither_levels)
            return instrument.sample(held, stream, dither=level)
        return (instrument.sample if isinstance(instrument, Channel) else instrument.perturb)(held, stream)

    @property
    def _reporter(self) -> Any:
        return np.frombuffer(self._enrolment.id, dtype=">u8").astype(np.uint64)

    def _asked(self, survey: Survey, period: int) -> list[int]:
        """Return the attributes to report: drawn by the survey or here, never chosen by the data."""
        size, of = survey.sample_size, len(survey.attributes)
        if survey.assigned:
            lot = survey.lots.attributes(self._reporter, period, size, of)[0]
            return [int(place) for place in np.flatnonzero(lot)]
        if size == of:
            return list(range(of))
        from reticent.mechanisms.sampling import sampled_attributes

        return [int(place) for place in sampled_attributes(1, of, size, self._stream)[0]]


def one_value(value: Any, *, is_number: bool) -> Any:
    """Return an array that holds one value, of whatever type."""
    held = np.empty(1, dtype=object)
    held[0] = np.nan if value is None and is_number else value
    return held
