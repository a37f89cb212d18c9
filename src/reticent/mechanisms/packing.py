"""Whole numbers as bits at their true width: the first number first, the highest bit first, zero padded.

Eight numbers of up to eight bits are one word of up to eight bytes, which numpy shifts at once; wider numbers
go through their bits; blocks keep both in the cache. Many numbers are run through loops that numba compiles,
where it is installed: the bytes are the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import whole
from reticent.errors import ParameterError, ParameterTypeError

Symbols = NDArray[np.int64]

COMPILE_FROM = 200_000  # numbers in one call that are worth the second that a first compilation takes
_BLOCK = 1 << 15  # numbers, a multiple of 8
_WORD = np.dtype(">u8")


def pack_bits(symbols: NDArray[Any], width: int, size: int) -> bytes:
    """Pack whole numbers in [0, size) into `width` bits each."""
    flat = checked_symbols(symbols, size).reshape(-1)
    if width == 1:
        return np.packbits(flat.astype(np.uint8)).tobytes()
    if loops := _loops(flat.size, width):
        packed_bytes = np.zeros(-(-flat.size * width // 8), dtype=np.uint8)
        loops[0](flat, width, packed_bytes)
        return packed_bytes.tobytes()
    pack = _pack_narrow if width <= 8 else _pack_wide
    packed = [pack(flat[start : start + _BLOCK], width) for start in range(0, flat.size, _BLOCK)]
    return b"".join(packed)


def checked_symbols(symbols: NDArray[Any], size: int) -> NDArray[Any]:
    """Return the symbols, if they are whole numbers in [0, size)."""
    if not np.issubdtype(symbols.dtype, np.integer):
        raise ParameterTypeError(f"symbols must be whole numbers, got dtype {symbols.dtype}")
    if symbols.size and (symbols.min() < 0 or symbols.max() >= size):
        raise ParameterError(f"symbols must be >= 0 and < {size}")
    return symbols


def _pack_narrow(symbols: NDArray[Any], width: int) -> bytes:
    words = np.zeros(-(-symbols.size // 8), dtype=np.uint64)
    padded = (
        symbols if symbols.size % 8 == 0 else np.append(symbols, np.zeros(-symbols.size % 8, symbols.dtype))
    )
    for place, column in enumerate(padded.reshape(-1, 8).T):
        words |= column.astype(np.uint64) << np.uint64(width * (7 - place))
    data = words.astype(_WORD).view(np.uint8).reshape(-1, 8)[:, 8 - width :].tobytes()
    return data[: -(-symbols.size * width // 8)]


def _pack_wide(symbols: NDArray[Any], width: int) -> bytes:
    bits = np.unpackbits(symbols.astype(_WORD).view(np.uint8).reshape(-1, 8), axis=1)
    return np.packbits(bits[:, 64 - width :]).tobytes()


def unpack_bits(data: bytes, count: int, width: int, size: int) -> Symbols:
    """Undo `pack_bits`; every byte string that `pack_bits` cannot have made is refused."""
    held = _checked(data, count, width)
    symbols = np.empty(count, dtype=np.int64)
    if loops := _loops(count, width):
        loops[1](held, width, symbols)
    else:
        for start, block in _blocks(held, count, width):
            symbols[start : start + block.size] = block
    if symbols.size and symbols.max() >= size:
        raise ParameterError(f"data holds a symbol >= {size}")
    return symbols


def count_bits(data: bytes, count: int, width: int, size: int) -> Symbols:
    """Count each number in packed ones: `bincount(unpack_bits(...))`, without holding them all."""
    held = _checked(data, count, width)
    if 8 % width == 0:
        found = _fold(np.bincount(held, minlength=256), width)
        found[0] -= len(held) * 8 // width - count  # the padding
    else:
        found = np.zeros(1 << width, dtype=np.int64)
        if loops := _loops(count, width):
            loops[2](held, width, count, found)
        else:
            for _, block in _blocks(held, count, width):
                found += np.bincount(block, minlength=1 << width)
    if found[size:].any():
        raise ParameterError(f"data holds a symbol >= {size}")
    return found[:size].astype(np.int64)


def _fold(counts: NDArray[Any], width: int) -> Symbols:
    """Count each number, from the counts of each byte."""
    found = np.zeros(1 << width, dtype=np.int64)
    for shift in range(0, 8, width):
        found += np.bincount(
            np.arange(256) >> shift & (1 << width) - 1, weights=counts, minlength=1 << width
        ).astype(np.int64)
    return found


def _checked(data: bytes, count: int, width: int) -> NDArray[np.uint8]:
    count = whole("count", count, low=0)
    expected = -(-count * width // 8)
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise ParameterTypeError(f"data must be bytes, got {type(data).__name__}")
    if len(data) != expected:
        raise ParameterError(f"data must be {expected} bytes for {count} symbols, got {len(data)}")
    held = np.frombuffer(data, dtype=np.uint8)
    spare = expected * 8 - count * width
    if spare and held[-1] & (1 << spare) - 1:
        raise ParameterError("data must end in zero padding")
    return held


def _blocks(held: NDArray[np.uint8], count: int, width: int) -> Any:
    """Consecutive numbers: where each block begins, and the block."""
    for start in range(0, count, _BLOCK):
        size = min(_BLOCK, count - start)
        part = held[start * width // 8 : -(-(start + size) * width // 8)]
        yield start, (_unpack_narrow if width <= 8 else _unpack_wide)(part, size, width)


def _unpack_narrow(part: NDArray[np.uint8], count: int, width: int) -> Symbols:
    if width == 1:
        return np.unpackbits(part)[:count].astype(np.int64)
    rows = -(-count // 8)
    words = np.zeros((rows, 8), dtype=np.uint8)
    if part.size < rows * width:
        part = np.append(part, np.zeros(rows * width - part.size, dtype=np.uint8))
    words[:, 8 - width :] = part.reshape(rows, width)
    whole_words = words.view(_WORD).reshape(-1).astype(np.int64)
    symbols = np.empty((rows, 8), dtype=np.int64)
    for place in range(8):
        symbols[:, place] = whole_words >> width * (7 - place) & (1 << width) - 1
    return symbols.reshape(-1)[:count]


def _unpack_wide(part: NDArray[np.uint8], count: int, width: int) -> Symbols:
    bits = np.zeros((count, 64), dtype=np.uint8)
    bits[:, 64 - width :] = np.unpackbits(part)[: count * width].reshape(count, width)
    return np.packbits(bits, axis=1).view(_WORD).reshape(-1).astype(np.int64)


# Loops for numba. A window of bits slides over the bytes; it holds less than 8 + width of them, so up to 48
# bits of width fit into a word.

_WIDEST = 48


def _loops(count: int, width: int) -> tuple[Callable[..., None], ...]:
    """Pack, unpack and count in compiled loops; empty where they are not worth it, or not there."""
    is_worth = count >= COMPILE_FROM and 1 < width <= _WIDEST
    return _compiled() if is_worth and os.environ.get("RETICENT_ENGINE") != "numpy" else ()


@lru_cache(maxsize=1)
def _compiled() -> tuple[Callable[..., None], ...]:
    from importlib.util import find_spec

    if find_spec("numba") is None:
        return ()
    import numba  # type: ignore[import-untyped,unused-ignore]

    @numba.njit(nogil=True)
    def pack(symbols: Any, width: Any, data: Any) -> None:
        window, held, place = np.uint64(0), 0, 0
        for symbol in symbols:
            window = (window << np.uint64(width)) | np.uint64(symbol)
            held += width
            while held >= 8:
                held -= 8
                data[place] = (window >> np.uint64(held)) & np.uint64(255)
                place += 1
        if held:
            data[place] = (window << np.uint64(8 - held)) & np.uint64(255)

    @numba.njit(nogil=True)
    def unpack(data: Any, width: Any, symbols: Any) -> None:
        window, held, place = np.uint64(0), 0, 0
        mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
        for number in range(symbols.size):
            while held < width:
                window = (window << np.uint64(8)) | np.uint64(data[place])
                place += 1
                held += 8
            held -= width
            symbols[number] = (window >> np.uint64(held)) & mask

    @numba.njit(nogil=True)
    def count_all(data: Any, width: Any, count: Any, found: Any) -> None:
        window, held, place = np.uint64(0), 0, 0
        mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
        for _ in range(count):
            while held < width:
                window = (window << np.uint64(8)) | np.uint64(data[place])
                place += 1
                held += 8
            held -= width
            found[(window >> np.uint64(held)) & mask] += 1

    return pack, unpack, count_all
