"""Delta of channels with finite reach, exactly and over all sets: how much a report can tell beyond a level.

A channel keeps (epsilon, delta) between x and x' if for every set S of reports

    P(S | x) <= e^(epsilon d(x, x')) (P(S | x') + delta)            Biswas 2023, Definition 4.3.1

The worst set holds the reports y with e^(-epsilon d) P(y | x) > P(y | x'), so the least delta is

    max over x, x' of sum over y of max(0, e^(-epsilon d(x, x')) P(y | x) - P(y | x'))

and the sum is a - sum over y of min(a P(y | x), P(y | x')), a = e^(-epsilon d). It is at most a: pairs that
are farther than ln(1/delta)/epsilon need not be looked at, and a sum that has fallen below what was found
need not be finished. Hence a city takes seconds, and no n x n table.

Departure: Theorem 4.3 takes the largest single difference, not the sum: 0.066 where sets give 0.364.
Beyond ln(1/delta)/epsilon, the reach, the inequality holds whatever the channel does, and promises nothing.

This delta is multiplied by e^(epsilon d). The usual definition, P(S | x) <= e^(epsilon d) P(S | x') + delta,
needs e^(epsilon d) times as much between the same two places (`WorstPair.usual_delta`), and a delta of one
between places that have no report in common: two radii apart and farther. State both.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from reticent.arguments import real
from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats
from reticent.spaces.roads.graph import Places, Rows, Starts

_FIRST = 3.0  # over the level: how far pairs are looked for at first
_WIDER = 2.0
_STEP = 4096  # rows that are divided at once
_PAIRS = 1 << 21  # that are looked for at once


class Near(Protocol):
    """Places with distances, directed or not: `Graph`, `Roads`."""

    @property
    def size(self) -> int:
        """The number of places."""

    def rows(self, limit: float, places: Any = None, /) -> Rows:
        """Return the places within a limit of some places."""


@dataclass(frozen=True, eq=False)
class Law:
    """P(y | x) by rows: the y that can be reported from each x, and their chances. Twelve bytes an entry.

    Attributes:
        starts: Index at which each row begins, and at which the last ends.
        places: Places that can be reported.
        chances: Chances of the reports, in the order of `places`.
        totals: Normaliser of each row.
    """

    starts: Starts
    places: Places
    chances: Floats
    totals: Floats

    @classmethod
    def truncated(cls, near: Near, level: float, radius: float) -> Law:
        """Chances in proportion to exp(-level d(x, y)) for d(x, y) <= radius, each x with its own normaliser.

        Reference: Biswas 2023, Eq. 4.2.
        Departures: one orientation, d(x, y), where it prints two; Algorithm 4 has its branches swapped.
        """
        rows = near.rows(radius)
        weights = np.exp(np.multiply(rows.far, -level, out=rows.far), out=rows.far)
        totals = np.add.reduceat(weights, rows.starts[:-1])  # no row is empty: x is in its own
        for first in range(0, len(rows), _STEP):
            last = min(first + _STEP, len(rows))
            some = slice(rows.starts[first], rows.starts[last])
            weights[some] /= np.repeat(totals[first:last], np.diff(rows.starts[first : last + 1]))
        return cls(rows.starts, rows.places, weights, totals)

    @property
    def size(self) -> int:
        """The number of places."""
        return len(self.totals)

    def row(self, place: int) -> tuple[Places, Floats]:
        """Return the places that may be reported from a place, and their chances."""
        here = slice(int(self.starts[place]), int(self.starts[place + 1]))
        return self.places[here], self.chances[here]


@dataclass(frozen=True)
class WorstPair:
    """The two places that need the largest delta at a claimed level.

    Attributes:
        delta: Least delta of Biswas 2023, Definition 4.3.1, which is multiplied by e^(claim distance).
        distance: Distance of the two places.
        claim: Claimed level, in 1/unit of the distance.
    """

    delta: float
    distance: float
    claim: float

    @property
    def usual_delta(self) -> float:
        """The least delta between the same places that is added after the factor e^(claim distance)."""
        return min(1.0, self.delta * math.exp(min(700.0, self.claim * self.distance)))


def find_worst_pair(near: Near, law: Law, claim: float) -> WorstPair:
    """Return the pair of places that needs the largest delta over all sets at a claimed level.

    Args:
        near: Distances d(x, x') that the claim is stated in.
        law: Output distribution of the channel at each place.
        claim: Claimed epsilon, in 1/unit of the distances.
    """
    deltas, distances = _search(near, law, claim, each=False)
    return WorstPair(float(deltas[0]), float(distances[0]), claim)


def delta_over_sets(near: Near, law: Law, claim: float) -> float:
    """Return the least delta over all pairs of places and sets of reports; see `find_worst_pair`."""
    return find_worst_pair(near, law, claim).delta


def delta_of_places(near: Near, law: Law, claim: float) -> Floats:
    """Return the least delta of each place x against all others."""
    return _search(near, law, claim, each=True)[0]


def reach(claim: float, delta: float) -> float:
    """The distance from which on (epsilon, delta) promises nothing: ln(1/delta)/epsilon; 0 for delta >= 1."""
    claim = real("claim", claim, low=0.0, open_low=True)
    if delta <= 0.0:
        return math.inf
    return max(0.0, -math.log(delta)) / claim


def _search(near: Near, law: Law, claim: float, *, each: bool) -> tuple[Floats, Floats]:
    """Return the largest sums, of all places together or of each, and the distances of their pairs.

    Pairs are looked at within limits that grow as needed.
    """
    claim = real("claim", claim, low=0.0, open_low=True)
    if near.size != law.size:
        raise ParameterError(f"law must have a row for each of {near.size} places, got {law.size}")
    best = np.zeros(near.size if each else 1)
    distances = np.zeros_like(best)
    waiting, past, limit = np.arange(near.size), -1.0, _FIRST / claim
    while waiting.size:
        found_all = _pass(near, law, claim, waiting, past, limit, best, distances)
        if each:
            waiting = waiting[~found_all & (best[waiting] < math.exp(-claim * limit))]
        elif best[0] >= math.exp(-claim * limit):
            break
        else:
            waiting = waiting[~found_all]
        lowest = float(best[waiting].min()) if each and waiting.size else float(best.min())
        enough = -math.log(lowest) / claim if lowest > 0.0 else math.inf
        past, limit = limit, min(enough * (1.0 + 1e-12), _WIDER * limit)
    return best, distances


def _pass(
    near: Near, law: Law, claim: float, waiting: Any, past: float, limit: float, best: Floats,
    distances: Floats,
) -> Any:  # fmt: skip
    """Look at pairs from `past` (not included) to `limit`; whether each row held all places."""
    whole = np.zeros(len(waiting), dtype=np.bool_)
    run, held = _loop(importlib.util.find_spec("numba") is not None), np.zeros(near.size)
    step, first = 256, 0
    while first < len(waiting):
        some = waiting[first : first + step]
        pairs = near.rows(limit, some)
        counts = np.diff(pairs.starts)
        whole[first : first + step] = counts == near.size
        run(
            some, pairs.starts, pairs.places, pairs.far, law.starts, law.places, law.chances, claim,
            past, held, best, distances, best.size > 1 or near.size == 1,
        )  # fmt: skip
        first += step
        step = max(1, int(_PAIRS / max(1.0, float(counts.mean()))))
    return whole


@lru_cache(maxsize=2)
def _loop(compiled: bool) -> Callable[..., None]:
    """The sums of the pairs of some places, into `best`: compiled, or by numpy."""
    if not compiled:
        return _plain
    import numba  # type: ignore[import-untyped,unused-ignore]

    @numba.njit(nogil=True)
    def run(  # type: ignore[no-untyped-def]  # pragma: no cover
        some, starts, others, far, law_starts, law_places, chances, claim, past, held, best, distances, each
    ):
        for number in range(len(some)):
            x = some[number]
            slot = x if each else 0
            for at in range(law_starts[x], law_starts[x + 1]):
                held[law_places[at]] = chances[at]
            for pair in range(starts[number], starts[number + 1]):
                if far[pair] <= past:
                    continue
                share = math.exp(-claim * far[pair])
                left, floor, other = share, best[slot], others[pair]
                if left <= floor:
                    continue
                for at in range(law_starts[other], law_starts[other + 1]):
                    left -= min(share * held[law_places[at]], chances[at])
                    if left <= floor:
                        break
                if left > floor:
                    best[slot], distances[slot] = left, far[pair]
            for at in range(law_starts[x], law_starts[x + 1]):
                held[law_places[at]] = 0.0

    return run


def _plain(
    some: Any, starts: Any, others: Any, far: Any, law_starts: Any, law_places: Any, chances: Any,
    claim: float, past: float, held: Floats, best: Floats, distances: Floats, each: bool,
) -> None:  # fmt: skip
    for number, x in enumerate(some.tolist()):
        slot, own = (x if each else 0), slice(law_starts[x], law_starts[x + 1])
        held[law_places[own]] = chances[own]
        pairs = slice(starts[number], starts[number + 1])
        share = np.exp(-claim * far[pairs])
        wanted = (far[pairs] > past) & (share > best[slot])
        other, share, apart = others[pairs][wanted], share[wanted], far[pairs][wanted]
        if other.size:
            counts = law_starts[other + 1] - law_starts[other]
            begins = np.cumsum(counts) - counts
            at = np.arange(counts.sum()) - np.repeat(begins - law_starts[other], counts)
            common = np.minimum(np.repeat(share, counts) * held[law_places[at]], chances[at])
            sums = share - np.add.reduceat(common, begins)
            largest = int(sums.argmax())
            if sums[largest] > best[slot]:
                best[slot], distances[slot] = sums[largest], apart[largest]
        held[law_places[own]] = 0.0
