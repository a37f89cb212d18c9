"""Streams of uniform words from AES-256-CTR.

A stream encrypts zeros into one reused buffer and hands out pieces of that buffer. Word i of a
request goes to value i whatever the size of the pieces, so that compiled and plain code that
read the same stream draw the same symbols.

`SecureStream` has no state that could be copied: each thread of each process has its own key,
drawn from the operating system, thrown away after a fork and after `REKEY_BYTES`.
`SimulationStream` is deterministic, for tests and simulations, and must be passed explicitly.

Not here: distributions (see `draws` and the mechanisms).
"""

from __future__ import annotations

import hashlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from reticent.arguments import whole
from reticent.errors import ParameterTypeError, ReticentError

Words = NDArray[np.uint64]
Units = NDArray[np.float64]

BUFFER_BYTES = 1 << 18  # fits the second-level cache together with as many inputs and outputs
REKEY_BYTES = 1 << 36  # far below the 2^68 bytes after which CTR blocks become distinguishable

_ZEROS = bytes(BUFFER_BYTES)
_EXPONENT_OF_ONE = np.uint64(0x3FF0000000000000)  # bits of the double 1.0
_EXPONENT_BITS = np.uint64(12)


def _as_units(words: Words) -> Units:
    """Turn uniform words into doubles in [1, 2), in place."""
    np.right_shift(words, _EXPONENT_BITS, out=words)
    np.bitwise_or(words, _EXPONENT_OF_ONE, out=words)
    return words.view(np.float64)


class _KeyStream:
    """One AES-256-CTR key with its buffer; not thread-safe, never shared."""

    def __init__(self, key: bytes, nonce: bytes) -> None:
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(nonce)).encryptor()
        self._bytes = bytearray(BUFFER_BYTES + 15)  # update_into wants room for one more block
        self._words = np.frombuffer(self._bytes, dtype=np.uint64, count=BUFFER_BYTES // 8)
        self._next = self._words.size
        self.produced = 0

    def blocks(self, count: int) -> Iterator[Words]:
        """Yield pieces of the buffer, `count` words in all; each is valid until the next."""
        while count > 0:
            if self._next == self._words.size:
                self._encryptor.update_into(_ZEROS, self._bytes)
                self.produced += BUFFER_BYTES
                self._next = 0
            piece = self._words[self._next : self._next + count]
            self._next += piece.size
            count -= piece.size
            yield piece


class Stream(ABC):
    """A source of uniform 64-bit words."""

    @abstractmethod
    def _key_stream(self) -> _KeyStream:
        """The key stream that the calling thread may use now."""

    def word_blocks(self, count: int) -> Iterator[Words]:
        """Yield `count` uniform words in pieces of a reused buffer (copy what must last)."""
        while count > 0:
            # Asked anew for every buffer, so that a fork or an exhausted key is noticed.
            for piece in self._key_stream().blocks(min(count, BUFFER_BYTES // 8)):
                count -= piece.size
                yield piece

    def unit_blocks(self, count: int) -> Iterator[Units]:
        """Yield `count` doubles 1 + n 2^-52, n uniform in [0, 2^52), in pieces of a reused buffer.

        Doubles in [1, 2) are equally spaced, so comparing with a threshold 1 + k 2^-52 is an
        exact Bernoulli(k 2^-52) draw, and the comparison vectorises.
        """
        for piece in self.word_blocks(count):
            yield _as_units(piece)

    def words(self, count: int) -> Words:
        """Return `count` uniform 64-bit words."""
        words = np.empty(whole("count", count, low=0), dtype=np.uint64)
        start = 0
        for piece in self.word_blocks(count):
            words[start : start + piece.size] = piece
            start += piece.size
        return words

    def units(self, count: int) -> Units:
        """Return `count` doubles 1 + n 2^-52, n uniform in [0, 2^52)."""
        return _as_units(self.words(count))


class SecureStream(Stream):
    """The production stream: keyed by the operating system, one key per thread and process.

    Instances hold nothing that can be copied, so sharing one between threads, pickling it or
    forking with it is safe.
    """

    def _key_stream(self) -> _KeyStream:
        held = getattr(_PER_THREAD, "held", None)
        if held is None or held[0] != os.getpid() or held[1].produced >= REKEY_BYTES:
            held = (os.getpid(), _KeyStream(os.urandom(32), os.urandom(16)))
            _PER_THREAD.held = held
        key_stream: _KeyStream = held[1]
        return key_stream


_PER_THREAD = threading.local()

SECURE = SecureStream()


class SimulationStream(Stream):
    """A deterministic stream for tests and simulations; it protects nobody.

    Args:
        seed: a non-negative whole number.
        path: names the stream within the seed (see `spawn`).
    """

    def __init__(self, seed: int, *, path: tuple[int, ...] = ()) -> None:
        self.seed = whole("seed", seed, low=0)
        self.path = path
        name = "reticent simulation/" + "/".join(str(part) for part in (self.seed, *path))
        digest = hashlib.sha512(name.encode()).digest()
        self._held = _KeyStream(digest[:32], digest[32:48])
        self._owner = (os.getpid(), threading.get_ident())

    def _key_stream(self) -> _KeyStream:
        if self._owner != (os.getpid(), threading.get_ident()):
            raise ReticentError(
                "a SimulationStream belongs to the thread that made it: give each worker .spawn(number)"
            )
        return self._held

    def spawn(self, number: int) -> SimulationStream:
        """Return the independent stream `number` of this one, e.g. one per worker or batch."""
        return SimulationStream(self.seed, path=(*self.path, whole("number", number, low=0)))

    def __reduce__(self) -> NoReturn:
        raise ReticentError("a SimulationStream is not copied between processes: send its seed and a number")


def secure_or(rng: Any) -> Stream:
    """Return the stream to use: the secure one unless `rng` is a stream passed explicitly."""
    if rng is None:
        return SECURE
    if isinstance(rng, Stream):
        return rng
    raise ParameterTypeError(
        f"rng must be None (secure) or a reticent.randomness.Stream, got {type(rng).__name__}"
    )
