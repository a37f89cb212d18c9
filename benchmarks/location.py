"""Location: turns and updates against bare products, Fourier sums against matrices, Paris against qif.

`python -m benchmarks.location million` runs a full cycle on a million cells: channel, signed round, one
report of a device, a million reports drawn from their law, estimate, next channel; times and peak memory.
"""

from __future__ import annotations

import os
import resource
import sys
import time

os.environ.setdefault("POT_BACKEND_DISABLE_PYTORCH", "1")

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.measure import Figure, cpu_ratio
from reticent.estimation.locations import estimated
from reticent.experiments.biswas_2023.chapter_3 import runs
from reticent.experiments.biswas_2023.chapter_3.data import PARIS, load
from reticent.experiments.biswas_2023.chapter_3.times import qif_channel
from reticent.location import PlaceRound, Privic
from reticent.location.rounds import signed, verified
from reticent.mechanisms.location import blahut_arimoto
from reticent.spaces import Box, Grid, kernel

STEPS = 400
RUNS = 5
BETA = 0.5


def crowd(grid: Grid) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.full(grid.size, 0.3))


def pairs(matrix: np.ndarray, vector: np.ndarray) -> None:
    """Two products, as often as there are steps."""
    for _ in range(STEPS):
        matrix @ vector
        matrix @ vector


def turns() -> float:
    """Time of a turn of Blahut-Arimoto / of two bare products, 17 x 24 cells."""
    grid = Grid(17, 24, 1.0, 1.0, unit="cell")
    prior, matrix = crowd(grid), np.exp(-BETA * grid.matrix)
    sums = blahut_arimoto(grid, prior, BETA, turns=0).kernel
    return 1.0 / cpu_ratio(
        lambda: pairs(matrix, prior),
        lambda: blahut_arimoto(grid, prior, BETA, turns=STEPS, tolerance=0.0, sums=sums),
    )


def updates() -> float:
    """Time of an update of the estimate / of two bare products, 17 x 24 cells."""
    grid = Grid(17, 24, 1.0, 1.0, unit="cell")
    prior, matrix = crowd(grid), np.exp(-BETA * grid.matrix)
    channel = blahut_arimoto(grid, prior, BETA, turns=8)
    counts = np.random.default_rng(1).multinomial(10_000, channel.forward(prior))
    return 1.0 / cpu_ratio(
        lambda: pairs(matrix, prior),
        lambda: estimated([(channel, counts)], tolerance=0.0, max_iterations=STEPS, accelerated=False),
    )


def fourier(side: int) -> float:
    """Sums a second by Fourier transforms / by the matrix, side x side cells."""
    grid = Grid(side, side, 1.0, 1.0, unit="cell")
    values = crowd(grid)
    matrix = np.stack([grid.distances(place) for place in range(grid.size)])
    np.exp(np.multiply(matrix, -BETA, out=matrix), out=matrix)
    sums = kernel(grid, lambda d: np.exp(-BETA * d), dense=False)
    assert np.abs(sums(values) - matrix @ values).max() < 1e-10
    many = 20 if side < 80 else 2
    return cpu_ratio(
        lambda: [matrix @ values for _ in range(many)],
        lambda: [sums(values) for _ in range(20 * many)],
        peer_work=many,
        our_work=20 * many,
        repetitions=7,
    )


def paris() -> float:
    """Five runs of all cycles of Paris a second / the channels alone of as many cycles by qif."""
    people = load(PARIS)
    cycles = PARIS.cycles - 1

    def ours() -> None:
        for seed in range(RUNS):
            service = runs.privic(people, 1.0, runs.stream(seed), cycles=cycles)
            runs.distance(people.grid, service.estimate, people.shares)

    def theirs() -> None:
        for _ in range(RUNS * cycles):
            qif_channel(people)

    return cpu_ratio(theirs, ours, repetitions=5)


def million(side: int = 1000, reports: int = 1_000_000) -> float:
    """A full cycle on side x side cells; the peak memory in MB."""
    grid = Grid.over(Box(48.0, 49.0, 2.0, 3.5), side, side)
    people, rng = crowd(grid), np.random.default_rng(1)
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    service, start = Privic(grid, 1.0), time.perf_counter()

    def passed(what: str) -> None:
        print(f"{what}: {time.perf_counter() - start:.1f} s", file=sys.stderr)

    service.learn(service.channel(), rng.multinomial(reports, people))
    channel = service.channel()
    passed("a first round learnt, the next channel made")
    asked = PlaceRound.made(channel, name="million", purpose="to measure", number=1, rounds=2)
    file = signed(asked, key)
    passed(f"signed, {len(file):,} bytes")
    taken = verified(file, key.public_key().public_bytes_raw())
    taken.channel.sample(taken.grid.cells([48.5], [2.5]))
    passed("a device's report")
    law = channel.forward(people)
    service.learn(channel, rng.multinomial(reports, law / law.sum()))
    service.channel()
    passed(f"{reports:,} reports learnt, the next channel made")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


FIGURES = [
    Figure("Blahut-Arimoto turn, 408 cells", "numpy products", 1.2, turns, at_most=True),
    Figure("location update, 408 cells", "numpy products", 1.2, updates, at_most=True),
    Figure("Fourier sums, 2,500 cells", "numpy product", 8.0, lambda: fourier(50)),
    Figure("Fourier sums, 10,000 cells", "numpy product", 35.0, lambda: fourier(100)),
    Figure("PRIVIC, all of Paris", "qif, its channels alone", 1.0, paris),
    Figure("PRIVIC, a million cells, memory", "2,000 MB", 2000.0, million, at_most=True),
]

if __name__ == "__main__" and sys.argv[1:2] == ["million"]:
    print(f"{million():.0f} MB at most")
