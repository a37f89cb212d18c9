"""What runs where the data are: one private report in each period, or none on public grounds alone.

A device is a total function of its data (MATH.md 7.1): missing, odd and endless values are reported like any
other. It refuses only for what everybody may know: a survey that is not signed, does not keep its guarantee
or asks for more than the owner allows; a period outside of the survey; a spent ledger.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from reticent.arguments import real
from reticent.collect.signing import verified
from reticent.collect.survey import Survey
from reticent.collect.wire import Layout
from reticent.errors import GuaranteeError, ParameterError, ReportForgotten
from reticent.fleet.counted import FORGOTTEN, Counted
from reticent.fleet.enrolment import Enrolment
from reticent.ledger.base import Amount, Terms, Unit
from reticent.ledger.device.ledger import Budgeted
from reticent.ledger.device.marks import Marks
from reticent.mechanisms.attributes import Number
from reticent.mechanisms.base import Channel
from reticent.privacy.budget import cap_units
from reticent.privacy.neighbours import Neighbours
from reticent.randomness import Stream, secure_or

ACCOUNT = "reports"
NONCE_BYTES = 8


class Device(Budgeted):
    """One enrolled device and its lifetime budget.

    Args:
        path: the device's ledger, one file; made if there is none.
        enrolment: what the operator gave it.
        signer: the public key (32 bytes) whose surveys it answers.
        lifetime: the epsilon that its reports may spend in all, over all surveys; fixed with the ledger.
        most: the epsilon that it allows a single report.
        rng: None for secure randomness; a SimulationStream in tests and simulations.
        marks: where it is remembered what has left, apart from the ledger; None for the usual place.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        enrolment: Enrolment,
        signer: bytes,
        *,
        lifetime: float,
        most: float = 4.0,
        rng: Stream | None = None,
        marks: Marks | None = None,
    ) -> None:
        self._enrolment, self._signer = enrolment, signer
        self._most = real("most", most, low=0.0, open_low=True)
        self._stream = secure_or(rng)
        cap = cap_units(real("lifetime", lifetime, low=0.0, open_low=True))
        self._layouts: dict[bytes, Layout] = {}
        self._guard = threading.Lock()
        super().__init__(
            path,
            Terms(ACCOUNT, Unit.EPSILON, Neighbours.ANY_TWO_VALUES, "the person behind this device", cap),
            enrolment.key,
            marks,
        )

    def take(self, file: bytes) -> Survey:
        """Take part in a signed survey, if it keeps what it says and asks no more than is allowed.

        Raises:
            GuaranteeError, ParameterError: it does not; nothing was sent or spent.
        """
        survey = verified(file, self._signer)
        if survey.epsilon > self._most:
            raise GuaranteeError(
                f"the survey asks for epsilon {survey.epsilon:g} a report, this device allows {self._most:g}"
            )
        try:
            for place in range(len(survey.attributes)):  # what cannot draw must not be paid for
                self._drawn(survey, place, None, 0, secure_or(None))
        except Exception as error:
            raise GuaranteeError("a mechanism of the survey cannot draw") from error
        self._layouts[survey.id] = Layout(survey)
        return survey

    def report(self, survey: Survey, values: Mapping[str, Any], *, period: int | None = None) -> bytes:
        """The report of a period: paid for, drawn, remembered, then given out. The same one, ever after.

        Args:
            survey: one that was taken.
            values: by the names of attributes. Missing ones are reported too, see `Number` and `Category`;
                others are passed over.
            period: of the survey; by default the one that it is now.

        Raises:
            BudgetExceeded: the lifetime budget does not hold another report.
            ReportForgotten: one has left, as the collector says, and is not remembered.
            ParameterError: there is no such period.
        """
        layout = self._layouts.get(survey.id)
        if layout is None:
            raise ParameterError(f"survey must be one that this device took, got {survey.name}")
        survey = layout.survey
        number = survey.checked_period(survey.period_at(time.time()) if period is None else period)
        key = self._key(survey, number)
        with self._guard:
            content = self.ledger.recorded(ACCOUNT, key)
            if self._is_forgotten(self._head(survey), number, content):
                raise ReportForgotten(f"period {number} of {survey.name}: {FORGOTTEN}")
            if content is None:
                information = Amount(survey.units, Unit.EPSILON, Neighbours.ANY_TWO_VALUES)
                grant = self.ledger.request(ACCOUNT, key, information)
                drawn = os.urandom(NONCE_BYTES) + self._body(layout, values, number)
                self.ledger.fulfil(grant.pending[0].number, list(drawn))
                content = tuple(drawn)
        held = bytes(content)
        return layout.report(self._enrolment, number, held[:NONCE_BYTES], held[NONCE_BYTES:])

    def heed(self, survey: Survey, word: Counted) -> list[int]:
        """Take the collector's word on what it has counted: what is not remembered is never drawn.

        It is paid for all the same, since it has left. A liar can only silence.

        Args:
            survey: one that was taken.
            word: on this survey and this device's enrolment.

        Returns:
            The periods that were counted and that this device does not remember.
        """
        layout = self._layouts.get(survey.id)
        if layout is None:
            raise ParameterError(f"survey must be one that this device took, got {survey.name}")
        survey = layout.survey
        word.check(f"survey:{survey.id.hex()}", self._enrolment)
        periods = [survey.checked_period(one) for one in word.periods]
        amount = Amount(survey.units, Unit.EPSILON, Neighbours.ANY_TWO_VALUES)
        with self._guard:
            lost = [one for one in periods if not self.ledger.recorded(ACCOUNT, self._key(survey, one))]
            for one in lost:
                if self.ledger.recorded(ACCOUNT, self._key(survey, one)) is None:
                    self._settle(amount, self._key(survey, one))
            self._close(self._head(survey), word.closed)
        return lost

    def _key(self, survey: Survey, period: int) -> str:
        return f"{self._head(survey)}/{period}"

    def _head(self, survey: Survey) -> str:
        return f"{survey.id.hex()}/{self._enrolment.id.hex()}"

    def _body(self, layout: Layout, values: Mapping[str, Any], period: int) -> bytes:
        survey = layout.survey
        asked = self._asked(survey, period)
        drawn = [
            self._drawn(survey, place, values.get(survey.attributes[place].name), period, self._stream)
            for place in asked
        ]
        return layout.body(asked, drawn)

    def _drawn(self, survey: Survey, place: int, value: Any, period: int, stream: Stream) -> Any:
        """What the mechanism of an attribute says of a value."""
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
        """Which attributes are reported: by the survey's lot, or drawn here; never by the data."""
        size, of = survey.sample_size, len(survey.attributes)
        if survey.assigned:
            lot = survey.lots.attributes(self._reporter, period, size, of)[0]
            return [int(place) for place in np.flatnonzero(lot)]
        if size == of:
            return list(range(of))
        from reticent.mechanisms.sampling import sampled_attributes

        return [int(place) for place in sampled_attributes(1, of, size, self._stream)[0]]

    @property
    def spent(self) -> float:
        """The epsilon that this device's reports have spent in all."""
        return self.ledger.balance(ACCOUNT).spent / 1e12


def one_value(value: Any, *, is_number: bool) -> Any:
    """A vector of one value, whatever the value is."""
    held = np.empty(1, dtype=object)
    held[0] = np.nan if value is None and is_number else value
    return held
