"""The identifier of a file against the plain SHA-256 of its bytes."""

from __future__ import annotations

import hashlib

import numpy as np

from benchmarks.measure import Figure, cpu_ratio
from reticent.store import cid_of

BYTES = 256 << 20


def identifier() -> float:
    """Time for the CID of 256 MiB / time for their SHA-256."""
    content = np.random.default_rng(0).bytes(BYTES)
    return 1.0 / cpu_ratio(lambda: hashlib.sha256(content).digest(), lambda: cid_of(content))


FIGURES = [Figure("store, CID of 256 MiB", "SHA-256", 1.3, identifier, at_most=True)]
