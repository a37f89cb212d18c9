"""Vectors in a few bits: a client that goes through a codebook, and a server that adds reports up.

Both are compared with numpy's `standard_normal` for as many normal numbers as they need, which is neither
secure nor the same on two sides: ours come from AES under public seeds, a client ranks them besides, and a
server makes them unit length and sums. On the machine that this was written on, half of numpy's rate are
500,000 reports of 100 numbers a second.
"""

from __future__ import annotations

import numpy as np

from benchmarks.measure import Figure, cpu_ratio
from reticent.mechanisms.vector import Codebook
from reticent.mechanisms.vector.codebook import REPORT

CLIENTS, REPORTS = 10, 100_000


def client() -> float:
    """Clients of 1,000 numbers and 10 bits a second / their normal numbers a second."""
    mechanism = Codebook(epsilon=4.0, dimensions=1000, bits=10)
    vectors, generator = np.full((CLIENTS, 1000), 0.01), np.random.default_rng(0)
    return cpu_ratio(
        lambda: generator.standard_normal(CLIENTS * mechanism.size * 1001),
        lambda: [mechanism.sample(vector) for vector in vectors],
    )


def server() -> float:
    """Reports of 100 numbers added up a second / their normal numbers a second."""
    mechanism, generator = Codebook(epsilon=4.0, dimensions=100, bits=8), np.random.default_rng(0)
    reports = np.empty(REPORTS, dtype=REPORT)
    reports["seed"] = generator.integers(0, 1 << 63, REPORTS)
    reports["value"] = generator.integers(0, mechanism.size, REPORTS)
    return cpu_ratio(
        lambda: generator.standard_normal(REPORTS * 101),
        lambda: mechanism.total(reports),
    )


FIGURES = [
    Figure("codebook client, d 1,000, 10 bits", "numpy standard_normal", 0.5, client),
    Figure("codebook server, d 100", "numpy standard_normal", 0.5, server),
]
