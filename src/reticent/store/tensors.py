"""Models in files: safetensors, in one form for the same numbers, read only if they look as announced.

There is no pickle here, and no parser either: the reader knows names, types and shapes, so the one head that
such a file has is rebuilt and compared. Another head is refused, whatever it says. What safetensors' own
library writes without metadata is this form.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.errors import ParameterError
from reticent.store.base import Store
from reticent.store.cid import Cid

TYPES = {"F64": "<f8", "I64": "<i8", "F32": "<f4", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U8": "|u1"}
_NAMES = {np.dtype(code): name for name, code in TYPES.items()}
_ORDER = ("I64", "F64", "F32", "I32", "I16", "I8", "U8")  # as safetensors lays them: widest first

Arrays = Mapping[str, NDArray[Any]]
Looks = Mapping[str, tuple[str, tuple[int, ...]]]  # type and shape by name


def packed(arrays: Arrays) -> bytes:
    """Return a file of arrays; the same numbers give the same bytes everywhere."""
    looks = {name: (_type(name, array), array.shape) for name, array in arrays.items()}
    names = _ordered(looks)
    parts = [np.ascontiguousarray(arrays[name], dtype=TYPES[looks[name][0]]).tobytes() for name in names]
    return b"".join([_head(looks), *parts])


def unpacked(data: bytes, looks: Looks) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file that must have these types and shapes.

    Args:
        data: Bytes of the file.
        looks: Type (of `TYPES`) and shape of every array, by name.

    Raises:
        ParameterError: The file is another one. Numbers that are not finite are refused as well.
    """
    head = _head(looks)
    words = "; ".join(f"{name}: {kind} {list(shape)}" for name, (kind, shape) in looks.items())
    if len(data) != size_of(looks) or data[: len(head)] != head:
        raise ParameterError(f"a model must be a safetensors file of {words}, without metadata")
    found, at = {}, len(head)
    for name in _ordered(looks):
        kind, shape = looks[name]
        dtype = np.dtype(TYPES[kind])
        array = np.frombuffer(data, dtype, math.prod(shape), at).reshape(shape)
        if dtype.kind == "f" and not np.isfinite(array).all():
            raise ParameterError(f"{name} must hold finite numbers")
        found[name] = array
        at += array.nbytes
    return found


def size_of(looks: Looks) -> int:
    """Return the number of bytes of a file with these types and shapes."""
    sizes = [np.dtype(TYPES[kind]).itemsize * math.prod(shape) for kind, shape in looks.values()]
    return len(_head(looks)) + sum(sizes)


def put(store: Store, arrays: Arrays) -> Cid:
    """Store arrays as a file."""
    return store.put(packed(arrays))


def get(store: Store, cid: Cid, looks: Looks) -> dict[str, NDArray[Any]]:
    """Read arrays from a store and check their identifier, types and shapes; nothing larger is fetched."""
    return unpacked(store.get(cid, most=size_of(looks)), looks)


def _type(name: str, array: NDArray[Any]) -> str:
    found = _NAMES.get(array.dtype.newbyteorder("<"))
    if found is None:
        raise ParameterError(f"{name} must be of {', '.join(TYPES)}, got {array.dtype}")
    return found


def _ordered(looks: Looks) -> list[str]:
    return sorted(looks, key=lambda name: (_ORDER.index(looks[name][0]), name))


def _head(looks: Looks) -> bytes:
    described, at = {}, 0
    for name in _ordered(looks):
        kind, shape = looks[name]
        end = at + np.dtype(TYPES[kind]).itemsize * math.prod(shape)
        described[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
