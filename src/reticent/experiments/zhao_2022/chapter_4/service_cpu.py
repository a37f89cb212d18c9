"""CPU seconds of queries with a ledger, and of the same queries without one: noise only.

`noise only` reads the rows and draws the noise, as whoever calls a server directly has it done; nothing is
charged, so that a question asked again is measured again. `SQLite` is the engine with its ledger, which
charges and records; both run in this process. `service` is the same behind HTTP, in a process of its own,
whose CPU is read from /proc.

Reference: Zhao et al. 2021, Fig. 10 (50 queries).
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.zhao_2022.chapter_4 import services
from reticent.experiments.zhao_2022.chapter_4.services import INFORMATION, ROWS, Service
from reticent.query import DataSet, Session, census
from reticent.query import open as open_data_set
from reticent.query.declarations import dataset_file
from reticent.query.estimates import estimates
from reticent.query.language.questions import resolve
from reticent.query.language.sql import read
from reticent.query.measure import plan
from reticent.query.rows import source

QUERIES, QUICK_QUERIES = 50, 3
TIMES, QUICK_TIMES = 10, 2
NOISE, SQLITE, SERVICE = SIDES = ("noise only", "SQLite", "service")
FRESH, AGAIN = WAYS = ("fresh", "again")
_UNITS = int(INFORMATION * 10**12)


def run(options: Options) -> Outcome:
    """Ask the same series of questions on every side, in turns."""
    queries = QUICK_QUERIES if options.quick else QUERIES
    times = options.repetitions or (QUICK_TIMES if options.quick else TIMES)
    found: dict[tuple[str, str], list[list[float]]] = {(side, way): [] for side in SIDES for way in WAYS}
    with (
        TemporaryDirectory() as folder,
        services.serving(0.0, options.seed) as service,
        _Sides(service, Path(folder), options.seed) as sides,
    ):
        for done in range(-1, times):  # the first series warms up
            asked = sides.questions(queries)
            for side, way in found:
                series = sides.series(side, way, asked)
                if done >= 0:
                    found[side, way].append(series)
            options.progress(done + 1, times)
    rows = [row for (side, way), series in found.items() for row in _rows(side, way, series)]
    return Outcome(rows, _caption(rows, times), lambda: _draw(rows))


class _Sides:
    """The same census three times: without a ledger, with one, and behind HTTP."""

    def __init__(self, service: Service, folder: Path, seed: int) -> None:
        self._held, self._numbers, self._service = ExitStack(), count(1), service
        declaration = census.write(folder, rows=ROWS, seed=seed)
        self._data: DataSet = dataset_file.read(declaration)
        self._rows = self._held.enter_context(closing(source.connect(self._data, folder)))
        self._session: Session = self._held.enter_context(open_data_set(declaration))
        self._analyst = self._held.enter_context(closing(service.analyst()))

    def __enter__(self) -> _Sides:
        return self

    def __exit__(self, *exception: object) -> None:
        self._held.close()

    def questions(self, queries: int) -> list[str]:
        """New ones."""
        return [services.question(next(self._numbers)) for _ in range(queries)]

    def series(self, side: str, way: str, asked: list[str]) -> list[float]:
        """CPU seconds after each question."""
        ask = {NOISE: self._noise, SQLITE: self._with_ledger, SERVICE: self._analyst.ask}[side]
        start, series = self._cpu_s(side), []
        for query in asked:
            assert ask(query) == (side == NOISE or way == FRESH)
            series.append(self._cpu_s(side) - start)
        return series

    def _cpu_s(self, side: str) -> float:
        return services.cpu_s(self._service.pid) if side == SERVICE else time.process_time()

    def _noise(self, text: str) -> bool:
        """Measure and forget; whether it was measured, which it always is."""
        query = read(text, self._data.name)
        prepared = plan(resolve(query, self._data))
        values = prepared.measure(prepared.vector(self._rows), _UNITS, None)
        return bool(estimates(query, prepared, values, _UNITS, 0.95))

    def _with_ledger(self, text: str) -> bool:
        return self._session.ask(text, information=INFORMATION).cost > 0


def _rows(side: str, way: str, found: list[list[float]]) -> list[Row]:
    means = np.array(found).mean(axis=0)
    return [
        {
            "side": side,
            "way": way,
            "queries": number,
            "CPU, s": float(seconds),
            "CPU, ms a query": 1000 * float(seconds) / number,
        }
        for number, seconds in enumerate(means, start=1)
    ]


def _caption(rows: list[Row], times: int) -> str:
    ends = {(row["side"], row["way"]): row["CPU, ms a query"] for row in rows}
    queries = rows[-1]["queries"]
    lines = [
        f"CPU of {queries} queries with a ledger, and without one.",
        "",
        'Printed (Fig. 10, a picture without numbers; 50 queries, "Activity Monitor"): CPU usage with the',
        'blockchain "is higher than that using the server to handle directly. However, it is still',
        'acceptable".',
        f"Found (milliseconds of CPU a query; mean of {times} series of {queries}, after one to warm up):",
    ]
    lines += [f"  {side}: fresh {ends[side, FRESH]:.2f}, again {ends[side, AGAIN]:.2f}." for side in SIDES]
    fresh, again = ((ends[SQLITE, way], ends[NOISE, way]) for way in WAYS)
    lines += [
        f"The ledger makes of {fresh[1]:.2f} ms for a fresh answer {fresh[0]:.2f}, and of {again[1]:.2f} ms "
        f"for one that was given before {again[0]:.2f}:",
        "without a ledger the same question is measured, and privacy spent, again and again. The documents",
        "compare a chain with three mining nodes with a Node.js server, each as a share of a processor;",
        "here no chain takes part (chain-cpu has it), and seconds are counted. The service's CPU is all of",
        "its process: HTTP, keys, checks, and what it does by itself meanwhile; the kernel counts it in",
        "steps of 10 ms. The analyst's is not in it.",
    ]
    return "\n".join(lines)


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 2, size=(13.0, 5.0))
    colors = dict(zip(SIDES, ("#0072B2", "#009E73", plots.ACCENT), strict=True))
    for axis, way in zip(axes[0], WAYS, strict=True):
        for side, color in colors.items():
            chosen = [row for row in rows if (row["side"], row["way"]) == (side, way)]
            numbers, seconds = ([row[column] for row in chosen] for column in ("queries", "CPU, s"))
            axis.plot(numbers, seconds, color=color, label=side)
        axis.set_xlabel("queries")
        axis.set_ylabel("CPU seconds in all")
        axis.set_title(
            {FRESH: "asked for the first time", AGAIN: "asked again"}[way], loc="left", fontsize=11
        )
    axes[0][0].legend(frameon=False)
    return figure
