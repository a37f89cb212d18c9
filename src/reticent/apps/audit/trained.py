"""`reticent audit run`: one training with canaries, of one's own function or of a training task."""

from __future__ import annotations

from pathlib import Path

from reticent.apps.audit.reports import Places
from reticent.apps.audit.work import guarded, loaded, shown
from reticent.audit import Report, audit_run, audit_training
from reticent.errors import ParameterError
from reticent.federated import task_file
from reticent.federated.tasks import Task, task_of

_TASKS = (".yaml", ".yml", ".json")
_LARGEST = 1 << 22


def run(
    what: str,
    *,
    epsilon: float | None,
    delta: float,
    canaries: int,
    guesses: str | None,
    places: Places,
) -> int:
    """Train once, print the verdict, write the page; return the exit code."""
    found = _audited(what, epsilon, delta, canaries, guesses)
    return shown([found], quick=False, plot=None, places=places, of="training")


def _audited(what: str, epsilon: float | None, delta: float, canaries: int, guesses: str | None) -> Report:
    if what.endswith(_TASKS):
        if epsilon is not None or delta or guesses is not None:
            raise ParameterError("epsilon, delta and guesses are for a function: a task says its own epsilon")
        return audit_training(_task(Path(what)), canaries)
    if epsilon is None:
        raise ParameterError("give --epsilon, the level that is claimed")
    numbers = None if guesses is None else _numbers(guesses)
    own = guarded(loaded(what), what)
    return audit_run(own, canaries, epsilon=epsilon, delta=delta, guesses=numbers, name=what)


def _task(path: Path) -> Task:
    """A task as it is signed, or as it was written; its tables are not looked at."""
    if not path.is_file():
        raise ParameterError(f"there is no {path}")
    if path.suffix != ".json":
        return task_file.read(path).task
    with path.open("rb") as file:
        return task_of(file.read(_LARGEST))


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ParameterError(f"guesses must be whole numbers such as 1000,250, got {text!r:.60}") from error
