"""The report of one place, as bytes.

version      1   0x02
round        8   its id
reporter     8   the enrolment's id
cell         c   the reported cell, big-endian, in as few bytes as the grid's largest cell takes
tag         16   HMAC-SHA256 under the reporter's key of the label of places and everything before, cut

Version 1 had tags without a label. Its reports are refused by their version.
"""

from __future__ import annotations

from enum import Enum

from reticent.fleet.enrolment import TAG_BYTES, Enrolment, Use, tag
from reticent.fleet.intake import Form
from reticent.location.rounds import PlaceRound

VERSION = 2
_HEAD_BYTES = 17


class Outcome(Enum):
    """The outcome of a report. The first two are acknowledged."""

    COUNTED = "counted"
    DUPLICATE = "duplicate"  # the very report that was counted before
    LENGTH = "length"
    VERSION = "version"
    ROUND = "round"  # not the one that is open
    TAG = "tag"  # not made with the key of its reporter
    REVOKED = "revoked"  # the reporter's enrolment was taken back
    CELL = "cell"  # not an open cell of the grid
    SECOND = "second"  # the reporter has another report in this round


def cell_bytes(asked: PlaceRound) -> int:
    """Return the number of bytes that a cell takes."""
    return max(1, ((asked.grid.size - 1).bit_length() + 7) // 8)


def size(asked: PlaceRound) -> int:
    """Return the length of every report of a round."""
    return _HEAD_BYTES + cell_bytes(asked) + TAG_BYTES


def written(asked: PlaceRound, enrolment: Enrolment, cell: int) -> bytes:
    """Return the report of a cell."""
    content = bytes([VERSION]) + asked.id + enrolment.id + cell.to_bytes(cell_bytes(asked), "big")
    return content + tag(enrolment.key, Use.PLACE, content)


def form(asked: PlaceRound) -> Form[Outcome]:
    """Return the form of the reports of a round."""
    start = ((bytes([VERSION]), Outcome.VERSION), (asked.id, Outcome.ROUND))
    return Form(Use.PLACE, size(asked), start, Outcome)


def cell_of(asked: PlaceRound, report: bytes) -> int | None:
    """Return the cell of a report that was admitted; None if it is no open cell of the grid."""
    cell = int.from_bytes(report[_HEAD_BYTES:-TAG_BYTES], "big")
    return cell if cell < asked.grid.size and asked.grid.open[cell] else None
