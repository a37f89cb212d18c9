"""Enrolment of devices: an id and a key for each device, issued by the operator.

A device's key is HMAC-SHA256(master, "reticent-device/v1" || id), so that the collector stores one master key
and no list of keys. The key tags reports, and the tagged bytes begin with the label of their use: a tag made
for a survey is valid in no training and no campaign, whatever ids an operator chooses for them.

The operator draws ids at random: a device that could choose its id could choose its assignment in `lots`. A
device that takes part in several surveys may have an enrolment for each, so that its reports cannot be linked
across them.
"""

from __future__ import annotations

import hmac
import json
import os
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from reticent.errors import ParameterError

ID_BYTES = 8
KEY_BYTES = 32
TAG_BYTES = 16
LABEL = b"reticent-device/v1"
_HEX = re.compile(r"[0-9a-f]*", re.ASCII)


class Use(Enum):
    """The uses of a device's key. No label is a prefix of another, and none is ever given a new meaning."""

    SURVEY = b"reticent-survey-report/v2\n"
    PLACE = b"reticent-place-report/v2\n"
    TRAINING = b"reticent-training-report/v2\n"
    PERSONAL_TRAINING = b"reticent-personal-training-report/v2\n"
    COUNTED = b"reticent-counted-question/v1\n"
    STATIONS = b"reticent-station-request/v1\n"
    HOLD = b"reticent-hold-ask/v1\n"


@dataclass(frozen=True)
class Enrolment:
    """The id and the secret key that a device receives once."""

    id: bytes
    key: bytes

    def __post_init__(self) -> None:
        for field, size in (("id", ID_BYTES), ("key", KEY_BYTES)):
            given = getattr(self, field)
            if not isinstance(given, bytes) or len(given) != size:
                raise ParameterError(f"{field} must be {size} bytes")

    def __repr__(self) -> str:
        return f"Enrolment({self.id.hex()})"

    def to_json(self) -> str:
        """Return the JSON text that a device stores."""
        return json.dumps({"id": self.id.hex(), "key": self.key.hex()})

    @classmethod
    def from_json(cls, text: str) -> Enrolment:
        """Parse an enrolment from its JSON text."""
        try:
            given: Any = json.loads(text)
        except (ValueError, RecursionError):  # the error holds the text, which is secret
            raise ParameterError("an enrolment must be JSON") from None
        if not isinstance(given, dict) or set(given) != {"id", "key"}:
            raise ParameterError("an enrolment must have the fields id and key")
        for field in given.values():
            if not isinstance(field, str) or not _HEX.fullmatch(field) or len(field) % 2:
                raise ParameterError("an enrolment's id and key must be hexadecimal")
        return cls(bytes.fromhex(given["id"]), bytes.fromhex(given["key"]))


def device_key(master: bytes, identity: bytes) -> bytes:
    """Derive the key of an enrolled device from the master key."""
    return hmac.digest(master, LABEL + identity, "sha256")


def enrolled(master: bytes) -> Enrolment:
    """Enrol a new device under a random id."""
    identity = os.urandom(ID_BYTES)
    return Enrolment(identity, device_key(master, identity))


def tag(key: bytes, use: Use, content: bytes) -> bytes:
    """Return the first 16 bytes of HMAC-SHA256 of the label of a use and a report's content."""
    return hmac.digest(key, use.value + content, "sha256")[:TAG_BYTES]
