"""`reticent audit`: claimed against measured, for one mechanism, the whole library, or one's own function.

Exit code 0 where nothing was found against a claim, 1 where something was, 2 for a bad command line.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from reticent import __version__
from reticent.apps.audit.reports import Places, made_line
from reticent.audit import Report, audit, audit_all, audit_callable
from reticent.audit.gate import EPSILONS
from reticent.audit.page import page
from reticent.audit.page import plot as draw_plot
from reticent.audit.subjects import made
from reticent.errors import ParameterError, ReticentError

_CALLABLE_SAMPLES = 200_000
_QUICK_SAMPLES = 20_000
_TABLES = (".yaml", ".yml", ".csv", ".parquet", ".db", ".duckdb", ".sqlite")


def run(
    *,
    mechanism: str | None,
    epsilon: float | None,
    delta: float,
    function: str | None,
    inputs: str,
    samples: int | None,
    quick: bool,
    plot: Path | None,
    places: Places,
) -> int:
    """Run what was asked for, print the table, write the files; return the exit code."""
    reports = _reports(mechanism, epsilon, delta, function, inputs, samples, quick)
    return shown(reports, quick=quick, plot=plot, places=places)


def shown(
    reports: Sequence[Report], *, quick: bool, plot: Path | None, places: Places, of: str = "mechanism"
) -> int:
    """Print the table, write the files; return the exit code. `of` says what was audited."""
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(_table(reports, console.width))
    for one in reports:
        if len(reports) == 1:
            for found in one.findings:
                console.print(
                    f"{'ok   ' if found.passed else 'FAULT'} {found.check}: {found.detail}", soft_wrap=True
                )
        elif not one.passed:
            console.print(f"FAULT {one.name}, {one.notion} {one.claimed:g}: {one.verdict}", soft_wrap=True)
    if plot is not None:
        draw_plot(reports, plot)
        console.print(f"Plot: {plot}")
    failed = sum(not one.passed for one in reports)
    title = f"Audit of every {of}" if len(reports) > 1 else f"Audit of the {of} {reports[0].name}"
    places.keep(
        console,
        lambda: page(reports, title=title, made=_made(reports, quick)),
        claim=_claim(reports, of),
        is_kept=not failed,
    )
    words = (
        "nothing found against any claim" if not failed else f"{failed} of {len(reports)} break their claim"
    )
    console.print(f"{len(reports)} audited: {words}.")
    return 1 if failed else 0


def _reports(
    mechanism: str | None,
    epsilon: float | None,
    delta: float,
    function: str | None,
    inputs: str,
    samples: int | None,
    quick: bool,
) -> Sequence[Report]:
    if (mechanism is None) == (function is None):
        raise ParameterError("give a MECHANISM, all, or --callable module:name")
    if mechanism is not None and mechanism.lower() == "all":
        return _all(EPSILONS if epsilon is None else (epsilon,), quick)
    if mechanism is not None and Path(mechanism).suffix.lower() in _TABLES:
        raise ParameterError(
            f"mechanism must be a name, got {mechanism!r:.60}: an audit of answers draws thousands of them, "
            "so it invents its own tables (audit all) and takes nobody's"
        )
    if epsilon is None:
        raise ParameterError("give --epsilon, the level that is claimed")
    if function is None:
        assert mechanism is not None
        if delta:
            raise ParameterError("give --delta with --callable only: a mechanism knows its own guarantee")
        return [audit(made(mechanism, epsilon), quick=quick)]
    count = samples or (_QUICK_SAMPLES if quick else _CALLABLE_SAMPLES)
    own = guarded(loaded(function), function)
    return [audit_callable(own, _values(inputs), epsilon=epsilon, delta=delta, samples=count, name=function)]


def _all(epsilons: Sequence[float], quick: bool) -> list[Report]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("auditing", total=None)

        def advance(report: Report, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=f"audited {report.name}")

        return audit_all(epsilons, quick=quick, progress=advance)


def loaded(path: str) -> Callable[..., Any]:
    """The function `module:name`, looked for in the working directory too."""
    module, _, name = path.partition(":")
    if not module or not name or module.startswith("."):
        raise ParameterError(f"callable must be module:name, got {path!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        with of_others(f"callable: module {module!r}"):
            found = importlib.import_module(module)
    except ParameterError as err:
        cause = err.__cause__
        if (
            isinstance(cause, ModuleNotFoundError)
            and cause.name
            and f"{module}.".startswith(f"{cause.name}.")
        ):
            raise ParameterError(f"callable: there is no module {module!r}") from cause
        raise
    finally:
        sys.path.pop(0)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ParameterError(f"callable: module {module!r} has no {name!r}")
        found = getattr(found, part)
    if not callable(found):
        raise ParameterError(f"callable: {path} cannot be called")
    return found


@contextmanager
def of_others(what: str) -> Iterator[None]:
    """Code of the user's: that it raises is no verdict, nor that it ends the process as if all were well.

    Raises:
        ParameterError: in its place, in one line.
    """
    try:
        yield
    except ReticentError:
        raise
    except SystemExit as error:
        raise ParameterError(
            f"{what} ends the process, with exit code {error.code!r:.60}: no audit"
        ) from error
    except Exception as error:
        said = " ".join(str(error).split())
        raise ParameterError(f"{what} raises {type(error).__name__}: {said:.200}") from error


def guarded(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function of the user's, see `of_others`."""

    @wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        with of_others(name):
            return function(*given, **named)

    return called


def _values(text: str) -> list[Any]:
    """Private values such as "-1,1", "nan,0", "(0,1),(1,0)" or "red,blue"."""
    try:
        values = list(ast.literal_eval(f"({text},)"))
    except (ValueError, SyntaxError):
        values = [_word(part.strip()) for part in text.split(",")]
    if len(values) < 2:
        raise ParameterError(f"inputs must hold at least two values, got {text!r}")
    return values


def _word(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


_WIDE = 92  # columns of a terminal that all figures need


def _table(reports: Sequence[Report], width: int) -> Table:
    """The figures that a terminal has room for: what convicts always, the page has all."""
    table = Table(title="claimed against measured", title_justify="left")
    table.add_column("mechanism", overflow="fold")
    table.add_column("claimed", overflow="fold")
    headings = ("exact", "measured", "at 95 %", "fit p") if width >= _WIDE else ("exact", "measured")
    for heading in headings:
        table.add_column(heading, justify="right", overflow="fold")
    table.add_column("verdict", no_wrap=True, min_width=len("verdict"))
    for one in reports:
        figures = {
            "exact": "" if one.exact is None else f"{one.exact.loss:.6g}",
            "measured": "" if one.black_box is None else f">= {one.black_box.lower:.4g}",
            "at 95 %": "" if one.black_box is None else f"{one.black_box.likely:.4g}",
            "fit p": "" if one.fit is None else f"{one.fit.p_value:.2g}",
        }
        table.add_row(
            one.name,
            f"{one.notion} {one.claimed:g}",
            *(figures[heading] for heading in headings),
            "holds" if one.passed else "FAULT",
            style="" if one.passed else "bold red",
        )
    return table


def _made(reports: Sequence[Report], quick: bool) -> str:
    seconds = sum(one.seconds for one in reports)
    return made_line(f"{'quick' if quick else 'full'} audit, {seconds:.0f} s of processor time")


def _claim(reports: Sequence[Report], of: str) -> str:
    """What was claimed, as a ledger keeps it."""
    if len(reports) == 1:
        return f"{of} {reports[0].name}: {reports[0].notion} {reports[0].claimed:g}"
    return f"{len(reports)} mechanisms of reticent {__version__}: each what it claims"
