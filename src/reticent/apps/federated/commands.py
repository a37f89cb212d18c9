"""`reticent federated`: options and help. What the commands do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reticent.apps.collect.commands import SigningKey, enrol
from reticent.cli.options import group_of_commands

group = group_of_commands("federated", "Train a model on people's data without seeing it.")

Yaml = Annotated[Path, typer.Argument(metavar="YAML", help="The training task.")]
Clients = Annotated[Path, typer.Option("--out", help="Where clients' file goes; must not exist.")]
File = Annotated[Path, typer.Argument(metavar="TASK", help="A training task: YAML, or signed as JSON.")]


@group.command()
def new(
    file: Annotated[Path, typer.Argument(metavar="YAML", help="Where to write; must not exist.")],
    example: Annotated[
        bool, typer.Option("--example", help="With invented rows beside it, to be simulated as it is.")
    ] = False,
) -> None:
    """Write a training task to be filled in."""
    from reticent.apps.federated.work import new as run

    run(file, example=example)


@group.command()
def check(file: File) -> None:
    """Say in words what is learnt and what it costs a client. Exit code 2 if something does not hold."""
    from reticent.apps.federated.work import check as run

    run(file)


@group.command()
def plan(
    file: Yaml,
    target: Annotated[
        float | None, typer.Option(help="The error to reach: a share of wrong answers, or a squared error.")
    ] = None,
    clients: Annotated[
        str, typer.Option(metavar="N,N,...", help="Numbers of clients to try.")
    ] = "1000,3000,10000,30000,100000,300000",
    repetitions: Annotated[int, typer.Option(help="Simulated trainings of each.")] = 5,
    plot: Annotated[Path | None, typer.Option(help="Where a plot goes.")] = None,
    seed: Annotated[int, typer.Option(help="Of the simulation.")] = 2026,
) -> None:
    """How many clients a target takes, before anyone trains: by simulation on the public hold-out."""
    from reticent.apps.federated.plan import run

    run(file, target=target, clients=clients, repetitions=repetitions, plot=plot, seed=seed)


@group.command()
def sign(file: Yaml, out: Clients, key: SigningKey) -> None:
    """Choose the mechanism, and sign what clients get. It never changes again: a change is a new task."""
    from reticent.apps.federated.work import sign as run

    run(file, out=out, key=key)


group.command()(enrol)


@group.command("run")
def run_(
    file: Yaml,
    out: Annotated[Path, typer.Option("--out", help="A folder for model, rounds and plot.")] = Path(
        "out/training"
    ),
    page: Annotated[bool, typer.Option("--page", help="Show live curves on a local page; it stays.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the page; 0 for any.")] = 0,
    seed: Annotated[
        int | None, typer.Option(help="To repeat a run exactly. Its model is then NOT private.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a run into --out stopped.")] = False,
) -> None:
    """Simulate a training in one process, on a table whose rows play the clients.

    Writes model.safetensors with its privacy statement, rounds.jsonl and curves.png. This process sees the
    rows: for clients that keep theirs, see docs/how-to/federated.md.
    """
    from reticent.apps.federated.work import listening, run

    with listening(port if page else None) as place:
        run(file, out=out, page=place, stay=True, seed=seed, resume=resume)


@group.command()
def show(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model as `run` wrote it.")],
) -> None:
    """What a trained model promises to the people behind it."""
    from reticent.apps.federated.work import show as run

    run(model)


def demo(
    folder: Annotated[Path, typer.Option(help="Where to put task, table, hold-out and model.")] = Path(
        "out/demo-federated"
    ),
    vehicles: Annotated[int, typer.Option(help="Simulated vehicles, each of which reports once.")] = 200_000,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Where to listen; 8000, or any if that is taken.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", envvar="ONCE", help="Train without pauses, and end.")
    ] = False,
) -> None:
    """Watch vehicles learn together when drivers brake hard.

    Every vehicle reports once, a few bits about a gradient, under local privacy; a page shows the curves.
    """
    from reticent.apps.federated.demo import run

    run(folder=folder, vehicles=vehicles, port=port, once=once)
