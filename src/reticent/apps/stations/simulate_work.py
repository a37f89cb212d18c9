"""The command `reticent location stations simulate`: simulated queries beside the exact figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from reticent.apps.stations.map_commands import Cut
from reticent.apps.stations.provider_work import STEP_S, invented_library
from reticent.apps.stations.public_files import roads_of, sites_of
from reticent.arguments import real, whole
from reticent.cli import terminal
from reticent.errors import ParameterError
from reticent.estimation.transport import earth_movers_distance
from reticent.location.stations.companions import Companions
from reticent.location.stations.cost import Queries
from reticent.location.stations.demand import demand_of
from reticent.location.stations.library import JourneyLibrary
from reticent.location.stations.sites import read_stations
from reticent.location.stations.tracing import Attacker, Driving, chance_of_finding
from reticent.location.stations.traffic import invented
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location import ElasticChannel, exponential
from reticent.randomness import SimulationStream, Stream
from reticent.spaces.grid import Cells
from reticent.spaces.roads import Roads

_LIBRARY = 200  # journeys
_ATTACKED = 100  # journeys that are looked for
_CROWDED = 0.2  # of the map: around its middle most journeys begin and end; those of the library anywhere


def simulate(
    file: Path,
    stations: Path,
    cut: Cut,
    *,
    level: float,
    k: int,
    m: int,
    vehicles: int,
    queries: int,
    seed: int,
) -> None:
    """Play, and print both."""
    level = real("level", level, low=0.0, high=200.0, open_low=True)
    k, m = whole("k", k, low=1, high=16), whole("m", m, low=1, high=64)
    vehicles, queries = (
        whole("vehicles", vehicles, low=2, high=10_000),
        whole("queries", queries, low=1, high=20),
    )
    stream, listed = SimulationStream(whole("seed", seed, low=0)), read_stations(stations)
    _, roads = roads_of(file, cut)
    sites, roads = sites_of(listed, roads), roads.within(cut.horizon)
    true = _asked(roads, vehicles, queries, stream)
    companions = Companions(roads, invented_library(roads, "simulated", _LIBRARY, stream))
    channel = exponential(roads, level)
    others = companions.journeys(vehicles * (m - 1), queries, stream)
    reports, along = channel.sample(true, stream), channel.sample(others, stream)
    asked = Queries(sites, np.bincount(true.reshape(-1), minlength=roads.size), k=k, limit_km=cut.horizon)
    costs = _costs(asked, true, reports)
    helped = np.minimum(costs, _best(asked, true, along.reshape(vehicles, m - 1, queries)))
    exact = asked.pure(level / 2.0)
    seen = np.bincount(np.concatenate([reports.reshape(-1), along.reshape(-1)]), minlength=roads.size)
    law = companions.law(queries)
    begin = 0.5 * law + 0.5 / roads.size  # what everybody knows, and a little of everywhere
    found = demand_of(channel, seen, law=law, m=m, start=begin, rng=stream)
    truth = np.bincount(true.reshape(-1), minlength=roads.size) / true.size
    screen = terminal.console()
    screen.print(
        f"{vehicles:,} invented journeys of {queries} queries on {roads.size:,} places, {sites.size} sites.",
        soft_wrap=True,
    )
    attack = _found(channel, companions, reports, along, m, stream)
    rows = (
        ("without a detour", f"{np.mean(costs <= 0.0):.1%}; exactly {exact.share_free:.1%}"),
        ("mean detour", f"{1000 * costs.mean():.0f} m; exactly {1000 * exact.mean_detour:.0f} m"),
        ("with companions' replies", f"{np.mean(helped <= 0.0):.1%} without, {1000 * helped.mean():.0f} m"),
        ("a vehicle pays", f"{level:g} per km a query, {terminal.up(queries * level)} in all"),
        ("true journey found", f"{attack:.0%} of times by who knows all laws; guessing {1.0 / m:.0%}"),
        ("where they ask, estimated", _away(roads, found.distribution, truth, found.updates)),
        ("by public journeys alone", _away(roads, begin, truth)),
    )
    screen.print(terminal.facts(rows))
    screen.print("A simulation: no provider knows the truth that it compares with.")


def _driven(roads: Roads, count: int, stream: Stream) -> list[Cells]:
    """Invented journeys, most of which begin and end around the middle."""
    middle = np.exp(-0.5 * np.square(roads.seen / (_CROWDED * np.ptp(roads.seen, axis=0))).sum(axis=1))
    return invented(roads, middle + 1e-3, count=count, seconds=STEP_S, least=2, rng=stream)


def _asked(roads: Roads, vehicles: int, queries: int, stream: Stream) -> Cells:
    """Sample where journeys ask: at points a step apart, the last one again where a journey is short."""
    found = _driven(roads, vehicles, stream)
    return np.stack([way[np.minimum(np.arange(queries), len(way) - 1)] for way in found])


def _costs(asked: Queries, true: Cells, reports: Cells) -> Floats:
    """Return the cost of each report for its query."""
    pairs = zip(true.reshape(-1).tolist(), reports.reshape(-1), strict=True)
    return np.array([float(asked.costs(place, report)) for place, report in pairs]).reshape(true.shape)


def _best(asked: Queries, true: Cells, along: Cells) -> Any:
    """Return the least cost that any companion's reply gives a query."""
    if not along.shape[1]:
        return np.inf
    return np.array(
        [
            [float(asked.costs(int(place), along[car, :, query]).min()) for query, place in enumerate(way)]
            for car, way in enumerate(true)
        ]
    )


def _found(
    channel: ElasticChannel,
    companions: Companions,
    reports: Cells,
    along: Cells,
    m: int,
    stream: Stream,
) -> float:
    """Return how often an attacker finds the true journey, if he knows which reports belong together.

    He knows map, channel and companions, and drives as the people do: he has journeys of theirs.
    """
    if m == 1:
        return 1.0
    roads, queries = companions.roads, reports.shape[1]
    ways = [one.tolist() for one in _driven(roads, _LIBRARY, stream)]
    theirs = JourneyLibrary.of(roads, ways, seconds=STEP_S, name="people", purpose="A simulation.")
    attacker = Attacker(channel, Driving(Companions(roads, theirs), queries), Driving(companions, queries))
    true = attacker.scores(reports[:_ATTACKED])[:, -1]
    return chance_of_finding(true, attacker.scores(along[: m * _ATTACKED])[:, -1], m)


def _away(roads: Roads, shares: Floats, truth: Floats, updates: int | None = None) -> str:
    try:
        away = earth_movers_distance(roads, shares, truth).value
    except ParameterError as error:
        return f"not worked out: {error}"
    turns = "" if updates is None else f" after {updates} updates"
    return f"{away:.3f} km from the truth by the earth mover's distance{turns}"
