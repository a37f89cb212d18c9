"""Whether reports are genuine: HMAC-SHA256 of many short texts.

It is written out here (RFC 2104; FIPS 180-4, sections 4 to 6) since `hmac` spends most of its time on setting
up a hash that then runs over four blocks of 64 bytes, and lets other threads in at each call. A process that
checks many reports gets a loop that numba compiles, where it is installed: 32 reports of one length side by
side, in the lanes of the processor. Both say the same of every report.
"""

from __future__ import annotations

import hmac
import importlib.util
import os
import threading
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.collect.enrolment import ID_BYTES, KEY_BYTES, LABEL, TAG_BYTES

MANY = 256  # reports, for which the loop is worth it
COMPILE_AFTER = 100_000  # reports that a process checked
_LANES = 32
_BLOCK = 64
_PADS = (0x36, 0x5C)
_XORED = [bytes(byte ^ pad for byte in range(256)) for pad in _PADS]
_REST = [bytes([pad]) * (_BLOCK - KEY_BYTES) for pad in _PADS]

Words = NDArray[np.uint32]  # one column for each text
Compress = Callable[[Words, Words], None]  # blocks of 16 words into states of 8


def are_genuine(master: bytes, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which reports of one length, a row each, bear the tag of their reporter's key."""
    loop = _LOOP.after(len(reports))
    return _few(master, reports) if loop is None or len(reports) < MANY else many(loop, master, reports)


def _few(master: bytes, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
    inner, outer = _padded(master)
    found, text, length = [], reports.tobytes(), reports.shape[1]
    for start in range(0, len(text), length):
        end = start + length - TAG_BYTES
        key = sha256(outer + sha256(inner + LABEL + text[start + 13 : start + 21]).digest()).digest()
        first, second = _padded(key)
        tag = sha256(second + sha256(first + text[start:end]).digest()).digest()
        found.append(hmac.compare_digest(tag[:TAG_BYTES], text[end : start + length]))
    return np.array(found, dtype=np.bool_)


def _padded(key: bytes) -> tuple[bytes, bytes]:
    return key.translate(_XORED[0]) + _REST[0], key.translate(_XORED[1]) + _REST[1]


# Many at once


def many(compress: Compress, master: bytes, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """The same, by a loop that compresses."""
    count = len(reports)
    rows = np.zeros((count + -count % _LANES, reports.shape[1]), dtype=np.uint8)
    rows[:count] = reports
    named = np.empty((len(rows), len(LABEL) + ID_BYTES), dtype=np.uint8)
    named[:, : len(LABEL)], named[:, len(LABEL) :] = np.frombuffer(LABEL, dtype=np.uint8), rows[:, 13:21]
    masters = np.repeat(_words(np.frombuffer(master, dtype=np.uint8)[None]), _LANES, axis=1)
    keys = _hmac(compress, masters, named)
    tags = _hmac(compress, keys, rows[:, :-TAG_BYTES])[: TAG_BYTES // 4]
    differ: Words = np.bitwise_or.reduce(tags ^ _words(rows[:, -TAG_BYTES:]), axis=0)
    is_same: NDArray[np.bool_] = differ[:count] == 0
    return is_same


def _hmac(compress: Compress, keys: Words, texts: NDArray[np.uint8]) -> Words:
    """HMAC-SHA256 of texts of one length, a row each; keys of 32 bytes, one for each, or 32 times one."""
    inner = _digest(compress, _keyed(compress, keys, _PADS[0], len(texts)), _words(_ended(texts)))
    rest = _ended(np.zeros((1, 32), dtype=np.uint8))  # behind a digest
    return _digest(
        compress,
        _keyed(compress, keys, _PADS[1], len(texts)),
        np.vstack([inner, np.repeat(_words(rest)[8:], len(texts), axis=1)]),
    )


def _keyed(compress: Compress, keys: Words, pad: int, count: int) -> Words:
    """The states behind the first block, which holds the key."""
    blocks = np.full((16, keys.shape[1]), pad * 0x01010101, dtype=np.uint32)
    blocks[:8] ^= keys
    states = np.repeat(_constants()[0][:, None], keys.shape[1], axis=1)
    compress(states, blocks)
    return states if keys.shape[1] == count else np.repeat(states[:, :1], count, axis=1)


def _ended(texts: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Whole blocks that follow the first one: the text, and how long everything is."""
    length = texts.shape[1]
    ended = np.zeros((len(texts), length + 9 + -(length + 9) % _BLOCK), dtype=np.uint8)
    ended[:, :length], ended[:, length] = texts, 0x80
    ended[:, -8:] = np.frombuffer((8 * (_BLOCK + length)).to_bytes(8, "big"), dtype=np.uint8)
    return ended


def _digest(compress: Compress, states: Words, words: Words) -> Words:
    for place in range(0, len(words), 16):
        compress(states, words[place : place + 16])
    return states


def _words(rows: NDArray[np.uint8]) -> Words:
    return np.ascontiguousarray(np.ascontiguousarray(rows).view(">u4").T, dtype=np.uint32)


@lru_cache(maxsize=1)
def _constants() -> tuple[Words, Words]:
    """The first 32 bits of the fractions of square and cube roots of the first primes."""
    primes = [n for n in range(2, 312) if all(n % d for d in range(2, n))]
    square, cube = [_root(p << 64, 2) for p in primes[:8]], [_root(p << 96, 3) for p in primes]
    return (np.array(square) & 0xFFFFFFFF).astype(np.uint32), (np.array(cube) & 0xFFFFFFFF).astype(np.uint32)


def _root(number: int, degree: int) -> int:
    """The whole part of a root, by bisection."""
    low, high = 0, 1 << 40
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= number else (low, middle - 1)
    return low


class Loop:
    """The loop of this process, compiled aside: that takes seconds, and devices wait."""

    def __init__(self) -> None:
        self._checked = 0
        self._thread: threading.Thread | None = None
        self._compress: Compress | None = None

    def after(self, count: int) -> Compress | None:
        """The loop, if it is there yet; `count` reports more will be checked."""
        if self._thread is None:
            self._checked += count  # threads may lose some
            if self._checked >= COMPILE_AFTER:
                self.wait(0.0)
        return self._compress

    @property
    def is_begun(self) -> bool:
        """Whether it is compiled, or being compiled."""
        return self._thread is not None

    def wait(self, seconds: float | None = None) -> None:
        """Have it compiled; nothing happens where there is no numba."""
        with _GUARD:
            if self._thread is None:
                self._thread = threading.Thread(target=self._compile, name="compile tags")
                self._thread.start()
        self._thread.join(seconds)

    def _compile(self) -> None:
        is_there = importlib.util.find_spec("numba") is not None
        if is_there and os.environ.get("RETICENT_ENGINE") != "numpy":
            self._compress = compiled()


_GUARD = threading.Lock()
_LOOP = Loop()


@lru_cache(maxsize=1)
def compiled() -> Compress:
    """SHA-256's compression of one block into each state, for columns that are a multiple of 32."""
    import numba  # type: ignore[import-untyped,unused-ignore]

    u32, rounds, lanes = np.uint32, _constants()[1], _LANES

    @numba.njit(inline="always")
    def turn(x: Any, n: Any) -> Any:
        return u32(u32(x >> u32(n)) | u32(x << u32(32 - n)))

    @numba.njit(nogil=True)
    def compress(states: Any, blocks: Any) -> None:
        w, v = np.empty((64, lanes), dtype=np.uint32), np.empty((8, lanes), dtype=np.uint32)
        for base in range(0, states.shape[1], lanes):
            for row in range(16):
                for i in range(lanes):
                    w[row, i] = blocks[row, base + i]
            for row in range(8):
                for i in range(lanes):
                    v[row, i] = states[row, base + i]
            for t in range(16, 64):  # 6.2.2, step 1
                for i in range(lanes):
                    x, y = w[t - 15, i], w[t - 2, i]
                    x = turn(x, 7) ^ turn(x, 18) ^ u32(x >> u32(3))
                    y = turn(y, 17) ^ turn(y, 19) ^ u32(y >> u32(10))
                    w[t, i] = u32(w[t - 16, i] + x + w[t - 7, i] + y)
            for t in range(64):  # step 3; instead of the letters, their places move
                a, b, c, d = -t & 7, 1 - t & 7, 2 - t & 7, 3 - t & 7
                e, f, g, h = 4 - t & 7, 5 - t & 7, 6 - t & 7, 7 - t & 7
                for i in range(lanes):
                    x, y = v[a, i], v[e, i]
                    big = u32(turn(y, 6) ^ turn(y, 11) ^ turn(y, 25))
                    t1 = u32(v[h, i] + big + u32((y & v[f, i]) ^ (~y & v[g, i])) + rounds[t] + w[t, i])
                    big = u32(turn(x, 2) ^ turn(x, 13) ^ turn(x, 22))
                    t2 = u32(big + u32((x & v[b, i]) ^ (x & v[c, i]) ^ (v[b, i] & v[c, i])))
                    v[d, i] = u32(v[d, i] + t1)
                    v[h, i] = u32(t1 + t2)
            for row in range(8):  # step 4
                for i in range(lanes):
                    states[row, base + i] = u32(states[row, base + i] + v[row, i])

    compress(np.zeros((8, lanes), dtype=np.uint32), np.zeros((16, lanes), dtype=np.uint32))
    return compress  # type: ignore[no-any-return,unused-ignore]


def compile_now() -> None:
    """Have the loop ready from the start."""
    _LOOP.wait()
