"""The content of Flower's messages: a task and its parameters one way, one packed report the other.

to a client    "arrays"  ArrayRecord   the parameters, in the shapes of the app's model
"config"  ConfigRecord  reticent-task (bytes, signed), reticent-round (from 0)
from a client  "report"  ConfigRecord  payload (bytes, see `federated.payload`)
or an error that begins with "refused: "
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from reticent.errors import ParameterError
from reticent.federated.payload import HEAD_BYTES
from reticent.fleet.enrolment import ID_BYTES
from reticent.mechanisms.base import Floats

ARRAYS, CONFIG, REPORT = "arrays", "config", "report"
TASK, ROUND, PAYLOAD = "reticent-task", "reticent-round", "payload"
REFUSED = "refused: "


def question(file: bytes, number: int, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
    """Build the records that a client is sent in a round."""
    return RecordDict({ARRAYS: arrays, CONFIG: ConfigRecord({**config, TASK: file, ROUND: number})})


def asked(content: RecordDict) -> tuple[bytes, int, ArrayRecord]:
    """The signed task, the round and the parameters of what a client was sent."""
    records, config = content.array_records, content.config_records.get(CONFIG, ConfigRecord())
    file, number = config.get(TASK), config.get(ROUND)
    if not isinstance(file, bytes) or not isinstance(number, int) or isinstance(number, bool):
        raise ParameterError(f"the message must hold {TASK} and {ROUND}")
    if len(records) != 1:
        raise ParameterError(f"the message must hold one record of arrays, got {len(records)}")
    return file, number, next(iter(records.values()))


def answer(payload: bytes) -> RecordDict:
    """Build the records that a client sends in a round, whatever its data."""
    return RecordDict({REPORT: ConfigRecord({PAYLOAD: payload})})


def payload_of(message: Message) -> bytes | None:
    """The payload of a client's message; None if it has none. Whatever came, nothing is raised."""
    try:
        found = message.content.config_records[REPORT][PAYLOAD]
    except Exception:  # whatever a client sent
        return None
    return found if isinstance(found, bytes) else None


def client_of(report: bytes) -> bytes:
    """The client whose report this says it is."""
    return report[HEAD_BYTES - ID_BYTES : HEAD_BYTES]


# Parameters


def flat(arrays: ArrayRecord, dimensions: int, names: Iterable[str] | None = None) -> Floats:
    """All numbers of a record, array after array, if there are so many."""
    parts = [
        np.asarray(arrays[name].numpy(), dtype=np.float64).reshape(-1)
        for name in (arrays if names is None else names)
    ]
    numbers = np.concatenate([np.zeros(0), *parts])
    if numbers.size != dimensions:
        raise ParameterError(f"arrays must hold {dimensions} numbers in all, got {numbers.size}")
    return numbers


def shapes(arrays: ArrayRecord) -> dict[str, tuple[int, ...]]:
    """The shape of each array, by its name."""
    return {name: tuple(array.shape) for name, array in arrays.items()}


def alike(content: RecordDict, wanted: dict[str, tuple[int, ...]]) -> ArrayRecord:
    """The one record of arrays that an app returned, if names and shapes are as wanted."""
    (found,) = content.array_records.values()
    if shapes(found) != wanted:
        raise ParameterError("the app must return arrays of the names and shapes that it was given")
    return found


def shaped(theta: Floats, like: ArrayRecord) -> ArrayRecord:
    """Numbers in the names, shapes and types of a record."""
    found, place = {}, 0
    for name, array in like.items():
        size = int(np.prod(array.shape))
        part = theta[place : place + size].reshape(array.shape)
        found[name] = Array(part.astype(array.dtype))
        place += size
    return ArrayRecord(found)
