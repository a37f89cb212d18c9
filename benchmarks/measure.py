"""Interleaved measurement: both sides take turns in one process, so that the machine's mood cancels."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

REPETITIONS = 15


@dataclass(frozen=True)
class Figure:
    """One measured ratio, e.g. how many times faster we are than `peer`."""

    name: str
    peer: str
    target: float
    measure: Callable[[], float]
    at_most: bool = False

    def met(self, ratio: float) -> bool:
        return ratio <= self.target if self.at_most else ratio >= self.target


def cpu_ratio(
    peer: Callable[[], object],
    ours: Callable[[], object],
    *,
    peer_work: float = 1.0,
    our_work: float = 1.0,
    clock: Callable[[], float] = time.process_time,
    repetitions: int = REPETITIONS,
) -> float:
    """Median over repetitions of (our rate) / (peer's rate), where a rate is work per CPU second."""
    peer(), ours()  # warm caches and compilers
    ratios = []
    for _ in range(repetitions):
        start = clock()
        peer()
        middle = clock()
        ours()
        end = clock()
        ratios.append((middle - start) / peer_work / ((end - middle) / our_work))
    return statistics.median(ratios)
