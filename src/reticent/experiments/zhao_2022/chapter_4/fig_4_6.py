"""Fig. 4.6 of the thesis, Fig. 6 of the paper: the sum of relative errors with and without reuse.

The query engine answers on the census data, on 5,000 rows as in the documents and on all. Three ways to
answer the same requests: fresh noise each time; reuse where a coarser request gets a coarser answer, which is
Algorithm 7 (`degrade`); and reuse where it gets the best there is (`share`, our default).

Reference: Zhao 2022, Fig. 4.6; Zhao et al. 2021, Fig. 6.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.zhao_2022.chapter_4 import reuse
from reticent.ledger import MemoryLedger
from reticent.mechanisms.base import Floats
from reticent.query import DataSet, Policy, Session
from reticent.query.language.questions import resolve
from reticent.query.measure import Plan, plan
from reticent.query.rows.source import Table
from reticent.randomness import SimulationStream

SIZES: tuple[int | None, ...] = (5000, None)
WAYS = ("fresh noise", "Algorithm 7 (degrade)", "best there is (share)")


def run(options: Options) -> Outcome:
    """Answer random requests in three ways and add up the relative errors."""
    queries = 30 if options.quick else reuse.QUERIES
    times = options.repetitions or (2 if options.quick else 40)
    rows: list[Row] = []
    for place, size in enumerate(SIZES):
        with reuse.census(size, options.data) as (data, table):
            sums = {way: np.zeros((times, queries)) for way in WAYS}
            for number in range(times):
                rng = SimulationStream(options.seed, path=(6, place, number))
                asked = reuse.requests(1, queries, reuse.DELTAS["paper"], rng)
                for way in WAYS:
                    sums[way][number] = np.cumsum(_errors(way, data, table, asked, rng))
                options.progress(place * times + number + 1, len(SIZES) * times)
        rows += [
            {"rows": data.rows, "queries": i + 1}
            | {way: float(found[:, i].mean()) for way, found in sums.items()}
            | {f"sd, {way}": float(found[:, i].std(ddof=1)) for way, found in sums.items()}
            for i in range(queries)
        ]
    return Outcome(rows, _caption(rows, times), lambda: _draw(rows))


def _errors(way: str, data: DataSet, table: Table, asked: reuse.Requests, rng: SimulationStream) -> Floats:
    """The relative error of each answer; the exact answers are known to the simulation only."""
    policy = Policy.DEGRADE if way == WAYS[1] else Policy.SHARE
    session = Session(replace(data, policy=policy), table, MemoryLedger(), rng=rng)
    kinds = list(reuse.TYPES.values())
    exact = [_shown(plan(resolve(query, data)), None, table) for query in kinds]
    errors = np.empty(asked.costs.shape[1])
    for i, (kind, cost) in enumerate(zip(asked.kinds[0], asked.costs[0], strict=True)):
        units = reuse.units(float(cost))
        if way == WAYS[0]:
            prepared = plan(resolve(kinds[kind], data))
            answer = exact[kind] + _shown(prepared, prepared.measure([0], units, rng)[0], table)
        else:
            answer = session.ask(kinds[kind], information=units / 10**12, reuse="key").value
        errors[i] = abs(answer - exact[kind]) / abs(exact[kind])
    return errors


def _shown(prepared: Plan, on_grid: int | None, table: Table) -> float:
    """Noise on the grid, or the exact value, as the mean or proportion that it stands for."""
    data, column = prepared.question.data, prepared.question.column
    unit = float(data.column(column).unit) if column is not None else 1.0
    assert data.rows is not None
    if on_grid is not None:
        return on_grid * 2.0**-prepared.shift * unit / data.rows
    counted = prepared.vector(table)[0] * 2.0**-prepared.shift / data.rows
    return (counted + prepared.offset) * unit


def _caption(rows: list[Row], times: int) -> str:
    lines = [
        "Fig. 4.6: the sum of relative errors of the answers, with and without reuse of noise.",
        "",
        'Printed: reuse is "comparable" with fresh noise, so that accuracy is kept.',
        f"Found ({times} runs on census data; mean and standard deviation over runs):",
    ]
    for size in sorted({row["rows"] for row in rows}):
        last = [row for row in rows if row["rows"] == size][-1]
        parts = [f"{way} {last[way]:.3g} +- {last[f'sd, {way}']:.2g}" for way in WAYS]
        lines.append(f"  {size:,} rows, {last['queries']} queries: {'; '.join(parts)}.")
    lines += [
        "Algorithm 7 adds noise to coarser answers, so that its errors are those of fresh noise on average",
        "(and vary more from run to run, since answers share noise). That noise protects nobody: the better",
        "answer is recorded already. Giving the best answer there is costs the same and errs less.",
        "There is no family income in this data: hours worked stand in.",
    ]
    return "\n".join(lines)


def _draw(rows: list[Row]) -> Any:
    sizes = sorted({row["rows"] for row in rows})
    figure, axes = plots.panels(1, len(sizes), size=(6.5 * len(sizes), 5.0))
    looks = dict(zip(WAYS, (("#0072B2", "-"), (plots.ACCENT, "--"), (plots.ACCENT, "-")), strict=True))
    for axis, size in zip(axes[0], sizes, strict=True):
        chosen = [row for row in rows if row["rows"] == size]
        queries = [row["queries"] for row in chosen]
        for way, (color, line) in looks.items():
            means = np.array([row[way] for row in chosen])
            spread = np.array([row[f"sd, {way}"] for row in chosen])
            axis.plot(queries, means, color=color, linestyle=line, label=way)
            axis.fill_between(queries, means - spread, means + spread, color=color, alpha=0.1)
        axis.set_title(f"{size:,} rows", loc="left", fontsize=11)
        axis.set_xlabel("queries")
        axis.set_ylabel("sum of relative errors")
    axes[0][0].legend(frameon=False, loc="upper left")
    return figure
