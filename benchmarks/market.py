"""Clearing a market against numpy's sort of its prices; Shapley values against one pass of the recursion."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np

from benchmarks.measure import Figure, cpu_ratio
from reticent.market import Linear, Log, clearing_c, shapley, threshold_values

SELLERS = 1_000_000
MEMBERS, STEPS = 1_000, 100
PRINTED_27_S = 0.019  # of 27 members, pruned: Biswas 2023, Table 8.1


def _prices():
    return np.clip(np.random.default_rng(0).normal(1.0, 1.0, SELLERS), 0.0, 2.0)


def clearing(family) -> float:
    """Time to clear a million sellers / time to sort their prices."""
    prices = _prices()
    return 1.0 / cpu_ratio(lambda: np.sort(prices), lambda: clearing_c(family, prices, 0.06 * SELLERS))


def clearing_memory() -> float:
    """The most memory that clearing takes beside the prices, in arrays of prices."""
    prices = _prices()
    clearing_c(Log, prices, 0.06 * SELLERS)
    tracemalloc.start()
    clearing_c(Log, prices, 0.06 * SELLERS)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / prices.nbytes


def values_in_passes() -> float:
    """Shapley values of 1,000 members in 100 steps / one pass of the weight recursion over them."""
    weights = np.random.default_rng(1).integers(1, STEPS + 1, MEMBERS)
    quota = int(weights.sum()) // 2
    different, counts = np.unique(weights, return_counts=True)
    kernel = shapley._kernel()

    def one_pass() -> None:
        kernel(different, counts, 0.4, np.zeros(quota), np.zeros(len(different)))

    def ours() -> None:
        threshold_values(weights.tolist(), quota)

    return 1.0 / cpu_ratio(one_pass, ours, repetitions=3)


def values_of_27() -> float:
    """Seconds for the Shapley values of 27 members / those printed; the best of many."""
    weights = np.random.default_rng(2).integers(1, STEPS + 1, 27).tolist()
    quota, best = sum(weights) // 2, float("inf")
    for _ in range(50):
        start = time.perf_counter()
        threshold_values(weights, quota)
        best = min(best, time.perf_counter() - start)
    return best / PRINTED_27_S


@functools.cache
def _beside_shapiq() -> tuple[float, float]:
    """How many times faster we are for 16 members, and the largest difference for 2 to 16 of them."""
    python = Path(sys.prefix) / "shapiq/bin/python"
    command = [str(python), "-m", "benchmarks.beside_shapiq"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    faster, apart = run.stdout.split()[-2:]
    return float(faster), float(apart)


FIGURES = [
    Figure("market, clearing a million, log", "numpy's sort", 6.0, lambda: clearing(Log), at_most=True),
    Figure("market, clearing a million, line", "numpy's sort", 6.0, lambda: clearing(Linear), at_most=True),
    Figure("market, memory of clearing", "one array of prices", 6.0, clearing_memory, at_most=True),
    Figure("market, Shapley of 1,000", "a pass of the recursion", 120.0, values_in_passes, at_most=True),
    Figure("market, Shapley of 27", "0.019 s as printed", 0.25, values_of_27, at_most=True),
    Figure("market, Shapley of 16", "shapiq 1.4.1", 200.0, lambda: _beside_shapiq()[0]),
    Figure("market, Shapley to 16, apart", "shapiq 1.4.1", 1e-12, lambda: _beside_shapiq()[1], at_most=True),
]
