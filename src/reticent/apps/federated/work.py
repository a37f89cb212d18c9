"""`reticent federated`: what the commands do."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from reticent.errors import MissingExtra, ParameterError
from reticent.federated import saved, tables, task_file
from reticent.federated.curves import Curves, Origin, Point
from reticent.federated.explanation import clients_needed, explain
from reticent.federated.saved import How, Statement
from reticent.federated.server import study
from reticent.federated.simulation import Step, simulate
from reticent.federated.task_file import TaskFile
from reticent.federated.tasks import Task, signed, task_of
from reticent.files import appearing, not_for_release, private, secluded, tightened, write_new
from reticent.fleet.operator import LEDGER, LEDGER_KEY
from reticent.fleet.record import Record
from reticent.ledger.checkpoint import load_key
from reticent.ledger.witness.opening import opened
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream

MODEL, ROUNDS, PLOT = "model.safetensors", "rounds.jsonl", "curves.png"
_RUN, _CHECKPOINT = "run.json", "checkpoint.npz"
_LARGEST = 1 << 22
_LINES = 12  # rounds in a terminal


def new(file: Path, *, example: bool = False) -> None:
    """Write the template; as an example, with invented rows that it can be simulated on."""
    tables_of = {"table": file.with_suffix(".clients.csv"), "holdout": file.with_suffix(".public.csv")}
    named = {name: path.name for name, path in tables_of.items()} if example else None
    try:
        write_new(file, task_file.template(named))
        if example:
            for path, rows in zip(tables_of.values(), task_file.EXAMPLE_ROWS, strict=True):
                write_new(path, "".join(task_file.example_rows(rows)))
    except FileExistsError as error:
        raise ParameterError(f"{error.filename} exists already") from error
    then = "run" if example else "check"
    Console().print(
        f"{file} is yours to fill in; then `reticent federated {then} {file}`.", soft_wrap=True, markup=False
    )


def described(file: Path) -> TaskFile:
    """What a file in YAML says."""
    if not file.is_file():
        raise ParameterError(f"there is no {file}")
    return task_file.read(file)


def check(file: Path) -> None:
    """Explain a task, from its YAML or from what clients get."""
    if file.suffix.lower() in (".yaml", ".yml"):
        task = described(file).task
    elif not file.is_file() or file.stat().st_size > _LARGEST:
        raise ParameterError(f"there is no task at {file}")
    else:
        task = task_of(file.read_bytes())
    screen = Console()
    for sentence in explain(task):
        screen.print(f"- {sentence}", markup=False, highlight=False)


def sign(file: Path, *, out: Path, key: Path) -> None:
    """Write what clients get."""
    task = described(file).task
    if out.exists():
        raise ParameterError(f"out must not exist, got {out}")
    signer = load_key(key)
    write_new(out, signed(task, signer))
    Console().print(
        f"{out}: task {task.id.hex()}, signed by {signer.public_key().public_bytes_raw().hex()}. Clients need"
        f" that key and this file; whoever has {key} can ask them anything that they allow.",
        soft_wrap=True,
    )


def show(model: Path) -> None:
    """Print a model's statement."""
    found = saved.load(model)
    statement = found.statement
    screen = Console()
    lines = {
        "task": f"{statement.task.name}, version {statement.task.version}: {statement.task.purpose}",
        "rounds": f"{statement.rounds} of {statement.task.rounds}",
        "trained by": statement.how.value,
        **statement.words(),
        "learnt": f"{statement.task.dimensions:,} numbers",
    }
    for name, words in lines.items():
        screen.print(f"{name.replace('_', ' ')}: {words}", markup=False, highlight=False, soft_wrap=True)


# A simulation


def run(
    file: Path,
    *,
    out: Path,
    page: socket.socket | None = None,
    stay: bool = False,
    seed: int | None = None,
    resume: bool = False,
    pace_s: float = 0.0,
) -> None:
    """Train on a table in one process, show how it goes, and write what was learnt.

    Args:
        file: the task.
        out: a folder for what is written.
        page: where a page that shows the curves listens; no page if None.
        stay: keep the page when all is done, until interrupted.
        seed: of a simulation that can be repeated, and is not private.
        resume: go on with the run in `out`.
        pace_s: how long to wait after each round, so that it can be watched.
    """
    given = described(file)
    if given.table is None:
        raise ParameterError(f"task {file.name}: field simulation.table is missing, the rows to train on")
    rows = tables.read(given.table, given.encoding, given.owner)
    needed = clients_needed(given.task)
    if rows.clients < needed:
        raise ParameterError(
            f"{given.table.name} must hold at least {needed:,} clients, got {rows.clients:,}"
        )
    public = None if given.holdout is None else tables.read(given.holdout, given.encoding)
    task = _begun(out, given.task, seed, resume=resume)
    curves = _curves(task, rows, public)
    place = _place(out, curves.origin)
    if resume:
        curves.points += _points(place / ROUNDS, curves.origin)
    screen = Console()
    with _watched(curves, page) as url, _paid(file, task, seed) as paying:
        screen.print(
            f"A simulation: this process holds all {len(rows.targets):,} rows, and plays clients and server. "
            f"Curves: {curves.origin.value}{'' if place == out else f', in {place}'}.",
            soft_wrap=True,
        )
        if url:
            screen.print(f"Watch it at {url}", soft_wrap=True)
        theta = _trained(curves, rows, out, place, seed=seed, resume=resume, pace_s=pace_s, paying=paying)
        how = How.SIMULATION if seed is None else How.SEEDED
        saved.save(out / MODEL, theta, Statement(task, task.rounds, how, given.encoding.described()))
        _told(screen, curves, place)
        screen.print(f"{out / MODEL}: {task.dimensions:,} numbers and what they promise.", soft_wrap=True)
        if url and stay:
            _stay(screen, url)


def listening(port: int | None) -> contextlib.AbstractContextManager[socket.socket | None]:
    """A socket for the page on this machine, 0 for any port; nothing if there is to be no page."""
    if port is None:
        return contextlib.nullcontext()
    from reticent.service.serve import listen

    return listen("127.0.0.1", port)


def _begun(out: Path, task: Task, seed: int | None, *, resume: bool) -> Task:
    """The task of the run in a folder: a new one, or, to go on with it, the one that was begun there."""
    place = out / _RUN
    if not resume:
        if place.exists():
            raise ParameterError(f"out must hold no other run, or give --resume to go on with it, got {out}")
        out.mkdir(parents=True, exist_ok=True)
        with appearing(place, mode=0o600) as file:  # the seed is in it
            file.write(json.dumps({"seed": seed, "task": task.text.decode("ascii")}).encode())
        return task
    if not place.is_file():
        raise ParameterError(f"there is no run in {out} to go on with")
    try:
        held = json.loads(place.read_bytes())
        begun, was = Task.parse(held["task"].encode()), held["seed"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ParameterError(f"{place} must be as a run wrote it") from error
    if was != seed or replace(task, key=begun.key).text != begun.text:
        raise ParameterError(f"the run in {out} has another task or seed: take another --out")
    return begun


def _curves(task: Task, rows: tables.Rows, public: tables.Rows | None) -> Curves:
    if public is None:
        return Curves(task, rows.features, rows.targets, Origin.SIMULATION)
    return Curves(task, public.features, public.targets, Origin.HOLD_OUT)


def _place(out: Path, origin: Origin) -> Path:
    """Where curves go: beside the model if they are of public rows, else apart, for their owner alone.

    What an earlier release left beside the model of curves that are not for release is put there, too.
    """
    if _points(out / ROUNDS, Origin.SIMULATION):
        for name in (ROUNDS, PLOT):
            if (out / name).is_file():
                tightened(out / name).replace(not_for_release(out) / name)
    if origin is Origin.HOLD_OUT:
        return out
    place = not_for_release(out)
    for name in (ROUNDS, PLOT):
        private(place / name)
    return place


@contextlib.contextmanager
def _paid(file: Path, task: Task, seed: int | None) -> Iterator[Callable[[int, int], None] | None]:
    """Enter each round into the ledger beside the task's file, whatever its name, before it is drawn.

    With a seed nothing is promised, so nothing is entered.
    """
    from reticent.query.declarations.claims import claim_ledger

    if seed is not None:
        yield None
        return
    kept = secluded(claim_ledger(file, lambda path: path.with_suffix(".reticent")))
    with opened(kept / LEDGER, signer=kept / LEDGER_KEY) as ledger:
        record, learnt = Record(ledger), study(task)
        yield lambda number, clients: record.learn(learnt, {number: clients})


def _points(path: Path, origin: Origin) -> list[Point]:
    """The rounds that a run wrote before it stopped: whole lines, and of the same origin."""
    found = []
    for line in path.read_text().splitlines() if path.is_file() else ():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            given = json.loads(line)
            is_public = given.pop("origin") == Origin.HOLD_OUT.value
            if is_public is (origin is Origin.HOLD_OUT):
                found.append(Point(**given))
    return found


def _watched(curves: Curves, page: socket.socket | None) -> contextlib.AbstractContextManager[str | None]:
    """The address of the page, while it is there."""
    if page is None:
        return contextlib.nullcontext()
    from reticent.apps.federated.page import watched

    return watched(curves, explain(curves.task)[1:], page)


def _trained(
    curves: Curves,
    rows: tables.Rows,
    out: Path,
    place: Path,
    *,
    seed: int | None,
    resume: bool,
    pace_s: float,
    paying: Callable[[int, int], None] | None,
) -> Floats:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=Console(stderr=True), transient=True) as shown,
        (place / ROUNDS).open("a", encoding="utf-8") as lines,
    ):
        bar = shown.add_task("rounds", total=curves.task.rounds, completed=len(curves.points))

        def on_round(step: Step, theta: Floats) -> None:
            point = curves.add(step, theta)
            lines.write(json.dumps(point.described() | {"origin": curves.origin.value}) + "\n")
            lines.flush()
            shown.update(bar, completed=point.number)
            time.sleep(pace_s)

        found = simulate(
            curves.task,
            rows.features,
            rows.targets,
            owners=rows.owners,
            paying=paying,
            rng=None if seed is None else SimulationStream(seed),
            on_round=on_round,
            checkpoint=out / _CHECKPOINT,
            resume=resume,
        )
    return found.theta


def _told(screen: Console, curves: Curves, place: Path) -> None:
    """What the rounds came to."""
    if not curves.points:
        return
    screen.print(table(curves))
    last = curves.points[-1]
    score = (
        f"{100 * (1 - last.error):.1f} % right" if curves.is_classifier else f"squared error {last.error:.4g}"
    )
    screen.print(
        f"{score} ({curves.origin.value}). No client spent more than epsilon {last.spent:g}; a report took "
        f"{last.bytes_each} bytes.",
        soft_wrap=True,
    )
    with contextlib.suppress(MissingExtra):  # then there is no plot
        _draw(curves, place / PLOT)


def table(curves: Curves) -> Table:
    """Some of the rounds, for a screen."""
    shown = Table(title=f"{curves.task.name}, epsilon {curves.task.epsilon:g} a report", title_justify="left")
    error = "wrong, %" if curves.is_classifier else "squared error"
    for heading in ("round", "clients", "loss", error, "noise", "spent"):
        shown.add_column(heading, justify="right", no_wrap=True)
    step = max(1, len(curves.points) // _LINES)
    for one in [*curves.points[:-1:step], curves.points[-1]]:
        wrong = f"{100 * one.error:.2f}" if curves.is_classifier else f"{one.error:.4g}"
        shown.add_row(
            str(one.number),
            f"{one.clients:,}",
            f"{one.loss:.4f}",
            wrong,
            f"{one.noise:.3g}",
            f"{one.spent:g}",
        )
    return shown


def need_plots() -> Any:
    """Matplotlib, or what to install."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingExtra("the plot", "plot") from error
    return plt


def _draw(curves: Curves, path: Path) -> None:
    plt = need_plots()
    numbers = [one.number for one in curves.points]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    left.plot(numbers, [one.error for one in curves.points])
    left.set(
        ylabel="share of wrong answers" if curves.is_classifier else "mean squared error", xlabel="round"
    )
    right.plot(numbers, [one.loss for one in curves.points])
    right.set(ylabel="loss", xlabel="round")
    figure.suptitle(f"{curves.task.name}, epsilon {curves.task.epsilon:g} a report: {curves.origin.value}")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _stay(screen: Console, url: str) -> None:
    screen.print(f"The page stays at {url} until Ctrl-C.", soft_wrap=True)
    try:
        _wait()
    except KeyboardInterrupt:
        screen.print("Ended.")


def _wait() -> None:
    while True:
        time.sleep(0.5)
