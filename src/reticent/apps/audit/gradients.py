"""`reticent audit gradients`: what one update of one's own model tells, and the records it gives away."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from reticent.apps.audit import reports
from reticent.apps.audit.work import guarded, loaded
from reticent.audit import GradientAudit
from reticent.audit import gradients as judged
from reticent.audit.leak_page import leak_page, of_update
from reticent.audit.leakage.sources import read_arrays
from reticent.errors import ParameterError
from reticent.files import appearing


def run(
    *,
    model: str,
    update: Path,
    loss: str | None,
    rate: float | None,
    records: int | None,
    labels: str | None,
    noise: float,
    non_negative: bool,
    truth: Path | None,
    out: Path | None,
    report: Path | None,
) -> int:
    """Judge the update, print the verdict, write the records; return the exit code."""
    reports.refuse_same([report, out], [update, truth])
    arrays = read_arrays(update)
    found = judged(
        guarded(loaded(model), model)(),
        update=arrays,
        loss=loss,
        rate=rate,
        records=records,
        labels=None if labels is None else _classes(labels),
        truth=None if truth is None else _truth(truth),
        noise=noise,
        non_negative=non_negative,
    )
    console = Console(highlight=False, markup=False, emoji=False)
    for line in found.lines:
        console.print(line, soft_wrap=True)
    if out is not None and found.found:
        _write(found, out)
        console.print(f"Records: {out}")
    if report is not None:
        exhibit = of_update(found, arrays, title=f"One update of {model}")
        made = reports.made_line(f"the update in {update.name}")
        page = leak_page([exhibit], title="What the server learns from one update", made=made)
        reports.write(page, report, for_owner=True)
        console.print(f"Report, for its owner alone: {report}", soft_wrap=True)
    return 1 if found.found else 0


def _truth(path: Path) -> np.ndarray[Any, Any]:
    """The records behind the update."""
    arrays = read_arrays(path)
    if list(arrays) != ["records"]:
        raise ParameterError(f"truth: {path.name} must hold one array, called records")
    return arrays["records"]


def _classes(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ParameterError(f"labels must be whole numbers such as 3,1,4, got {text!r:.60}") from error


def _write(found: GradientAudit, path: Path) -> None:
    """A row for each record of each candidate: candidate, target, numbers; for its owner's eyes."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    inputs = found.leak.candidates[0].records.shape[1]
    rows.writerow(["candidate", "target", *(f"x{place}" for place in range(inputs))])
    for number, candidate in enumerate(found.leak.candidates):
        for record, target in zip(candidate.records, candidate.targets, strict=True):
            shown = " ".join(f"{one:.17g}" for one in np.ravel(target))
            rows.writerow([number, shown, *(f"{one:.17g}" for one in record)])
    path.parent.mkdir(parents=True, exist_ok=True)
    with appearing(path, mode=0o600) as file:
        file.write(text.getvalue().encode())
