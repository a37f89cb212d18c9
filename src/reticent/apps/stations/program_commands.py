"""`reticent location stations provider|edge|ask`: the three programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Signer = Annotated[str, typer.Option(help="The provider's public key, 64 hexadecimal digits.")]


def provider(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Of the provider: stations/NAME in a service's folder.")
    ],
    file: Annotated[
        Path | None,
        typer.Option("--map", help="Edges in CSV, GraphML, or Overpass JSON; gzipped or not."),
    ] = None,
    nodes: Annotated[Path | None, typer.Option(help="Nodes of a map in CSV, if not beside it.")] = None,
    stations: Annotated[
        Path | None, typer.Option(help="CSV with lat and lon, or OCPI 2.2.1 Locations in JSON.")
    ] = None,
    purpose: Annotated[str, typer.Option(help="For the people who ask.")] = "The nearest free stations.",
    level: Annotated[float, typer.Option(help="What one query keeps, per km of street.")] = 5.0,
    horizon: Annotated[float, typer.Option(help="In km: what is farther counts as so far.")] = 4.0,
    k: Annotated[int, typer.Option("--k", help="Stations that a reply names.")] = 3,
    m: Annotated[int, typer.Option("--m", help="Points of a query, one of them true.")] = 10,
    period: Annotated[int, typer.Option(help="Seconds for which a query stays the same.")] = 300,
    segment: Annotated[float, typer.Option(help="Length of a place in metres.")] = 100.0,
    journeys: Annotated[int, typer.Option(help="Invented journeys of which companions are made.")] = 400,
) -> None:
    """Make a provider of stations, which `reticent serve` serves; or show the one that is there."""
    from reticent.apps.stations.provider_work import provider as run

    run(
        folder,
        file=file,
        nodes=nodes,
        stations=stations,
        purpose=purpose,
        level=level,
        horizon=horizon,
        k=k,
        m=m,
        period=period,
        segment=segment,
        journeys=journeys,
    )


def edge(
    provider: Annotated[str, typer.Option(help="URL of the service that has the provider.")],
    signer: Signer,
    name: Annotated[str, typer.Option(help="Of the provider there.")],
    master: Annotated[Path, typer.Option(help="The key of this edge's enrolments; made if there is none.")],
    batch: Annotated[int, typer.Option(help="Requests that leave together.")] = 20,
    window: Annotated[float, typer.Option(help="Seconds that the first of them waits at most.")] = 2.0,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 8100,
) -> None:
    """Carry sealed points of enrolled vehicles to a provider, those of many at once.

    Enrolments are made by `reticent survey enrol --master`, and taken back by `reticent enrolment revoke`.
    """
    from reticent.apps.stations.edge_work import edge as run

    run(
        provider=provider,
        signer=signer,
        name=name,
        master=master,
        batch=batch,
        window=window,
        host=host,
        port=port,
    )


def ask(
    edge: Annotated[str, typer.Option(help="URL of the edge.")],
    at: Annotated[str, typer.Option(help="LAT,LON in degrees. It never leaves this machine.")],
    ledger: Annotated[Path, typer.Option(help="This vehicle's ledger; made if there is none.")],
    signer: Signer,
    enrolment: Annotated[
        Path | None, typer.Option(help="What the edge's operator gave this vehicle; not for --whole-map.")
    ] = None,
    lifetime: Annotated[float, typer.Option(help="Level per km that this ledger may ever spend.")] = 30.0,
    most: Annotated[float, typer.Option(help="Level per km that one query may spend.")] = 5.0,
    most_horizon: Annotated[float, typer.Option(help="The largest horizon in km that is allowed.")] = 5.0,
    book: Annotated[
        bool, typer.Option("--book", help="Book the nearest. It tells the provider in which cell you are.")
    ] = False,
    whole_map: Annotated[
        bool,
        typer.Option("--whole-map", help="Fetch which stations are free, all of them: it tells nothing."),
    ] = False,
    moved: Annotated[
        bool, typer.Option("--moved", help="The ledger comes from another machine, and is the newest copy.")
    ] = False,
) -> None:
    """Ask for free stations nearby: pay, draw, send sealed points, and choose here.

    Within a period the same points are sent again, free. Maps are kept beside the ledger.
    """
    from reticent.apps.stations.asking import ask as run

    run(
        edge=edge,
        at=at,
        ledger=ledger,
        signer=signer,
        enrolment=enrolment,
        lifetime=lifetime,
        most=most,
        most_horizon=most_horizon,
        book=book,
        whole_map=whole_map,
        moved=moved,
    )
