"""Secure draws of the running test with a fixed seed, so that a statistical assertion never fails by chance.

The library draws by `SECURE` unless it is told otherwise, with keys from the operating system. Here the keys
follow from the name of the running test. All code above the key is the real one. Other processes, forked or
started, get keys from the operating system, and so do tests with the mark `secure_draws`. Noise that OpenDP
draws has no seed: tests of it state their false-alarm rate, or use the fixture `seeded_noise`.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from types import ModuleType
from typing import Any

from reticent.randomness import streams


class SeededOs:
    """The module `os` as `reticent.randomness.streams` sees it, with a `urandom` that follows from a name."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._process = module, module.getpid()
        self._name: str | None = None
        self._numbers = itertools.count()

    def start(self, name: str | None) -> None:
        """Begin the draws of a test; None for draws without a seed."""
        self._name, self._numbers = name, itertools.count()
        streams._PER_THREAD.place = None  # the key of the test before

    def urandom(self, size: int) -> bytes:
        """Return bytes that follow from the running test and the number of calls before."""
        if self._name is None or self._module.getpid() != self._process:
            return os.urandom(size)
        text = f"{self._name} {next(self._numbers)}"
        return hashlib.shake_256(text.encode()).digest(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def install() -> SeededOs:
    """Let secure streams of this process take their keys from the running test."""
    seeded = SeededOs(os)
    streams.os = seeded  # type: ignore[assignment]
    return seeded
