"""`reticent audit flower`: what leaves of one's own ClientApp, on invented data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console

from reticent.apps.audit import reports
from reticent.apps.audit.work import guarded, loaded
from reticent.audit.leak_page import leak_page, of_update
from reticent.errors import MissingExtra, ParameterError

if TYPE_CHECKING:
    from reticent.audit.flower import FlowerAudit


def run(
    *,
    app: str,
    data: str | None,
    model: str | None,
    loss: str | None,
    rate: float | None,
    returns: str,
    epsilon: float | None,
    private: list[str],
    numbered: bool,
    runs: int,
    places: reports.Places,
) -> int:
    """Run the app, print what was found, write the report; return the exit code."""
    try:
        from reticent.audit.flower import audit_flower
    except ImportError as error:
        raise MissingExtra("the audit of an app", "flower") from error
    found = audit_flower(
        loaded(app),
        _data_sets(data or f"{app.partition(':')[0]}:neighbours"),
        model=None if model is None else guarded(loaded(model), model)(),
        loss=loss,
        rate=rate,
        returns=returns,
        epsilon=epsilon,
        private=private,
        numbered=numbered,
        runs=runs,
    )
    console = Console(highlight=False, markup=False, emoji=False)
    for line in found.lines:
        console.print(line, soft_wrap=True)
    faults = sum(not one.passed for one in found.findings) + sum(one.found for one in found.updates)
    words = "nothing that it should not learn" if found.passed else f"too much, in {faults} ways"
    console.print(f"From what {app} sends the server learns {words}.", soft_wrap=True)
    places.keep(
        console, lambda: _page(app, found), claim=f"flower app {app}: {found.claim}", is_kept=found.passed
    )
    return 0 if found.passed else 1


def _page(app: str, found: FlowerAudit) -> str:
    exhibits = [
        of_update(update, sent, title=f"Data set {number}: its update")
        for number, (update, sent) in enumerate(zip(found.updates, found.sent, strict=True))
    ]
    how = f"{found.runs} runs of {app} on each data set; claimed: {found.claim}"
    return leak_page(
        exhibits,
        title=f"What leaves of {app}",
        made=reports.made_line(how),
        findings=found.findings,
        notes=found.notes,
    )


def _data_sets(path: str) -> Any:
    made = guarded(loaded(path), path)()
    if not isinstance(made, (list, tuple)) or len(made) < 2 or not all(callable(one) for one in made):
        raise ParameterError(
            f"{path} must return at least two functions, each of which puts a data set where the app reads it"
        )
    return [guarded(one, f"a data set of {path}") for one in made]
