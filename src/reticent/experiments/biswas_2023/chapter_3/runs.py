"""PRIVIC in simulation, cycle by cycle, on people whose places are known.

The places of a cycle's people are drawn anew from the true distribution, each independently, so their reports
are independent draws from the law of the reports. That law is drawn from, which is the same and much faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from reticent.estimation.transport import earth_movers_distance
from reticent.experiments.base import Options
from reticent.experiments.biswas_2023.chapter_3.data import City, Population
from reticent.location.privic import Defence, Privic
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream, Stream
from reticent.spaces.finite import Space
from reticent.spaces.grid import Cells

RUNS, QUICK_RUNS = 5, 2  # the documents' five rounds of simulation
QUICK_CYCLES = 5

Lies = Callable[[int], Cells]  # false reports of a cycle, by its number


def runs_of(options: Options) -> int:
    """How often each simulation is repeated."""
    return options.repetitions or (QUICK_RUNS if options.quick else RUNS)


def cycles_of(city: City, options: Options) -> int:
    """The rows N of a printed table that are redone: one more than there are collections."""
    return min(QUICK_CYCLES, city.cycles) if options.quick else city.cycles


def stream(seed: int, *path: int) -> SimulationStream:
    """A stream of its own for each simulation."""
    return SimulationStream(seed, path=(50, *path))


def drawn(law: Floats, count: int, rng: Stream) -> Cells:
    """How often each place is among `count` independent draws."""
    edges = np.cumsum(law)
    places = np.searchsorted(edges[:-1] / edges[-1], rng.units(count) - 1.0, side="right")
    return np.bincount(places, minlength=law.size)


def privic(
    people: Population,
    beta: float,
    rng: Stream,
    *,
    cycles: int,
    reports: int | None = None,
    defence: Defence | None = None,
    lies: Lies | None = None,
    updates: int | None = None,
    seen: Callable[[Privic], Any] = lambda service: None,
) -> Privic:
    """Run PRIVIC for so many collections.

    Args:
        people: where they are.
        beta: in 1/cell.
        rng: of the simulation.
        cycles: collections; the print counts the uniform guess as one more.
        reports: of honest people in a cycle; None for as many as there are check-ins.
        defence: None for the default one.
        lies: reports of others, added to theirs.
        updates: see `Privic`.
        seen: called after each cycle.
    """
    service = Privic(people.grid, beta, defence=defence or Defence(), updates=updates)
    for cycle in range(cycles):
        channel = service.channel()
        honest = people.reports if reports is None else reports
        counts = drawn(channel.forward(people.shares), honest, rng)
        service.learn(channel, counts if lies is None else counts + lies(cycle))
        seen(service)
    return service


def distance(space: Space, estimate: Floats, truth: Floats) -> float:
    """The earth mover's distance, in the space's unit."""
    return earth_movers_distance(space, estimate, truth).value
