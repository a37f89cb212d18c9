"""Years of collecting in the federations of Section 8.5, as printed and with thresholds kept.

Every member has one point. In a year she starts with a random part of her threshold and, by the way of
collecting, repeats it or multiplies it in every further round, until the federation has its goal.

Reference: Biswas 2023, Section 8.5: thresholds normal(5, 1) within [1, 10], goals of 5 a member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream

SIZES = (25, 50, 75, 100)
MOST_ROUNDS = 30
PERIOD = 3  # years of the tolerance period, of which the last one is looked at

Way = Callable[[Floats, Floats], Floats]
"""N of each member, from what she saved this year so far and in the years before, in thresholds."""


def repeated(this_year: Floats, before: Floats) -> Floats:
    """The same again: no catalysing."""
    return np.ones_like(this_year)


def printed(this_year: Floats, before: Floats) -> Floats:
    """N = saving / (points threshold), over the year so far."""
    return np.maximum(this_year, 0.0)


def rounded_up(this_year: Floats, before: Floats) -> Floats:
    """N = max(1, ceil(...)) over the tolerance period."""
    return np.maximum(1.0, np.ceil(np.maximum(this_year, 0.0) + before - 1e-12))


WAYS: dict[str, Way] = {"not catalysed": repeated, "printed": printed, "ours": rounded_up}
COLOURS = {"not catalysed": "#999999", "printed": "#0072B2", "ours": plots.ACCENT}


@dataclass(frozen=True)
class Year:
    """The last year of a federation.

    Attributes:
        rounds: until the goal; `MOST_ROUNDS` if it was not reached.
        reached: whether it was.
        possible: whether the thresholds sum to the goal.
        saved: by member over the tolerance period, in epsilon.
    """

    rounds: int
    reached: bool
    possible: bool
    saved: Floats


def collected(
    stream: SimulationStream, size: int, way: Way, *, kept: bool, goal: float = 5.0, years: int = PERIOD
) -> Year:
    """Years of one federation; the last one is returned.

    Args:
        stream: draws thresholds and starts.
        size: members.
        way: of catalysing.
        kept: whether members stop at their thresholds.
        goal: of the sum of epsilons, for each member.
        years: in all.
    """
    thresholds = _thresholds(stream, size)
    before: list[Floats] = []
    for _ in range(years):
        epsilons = (stream.units(size) - 1.0) * thresholds
        used, rounds = np.zeros(size), 0
        reached = False
        while rounds < MOST_ROUNDS:
            given = np.minimum(epsilons, thresholds - used) if kept else epsilons
            used = used + given
            rounds += 1
            reached = float(used.sum()) >= goal * size
            if reached or not given.any():
                break
            saved_before = np.sum(before[-(PERIOD - 1) :], axis=0) if before else np.zeros(size)
            times = way(1.0 - used / thresholds, saved_before / thresholds)
            epsilons = np.minimum(times * epsilons, thresholds) if kept else times * epsilons
        before.append(thresholds - used)
    return Year(
        rounds if reached else MOST_ROUNDS,
        reached,
        float(thresholds.sum()) >= goal * size,
        np.sum(before[-PERIOD:], axis=0),
    )


def every_case(
    options: Options, figure: int, settings: Mapping[str, tuple[bool, float]]
) -> Iterator[tuple[str, int, str, list[Year]]]:
    """By setting (thresholds kept, goal), size and way: the last years of `options.times` federations."""
    for setting, (kept, goal) in settings.items():
        for size in SIZES:
            for name, way in WAYS.items():
                paths = ((8, figure, size, one) for one in range(options.times))
                streams = (SimulationStream(options.seed, path=path) for path in paths)
                years = [collected(one, size, way, kept=kept, goal=goal) for one in streams]
                yield setting, size, name, years


def _thresholds(stream: SimulationStream, size: int) -> Floats:
    """Normal(5, 1), drawn again where it is not within [1, 10]."""
    found = np.empty(0)
    while found.size < size:
        u, v = stream.units(2 * size).reshape(2, size)
        normal = 5.0 + np.sqrt(-2.0 * np.log(2.0 - u)) * np.cos(2.0 * np.pi * v)
        found = np.concatenate([found, normal[(normal >= 1.0) & (normal <= 10.0)]])
    return found[:size]
