"""Holds: before a device draws anything, the market promises in writing to pay for it.

A device asks for a level of a bill, with a tag of its key; the market sets the money aside and signs a hold.
The device checks it, pays its own ledger, draws, remembers, and sends the report. Money that is held for
nobody who comes in time is free again. A later ask for another level takes the place of the one before, an
older one does not: what somebody else sends again changes nothing. An enrolment has one sale of a bill, whose
id follows from both and from the operator's secret.

An ask is bytes:

    version      1   0x01
    bill         8   its id
    reporter     8   the enrolment's id
    place        1   of the level
    asked        8   milliseconds since 1970, big-endian
    tag         16   HMAC-SHA256 under the reporter's key of the label of holds and everything before, cut
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.arguments import whole
from reticent.errors import GuaranteeError, ParameterError
from reticent.fleet import texts
from reticent.fleet.enrolment import ID_BYTES, TAG_BYTES, Enrolment, Use, tag
from reticent.fleet.signing import opened, sealed
from reticent.market.bills import LATEST, Bill
from reticent.market.menus import MOST_CENTS
from reticent.market.offers import MOST_POINTS
from reticent.market.outcomes import HoldOutcome
from reticent.privacy import MAX_UNITS

FORMAT = 1
VERSION = 1
SALE_BYTES = 16
ASK_BYTES = 1 + ID_BYTES + ID_BYTES + 1 + 8 + TAG_BYTES
NEAR_S = 600  # how far the clock of a device may be from the market's
_FIELD, _HEAD = "hold", b"reticent-hold/v1\n"
_LABEL = b"reticent-sale/v1"
_NAMES = ("bill", "cents", "expires", "format", "place", "reporter", "sale", "units")
_LONGEST = 4096


def sale_id(master: bytes, bill: bytes, reporter: bytes) -> bytes:
    """Return the id of the one sale of an enrolment to a bill: for others it is as if drawn at random."""
    return hmac.digest(master, _LABEL + bill + reporter, "sha256")[:SALE_BYTES]


def ask(enrolment: Enrolment, bill: Bill, place: int, now: float) -> bytes:
    """Build the signed message by which a device asks for a level of a bill."""
    number = whole("place", place, low=0, high=len(bill.levels) - 1)
    asked = whole("now", int(now * 1000), low=0, high=1000 * LATEST)
    content = b"".join((bytes([VERSION]), bill.id, enrolment.id, bytes([number]), asked.to_bytes(8, "big")))
    return content + tag(enrolment.key, Use.HOLD, content)


@dataclass(frozen=True)
class Hold:
    """Money that is set aside for a report.

    Attributes:
        bill: Id of the bill.
        sale: Id of the sale.
        reporter: Id of the enrolment.
        place: Index of the level.
        units: Units of epsilon, as the level says.
        cents: Cents that are paid.
        expires: Time by which the report must be there, in seconds since 1970.
    """

    bill: bytes
    sale: bytes
    reporter: bytes
    place: int
    units: int
    cents: int
    expires: int

    def signed(self, key: Ed25519PrivateKey) -> bytes:
        """Return the file that a device gets."""
        fields = {
            "bill": self.bill.hex(),
            "cents": self.cents,
            "expires": self.expires,
            "format": FORMAT,
            "place": self.place,
            "reporter": self.reporter.hex(),
            "sale": self.sale.hex(),
            "units": self.units,
        }
        return sealed(_FIELD, _HEAD, texts.written(fields), key)

    @classmethod
    def verified(cls, file: bytes, signer: bytes) -> Hold:
        """Return the hold of a file, if this signer signed it.

        Raises:
            ParameterError, GuaranteeError: it is none.
        """
        given = texts.read(
            opened(_FIELD, _HEAD, file, signer, most=_LONGEST), _NAMES, what=_FIELD, most=_LONGEST
        )
        if given["format"] != FORMAT or isinstance(given["format"], bool):
            raise ParameterError(f"format must be {FORMAT}, got {given['format']!r:.60}")
        return cls(
            bill=_bytes("bill", given["bill"], ID_BYTES),
            sale=_bytes("sale", given["sale"], SALE_BYTES),
            reporter=_bytes("reporter", given["reporter"], ID_BYTES),
            place=whole("place", given["place"], low=0, high=MOST_POINTS - 1),
            units=whole("units", given["units"], low=1, high=MAX_UNITS),
            cents=whole("cents", given["cents"], low=1, high=MOST_CENTS),
            expires=whole("expires", given["expires"], low=0, high=LATEST),
        )

    def check(self, bill: Bill, place: int, reporter: bytes, now: float) -> None:
        """Refuse a hold of another sale, for less money or more epsilon, or one that has ended.

        Raises:
            GuaranteeError: it is not what was asked for; nothing may be drawn.
        """
        level = bill.levels[place]
        for field, got, due in (
            ("bill", self.bill.hex(), bill.id.hex()),
            ("reporter", self.reporter.hex(), reporter.hex()),
            ("place", self.place, place),
            ("units", self.units, level.units),
            ("cents", self.cents, level.cents),
        ):
            if got != due:
                raise GuaranteeError(f"the hold must be of {field} {due}, got {got}")
        if now >= self.expires:
            raise GuaranteeError(f"the hold ended {int(now - self.expires)} seconds ago")


def _bytes(field: str, given: Any, size: int) -> bytes:
    found = texts.hexadecimal(field, given)
    if len(found) != size:
        raise ParameterError(f"{field} must be {2 * size} hexadecimal digits")
    return found


class Forms:
    """The form of asks, by which the intake judges them.

    Args:
        bills: Ids of the known bills; looked at with each ask.
    """

    use, outcomes, start_bytes = Use.HOLD, HoldOutcome, 1 + ID_BYTES
    reporter = slice(1 + ID_BYTES, 1 + 2 * ID_BYTES)

    def __init__(self, bills: Any) -> None:
        self._bills = bills

    def fault(self, length: int, start: bytes) -> HoldOutcome | None:
        """Return the fault of all asks that have this length and beginning, or None."""
        if start[:1] != bytes([VERSION]):
            return HoldOutcome.VERSION
        if length != ASK_BYTES:
            return HoldOutcome.LENGTH
        return None if start[1:] in self._bills else HoldOutcome.BILL
