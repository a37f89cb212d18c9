"""Everything that a server sees of a reply, part by part, as plain values that can be compared.

Arrays are read without pickle; one that cannot be read so is taken by its bytes. The time is left out.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message
from flwr.common.serde import message_to_proto

Parts = dict[str, Any]  # texts, numbers, bytes, tuples of them, arrays

_ENVELOPE = (
    "message_type", "group_id", "run_id", "src_node_id", "dst_node_id", "reply_to_message_id",
)  # fmt: skip
_SAME_TIME_S = 1e-3
ERROR, FORM, SIZE = "error text", "form", "size"


def parts(reply: Message, until: float) -> Parts:
    """Return the parts of a reply by name: its form, its size, its envelope, and each of its values.

    Args:
        reply: Reply of the app.
        until: Time at which the question expires, and with it a reply without a time to live of its own.
    """
    seen = reply.metadata
    found: Parts = {f"envelope {name}": getattr(seen, name) for name in _ENVELOPE}
    is_given = abs(seen.created_at + seen.ttl - until) < _SAME_TIME_S
    found["envelope ttl"] = "the question's" if is_given else seen.ttl
    if reply.has_error():
        form: tuple[str, ...] = ("an error",)
        found["error code"], found[ERROR] = reply.error.code, reply.error.reason
    else:
        form = tuple(line for record, held in reply.content.items() for line in _form(record, held))
        for record, held in reply.content.items():
            found |= _record(record, held)
    found[FORM] = form
    found[SIZE] = _size(reply)
    return found


def _form(record: str, held: Mapping[str, Any]) -> Iterator[str]:
    """Yield a record, even an empty one, and its values; quoted, so that no name looks like two."""
    yield f"{type(held).__name__} {record!r}"
    for key, value in held.items():
        yield f"{record!r}.{key!r}: {_kind(value)}"


def _record(record: str, held: Mapping[str, Any]) -> Parts:
    found: Parts = {}
    for key, value in held.items():
        name = f"{record}.{key}"
        found[name] = _plain(value)
        if isinstance(value, (bytes, str, list)):
            found[f"size of {name}"] = len(value)
        if isinstance(value, Array):
            found[f"bytes around {name}"] = _around(bytes(value.data))
    return found


def _around(data: bytes) -> bytes:
    """Return the bytes of an array around its numbers: numpy ignores bytes that follow them."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, kind = read(file)
    except (ValueError, TypeError, EOFError):
        return b""  # no numbers can be read: all its bytes are looked at
    if kind.hasobject:
        return b""
    start = file.tell()
    return data[:start] + data[start + kind.itemsize * math.prod(shape) :]


def _kind(value: Any) -> str:
    """Describe the type of a value; of an array also its shape."""
    if isinstance(value, Array):
        return f"{value.dtype} {tuple(value.shape)} {value.stype}"
    return type(value).__name__


def _plain(value: Any) -> Any:
    if isinstance(value, Array):
        array = numbers(value)
        return bytes(value.data) if array is None else array
    return tuple(value) if isinstance(value, list) else value


def numbers(array: Array) -> np.ndarray[Any, Any] | None:
    """Return the numbers of an array; None if only a pickle could restore them, or there are none."""
    try:
        return array.numpy()  # never unpickles
    except (TypeError, ValueError, EOFError, OSError):
        return None


def arrays_of(reply: Message) -> dict[str, np.ndarray[Any, Any]] | None:
    """Return the arrays of a reply's only array record, by name; None if there is none, or several."""
    if reply.has_error():
        return None
    records: list[ArrayRecord] = list(reply.content.array_records.values())
    if len(records) != 1:
        return None
    found = {name: numbers(array) for name, array in records[0].items()}
    return {name: array for name, array in found.items() if array is not None} or None


def examples_of(reply: Message) -> int | None:
    """Return how many examples a reply reports, as strategies of Flower read it."""
    if reply.has_error():
        return None
    for record in reply.content.metric_records.values():
        for name in ("num-examples", "num_examples"):
            told = record.get(name)
            if isinstance(told, int) and told > 0:
                return told
    return None


def _size(reply: Message) -> int:
    """Return the bytes of the content or error as sent, without the envelope and its time."""
    proto = message_to_proto(reply)
    return int(proto.error.ByteSize() if reply.has_error() else proto.content.ByteSize())
