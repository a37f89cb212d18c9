"""Bytes between vehicle and edge: the vehicle's id in the clear, the points sealed.

    request   service (8 bytes) | vehicle (8) | m sealed points (85 each) | tag (16)
    replies   m replies, in the order of the points

The tag is that of the vehicle's enrolment at the edge. All requests to a service are of one size.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from reticent.errors import ParameterError
from reticent.fleet.enrolment import ID_BYTES, TAG_BYTES, Enrolment, Use, tag
from reticent.fleet.intake import Form
from reticent.fleet.published import ID_BYTES as TEXT_BYTES
from reticent.location.stations.area import StationService
from reticent.location.stations.sealing import POINT_BYTES, reply_bytes


class Outcome(Enum):
    """The status of a request at the edge."""

    COUNTED = "taken"
    LENGTH = "length"
    SERVICE = "service"
    TAG = "tag"
    REVOKED = "revoked"


def form(service: StationService) -> Form[Outcome]:
    """Return the form that all requests to a service share."""
    length = TEXT_BYTES + ID_BYTES + service.m * POINT_BYTES + TAG_BYTES
    return Form(Use.STATIONS, length, ((service.id, Outcome.SERVICE),), Outcome)


def request(service: StationService, enrolment: Enrolment, points: Sequence[bytes]) -> bytes:
    """Build the request of a vehicle."""
    content = service.id + enrolment.id + b"".join(points)
    return content + tag(enrolment.key, Use.STATIONS, content)


def points_of(request: bytes) -> list[bytes]:
    """Return the sealed points of a request whose form is right."""
    return pieces(request[TEXT_BYTES + ID_BYTES : -TAG_BYTES], POINT_BYTES)


def replies_of(service: StationService, content: bytes) -> list[bytes]:
    """Split the content of a response into the replies to each point.

    Raises:
        ParameterError: The number or the size of the replies is wrong.
    """
    size = reply_bytes(service.k)
    if not isinstance(content, bytes) or len(content) != service.m * size:
        raise ParameterError(f"a reply to {service.name} must be {service.m * size} bytes")
    return pieces(content, size)


def pieces(content: bytes, size: int) -> list[bytes]:
    """Cut content into pieces of one size."""
    return [content[start : start + size] for start in range(0, len(content), size)]
