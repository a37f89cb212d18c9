"""`reticent reproduce`: options and help. What it does is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def reproduce(
    name: Annotated[str | None, typer.Argument(help="A name of --list, or all.")] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Show the names and stop.")] = False,
    out: Annotated[Path, typer.Option(help="Directory for CSV, plot and caption.")] = Path("out/reproduce"),
    quick: Annotated[bool, typer.Option("--quick", help="See that it runs; not for quoting.")] = False,
    repetitions: Annotated[
        int | None, typer.Option(help="Of each simulation: 100, or 5 with --quick.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 2026,
    data: Annotated[
        Path | None, typer.Option(help="Directory of the data sets, else that of RETICENT_DATA.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Run as the kept run did, and compare.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep this run for later comparisons.")] = False,
    runs: Annotated[Path, typer.Option(help="Directory of the kept runs.")] = Path("docs/runs"),
) -> None:
    """Redo a figure of the documents, with ours and the limit.

    Writes NAME.csv, NAME.png and NAME.txt, a caption that says what was printed and what we got.
    """
    from reticent.apps.experiments.reproduce import run

    code = run(
        name=name,
        list_only=list_only,
        out=out,
        quick=quick,
        repetitions=repetitions,
        seed=seed,
        data=data,
        check=check,
        keep=keep,
        runs=runs,
    )
    raise typer.Exit(code)
