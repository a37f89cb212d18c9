"""The command `reticent location stations provider`: creates the folder of a provider, and shows it."""

from __future__ import annotations

import contextlib
import time
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

from reticent.apps.location import streets as drawing
from reticent.errors import ParameterError
from reticent.location.stations.library import JourneyLibrary
from reticent.location.stations.provider import SERVICE, Offered, Provider
from reticent.location.stations.sites import read_stations
from reticent.location.stations.traffic import invented
from reticent.randomness import Stream
from reticent.spaces.roads import Roads, cut, read_map

STEP_S = 60  # between two points of an invented journey


def provider(
    folder: Path,
    *,
    file: Path | None,
    nodes: Path | None,
    stations: Path | None,
    purpose: str,
    level: float,
    horizon: float,
    k: int,
    m: int,
    period: int,
    segment: float,
    journeys: int,
) -> None:
    """Make a provider, or show the one that is there."""
    if (folder / SERVICE).exists():
        if file is not None or stations is not None:
            raise ParameterError(f"there is a provider of stations at {folder}: another one needs a folder")
    elif file is None or stations is None:
        raise ParameterError("map and stations must be given for a new provider")
    else:
        streets = read_map(file, nodes)
        roads = cut(streets, segment).within(horizon)
        offered = Offered(folder.name, purpose, level, k, m, period)
        library = invented_library(roads, folder.name, journeys) if m > 1 else None
        start = int(time.time()) // 86_400 * 86_400
        Provider.begin(folder, roads, read_stations(stations), offered, start=start, library=library).close()
        with contextlib.suppress(ParameterError):  # too many to draw: a page shows how places join instead
            drawing.write(folder, streets)
    _show(folder)


def invented_library(roads: Roads, name: str, count: int, rng: Stream | None = None) -> JourneyLibrary:
    """Sample a library of invented journeys; rng None for secure randomness."""
    found = [one.tolist() for one in invented(roads, count=count, seconds=STEP_S, least=2, rng=rng)]
    return JourneyLibrary.of(roads, found, seconds=STEP_S, name=name, purpose="Companions, invented.")


def _show(folder: Path) -> None:
    with closing(Provider(folder)) as held:
        text, roads = held.service, held.area.roads
        rows = (
            ("places", f"{roads.size:,}, horizon {text.horizon_km:g} km"),
            ("stations", f"{len(held.stations)}, {sum(map(bool, held.free()))} with a free connector"),
            ("one query", f"{text.level:.6g} per km of street, against edge and provider together"),
            ("across", f"epsilon {text.level * text.horizon_km:.4g} between any two places, at most"),
            ("points", f"{text.m} in a query, {text.k} stations in a reply"),
            ("period", f"{text.period_s} s"),
            ("map", f"{len(held.map_file):,} bytes"),
        )
        signer = held.signer.hex()
    console = Console(highlight=False)
    console.print(text.purpose)
    table = Table(show_header=False, box=None)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print(f"Vehicles trust the signer {signer}", soft_wrap=True)
