"""Streams of uniform words from AES-256-CTR.

A stream encrypts zeros into one reused buffer and hands out pieces of that buffer. Word i of a
request goes to value i whatever the size of the pieces, so that compiled and plain code that
read the same stream draw the same symbols.

`SecureStream` has no state that could be copied: each thread of each process has its own key, drawn from the
operating system, thrown away after a fork and after `REKEY_BYTES`, and a draw nested into another one has a
key of its own. The first words are the operating system's own: a program that draws a few of them, as a
device does, loads no cipher. `SimulationStream` is deterministic, for tests and simulations, and must be
passed explicitly.

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
from numpy.typing import NDArray

from reticent.arguments import whole
from reticent.errors import ParameterTypeError, ReticentError

Words = NDArray[np.uint64]
Units = NDArray[np.float64]

BUFFER_BYTES = 1 << 19  # long enough stretches for two threads to take turns at Python's lock
REKEY_BYTES = 1 << 36  # far below the 2^68 bytes after which CTR blocks become distinguishable

FIRST_BYTES = 1 << 10  # which the operating system gives at once

_ZEROS = bytes(BUFFER_BYTES)
_EXPONENT_OF_ONE = np.uint64(0x3FF0000000000000)  # bits of the double 1.0
_EXPONENT_BITS = np.uint64(12)


def as_units(words: Words) -> Units:
    """Turn uniform words into doubles in [1, 2), in place."""
    np.right_shift(words, _EXPONENT_BITS, out=words)
    np.bitwise_or(words, _EXPONENT_OF_ONE, out=words)
    return words.view(np.float64)


class _KeyStream:
    """One AES-256-CTR key with its buffer; not thread-safe, never shared.

    Args:
        key: 32 bytes.
        nonce: 16 bytes.
        first: Bytes that are given before the first block of the cipher, 8 bytes a word; nobody else may know
            them.
    """

    def __init__(self, key: bytes, nonce: bytes, first: bytearray | None = None) -> None:
        self._key, self._nonce = key, nonce
        self._encryptor: Any = None
        self._bytes = bytearray() if first is None else first
        self._words = np.frombuffer(self._bytes, dtype=np.uint64)
        self._next = 0
        self.produced = 0

    def _begin(self) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._encryptor = Cipher(algorithms.AES(self._key), modes.CTR(self._nonce)).encryptor()
        self._key = self._nonce = b""  # the cipher has them
        self._bytes = bytearray(BUFFER_BYTES + 15)  # update_into wants room for one more block
        self._words = np.frombuffer(self._bytes, dtype=np.uint64, count=BUFFER_BYTES // 8)

    def piece(self, count: int) -> Words:
        """Return at most `count` further words, a piece of the buffer."""
        if self._next == self._words.size:
            if self._encryptor is None:
                self._begin()
            self._encryptor.update_into(_ZEROS, self._bytes)
            self.produced += BUFFER_BYTES
            self._next = 0
        piece = self._words[self._next : self._next + count]
        self._next += piece.size
        return piece


class Stream(ABC):
    """A source of uniform 64-bit words."""

    @abstractmethod
    def _take(self) -> _KeyStream:
        """Take the key stream that the calling thread may use now out of its place."""

    @abstractmethod
    def _give_back(self, held: _KeyStream) -> None:
        """Put a key stream back."""

    def word_blocks(self, count: int) -> Iterator[Words]:
        """Yield `count` uniform words in pieces of a reused buffer (copy what must last).

        While a piece is in use its key stream is out of its place: a draw nested into the use (a signal
        handler, a second generator, a value that draws when it is read) finds none and gets its own.
        """
        while count > 0:
            held = self._take()
            try:
                piece = held.piece(count)
                count -= piece.size
                yield piece
            finally:
                self._give_back(held)

    def unit_blocks(self, count: int) -> Iterator[Units]:
        """Yield `count` doubles 1 + n 2^-52, n uniform in [0, 2^52), in pieces of a reused buffer.

        Doubles in [1, 2) are equally spaced, so comparing with a threshold 1 + k 2^-52 is an
        exact Bernoulli(k 2^-52) draw, and the comparison vectorises.
        """
        for piece in self.word_blocks(count):
            yield as_units(piece)

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
        return as_units(self.words(count))


class SecureStream(Stream):
    """The production stream: keyed by the operating system, one key per thread and process.

    Instances hold nothing that can be copied, so sharing one between threads, pickling it or
    forking with it is safe. (A piece that a generator has handed out already is not taken back: do not
    fork between the pieces of one request.)
    """

    def _take(self) -> _KeyStream:
        place: tuple[tuple[int, int], _KeyStream] | None = getattr(_PER_THREAD, "place", None)
        _PER_THREAD.place = None
        if place is not None and place[0] == _process() and place[1].produced < REKEY_BYTES:
            return place[1]
        return _KeyStream(os.urandom(32), os.urandom(16), bytearray(os.urandom(FIRST_BYTES)))

    def _give_back(self, held: _KeyStream) -> None:
        if getattr(_PER_THREAD, "place", None) is None:
            _PER_THREAD.place = (_process(), held)


_PER_THREAD = threading.local()
_FORKS = [0]  # forks between this process and the first one that loaded this module


def _count_fork() -> None:
    _FORKS[0] += 1


def _process() -> tuple[int, int]:
    """Tells a process from those it was forked from. The number alone repeats across containers."""
    return os.getpid(), _FORKS[0]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)

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
        self._place: _KeyStream | None = _KeyStream(digest[:32], digest[32:48])
        self._owner = (_process(), threading.get_ident())

    def _take(self) -> _KeyStream:
        if self._owner != (_process(), threading.get_ident()):
            raise ReticentError(
                "a SimulationStream belongs to the thread that made it: give each worker .spawn(number)"
            )
        held, self._place = self._place, None
        if held is None:
            raise ReticentError(
                "a SimulationStream is used within its own use: give one of them .spawn(number)"
            )
        return held

    def _give_back(self, held: _KeyStream) -> None:
        self._place = held

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
