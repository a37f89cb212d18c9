"""Packing of many whole numbers into a signed text: 32 bits each, compressed, in base64."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from reticent.errors import ParameterError


def packed(numbers: Sequence[int]) -> str:
    """Pack whole numbers below 2^32 into a text.

    Compressors differ: a text that was read must be stored unchanged.
    """
    content = zlib.compress(np.array(numbers, dtype=">u4").tobytes(), 9)
    return base64.b64encode(content).decode("ascii")


def unpacked(field: str, given: Any, count: int) -> tuple[int, ...]:
    """Return the numbers of a packed text, exactly `count` of them."""
    if not isinstance(given, str):
        raise ParameterError(f"{field} must be a text")
    try:
        content = base64.b64decode(given.encode("ascii"), validate=True)
        unpacking = zlib.decompressobj()
        numbers = unpacking.decompress(content, 4 * count + 1)  # no more than it should be
    except (binascii.Error, zlib.error, UnicodeEncodeError) as error:
        raise ParameterError(f"{field} must be compressed whole numbers in base64") from error
    if len(numbers) != 4 * count or not unpacking.eof or unpacking.unused_data:
        raise ParameterError(f"{field} must hold {count} numbers")
    return tuple(np.frombuffer(numbers, dtype=">u4").astype(np.int64).tolist())
