"""The bytes that one client sends in one round.

    version      1   0x02
    task         8   its id
    round        4   big-endian
    client       8   the enrolment's id
    symbols      s   of the k coordinates that the task drew for this client and round, each at its true
                     width, highest bit first, zero padded; or the number of a direction of a `Codebook`
    tag         16   HMAC-SHA256 under the client's key of the label of trainings and everything before, cut

The choice of coordinates, the dither levels of `OneBit`, and the directions of a `Codebook` follow from the
task's key, the client's id and the round, so that they take no place and nobody can choose them. Version 1
had tags without a label. Its payloads are refused by their version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from reticent.federated.tasks import Task
from reticent.fleet.enrolment import TAG_BYTES, Enrolment, Use, tag
from reticent.fleet.intake import Form, Intake
from reticent.mechanisms.base import Symbols
from reticent.mechanisms.numeric.one_bit import OneBit

VERSION = 2
_HEAD = np.dtype([("version", "u1"), ("task", "S8"), ("round", ">u4"), ("client", ">u8")])
HEAD_BYTES = _HEAD.itemsize
ROUND = slice(9, 13)  # the bytes of its number


class Outcome(Enum):
    """The outcome of a payload."""

    COUNTED = "counted"
    LENGTH = "length"  # not that of the task's payloads
    VERSION = "version"
    TASK = "task"  # another one
    ROUND = "round"  # another one
    TAG = "tag"  # not made with the key of its client
    REVOKED = "revoked"  # the client's enrolment was taken back
    SECOND = "second"  # the client has a report in this round
    SYMBOL = "symbol"  # none of the mechanism's, or padding that is not zero


def symbol_bytes(task: Task) -> int:
    """Return the number of bytes that the symbols of a payload take."""
    return -(-task.sample_size * task.mechanism.bits // 8)


def size(task: Task) -> int:
    """The length of every payload of a task."""
    return HEAD_BYTES + symbol_bytes(task) + TAG_BYTES


def client_number(enrolment: Enrolment) -> NDArray[np.uint64]:
    """Return the id of one client as `Lots` takes it."""
    return np.frombuffer(enrolment.id, dtype=">u8").astype(np.uint64)


class HasId(Protocol):
    """A task of any kind."""

    @property
    def use(self) -> Use:
        """The use of a client's key."""

    @property
    def id(self) -> bytes:
        """The id that reports name."""


def written(task: HasId, enrolment: Enrolment, number: int, symbols: bytes) -> bytes:
    """The payload of packed symbols."""
    content = b"".join((bytes([VERSION]), task.id, number.to_bytes(4, "big"), enrolment.id, symbols))
    return content + tag(enrolment.key, task.use, content)


@dataclass(frozen=True)
class Read:
    """The payloads that hold.

    Attributes:
        clients: their ids.
        asked: the coordinates of each, shape (clients, k), or the seed of its directions.
        symbols: of the mechanism, shape (clients, k).
    """

    clients: NDArray[np.uint64]
    asked: NDArray[Any]
    symbols: Symbols


def read(task: Task, number: int, payloads: Sequence[bytes], intake: Intake) -> tuple[list[Outcome], Read]:
    """Read many payloads of one round; each is judged on its own, and none raises."""
    outcomes, admitted = intake.admitted(payloads, form(task, number, size(task)))
    kept = [place for alike in admitted for place in alike.places.tolist()]
    legal, read = parsed(task, number, [payloads[place] for place in kept])
    for place in np.flatnonzero(~legal):
        outcomes[kept[place]] = Outcome.SYMBOL
    return outcomes, read


def parsed(task: Task, number: int, payloads: Sequence[bytes]) -> tuple[NDArray[np.bool_], Read]:
    """Whose symbols are all of the mechanism, among payloads that are judged; and what those say."""
    rows = np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(len(payloads), size(task))
    heads = np.ascontiguousarray(rows[:, :HEAD_BYTES]).view(_HEAD).reshape(-1)
    clients = heads["client"].astype(np.uint64)
    asked = task.asked(clients, number)
    bits = np.unpackbits(rows[:, HEAD_BYTES:-TAG_BYTES], axis=1)
    width, used = task.mechanism.bits, task.sample_size * task.mechanism.bits
    weights = np.int64(1) << np.arange(width - 1, -1, -1, dtype=np.int64)
    numbers = bits[:, :used].reshape(len(payloads), task.sample_size, width).astype(np.int64) @ weights
    legal = _legal(task, numbers, bits[:, used:])
    if isinstance(task.mechanism, OneBit):
        numbers = 2 * task.dither(clients, number, asked) + numbers
    return legal, Read(clients[legal], asked[legal], numbers[legal])


def _legal(task: Task, numbers: Symbols, padding: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Whose numbers are all of the mechanism, followed by nothing."""
    size = 2 if isinstance(task.mechanism, OneBit) else task.mechanism.size
    return np.asarray((numbers < size).all(axis=1) & ~padding.any(axis=1))


def form(task: HasId, number: int, length: int) -> Form[Outcome]:
    """Return the form of the payloads of a round."""
    start = (
        (bytes([VERSION]), Outcome.VERSION),
        (task.id, Outcome.TASK),
        (number.to_bytes(4, "big"), Outcome.ROUND),
    )
    return Form(task.use, length, start, Outcome)
