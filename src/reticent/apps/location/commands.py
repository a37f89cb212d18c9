"""`reticent location`: options and help. What they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reticent.apps.stations.commands import group as stations
from reticent.cli.options import group_of_commands

group = group_of_commands("location", "Learn where people are without learning where anyone is.")
privic = group_of_commands(
    "privic", "Collect private reports of places in rounds, each with a better channel."
)
group.add_typer(privic)
group.add_typer(stations)

Folder = Annotated[Path, typer.Argument(metavar="CAMPAIGN", help="The folder of a campaign.")]
Boxed = Annotated[str, typer.Option("--box", help="South, north, west, east in degrees, with commas.")]
Gridded = Annotated[str, typer.Option("--grid", help="Rows x columns: 11x15.")]


@group.command()
def channel(
    box: Boxed,
    grid: Gridded,
    beta: Annotated[float | None, typer.Option(help="Loss parameter per km; the level is twice it.")] = None,
    level: Annotated[float | None, typer.Option(help="Wanted level per km.")] = None,
    distortion: Annotated[float | None, typer.Option(help="Wanted mean distance in km; ba only.")] = None,
    kind: Annotated[str, typer.Option(help="ba, exponential, laplace or lp.")] = "ba",
    prior: Annotated[
        Path | None, typer.Option(help="CSV of row,column,people, public; even if not given.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Where a plot goes.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where the law of the reports goes, CSV.")] = None,
) -> None:
    """Make a channel and say what it keeps, what it costs in distance, and how it hides places.

    One of --beta, --level and --distortion. Distances are in km between the centres of cells.
    """
    from reticent.apps.location.work import channel as run

    run(
        box=box,
        grid=grid,
        beta=beta,
        level=level,
        distortion=distortion,
        kind=kind,
        prior=prior,
        plot=plot,
        out=out,
    )


@group.command()
def estimate(
    folder: Folder,
    out: Annotated[
        Path | None, typer.Option(help="Where the estimate goes: CSV of row,column,share.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Where a map goes.")] = None,
) -> None:
    """Where people are, by maximum likelihood from all rounds of a campaign."""
    from reticent.apps.location.work import estimate as run

    run(folder, out=out, plot=plot)


@group.command()
def report(
    file: Annotated[Path, typer.Argument(metavar="ROUND", help="The signed round.")],
    latitude: Annotated[str, typer.Option(help="In degrees. It never leaves this machine.")],
    longitude: Annotated[str, typer.Option(help="In degrees. It never leaves this machine.")],
    ledger: Annotated[Path, typer.Option(help="This device's ledger; made if there is none.")],
    enrolment: Annotated[Path, typer.Option(help="This device's enrolment.")],
    signer: Annotated[str, typer.Option(help="The public key that is trusted, 64 hexadecimal digits.")],
    out: Annotated[Path, typer.Option(help="Where the report goes.")],
    lifetime: Annotated[float, typer.Option(help="Level per km that this ledger may ever spend.")] = 30.0,
    most: Annotated[float, typer.Option(help="Level per km that one report may spend.")] = 4.0,
    most_jump: Annotated[
        float, typer.Option(help="How many km farther apart two points may be as cells; see the limits.")
    ] = 2.5,
    moved: Annotated[
        bool, typer.Option("--moved", help="The ledger comes from another machine, and is the newest copy.")
    ] = False,
    counted: Annotated[
        Path | None,
        typer.Option(help="What `privic counted` says of this enrolment."),
    ] = None,
) -> None:
    """What a device does: check a round, pay, report one private cell."""
    from reticent.apps.location.work import report as run

    run(
        file,
        latitude=latitude,
        longitude=longitude,
        ledger=ledger,
        enrolment=enrolment,
        signer=signer,
        out=out,
        lifetime=lifetime,
        most=most,
        most_jump=most_jump,
        moved=moved,
        counted=counted,
    )


@privic.command()
def new(
    folder: Folder,
    box: Boxed,
    grid: Gridded,
    beta: Annotated[float, typer.Option(help="Loss parameter per km; a report keeps twice it per km.")],
    purpose: Annotated[str, typer.Option(help="Why it is asked, for the person behind a device.")],
    rounds: Annotated[int, typer.Option(help="How many rounds there will be.")] = 15,
) -> None:
    """Begin a campaign: folder, keys, and the first signed round."""
    from reticent.apps.location.work import new as run

    run(folder, box=box, grid=grid, beta=beta, purpose=purpose, rounds=rounds)


@privic.command()
def show(folder: Folder) -> None:
    """What a campaign asks, what it costs a person, and how far it is."""
    from reticent.apps.location.work import show as run

    run(folder)


@privic.command()
def streets(
    folder: Folder,
    file: Annotated[
        Path, typer.Argument(metavar="MAP", help="Edges in CSV, GraphML, or Overpass JSON; gzipped or not.")
    ],
    nodes: Annotated[Path | None, typer.Option(help="Nodes of a map in CSV, if not beside it.")] = None,
) -> None:
    """Draw the streets of a public map under a campaign's maps, on its page."""
    from reticent.apps.location.work import streets as run

    run(folder, file, nodes=nodes)


@privic.command()
def add(
    folder: Folder,
    reports: Annotated[list[Path], typer.Argument(metavar="REPORT", help="Files of reports.")],
) -> None:
    """Count reports of the open round, each once."""
    from reticent.apps.location.work import add as run

    run(folder, reports)


@privic.command()
def counted(
    folder: Folder,
    id_: Annotated[str, typer.Argument(metavar="ID", help="16 hexadecimal digits, as in its file.")],
) -> None:
    """Print in which rounds an enrolment was counted, for a device that may have forgotten: JSON."""
    from reticent.apps.location.work import counted as run

    run(folder, id_)


@privic.command()
def end(folder: Folder) -> None:
    """End the open round: estimate, and publish the next one."""
    from reticent.apps.location.work import end as run

    run(folder)


@privic.command()
def simulate(
    checkins: Annotated[Path, typer.Argument(metavar="CHECKINS", help="CSV or Parquet with lat and lon.")],
    box: Boxed,
    grid: Gridded,
    beta: Annotated[float, typer.Option(help="Loss parameter per km.")],
    rounds: Annotated[int, typer.Option(help="Rounds.")] = 15,
    people: Annotated[
        int | None, typer.Option(help="Reports a round; as many as check-ins if not given.")
    ] = None,
    liars: Annotated[float, typer.Option(help="Share of reports that lie.")] = 0.0,
    inside: Annotated[bool, typer.Option("--inside", help="Leave out check-ins outside of the box.")] = False,
    seed: Annotated[int, typer.Option(help="Of the simulation.")] = 1,
    out: Annotated[
        Path,
        typer.Option(help="Table and plot go to a folder beside it, which says that they are no release."),
    ] = Path("out/privic"),
) -> None:
    """Play a campaign on check-ins that you hold: how far the estimate is from the truth after each round.

    A simulation: it compares with the truth, which a real service never has.
    """
    from reticent.apps.location.work import simulate as run

    run(
        checkins,
        box=box,
        grid=grid,
        beta=beta,
        rounds=rounds,
        people=people,
        liars=liars,
        inside=inside,
        seed=seed,
        out=out,
    )


def demo(
    people: Annotated[int, typer.Option(help="Simulated people, who report in every round.")] = 5000,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Where to listen; 8000, or any if that is taken.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", envvar="ONCE", help="Report without pauses, and end.")
    ] = False,
) -> None:
    """Watch a city learn where people are, without learning where anyone is.

    People report a cell near the one they are in, in rounds; after each the channel is better. A page shows
    the maps, with the truth of the simulation beside them.
    """
    from reticent.apps.location.demo import run

    run(people=people, port=port, once=once)
