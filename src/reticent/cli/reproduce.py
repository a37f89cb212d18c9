"""`reticent reproduce`: a figure of the documents again, as CSV, plot and caption."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from reticent.errors import ParameterError
from reticent.experiments import EXPERIMENTS, Experiment, Options, find

ALL = "all"


def run(
    *,
    name: str | None,
    list_only: bool,
    out: Path,
    quick: bool,
    repetitions: int | None,
    seed: int,
    data: Path | None,
) -> None:
    """Print the list, or run one experiment (or all) and print its caption."""
    console = Console(highlight=False, markup=False)
    if list_only:
        console.print(_listed())
        return
    if name is None:
        raise ParameterError("name must be given; `reticent reproduce --list` shows the names")
    wanted = list(EXPERIMENTS.values()) if name == ALL else [find(name)]
    for experiment in wanted:
        _run_one(experiment, console, out, quick, repetitions, seed, data)


def _run_one(
    experiment: Experiment,
    console: Console,
    out: Path,
    quick: bool,
    repetitions: int | None,
    seed: int,
    data: Path | None,
) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(experiment.name, total=None)
        options = Options(
            out=out,
            quick=quick,
            repetitions=repetitions,
            seed=seed,
            data=data,
            workers=os.cpu_count() or 1,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
        outcome, files = experiment.run(options)
    console.print(outcome.caption, soft_wrap=True)
    console.print(f"\nFiles: {files.csv}, {files.png}, {files.caption}", soft_wrap=True)


def _listed() -> Table:
    table = Table(box=None, show_header=True)
    table.add_column("name", no_wrap=True)
    table.add_column("what it shows")
    table.add_column("data")
    for experiment in EXPERIMENTS.values():
        table.add_row(experiment.name, experiment.title, "needed" if experiment.needs_data else "")
    return table
