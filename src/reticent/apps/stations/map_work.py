"""Work of `reticent location stations check|plan|cost`. Maps, stations and query places are public."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from rich.table import Table

from reticent.apps.stations.map_commands import Asking, Cut
from reticent.apps.stations.public_files import asked_from, roads_of, sites_of
from reticent.arguments import real, whole
from reticent.cli import terminal
from reticent.cli.terminal import down, up
from reticent.errors import ParameterError
from reticent.location.stations import PrivacyCost, Queries, plans, read_stations
from reticent.location.stations.cost import checked_target
from reticent.location.stations.planning import LEAST_LEVEL, MOST_LEVEL
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location import exponential, exposure
from reticent.mechanisms.location.exposure import Near, WorstPair
from reticent.mechanisms.location.truncated_laplace import MOST_DELTA
from reticent.spaces.roads import RoadMap, Roads, Stations

_MOST_LISTED = 8
_MOST_NUMBERS = 16
_SAMPLE = 200  # places at which the pure channel is looked at
_SHORT_KM = 0.001
_DELTA_NOTE = (
    "Delta is that of the worst two places as usually defined, P(S|x) <= e^(level d) P(S|x') + delta; in "
    "brackets as the documents define it, P(S|x) <= e^(level d) (P(S|x') + delta). Places more than two "
    "radii apart share no report: between them the usual delta is 1. Beyond the reach the documents' delta "
    "promises nothing."
)

Number = TypeVar("Number", int, float)


# A map


def check(file: Path, cut: Cut, *, levels: str, radii: str) -> None:
    """Describe a map, and what noise on it promises."""
    wanted, kms = _levels(levels), _radii(radii)
    streets, roads = roads_of(file, cut)
    screen = terminal.console()
    screen.print(terminal.facts(_held(streets, roads, cut)))
    pairs = {(level, km): _worst_pair(roads, level, km) for km in kms for level in wanted}
    table = Table("per km", "pure: moved, beyond horizon", *(f"radius {km:g} km" for km in kms))
    for level in wanted:
        truncated = (
            f"{_format_pair(pair)}, reach {_format_reach(level, pair.delta)}"
            for pair in (pairs[level, km] for km in kms)
        )
        table.add_row(f"{level:g}", _moved(roads, level, cut.horizon), *truncated)
    screen.print(table)
    screen.print(_DELTA_NOTE, soft_wrap=True)
    screen.print("Advice:")
    for line in _advice(streets, roads, cut, pairs):
        screen.print(f"- {line}", soft_wrap=True)


def _held(streets: RoadMap, roads: Roads, cut: Cut) -> list[tuple[str, str]]:
    """Describe the map that was read, and the places it became."""
    jump = roads.by(cut.metric).jump
    border = f"{up(jump, 3)} km; {up(min(jump, cut.horizon), 3)} with the horizon of {cut.horizon:g} km"
    return [
        ("read", f"{len(streets.points):,} nodes, {len(streets.metres):,} streets, "
                 f"{streets.metres.sum() / 1000.0:,.1f} km"),
        ("closed to cars", f"{streets.told.get('closed', 0):,} streets, left out"),
        ("one way", f"{streets.one_way:.1%} of the length"),
        ("islands", f"{roads.told['islands']:,} streets that cars cannot reach and leave, left out"),
        ("places", f"{roads.size:,}, {roads.shortest * 1000.0:.0f} m between the nearest two, "
                   f"{_spacing(roads) * 1000.0:.0f} m on average"),
        ("a border costs", border),
    ]  # fmt: skip


def _spacing(roads: Roads) -> float:
    return float(roads.street.lengths.mean())


def _worst_pair(near: Near, level: float, radius_km: float) -> WorstPair:
    return exposure.find_worst_pair(near, exposure.Law.truncated(near, level, radius_km), level)


def _format_deltas(usual: float, documents: float) -> str:
    """Format delta as it is usually defined, and in brackets as the documents define it."""
    return f"{up(usual, 3)} ({up(documents, 3)})" if documents > 0.0 else "0"


def _format_reach(level: float, delta: float) -> str:
    return "any" if delta <= 0.0 else f"{down(exposure.reach(level, delta) * 1000.0, 3)} m"


def _format_pair(pair: WorstPair) -> str:
    return f"delta {_format_deltas(pair.usual_delta, pair.delta)}"


def _moved(roads: Roads, level: float, horizon: float) -> str:
    """Format how far the pure channel moves reports, and how often beyond the horizon, at even places."""
    channel = exponential(roads.within(horizon), level)
    away, beyond = [], []
    for place in np.unique(np.linspace(0, roads.size - 1, _SAMPLE).astype(np.int64)).tolist():
        law, far = channel.probabilities(place), channel.space.distances(place)
        away.append(float(law @ far))
        beyond.append(float(law[far >= horizon].sum()))
    return f"{np.mean(away) * 1000.0:.0f} m, {np.mean(beyond):.1%}"


def _advice(
    streets: RoadMap, roads: Roads, cut: Cut, pairs: dict[tuple[float, float], WorstPair]
) -> list[str]:
    """Return advice for this map in sentences."""
    said = []
    kept = [
        f"{level:g} per km at {km:g} km" for (level, km), pair in pairs.items() if pair.delta <= MOST_DELTA
    ]
    if not kept:
        said.append(
            "Take the pure channel: no noise that ends at a radius stays at the documents' delta "
            f"{MOST_DELTA:g} here."
        )
    elif len(kept) < len(pairs):
        said.append(
            f"Take the pure channel, or noise that ends at the documents' delta up to {MOST_DELTA:g}: "
            f"{_listed(kept)}."
        )
    if streets.one_way > 0.0:
        level, km = next(iter(pairs))
        directed = _worst_pair(roads.driving, level, km)
        said.append(
            f"State no promise in driven kilometres: along one-way streets at {level:g} per km and {km:g} km "
            f"{_format_pair(directed)} would be needed, by street {_format_pair(pairs[level, km])}."
        )
    else:
        said.append("The map has no one-way streets. If the town has some, driving is longer than told.")
    if roads.told["islands"]:
        said.append(
            "People on an island count as being at the nearest place: check whether that is acceptable."
        )
    jump, level = roads.by(cut.metric).jump, min(level for level, _ in pairs)
    if level * min(jump, cut.horizon) > 1.0:
        said.append(
            f"Two points a hair apart may be told apart at exponent {up(level * min(jump, cut.horizon), 3)} "
            f"at {level:g} per km, where the way round is long; a shorter horizon bounds it."
        )
    fine = [level for level, _ in pairs if level * _spacing(roads) > 1.0]
    if fine:
        said.append(
            f"At {min(fine):g} per km neighbouring places are at exponent "
            f"{up(min(fine) * _spacing(roads), 3)} already: little more than the next corner is hidden."
        )
    return said


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


# Stations


def plan(
    file: Path,
    stations: Path,
    cut: Cut,
    asking: Asking,
    *,
    free: float | None,
    detour: float | None,
    ks: str,
    radii: str,
) -> None:
    """Print every plan that meets the target."""
    checked_target(free, detour)
    counts, kms = _ks(ks), _radii(radii) if radii.strip() else []
    sites, prior = _asked(file, stations, cut, asking)
    found = plans(sites, prior, free=free, detour=detour, ks=counts, radii_km=kms, horizon_km=cut.horizon)
    if not found:
        raise ParameterError(
            f"no level from {LEAST_LEVEL:g} to {MOST_LEVEL:g} per km gives that with k = {ks:.40}"
        )
    table = Table("channel", "level per km", "k", "delta", "reach", "free", f"mean detour, {_unit(sites)}")
    for one in found:
        name = one.channel if one.channel == "pure" else f"radius {one.radius_km:g} km"
        table.add_row(
            name, up(one.level, 3), str(one.k), _format_deltas(one.usual_delta, one.delta),
            _format_reach(one.level, one.delta), f"{one.share_free:.1%}", f"{one.mean_detour:.3g}",
        )  # fmt: skip
    screen = terminal.console()
    screen.print(_who(sites, prior))
    screen.print(table)
    if any(plan.delta for plan in found):
        screen.print(_DELTA_NOTE, soft_wrap=True)
    screen.print(
        "The least level is the most private. A vehicle pays it once for each query and period, and with "
        "companions no more."
    )


def cost(
    file: Path, stations: Path, cut: Cut, asking: Asking, *, levels: str, ks: str, radius: float | None
) -> None:
    """Print what a channel costs those who ask."""
    wanted, counts = _levels(levels), _ks(ks)
    if radius is not None:
        real("radius", radius, low=0.0)
    sites, prior = _asked(file, stations, cut, asking)
    unit = _unit(sites)
    table = Table("per km", "k", "free", f"mean detour, {unit}", "one in ten is free less often than")
    for k in counts:
        queries = Queries(sites, prior, k=k, limit_km=max(cut.horizon, radius or 0.0))
        for level in wanted:
            found = queries.pure(level / 2.0) if radius is None else queries.truncated(level, radius)
            table.add_row(
                f"{level:g}", str(k), f"{found.share_free:.1%}", f"{found.mean_detour:.3g}",
                f"{_tenth(found):.1%}",
            )  # fmt: skip
    screen = terminal.console()
    screen.print(_who(sites, prior))
    screen.print(table)
    for level in wanted if radius is not None else ():
        pair = _worst_pair(sites.roads, level, radius or 0.0)
        screen.print(
            f"At {level:g} per km noise that ends at {radius:g} km leaves {_format_pair(pair)}, "
            f"reach {_format_reach(level, pair.delta)}. {_DELTA_NOTE}",
            soft_wrap=True,
        )


def _tenth(found: PrivacyCost) -> float:
    """Return the 10 % quantile over queries of the chance of no detour."""
    order = np.argsort(found.free)
    return float(found.free[order][np.searchsorted(np.cumsum(found.prior[order]), 0.1)])


def _asked(file: Path, stations: Path, cut: Cut, asking: Asking) -> tuple[Stations, Floats]:
    listed = read_stations(stations)
    _, roads = roads_of(file, cut)
    return sites_of(listed, roads, asking.by), asked_from(asking.asked_from, roads)


def _who(sites: Stations, prior: Floats) -> str:
    _, way = sites.nearest(1)
    mean = float(prior @ way[:, 0] / prior.sum())
    return (
        f"{sites.size:,} sites, queries from {np.count_nonzero(prior):,} places; the nearest site is "
        f"{mean:.3g} {_unit(sites)} away on average."
    )


def _unit(sites: Stations) -> str:
    return "km" if sites.cost == "length" else "s"


# Numbers that are typed


def _levels(text: str) -> list[float]:
    return _several(
        "levels", text, lambda one: real("levels", float(one), low=0.0, high=MOST_LEVEL, open_low=True)
    )


def _radii(text: str) -> list[float]:
    return _several("radii", text, lambda one: real("radii", float(one), low=_SHORT_KM, high=100.0))


def _ks(text: str) -> list[int]:
    return _several("k", text, lambda one: whole("k", int(one), low=1, high=64))


def _several(name: str, text: str, read: Callable[[str], Number]) -> list[Number]:
    """Numbers with commas between, each once, the least first."""
    given = text.split(",")
    if len(given) > _MOST_NUMBERS:
        raise ParameterError(f"{name} must be at most {_MOST_NUMBERS} numbers, got {len(given)}")
    try:
        return sorted({read(one) for one in given})
    except ParameterError:
        raise
    except ValueError as error:
        raise ParameterError(f"{name} must be numbers with commas between, got {text!r:.60}") from error
