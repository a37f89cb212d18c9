"""`reticent location stations forecast|simulate`: options and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reticent.apps.stations.map_commands import Cut, MapFile, StationFile
from reticent.cli.options import with_options


def forecast(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Of a provider.")],
    count: Annotated[
        bool, typer.Option("--count", help="Begin to count what is reported, and end. None is kept else.")
    ] = False,
    hours: Annotated[int, typer.Option(help="Look so many hours back, and as many ahead.")] = 24,
    queries: Annotated[
        int | None,
        typer.Option(help="How many there were, if the edge tells; then its cover is known, too."),
    ] = None,
    stay: Annotated[float, typer.Option(help="Minutes that a car stays at a connector, on average.")] = 45.0,
    new: Annotated[int, typer.Option(help="How many new stations to look for.")] = 1,
    repetitions: Annotated[int, typer.Option(help="Of the estimate, for the intervals.")] = 40,
) -> None:
    """Say what is to come at each station, from private reports: arrivals, free connectors, what is missing.

    Counts are of reported places, companions and cover among them, never of anybody. The page shows the same.
    """
    from reticent.apps.stations.forecast_work import forecast as run

    run(folder, count=count, hours=hours, queries=queries, stay=stay, new=new, repetitions=repetitions)


@with_options
def simulate(
    file: MapFile,
    stations: StationFile,
    cut: Cut,
    level: Annotated[float, typer.Option(help="That a query keeps, per km.")] = 5.0,
    k: Annotated[int, typer.Option("--k", help="Sites that a reply names.")] = 3,
    m: Annotated[int, typer.Option("--m", help="Points of a query, one of them true.")] = 10,
    vehicles: Annotated[int, typer.Option(help="That drive invented journeys.")] = 200,
    queries: Annotated[int, typer.Option(help="Of each journey.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the simulation.")] = 1,
) -> None:
    """Play invented journeys: what asking costs them, and how well a provider learns where they are.

    A simulation: it compares with the truth, which no provider has.
    """
    from reticent.apps.stations.simulate_work import simulate as run

    run(file, stations, cut, level=level, k=k, m=m, vehicles=vehicles, queries=queries, seed=seed)
