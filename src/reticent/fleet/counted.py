"""A collector's word on which periods of an enrolment it has counted, for devices that may have forgotten.

A device that was put back together with all its marks cannot know what it sent. Whoever counted it can. It
takes that word and draws nothing for those periods any more: what it remembers it sends again as it was, what
it does not is paid for, as it has left, and never drawn. So a liar can only silence, and make a device pay
what a survey could make it pay anyway; the word needs no signature.

A device asks with a tag of its key: whether somebody reported is not told to everybody.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass
from typing import Any

from reticent.errors import ParameterError
from reticent.fleet.enrolment import ID_BYTES, TAG_BYTES, Enrolment, Use, device_key, tag

FORGOTTEN = "its collector counts no other report, and this device does not hold the one that it has counted"
MOST = 1 << 17  # periods in a word
_HIGHEST = 1 << 32


@dataclass(frozen=True)
class Counted:
    """What a collector says.

    Args:
        study: `survey:<id>`, `campaign:<name>` or `training:<id>`.
        enrolment: the id of whom it is about.
        periods: that were counted.
        closed: periods before this one take no reports any more, and who reported there may be forgotten.
    """

    study: str
    enrolment: bytes
    periods: tuple[int, ...]
    closed: int = 0

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "study": self.study,
            "enrolment": self.enrolment.hex(),
            "counted": list(self.periods),
            "closed": self.closed,
        }

    def to_json(self) -> str:
        """The text that a device is given."""
        return json.dumps(self.fields())

    @classmethod
    def from_json(cls, text: str | bytes) -> Counted:
        """A word from its text."""
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
        """Refuse a word on something or somebody else."""
        if self.study != study:
            raise ParameterError(f"the word must be on {study}, got one on {self.study!r:.100}")
        if self.enrolment != enrolment.id:
            raise ParameterError("the word must be on the enrolment of this device, got one on another")


def question(enrolment: Enrolment, study: str) -> bytes:
    """What a device asks with: its id, and a tag that no other can make."""
    return enrolment.id + tag(enrolment.key, Use.COUNTED, study.encode())


def asker(master: bytes, study: str, asked: bytes) -> bytes | None:
    """The id of the enrolment that asks; None if it is none of this master's."""
    if len(asked) != ID_BYTES + TAG_BYTES:
        return None
    identity, sent = asked[:ID_BYTES], asked[ID_BYTES:]
    due = tag(device_key(master, identity), Use.COUNTED, study.encode())
    return identity if hmac.compare_digest(due, sent) else None
