"""The code on a phone: one private report of a place in each round, within a lifetime budget per kilometre.

A device is a total function of where it is (mathematics 4.1): points outside of the box, missing and odd
ones are reported like any other. It refuses only for what everybody may know: a round that is not signed,
claims more than it keeps or asks for more than the owner allows; a spent ledger.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, Unpack

from reticent.arguments import real
from reticent.errors import GuaranteeError, ParameterError
from reticent.fleet.enrolment import Enrolment
from reticent.fleet.reporter import Kept
from reticent.ledger.device.lifetime import Reach
from reticent.location import payload
from reticent.location.reporter import ACCOUNT as ACCOUNT
from reticent.location.reporter import PlaceReporter, one_number
from reticent.location.rounds import PlaceRound

if TYPE_CHECKING:  # few are told
    from reticent.fleet.counted import Counted


class LocationDevice(PlaceReporter[PlaceRound]):
    """One enrolled device that says where it is, see `Reporter`.

    Args:
        path: and what is not listed here, see `Reporter`.
        lifetime_per_km: the level that its reports may spend in all, in 1/km; fixed with the ledger.
        most_per_km: the level that it allows a single report.
        most_jump_km: the largest `Grid.jump` that it allows. A level holds between the centres of cells; two
            points d apart keep lifetime_per_km times (d + most_jump_km) in all, whatever grids are asked.
    """

    kind = PlaceRound

    def __init__(
        self,
        path: str | os.PathLike[str],
        enrolment: Enrolment,
        signer: bytes,
        *,
        most_jump_km: float = 2.5,
        lifetime_per_km: float,
        most_per_km: float = 4.0,
        **kept: Unpack[Kept],
    ) -> None:
        self._most_jump = real("most_jump_km", most_jump_km, low=0.0, open_low=True)
        super().__init__(path, enrolment, signer, lifetime=lifetime_per_km, most=most_per_km, **kept)

    def _check(self, asked: PlaceRound) -> None:
        if asked.channel.level > self._most:
            raise GuaranteeError(
                f"the round asks for {asked.channel.level:g} per km, this device allows {self._most:g}"
            )
        if asked.grid.jump > self._most_jump:
            raise GuaranteeError(
                f"the round's cells take points {asked.grid.jump:g} km farther apart, this device allows "
                f"{self._most_jump:g}"
            )

    def report(self, asked: PlaceRound, latitude: Any, longitude: Any) -> bytes:
        """The report of a round: paid for, drawn, remembered, then given out. The same one, ever after.

        Raises:
            BudgetExceeded: the lifetime budget does not hold another report.
            ReportForgotten: one has left, as the collector says, and is not remembered.
            ParameterError: the round was not taken.
        """
        held = self._held(asked)
        text = int.from_bytes(held.id[:7], "big")
        cell, *_, answered = self._once(
            held, held.number, lambda: (self._drawn(held, latitude, longitude), text)
        )
        if answered != text:
            raise ParameterError(f"round {held.number} of {held.name} was answered under another text")
        return payload.written(held, self._enrolment, cell)

    def heed(self, asked: PlaceRound, word: Counted) -> list[int]:
        """Take the collector's word on the rounds that it has counted: what is not remembered is never drawn.

        It is paid for all the same, at the level of this round, since it has left. A liar can only silence.

        Args:
            asked: a round that was taken, of the same campaign.
            word: on this campaign and this device's enrolment.

        Returns:
            The rounds that were counted and that this device does not remember.
        """
        return self._heed(asked, word)

    def _number(self, asked: PlaceRound, number: int) -> int:
        if number >= asked.rounds:
            raise ParameterError(f"counted must be rounds below {asked.rounds}")
        return number

    def _price(self, asked: PlaceRound) -> int:
        return asked.units

    def _reach(self, asked: PlaceRound) -> Reach:
        """Cells take two points at most the jump farther apart."""
        return lambda distance_km: math.nextafter(distance_km + asked.grid.jump, math.inf)

    def _drawn(self, asked: PlaceRound, latitude: Any, longitude: Any) -> int:
        cell = asked.grid.cells(one_number(latitude), one_number(longitude))
        return int(asked.channel.sample(cell, self._stream)[0])
