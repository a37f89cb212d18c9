"""Seconds from a question over HTTP to its answer, against the number of queries, for 1 to 50 analysts.

All analysts begin at once; each asks the next question when the last one is answered. `fresh` is charged and
measured; `again` asks the same once more, which is what the documents time: nothing reaches the data. With
the time grid, replies leave at multiples of 0.1 s, so that their time tells nothing.

Reference: Zhao et al. 2021, Fig. 7 (Ganache, a block every 15 s).
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.zhao_2022.chapter_4 import services
from reticent.experiments.zhao_2022.chapter_4.services import Analyst, Service

QUERIES, QUICK_QUERIES = (10, 20, 40, 60, 80, 100, 150), (4, 8)
CROWDS, QUICK_CROWDS = (1, 10, 50), (1, 4)
GRIDS_S, QUICK_GRIDS_S = (0.0, 0.1), (0.02,)
FRESH, AGAIN = WAYS = ("fresh", "again")


def run(options: Options) -> Outcome:
    """Ask a service without a time grid, and one with it."""
    rows: list[Row] = []
    grids_s = QUICK_GRIDS_S if options.quick else GRIDS_S
    queries = QUICK_QUERIES if options.quick else QUERIES
    crowds = QUICK_CROWDS if options.quick else CROWDS
    points = [(size, number) for size in crowds for number in queries if number >= size]
    for grid_s in grids_s:
        with services.serving(grid_s, options.seed) as service, ExitStack() as held:
            analysts = [held.enter_context(closing(service.analyst())) for _ in range(max(crowds))]
            _seconds(analysts[:1], service.questions(2))  # to warm up
            for size, number in points:
                rows += _rows(service, analysts[:size], number, grid_s)
                options.progress(len(rows) // len(WAYS), len(grids_s) * len(points))
    return Outcome(rows, _caption(rows), lambda: _draw(rows))


def _rows(service: Service, analysts: list[Analyst], queries: int, grid_s: float) -> list[Row]:
    asked = service.questions(queries)
    rows: list[Row] = []
    for way in WAYS:
        seconds, charged = _seconds(analysts, asked)
        assert charged == (queries if way == FRESH else 0)
        rows.append(
            {
                "grid, s": grid_s,
                "way": way,
                "analysts": len(analysts),
                "queries": queries,
                "median, s": float(np.median(seconds)),
                "95 %, s": float(np.quantile(seconds, 0.95)),
                "most, s": max(seconds),
                "charged": charged,
            }
        )
    return rows


def _seconds(analysts: list[Analyst], asked: list[str]) -> tuple[list[float], int]:
    """The seconds of each question, shared out among analysts who begin at once; how many were charged."""
    gate = threading.Barrier(len(analysts))

    def work(place: int) -> list[tuple[float, bool]]:
        gate.wait()
        found = []
        for query in asked[place :: len(analysts)]:
            start = time.perf_counter()
            is_charged = analysts[place].ask(query)
            found.append((time.perf_counter() - start, is_charged))
        return found

    with ThreadPoolExecutor(len(analysts)) as pool:
        found = [one for part in pool.map(work, range(len(analysts))) for one in part]
    return [seconds for seconds, _ in found], sum(is_charged for _, is_charged in found)


def _chosen(rows: list[Row], grid_s: float, way: str, analysts: int) -> list[Row]:
    wanted = (grid_s, way, analysts)
    return [row for row in rows if (row["grid, s"], row["way"], row["analysts"]) == wanted]


def _every(rows: list[Row], column: str) -> list[Any]:
    return list(dict.fromkeys(row[column] for row in rows))


def _caption(rows: list[Row]) -> str:
    lines = [
        "Seconds from a question over HTTP to its answer, against the number of queries.",
        "",
        "Printed (Fig. 7, a picture without numbers; Ganache with 15 s blocks and MetaMask, answers that are",
        'saved already): latency rises with the number of queries, and "increases significantly" at 60.',
        "Found (queries: median, and 95 % of them, in milliseconds):",
    ]
    for grid_s in _every(rows, "grid, s"):
        for way in WAYS:
            for size in _every(rows, "analysts"):
                parts = ", ".join(
                    f"{row['queries']}: {1000 * row['median, s']:.3g} ({1000 * row['95 %, s']:.3g})"
                    for row in _chosen(rows, grid_s, way, size)
                )
                grid = f"grid {grid_s:g} s" if grid_s else "no grid"
                lines.append(f"  {grid}, {way}, {size} analyst{'s' if size > 1 else ''}: {parts}.")
    lines += [
        "Fresh: charged in SQLite, measured with secure noise, recorded. Again: reused, nothing is charged.",
        "Differences: no chain here, whose blocks are the documents' seconds (chain-latency has them); what",
        "makes one wait is how many ask at once, not how many were asked before. With the grid, a reply",
        "leaves at a multiple of it, whatever was done. One process serves; analysts, in threads of another,",
        "share the machine with it.",
    ]
    return "\n".join(lines)


def _draw(rows: list[Row]) -> Any:
    sizes, grids_s = _every(rows, "analysts"), _every(rows, "grid, s")
    figure, axes = plots.panels(1, len(grids_s), size=(13.0, 5.0))
    colors = dict(zip(sizes, ("#009E73", "#0072B2", plots.ACCENT), strict=False))
    for axis, grid_s in zip(axes[0], grids_s, strict=True):
        for size in sizes:
            for way, line in zip(WAYS, ("-", ":"), strict=True):
                chosen = _chosen(rows, grid_s, way, size)
                numbers = [row["queries"] for row in chosen]
                middle, high = ([1000 * row[column] for row in chosen] for column in ("median, s", "95 %, s"))
                label = f"{size} analyst{'s' if size > 1 else ''}, {way}"
                axis.plot(numbers, middle, color=colors[size], linestyle=line, marker="o", label=label)
                axis.fill_between(numbers, middle, high, color=colors[size], alpha=0.1)
        axis.set_yscale("log")
        axis.set_xlabel("queries")
        axis.set_ylabel("milliseconds (band: to 95 %)")
        title = f"replies on a grid of {grid_s:g} s" if grid_s else "no time grid"
        axis.set_title(title, loc="left", fontsize=11)
    plots.legend_right(figure, axes[0][0])
    return figure
