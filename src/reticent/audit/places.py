"""Channels for places as the audit sees them: rows of rationals, one for each place that is compared.

The claim is by distance: two places d apart differ by a factor of at most e^(level d) in every report. All
pairs of places are compared on small spaces. On larger ones it is the corners, the places that are reported
most and least, and some between, each over all reports; the claim of a channel rests on its form there
(`mechanisms.location.elastic`).

What it proves: the weights that a device draws by keep the level between the centres of cells. What it does
not: that the sampler follows them (see `fit`), and how points become cells (`check_points`).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from reticent.audit.exact import Row, check_matrix
from reticent.audit.findings import ExactFinding, Finding
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location import ElasticChannel, TableChannel, TruncatedLaplace
from reticent.randomness import SimulationStream
from reticent.spaces.grid import Cells

PLACE_CHANNELS = (ElasticChannel, TableChannel, TruncatedLaplace)
MOST_PLACES = 30  # of which all pairs are compared
_SEEN = 0.01  # the chance of a report that a black box can count
_RADIUS_KM = 6371.0088


def telling_places(channel: Any, most: int = MOST_PLACES) -> list[int]:
    """Return the places whose rows are compared, in order: all of a small space."""
    space = channel.space
    held = np.flatnonzero(space.open)
    if held.size <= most:
        return [int(place) for place in held]
    first = int(held[0])
    far = held[np.argmax(space.distances(first)[held])]
    staying = np.asarray(channel.staying)[held]
    chosen = {first, int(far), int(held[staying.argmax()]), int(held[staying.argmin()])}
    chosen |= {int(held[at]) for at in np.linspace(0, held.size - 1, most - len(chosen)).round().astype(int)}
    return sorted(chosen)


def rows_of(channel: Any, places: list[int] | None = None) -> list[Row]:
    """Return the law of each place as it is drawn: the sampler's whole numbers over their sum."""
    rows: list[Row] = []
    for place in telling_places(channel) if places is None else places:
        weights = channel.weights(place)
        total = sum(weights)
        rows.append([Fraction(weight, total) for weight in weights])
    return rows


def distances_of(channel: Any, places: list[int]) -> list[list[float]]:
    """Between the places, as the space says."""
    return [[float(channel.space.distances(x)[y]) for y in places] for x in places]


def check_places(channel: Any) -> ExactFinding:
    """Compare the rows of a channel with its guarantee, in rationals: its level, and its delta if it has one.

    On more than `MOST_PLACES` places a delta is found too small, never too large: pairs are left out.
    """
    places = telling_places(channel)
    return check_matrix(
        rows_of(channel, places),
        channel.guarantee.epsilon_per_unit,
        delta=getattr(channel.guarantee, "delta", 0),
        distances=distances_of(channel, places),
        names=[f"place {place}" for place in places],
    )


def worst_pair(channel: Any) -> tuple[int, int]:
    """The two places that differ most for their distance, by reports that come often enough to be seen."""
    places = telling_places(channel)
    logs = _logs(channel, places)
    seen = logs > math.log(_SEEN)
    apart = np.array(distances_of(channel, places))
    with np.errstate(invalid="ignore"):
        gaps = np.where(seen[:, None, :], logs[:, None, :] - logs[None, :, :], 0.0).max(axis=2)
    level = gaps / np.where(apart > 0.0, apart, np.inf)
    first, second = np.unravel_index(int(level.argmax()), level.shape)
    return places[int(first)], places[int(second)]


def check_points(channel: Any, *, pairs: int = 20_000) -> Finding:
    """Compare points of the whole globe: d km apart they may differ by e^(level (d + jump)), no more.

    Pairs are anywhere, near each other, across the borders of cells, and around the poles, the date line and
    the far side; d is the great circle between them, worked out here and not by the map that is checked. The
    points are the same in every audit. On spaces of more than `MOST_PLACES` the loss is taken to be the level
    times the distance of the cells, the most that the exact check allows.
    """
    grid, level = channel.space, channel.guarantee.epsilon_per_unit
    here, there = _pairs_of_points(grid, pairs)
    first, second = (grid.cells(points[:, 0], points[:, 1]) for points in (here, there))
    loss = _loss_of_cells(channel, first, second)
    allowed = level * (_great_circles(here, there) + grid.jump)
    worst = int((loss - allowed).argmax())
    passed = bool(loss[worst] <= allowed[worst])
    verdict = "keep" if passed else f"(of which {int((loss > allowed).sum())}) exceed"
    detail = (
        f"{pairs:,} pairs of points {verdict} e^(level (d + {grid.jump:.3g} km)); "
        f"the worst has {loss[worst]:.4g} of {allowed[worst]:.4g}"
    )
    return Finding("points", passed, detail)


def _loss_of_cells(channel: Any, first: Cells, second: Cells) -> Floats:
    grid = channel.space
    if grid.size > MOST_PLACES:
        apart = grid.centres[first] - grid.centres[second]
        return np.asarray(channel.guarantee.epsilon_per_unit * np.hypot(apart[:, 0], apart[:, 1]))
    places = telling_places(channel)
    logs = _logs(channel, places)
    with np.errstate(invalid="ignore"):
        loss = np.nan_to_num(logs[:, None, :] - logs[None, :, :], nan=0.0).max(axis=2)
    at = np.full(grid.size, -1)
    at[places] = np.arange(len(places))
    return np.asarray(loss[at[first], at[second]])


def _pairs_of_points(grid: Any, pairs: int) -> tuple[Floats, Floats]:
    """Latitudes and longitudes: half of the pairs over the globe, half in and around the box."""
    units = SimulationStream(7, path=(pairs,)).units(8 * pairs).reshape(8, pairs) - 1.0
    box = grid.box
    globe = np.stack([np.degrees(np.arcsin(2.0 * units[0] - 1.0)), 360.0 * units[1] - 180.0], axis=1)
    sides = np.array([box.north - box.south, box.east - box.west])
    around = np.array([box.south, box.west]) + (1.5 * units[2:4].T - 0.25) * sides
    here = np.where((np.arange(pairs) % 2 == 0)[:, None], globe, around)
    edges = np.array([[90.0, 0.0], [-90.0, 0.0], [0.0, 180.0], [0.0, -180.0]])
    far = np.array([[-(box.south + box.north) / 2.0, (box.west + box.east) / 2.0 + 180.0]])
    special = np.concatenate([edges, far, far - [0.0, 360.0]])
    odd = np.arange(pairs) % 16 == 0
    here[odd] = special[np.arange(int(odd.sum())) % len(special)]
    steps = 10.0 ** (6.0 * units[4:5].T - 5.0) * (2.0 * units[5:7].T - 1.0)  # degrees: metres to far away
    there = np.where((units[7] < 0.8)[:, None], here + steps, np.roll(here, 1, axis=0))
    beyond = np.abs(there[:, 0]) > 90.0  # over a pole
    there[beyond] = np.stack(
        [np.sign(there[beyond, 0]) * 180.0 - there[beyond, 0], there[beyond, 1] + 180.0], axis=1
    )
    there[:, 1] = (there[:, 1] + 180.0) % 360.0 - 180.0
    return here, there


def _great_circles(here: Floats, there: Floats) -> Floats:
    """Kilometres on the ground, by the haversine formula; the Earth as `spaces` has it."""
    a, b = np.radians(here), np.radians(there)
    half = np.sin((b[:, 0] - a[:, 0]) / 2.0) ** 2
    half += np.cos(a[:, 0]) * np.cos(b[:, 0]) * np.sin((b[:, 1] - a[:, 1]) / 2.0) ** 2
    return np.asarray(2.0 * _RADIUS_KM * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0))))


def _logs(channel: Any, places: list[int]) -> Floats:
    return np.array([[_log(chance) for chance in row] for row in rows_of(channel, places)])


def _log(chance: Fraction) -> float:
    return math.log(chance.numerator) - math.log(chance.denominator) if chance else -math.inf
