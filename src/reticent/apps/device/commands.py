"""Options and help of `reticent device`; the work of the commands is in `work`, imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reticent.cli.options import group_of_commands

group = group_of_commands("device", "See what a device told whom; set one lifetime over it.")

File = Annotated[Path, typer.Argument(metavar="FILE", help="The device's ledger.")]


@group.command()
def show(
    file: File,
    html: Annotated[Path | None, typer.Option("--html", help="Write the same as a page.")] = None,
) -> None:
    """Say who learnt what, when, for how much, and what is left.

    The file is only read, also while a program has it open.
    """
    from reticent.apps.device.work import show as run

    run(file, html=html)


@group.command()
def lifetime(
    file: File,
    epsilon: Annotated[float, typer.Option(help="Of all reports together, for ever.")],
    delta: Annotated[
        float | None, typer.Option(help="To count reports with Gaussian noise, too; without it none is sent.")
    ] = None,
    distance_km: Annotated[
        float | None, typer.Option(help="Between which places it holds; without it no place is sent.")
    ] = None,
) -> None:
    """Set one lifetime over surveys, trainings and places, once and for ever.

    What the ledger spent before counts. Whoever opens it from now on pays the lifetime for each report, or
    sends none; the kinds keep their own limits below it.
    """
    from reticent.apps.device.work import set_lifetime as run

    run(file, epsilon=epsilon, delta=delta, distance_km=distance_km)
