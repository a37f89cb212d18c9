"""The binary format of reports. Every byte is specified in docs/report-format.md; reports outlive a release.

    version      1   0x02
    survey       8   its id
    period       4   big-endian
    reporter     8   the enrolment's id
    nonce        8   drawn by the device for this report
    attributes   a   one bit for each attribute of the survey, the first in the highest bit, zero padded
    symbols      s   of the attributes whose bit is set, each at its true width, highest bit first, padded
    tag         16   HMAC-SHA256 under the reporter's key of the label of surveys and everything before, cut

Version 1 had tags without a label. Its reports are refused by their version: a device makes the same report
again once it is up to date.

A batch is reports one after the other, each behind its length in two bytes, big-endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.collect.instruments import Instrument
from reticent.collect.survey import Survey
from reticent.errors import ParameterError
from reticent.fleet.enrolment import TAG_BYTES, Enrolment, Use, tag
from reticent.mechanisms.numeric.base import NumericChannel

VERSION = 2
HEAD_BYTES = 29  # up to the attributes
SHORTEST = HEAD_BYTES + 2 + TAG_BYTES
LONGEST = (1 << 16) - 1
_HEAD = np.dtype(
    [("version", "u1"), ("survey", "S8"), ("period", ">u4"), ("reporter", ">u8"), ("nonce", ">u8")]
)

Bits = NDArray[np.uint8]


class Outcome(Enum):
    """The outcomes of a report. The first two are acknowledged."""

    COUNTED = "counted"
    DUPLICATE = "duplicate"  # the very report that was counted before
    VERSION = "version"  # not one that this collector reads
    LENGTH = "length"  # shorter or longer than its attributes take
    SURVEY = "survey"  # not one that this collector collects
    TAG = "tag"  # not made with the key of its reporter
    REVOKED = "revoked"  # the reporter's enrolment was taken back
    PERIOD = "period"  # not open
    WAVE = "wave"  # another text than the lots give its reporter in this period
    ATTRIBUTES = "attributes"  # not as many, or not those, that the survey asks for
    SYMBOL = "symbol"  # none of the mechanism's, or padding that is not zero
    SECOND = "second"  # the reporter has another report in this period

    def __init__(self, value: str) -> None:
        # Whether the report is counted now, by this or by an earlier arrival.
        self.is_acknowledged = value in ("counted", "duplicate")


class Layout:
    """The layout of one survey's reports in bytes."""

    def __init__(self, survey: Survey) -> None:
        self.survey = survey
        self.mask_bytes = -(-len(survey.attributes) // 8)

    @cached_property
    def widths(self) -> NDArray[np.int64]:
        """Width in bits of a symbol of each attribute."""
        return np.array([one.bits for one in self.survey.instruments], dtype=np.int64)

    @cached_property
    def longest(self) -> int:
        """Length of the longest report in bytes."""
        dearest = int(np.sort(self.widths)[::-1][: self.survey.sample_size].sum())
        return HEAD_BYTES + self.mask_bytes + -(-dearest // 8) + TAG_BYTES

    # Writing

    def body(self, asked: Sequence[int], drawn: Sequence[Any]) -> bytes:
        """Encode the attributes and symbols of one report, from what the mechanisms drew."""
        mask = np.zeros(len(self.survey.attributes), dtype=np.uint8)
        mask[list(asked)] = 1
        bits = [
            _to_bits(self.survey.instruments[place], one) for place, one in zip(asked, drawn, strict=True)
        ]
        return np.packbits(mask).tobytes() + np.packbits(np.concatenate(bits)).tobytes()

    def report(self, enrolment: Enrolment, period: int, nonce: bytes, body: bytes) -> bytes:
        """Build a complete report to this survey."""
        return report(self.survey.id, enrolment, period, nonce, body)

    # Reading

    def read(self, bodies: NDArray[np.uint8]) -> Read:
        """Decode many bodies (attributes and symbols) of one length: shape (reports, bytes)."""
        survey, n = self.survey, len(bodies)
        d = len(survey.attributes)
        if bodies.shape[1] < self.mask_bytes:  # too short for what it must hold
            none, all_ = np.zeros(n, dtype=np.bool_), np.ones(n, dtype=np.bool_)
            return Read(np.zeros((n, d), dtype=np.bool_), all_, all_, none, {})
        masks = np.unpackbits(bodies[:, : self.mask_bytes], axis=1)
        asked = masks[:, :d].astype(np.bool_)
        wrong = masks[:, d:].any(axis=1) | (asked.sum(axis=1) != survey.sample_size)
        widths = asked * self.widths
        ends = np.cumsum(widths, axis=1)
        length = bodies.shape[1] - self.mask_bytes
        misfit = -(-ends[:, -1] // 8) != length
        bits = np.unpackbits(bodies[:, self.mask_bytes :], axis=1)
        read = Read(asked, wrong, misfit, np.zeros(n, dtype=np.bool_), {})
        fits = ~(wrong | misfit)
        if not fits.any():
            return read
        places = np.arange(8 * length)
        read.illegal[fits] = ((places >= ends[fits, -1:]) & (bits[fits] != 0)).any(axis=1)
        starts = ends - widths
        for place, instrument in enumerate(survey.instruments):
            rows = np.flatnonzero(fits & asked[:, place])
            if rows.size:
                columns = starts[rows, place, None] + np.arange(self.widths[place])
                symbols, legal = _from_bits(instrument, bits[rows[:, None], columns])
                read.illegal[rows[~legal]] = True
                read.symbols[place] = (rows, symbols)
        return read


def report(survey: bytes, enrolment: Enrolment, period: int, nonce: bytes, body: bytes) -> bytes:
    """Build a complete report to the text with an id."""
    content = b"".join((bytes([VERSION]), survey, period.to_bytes(4, "big"), enrolment.id, nonce, body))
    return content + tag(enrolment.key, Use.SURVEY, content)


class Read(NamedTuple):
    """The decoded bodies of many reports.

    Attributes:
        asked: Attributes that each report holds, shape (reports, attributes).
        wrong: Mask of the reports that hold another number of attributes than the survey asks for.
        misfit: Mask of the reports whose symbols take another number of bytes.
        illegal: Mask of the reports with a symbol that the mechanism cannot have drawn, or padding that is
            not zero.
        symbols: Rows that hold each attribute, and their symbols.
    """

    asked: NDArray[np.bool_]
    wrong: NDArray[np.bool_]
    misfit: NDArray[np.bool_]
    illegal: NDArray[np.bool_]
    symbols: dict[int, tuple[NDArray[np.int64], NDArray[Any]]]


def heads(contents: NDArray[np.uint8]) -> NDArray[Any]:
    """Return the fields before the attributes, of many reports: shape (reports, at least 29 bytes)."""
    return np.ascontiguousarray(contents[:, :HEAD_BYTES]).view(_HEAD).reshape(-1)


def _to_bits(instrument: Instrument, drawn: Any) -> Bits:
    """Return what a mechanism drew for one value, as bits."""
    return np.unpackbits(np.frombuffer(instrument.pack(drawn), dtype=np.uint8))[: instrument.bits]


def _from_bits(instrument: Instrument, bits: Bits) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Decode bits, shape (reports, width), and return which of them the mechanism can have drawn.

    For `OneBit` the result is the bit alone; the survey draws the level.
    """
    if isinstance(instrument, NumericChannel):
        numbers = _whole_numbers(bits)
        return numbers, numbers < (2 if hasattr(instrument, "dither_levels") else instrument.size)
    from reticent.mechanisms.categorical.krr import KRR  # only needed by a collector
    from reticent.mechanisms.categorical.olh import OLH, REPORT, SEED_BITS
    from reticent.mechanisms.categorical.oue import OUE
    from reticent.mechanisms.categorical.subset import Subset

    if isinstance(instrument, OUE):
        return bits.astype(np.bool_), np.ones(len(bits), dtype=np.bool_)
    if isinstance(instrument, OLH):
        reports = np.empty(len(bits), dtype=REPORT)
        reports["seed"] = np.packbits(bits[:, :SEED_BITS], axis=1).view(">u8").reshape(-1)
        reports["value"] = _whole_numbers(bits[:, SEED_BITS:])
        return reports, instrument.legal(reports)
    assert isinstance(instrument, (KRR, Subset))
    numbers = _whole_numbers(bits)
    return numbers, numbers < instrument.size


def _whole_numbers(bits: Bits) -> NDArray[np.int64]:
    weights = np.int64(1) << np.arange(bits.shape[1] - 1, -1, -1, dtype=np.int64)
    return bits.astype(np.int64) @ weights


# Batches


def batch(reports: Sequence[bytes]) -> bytes:
    """Encode many reports as one body."""
    return b"".join(len(one).to_bytes(2, "big") + one for one in reports)


def split(data: bytes, *, most: int) -> list[bytes]:
    """Return the reports of a batch.

    Raises:
        ParameterError: it is not whole, or holds more than `most` reports.
    """
    step, end = 2 + int.from_bytes(data[:2], "big"), len(data)
    count, rest = divmod(end, step)
    if not rest and count <= most and all(data[at::step] == data[at : at + 1] * count for at in (0, 1)):
        return [data[place : place + step - 2] for place in range(2, end, step)]  # all are of one length
    found, place = [], 0
    while place < end:
        size = data[place] << 8 | data[place + 1] if place + 2 <= end else end
        place += 2
        if place + size > end:
            raise ParameterError("a batch must hold whole reports, each behind its length in two bytes")
        found.append(data[place : place + size])
        place += size
        if len(found) > most:
            raise ParameterError(f"a batch must hold at most {most} reports")
    return found
