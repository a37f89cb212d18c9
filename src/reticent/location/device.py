"""What runs on a phone: one private report of a place in each round, within a lifetime budget per kilometre.

A device is a total function of where it is (MATH.md 7.1): points outside of the box, missing and odd ones are
reported like any other. It refuses only for what everybody may know: a round that is not signed, claims more
than it keeps or asks for more than the owner allows; a spent ledger.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from reticent.arguments import real
from reticent.errors import GuaranteeError, ParameterError, ReportForgotten
from reticent.fleet.counted import FORGOTTEN, Counted
from reticent.fleet.enrolment import Enrolment
from reticent.ledger.base import Amount, Terms, Unit
from reticent.ledger.device.ledger import Budgeted
from reticent.ledger.device.marks import Marks
from reticent.location import payload
from reticent.location.rounds import PlaceRound, verified
from reticent.mechanisms.numeric.base import as_floats
from reticent.privacy import Neighbours
from reticent.privacy.budget import cap_units
from reticent.randomness import Stream, secure_or

ACCOUNT = "places"


class LocationDevice(Budgeted):
    """One enrolled device and its lifetime budget.

    Args:
        path: the device's ledger, one file; made if there is none.
        enrolment: what the operator gave it.
        signer: the public key (32 bytes) whose rounds it answers.
        lifetime_per_km: the level that its reports may spend in all, in 1/km; fixed with the ledger.
        most_per_km: the level that it allows a single report.
        most_jump_km: the largest `Grid.jump` that it allows. A level holds between the centres of cells; two
            points d apart keep lifetime_per_km times (d + most_jump_km) in all, whatever grids are asked.
        rng: None for secure randomness; a SimulationStream in tests and simulations.
        marks: where it is remembered what has left, apart from the ledger; None for the usual place.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        enrolment: Enrolment,
        signer: bytes,
        *,
        lifetime_per_km: float,
        most_per_km: float = 4.0,
        most_jump_km: float = 2.5,
        rng: Stream | None = None,
        marks: Marks | None = None,
    ) -> None:
        self._enrolment, self._signer = enrolment, signer
        self._most = real("most_per_km", most_per_km, low=0.0, open_low=True)
        self._most_jump = real("most_jump_km", most_jump_km, low=0.0, open_low=True)
        self._stream = secure_or(rng)
        cap = cap_units(real("lifetime_per_km", lifetime_per_km, low=0.0, open_low=True))
        self._guard = threading.Lock()
        self._taken: dict[bytes, PlaceRound] = {}
        super().__init__(
            path,
            Terms(ACCOUNT, Unit.EPSILON_PER_KM, Neighbours.METRIC, "the person behind this device", cap),
            enrolment.key,
            marks,
        )

    def take(self, file: bytes) -> PlaceRound:
        """Take part in a signed round, if it keeps what it says and asks no more than is allowed.

        Raises:
            GuaranteeError, ParameterError: it does not; nothing was sent or spent.
        """
        asked = verified(file, self._signer)
        if asked.channel.level > self._most:
            raise GuaranteeError(
                f"the round asks for {asked.channel.level:g} per km, this device allows {self._most:g}"
            )
        if asked.grid.jump > self._most_jump:
            raise GuaranteeError(
                f"the round's cells take points {asked.grid.jump:g} km farther apart, this device allows "
                f"{self._most_jump:g}"
            )
        self._taken[asked.id] = asked
        return asked

    def report(self, asked: PlaceRound, latitude: Any, longitude: Any) -> bytes:
        """The report of a round: paid for, drawn, remembered, then given out. The same one, ever after.

        Raises:
            BudgetExceeded: the lifetime budget does not hold another report.
            ReportForgotten: one has left, as the collector says, and is not remembered.
            ParameterError: the round was not taken.
        """
        held = self._taken.get(asked.id)
        if held is None:
            raise ParameterError(f"round must be one that this device took, got {asked.name} {asked.number}")
        key = self._key(held, held.number)
        with self._guard:
            content = self.ledger.recorded(ACCOUNT, key)
            if self._is_forgotten(self._head(held), held.number, content):
                raise ReportForgotten(f"round {held.number} of {held.name}: {FORGOTTEN}")
            if content is None:
                information = Amount(held.units, Unit.EPSILON_PER_KM, Neighbours.METRIC)
                grant = self.ledger.request(ACCOUNT, key, information)
                content = (self._drawn(held, latitude, longitude), int.from_bytes(held.id[:7], "big"))
                self.ledger.fulfil(grant.pending[0].number, list(content))
        if content[1] != int.from_bytes(held.id[:7], "big"):
            raise ParameterError(f"round {held.number} of {held.name} was answered under another text")
        return payload.written(held, self._enrolment, int(content[0]))

    def heed(self, asked: PlaceRound, word: Counted) -> list[int]:
        """Take the collector's word on the rounds that it has counted: what is not remembered is never drawn.

        It is paid for all the same, at the level of this round, since it has left. A liar can only silence.

        Args:
            asked: a round that was taken, of the same campaign.
            word: on this campaign and this device's enrolment.

        Returns:
            The rounds that were counted and that this device does not remember.
        """
        held = self._taken.get(asked.id)
        if held is None:
            raise ParameterError(f"round must be one that this device took, got {asked.name} {asked.number}")
        word.check(f"campaign:{held.name}", self._enrolment)
        if any(one >= held.rounds for one in word.periods):
            raise ParameterError(f"counted must be rounds below {held.rounds}")
        amount = Amount(held.units, Unit.EPSILON_PER_KM, Neighbours.METRIC)
        with self._guard:
            lost = [one for one in word.periods if not self.ledger.recorded(ACCOUNT, self._key(held, one))]
            for one in lost:
                if self.ledger.recorded(ACCOUNT, self._key(held, one)) is None:
                    self._settle(amount, self._key(held, one))
            self._close(self._head(held), word.closed)
        return lost

    def _key(self, asked: PlaceRound, number: int) -> str:
        """One report for each round of a campaign, whatever text it is published under."""
        return f"{self._head(asked)}/{number}"

    def _head(self, asked: PlaceRound) -> str:
        return f"{asked.name}/{self._enrolment.id.hex()}"

    def _drawn(self, asked: PlaceRound, latitude: Any, longitude: Any) -> int:
        cell = asked.grid.cells(_one(latitude), _one(longitude))
        return int(asked.channel.sample(cell, self._stream)[0])

    @property
    def spent_per_km(self) -> float:
        """The level that this device's reports have spent in all."""
        return self.ledger.balance(ACCOUNT).spent / 1e12


def _one(value: Any) -> Any:
    """One number in an array, whatever the value is."""
    try:
        return as_floats([value]).reshape(-1)[[0]]
    except Exception:  # a total function of where the device is
        return np.array([np.nan])
