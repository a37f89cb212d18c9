"""A collector's receipt for the periods of an enrolment that it has counted.

A device that was restored from a backup, ledger and marks together, cannot know what it has sent. The
collector that counted its reports can. The device applies the receipt and draws no report for those periods
any more: a report that it remembers is sent again unchanged; a report that it has lost is paid for, since it
has left, and never drawn. So a collector that lies can only silence a device, and make it pay what a survey
could make it pay anyway; the receipt needs no signature.

A device asks with a tag of its key, so that nobody else learns whether it reported.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass
from typing import Any

from reticent.errors import ParameterError
from reticent.fleet.enrolment import ID_BYTES, TAG_BYTES, Enrolment, Use, device_key, tag

FORGOTTEN = "its collector counts no other report, and this device does not hold the one that it has counted"
MOST = 1 << 17  # periods in a receipt
_HIGHEST = 1 << 32


@dataclass(frozen=True)
class Counted:
    """A collector's receipt for the periods that it has counted for one enrolment.

    Args:
        study: Name of the study: `survey:<id>`, `campaign:<name>` or `training:<id>`.
        enrolment: Id of the enrolment that the receipt is about.
        periods: Numbers of the periods that were counted.
        closed: First period that still takes reports; the reporters of earlier periods may be forgotten.
    """

    study: str
    enrolment: bytes
    periods: tuple[int, ...]
    closed: int = 0

    def fields(self) -> dict[str, Any]:
        """Return the fields of the receipt, ready for JSON."""
        return {
            "study": self.study,
            "enrolment": self.enrolment.hex(),
            "counted": list(self.periods),
            "closed": self.closed,
        }

    def to_json(self) -> str:
        """Return the JSON text that the device receives."""
        return json.dumps(self.fields())

    @classmethod
    def from_json(cls, text: str | bytes) -> Counted:
        """Parse a receipt from its JSON text."""
        try:
            given: Any = json.loads(text)
            found = cls(
                given["study"], bytes.fromhex(given["enrolment"]), tuple(given["counted"]), given["closed"]
            )
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ParameterError(
                "a word on what was counted must be JSON with study, enrolment, counted and closed"
            ) from error
        numbers = (*found.periods, found.closed)
        if len(numbers) > MOST or any(type(one) is not int or not 0 <= one < _HIGHEST for one in numbers):
            raise ParameterError(f"counted and closed must be at most {MOST} whole numbers of periods")
        return found

    def check(self, study: str, enrolment: Enrolment) -> None:
        """Refuse a receipt for another study or another enrolment."""
        if self.study != study:
            raise ParameterError(f"the word must be on {study}, got one on {self.study!r:.100}")
        if self.enrolment != enrolment.id:
            raise ParameterError("the word must be on the enrolment of this device, got one on another")


def question(enrolment: Enrolment, study: str) -> bytes:
    """Build the request for a receipt: the enrolment's id, and a tag that only its device can make."""
    return enrolment.id + tag(enrolment.key, Use.COUNTED, study.encode())


def asker(master: bytes, study: str, asked: bytes) -> bytes | None:
    """Return the id of the enrolment that asks for a receipt; None if its tag is not of this master key."""
    if len(asked) != ID_BYTES + TAG_BYTES:
        return None
    identity, sent = asked[:ID_BYTES], asked[ID_BYTES:]
    due = tag(device_key(master, identity), Use.COUNTED, study.encode())
    return identity if hmac.compare_digest(due, sent) else None
