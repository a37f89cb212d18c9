"""`reticent location stations check|plan|cost`: what a map is good for, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from reticent.cli.options import with_options

MapFile = Annotated[
    Path, typer.Argument(metavar="MAP", help="Edges in CSV, GraphML, or Overpass JSON; gzipped or not.")
]
StationFile = Annotated[
    Path, typer.Argument(metavar="STATIONS", help="CSV with lat and lon, or OCPI 2.2.1 Locations in JSON.")
]


@dataclass(frozen=True)
class Cut:
    """Options that turn a map into places."""

    nodes: Annotated[
        Path | None, typer.Option(help="Nodes of a map in CSV; else the file named nodes instead of edges.")
    ] = None
    segment: Annotated[float, typer.Option(help="Length of a place in metres.")] = 100.0
    metric: Annotated[str, typer.Option(help="What is promised is by street, or straight.")] = "street"
    horizon: Annotated[
        float, typer.Option(help="In km: what is farther counts as so far, in the pure channel.")
    ] = 4.0


@dataclass(frozen=True)
class Asking:
    """Options on where queries come from and how driving is counted."""

    asked_from: Annotated[
        Path | None,
        typer.Option(help="PUBLIC points where queries come from: CSV or Parquet; even if not given."),
    ] = None
    by: Annotated[str, typer.Option(help="What driving costs: length (km) or time (seconds).")] = "length"


@with_options
def check(
    file: MapFile,
    cut: Cut,
    levels: Annotated[str, typer.Option(help="Levels per km, with commas.")] = "5,10,15,20",
    radii: Annotated[str, typer.Option(help="Radii in km, with commas.")] = "0.5,1,2",
) -> None:
    """Say what a map holds, what noise on it would promise, and what to do.

    For noise that ends at a radius: its delta over all sets, and the reach beyond which it promises nothing.
    """
    from reticent.apps.stations.map_work import check as run

    run(file, cut, levels=levels, radii=radii)


@with_options
def plan(
    file: MapFile,
    stations: StationFile,
    cut: Cut,
    asking: Asking,
    free: Annotated[float | None, typer.Option(help="Wanted share of queries without detour.")] = None,
    detour: Annotated[float | None, typer.Option(help="Wanted mean detour, in km or seconds.")] = None,
    ks: Annotated[str, typer.Option("--k", help="Sites that an answer may name, with commas.")] = "1,2,3,5",
    radii: Annotated[
        str, typer.Option(help="Radii in km of noise that ends, to compare; none if empty.")
    ] = "",
) -> None:
    """From a wanted detour, or share of queries without one, to level and number of sites: exactly."""
    from reticent.apps.stations.map_work import plan as run

    run(file, stations, cut, asking, free=free, detour=detour, ks=ks, radii=radii)


@with_options
def cost(
    file: MapFile,
    stations: StationFile,
    cut: Cut,
    asking: Asking,
    levels: Annotated[str, typer.Option("--level", help="Levels per km, with commas.")] = "5",
    ks: Annotated[str, typer.Option("--k", help="Sites that an answer names, with commas.")] = "1,3",
    radius: Annotated[
        float | None, typer.Option(help="In km, of noise that ends; the pure channel if not given.")
    ] = None,
) -> None:
    """Compute exactly what asking privately costs drivers: how many pay nothing, and the mean detour."""
    from reticent.apps.stations.map_work import cost as run

    run(file, stations, cut, asking, levels=levels, ks=ks, radius=radius)
