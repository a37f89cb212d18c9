"""`reticent reproduce`: a figure of the documents again, as CSV, plot and caption; and against a kept run.

Exit code 0; with `--check` 1 where a run differs from the kept one, else 2 where one could not be compared.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from reticent.errors import MissingExtra, ParameterError
from reticent.experiments import EXPERIMENTS, Experiment, Options, find, stored
from reticent.experiments.data import DataMissing
from reticent.experiments.stored import Stored

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
    check: bool = False,
    keep: bool = False,
    runs: Path = Path("docs/runs"),
) -> int:
    """Print the list, or run one experiment (or all) and print its caption; return the exit code."""
    console = Console(highlight=False, markup=False)
    if list_only:
        console.print(_listed())
        return 0
    if name is None:
        raise ParameterError("name must be given; `reticent reproduce --list` shows the names")
    if quick and (check or keep):
        raise ParameterError("--quick must not be given with --check or --keep: those are full runs")
    if check and keep:
        raise ParameterError("--keep must not be given with --check: look at the differences first")
    options = Options(
        out=out, quick=quick, repetitions=repetitions, seed=seed, data=data, workers=os.cpu_count() or 1
    )
    wanted = list(EXPERIMENTS.values()) if name == ALL else [find(name)]
    if check:
        return _checked(console, wanted, options, runs)
    for experiment in wanted:
        now = _run_one(experiment, console, options)
        if keep:
            _keep(console, experiment, now, runs)
    return 0


def _checked(console: Console, wanted: list[Experiment], options: Options, runs: Path) -> int:
    """Run again what was kept, as it was run, and compare; of several, those without data are named."""
    several = len(wanted) > 1
    if several:
        wanted = [one for one in wanted if stored.path_of(runs, one.name).is_file()]
        if not wanted:
            raise ParameterError(f"no run is kept in {runs}; --runs names another directory")
    differing, absent = [], []
    for experiment in wanted:
        before = stored.kept(runs, experiment.name)
        try:
            now = _run_one(
                experiment, console, replace(options, repetitions=before.repetitions, seed=before.seed)
            )
        except (DataMissing, MissingExtra) as error:
            if not several:
                raise
            console.print(f"{experiment.name}: not compared: {error}", soft_wrap=True)
            absent.append(experiment.name)
            continue
        if _differs(console, experiment, before, now):
            differing.append(experiment.name)
    if several:
        same = len(wanted) - len(differing) - len(absent)
        console.print(f"{same} as kept; {_named('differ', differing)}; {_named('not compared', absent)}.")
    return 1 if differing else 2 if absent else 0


def _named(what: str, names: list[str]) -> str:
    return f"{len(names)} {what}" + (f" ({', '.join(names)})" if names else "")


def _differs(console: Console, experiment: Experiment, before: Stored, now: Stored) -> bool:
    """Say where two runs differ; whether they do."""
    found = before.differences(now, experiment.tolerance)
    if not found:
        console.print(f"{before.name}: as the kept run ({before.count} rows, seed {before.seed}).")
        return False
    console.print(f"{before.name}: {len(found)} differences from the kept run:", soft_wrap=True)
    for difference in found[: stored.MOST_SAID]:
        console.print(f"  {difference}", soft_wrap=True)
    if before.versions != now.versions:
        console.print(f"  Kept with {_versions(before)}, now {_versions(now)}.", soft_wrap=True)
    return True


def _versions(run: Stored) -> str:
    return ", ".join(f"{name} {number}" for name, number in run.versions.items())


def _keep(console: Console, experiment: Experiment, now: Stored, runs: Path) -> None:
    if experiment.measures_time:
        console.print(f"Not kept: {experiment.name} measures time, which is another on every machine.")
        return
    runs.mkdir(parents=True, exist_ok=True)
    path = stored.path_of(runs, experiment.name)
    path.write_text(now.text(), encoding="utf-8")
    console.print(f"Kept: {path}", soft_wrap=True)


def _run_one(experiment: Experiment, console: Console, options: Options) -> Stored:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(experiment.name, total=None)
        shown = replace(
            options, progress=lambda done, total: progress.update(task, completed=done, total=total)
        )
        outcome, files = experiment.run(shown)
    console.print(outcome.caption, soft_wrap=True)
    console.print(f"\nFiles: {files.csv}, {files.png}, {files.caption}", soft_wrap=True)
    return Stored.of(experiment.name, options, outcome, summary=experiment.shows_data)


def _listed() -> Table:
    table = Table(box=None, show_header=True)
    table.add_column("name", no_wrap=True)
    table.add_column("what it shows")
    table.add_column("data")
    for experiment in EXPERIMENTS.values():
        table.add_row(experiment.name, experiment.title, "needed" if experiment.needs_data else "")
    return table
