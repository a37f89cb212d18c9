"""The bytes that one client sends in one round of personalised training.

version, task, round, client   as in `federated.payload`
numbers                        of the report, each as many bytes as the task's limit takes, big-endian, in
                               two's complement
tag                            as in `federated.payload`
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reticent.federated import payload
from reticent.federated.payload import HEAD_BYTES
from reticent.federated.personalised.noise import Sanitiser
from reticent.fleet.enrolment import TAG_BYTES, Enrolment
from reticent.mechanisms.base import Symbols


def width(sanitiser: Sanitiser) -> int:
    """Bytes of one number."""
    return sanitiser.limit.bit_length() // 8 + 1


def size(sanitiser: Sanitiser) -> int:
    """The length of every payload of a task."""
    return HEAD_BYTES + width(sanitiser) * sanitiser.task.numbers + TAG_BYTES


def written(sanitiser: Sanitiser, enrolment: Enrolment, number: int, values: Sequence[int]) -> bytes:
    """The payload of a report."""
    each = width(sanitiser)
    packed = b"".join(int(value).to_bytes(each, "big", signed=True) for value in values)
    return payload.written(sanitiser.task, enrolment, number, packed)


def numbers(sanitiser: Sanitiser, report: bytes) -> Symbols | None:
    """Return the numbers of a report that is judged; None if a number is beyond the task's limit."""
    found = _numbers(report[HEAD_BYTES:-TAG_BYTES], width(sanitiser))
    return None if np.abs(found).max() > sanitiser.limit else found


def _numbers(packed: bytes, each: int) -> Symbols:
    """Big-endian numbers of `each` bytes (at most 7, since limits are below 2^50)."""
    rows = np.frombuffer(packed, dtype=np.uint8).reshape(-1, each)
    sign = np.where(rows[:, :1] & 0x80, 0xFF, 0).astype(np.uint8)
    wide = np.concatenate([np.repeat(sign, 8 - each, axis=1), rows], axis=1)
    return np.ascontiguousarray(wide).view(">i8").reshape(-1).astype(np.int64)
