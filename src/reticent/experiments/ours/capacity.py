"""A model of collectors on one machine, and of a deployment on many, from what each part costs.

One machine: N collectors share cores with their database and the broker. Each of them in turn needs a core
(its own work, then the database's work for it) and waits for a commit to be on the disk; a core serves one at
a time. That is the queue with a finite source, M/M/m//N, whose states (how many want a core) are a chain of
births and deaths. The broker works beside them, so that its work takes from the cores.

Many machines: by the utilisation law a part that costs D seconds a piece is busy for D X of its time at X
pieces a second. A part that can be divided takes as many cores as that; one that cannot saturates at 1 / D.

Reference: Kleinrock 1975, Ch. 3 (finite customer populations); Denning and Buzen 1978 (utilisation law).
Departure: cores are a real number, since the broker and others on a machine take parts of them.
Units: seconds, pieces a second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from reticent.arguments import real, whole

_STEPS = 200


@dataclass(frozen=True)
class Report:
    """What one report costs, measured on one process.

    Attributes:
        collector_s: CPU of the collector.
        database_s: CPU of the database.
        broker_s: CPU of the broker.
        waiting_s: for the disk, while no core is used: a commit's, divided by the reports in it.
    """

    collector_s: float
    database_s: float
    broker_s: float
    waiting_s: float = 0.0

    def calibrated(self, rate: float, *, cores: float) -> Report:
        """The same, waiting for as long as makes one process as fast as it was measured, or not at all."""
        real("rate", rate, low=0.0)
        low, high = 0.0, 1.0
        if throughput(replace(self, waiting_s=low), 1, cores=cores) <= rate:
            return replace(self, waiting_s=low)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            if throughput(replace(self, waiting_s=middle), 1, cores=cores) > rate:
                low = middle
            else:
                high = middle
        return replace(self, waiting_s=high)


def throughput(report: Report, processes: int, *, cores: float) -> float:
    """Reports a second of so many collectors, with their database and broker on so many cores.

    The broker's share of the cores depends on the throughput and the throughput on what is left: the one
    value that agrees with itself is found by halving, as what is left gives less the more the broker takes.
    """
    whole("processes", processes, low=1, high=10_000)
    real("cores", cores, low=1e-6)
    low, high = 0.0, min(cores, 1.0) / report.broker_s if report.broker_s else 1e9
    for _ in range(_STEPS):
        middle = (low + high) / 2
        left = cores - middle * report.broker_s
        if left > 0.0 and _of_collectors(report, processes, left) > middle:
            low = middle
        else:
            high = middle
    return low


def _of_collectors(report: Report, processes: int, cores: float) -> float:
    """M/M/m//N: the sum over states of how probable they are times how fast they are left.

    Invariant: without waits all want a core, and the rate is min(N, m) / D.
    """
    busy_s, waiting_s = report.collector_s + report.database_s, report.waiting_s
    rates = [min(wanting, cores) / busy_s for wanting in range(processes + 1)]
    if waiting_s <= 0.0:
        return rates[processes]
    logs = [0.0]  # of the probability that j want a core, up to a factor
    for wanting in range(1, processes + 1):
        arrivals = (processes - wanting + 1) / waiting_s
        logs.append(logs[-1] + math.log(arrivals) - math.log(rates[wanting]))
    top = max(logs)
    weights = [math.exp(one - top) for one in logs]
    return sum(p * rate for p, rate in zip(weights, rates, strict=True)) / sum(weights)


@dataclass(frozen=True)
class Part:
    """A part of a deployment.

    Attributes:
        name: of it.
        rate: pieces a second that it is given.
        each_s: seconds that a piece takes of it.
        most: cores that one such part can use; above it is more than one, if it can be divided.
        is_one: whether it cannot be divided today.
    """

    name: str
    rate: float
    each_s: float
    most: float = 1.0
    is_one: bool = False

    @property
    def cores(self) -> float:
        """That are busy, by the utilisation law."""
        return self.rate * self.each_s

    @property
    def load(self) -> float:
        """Of one such part: at 1 it is saturated."""
        return self.cores / self.most

    def needed(self, target: float) -> int:
        """Cores that keep it below a share of its time."""
        return max(1, math.ceil(self.cores / target))
