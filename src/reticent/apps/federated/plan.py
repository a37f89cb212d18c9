"""`reticent federated plan`: how many clients it takes, before anyone trains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from reticent.apps.federated.work import described, need_plots
from reticent.errors import ParameterError
from reticent.federated import comparing, planning, tables
from reticent.federated.task_file import TaskFile


def run(
    file: Path, *, target: float | None, clients: str, repetitions: int, plot: Path | None, seed: int
) -> None:
    """Print, and draw, what so many clients come to."""
    given = described(file)
    if given.holdout is None:
        raise ParameterError(
            f"task {file.name}: field simulation.holdout is missing, public rows like those of clients"
        )
    public, tried = tables.read(given.holdout, given.encoding), _numbers(clients)
    with Progress(console=Console(stderr=True), transient=True) as shown:
        bar = shown.add_task("simulated trainings")
        found = planning.plan(
            given.task,
            public.features,
            public.targets,
            clients=tried,
            target=target,
            repetitions=repetitions,
            seed=seed,
            progress=lambda done, total: shown.update(bar, completed=done, total=total),
        )
    screen = Console()
    screen.print(_plan_table(given, found))
    screen.print(_ways_words(given, public.features, public.targets), soft_wrap=True, highlight=False)
    for sentence in _plan_words(given, found):
        screen.print(sentence, soft_wrap=True, highlight=False)
    if plot is not None:
        _draw_plan(given, found, plot)
        screen.print(f"Plot: {plot}", soft_wrap=True)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ParameterError(f"clients must read like 1000,10000, got {text!r:.60}") from error


def _plan_table(given: TaskFile, found: planning.Plan) -> Table:
    """Return the errors by number of clients, with the rounds of the task and with those of the rule."""
    task, is_classifier = given.task, given.encoding.is_classifier
    each = "one report each" if task.participations == 1 else f"at most {task.participations} reports each"
    shown = Table(title=f"{task.name}, epsilon {task.epsilon:g}, {each}", title_justify="left")
    error = "wrong, %" if is_classifier else "squared error"
    for heading in ("clients", "rounds", error, "95 % interval", "instead", error):
        shown.add_column(heading, justify="right", no_wrap=True)
    for written, proposed in zip(found.points, found.proposals, strict=True):
        low, high = (_error(end, is_classifier) for end in (max(0.0, written.low), written.high))
        mark = "*" if written.clients == found.written else ""
        shown.add_row(
            f"{mark}{written.clients:,}",
            _schedule(written),
            _error(written.error, is_classifier),
            f"[{low}, {high}]",
            _schedule(proposed),
            _error(proposed.error, is_classifier),
        )
    return shown


def _schedule(point: planning.Point) -> str:
    return f"{point.shape.rounds} x {point.shape.group:,}"


def _plan_words(given: TaskFile, found: planning.Plan) -> Iterator[str]:
    is_classifier = given.encoding.is_classifier
    unit = " % wrong" if is_classifier else ""
    floor, baseline = (f"{_error(value, is_classifier)}{unit}" for value in (found.floor, found.baseline))
    answer = "the majority class for everybody" if is_classifier else "the mean for everybody"
    yield (
        f"Without noise: {floor}; {answer}: {baseline}. Simulated on {found.rows:,} public rows, drawn "
        "again and again: no promise about clients who are not like them."
    )
    if found.as_written is not None:
        yield from _schedule_words(found, *found.as_written, is_classifier)
    if found.target is None:
        return
    wanted = f"{_error(found.target, is_classifier)}{unit}"
    if found.clients is None:
        yield f"None of these numbers of clients reaches {wanted}."
    else:
        yield f"{found.clients:,} clients reach {wanted}, the fewest of those tried."


def _schedule_words(
    found: planning.Plan, written: planning.Point, proposed: planning.Point, is_classifier: bool
) -> Iterator[str]:
    """Describe the task as it is written, and the schedule that is better for as many clients."""
    unit = " % wrong" if is_classifier else ""
    errors = [f"{_error(point.error, is_classifier)}{unit}" for point in (written, proposed)]
    yield (
        f"* As written, {written.shape.rounds} rounds of {written.shape.group:,} "
        f"({written.clients:,} clients): {errors[0]}."
    )
    if written.high >= found.baseline:
        yield "As written, training is not surely better than one answer for everybody."
    if proposed.high < written.low:
        yield (
            f"Better for as many clients: {proposed.shape.rounds} rounds of {proposed.shape.group:,}, one "
            f"report each: {errors[1]}. Write rounds: {proposed.shape.rounds} and group: "
            f"{proposed.shape.group} for it."
        )


def _ways_words(given: TaskFile, features: Any, targets: Any) -> str:
    """Both ways of reporting on the public rows: which of them to write into the task."""
    task = given.task
    assert task.model is not None
    both = comparing.compared(task.model, features, targets, epsilon=task.epsilon, group=task.group)
    shown = [
        f"by coordinates {both.coordinates.noise:.3g} ({both.coordinates.kind}, "
        f"{both.coordinates.sample_size} a report, clip {both.coordinates.bound:.3g})",
        f"by Codebook {both.codebook.noise:.3g} (length {both.codebook.bound:.3g})",
    ]
    better = "Codebook" if both.better.is_codebook else "coordinates"
    return (
        f"Noise over signal of a round, at its best: {', '.join(shown)}. Better here: {better}. "
        f"This task has {type(task.mechanism).__name__}."
    )


def _error(error: float, is_classifier: bool) -> str:
    return f"{100 * error:.2f}" if is_classifier else f"{error:.4g}"


def _draw_plan(given: TaskFile, found: planning.Plan, path: Path) -> None:
    plt = need_plots()
    numbers = [one.clients for one in found.points]
    errors = [one.error for one in found.points]
    ends = [[one.error - one.low for one in found.points], [one.high - one.error for one in found.points]]
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    axes.errorbar(numbers, errors, yerr=ends, marker="o", capsize=3, label="with the task's rounds")
    axes.plot(numbers, [one.error for one in found.proposals], ":", label="with the rounds that are proposed")
    axes.axhline(found.floor, color="tab:gray", linestyle="--", label="without noise")
    axes.axhline(found.baseline, color="tab:orange", linestyle="-.", label="one answer for everybody")
    if found.target is not None:
        axes.axhline(found.target, color="tab:red", linestyle=":", label="target")
    task = given.task
    axes.set(
        title=f"{task.name}, epsilon {task.epsilon:g}: simulated on {found.rows:,} public rows",
        xlabel="clients",
        ylabel="share of wrong answers" if given.encoding.is_classifier else "mean squared error",
        xscale="log",
    )
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
