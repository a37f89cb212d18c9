"""Table 4.2 of the thesis, Table II of the paper: thirteen requests of three types, through the engine.

Reference: Zhao 2022, Table 4.2 and Theorem 3 (Eq. for V); Zhao et al. 2021, Table II.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.ledger import MemoryLedger
from reticent.privacy import Budget
from reticent.query import Column, DataSet, Kind, Session, count
from reticent.query.language.tree import Comparison
from reticent.query.rows.rehearsal import MadeUpRows
from reticent.randomness import SimulationStream

# (type, sigma / Delta) of each request, in order.
REQUESTS: tuple[tuple[int, Fraction], ...] = tuple(
    (kind, Fraction(sigma))
    for kind, sigma in (
        (1, "1"), (2, "3"), (3, "2"), (1, "2.5"), (2, "2"), (1, "0.5"), (3, "2"), (2, "2.5"),
        (2, "1.5"), (1, "0.25"), (2, "1"), (1, "0.75"), (3, "1.5"),
    )
)  # fmt: skip


def run(options: Options) -> Outcome:
    """Ask the thirteen requests as counts, and note case and cost of each."""
    column = Column("kind", Kind.INTEGER, low=1, high=4)
    data = DataSet("table", "1", (column,), Budget(40.0, 1e-5), rows=1000)
    rows: list[Row] = []
    rng = SimulationStream(options.seed)
    with Session(data, MadeUpRows(data, 1000, rng), MemoryLedger(), rng=rng) as session:
        for number, (kind, sigma) in enumerate(REQUESTS, start=1):
            information = 1 / sigma**2
            asked = count(where=Comparison("kind", "=", kind))
            answer = session.ask(asked, information=float(information), reuse="key")
            rows.append(
                {
                    "request": number,
                    "type": kind,
                    "sigma": float(sigma),
                    "case": answer.case.value,
                    "cost": answer.cost / 1e12,
                    "naive cost": float(information),
                    "spent": answer.spent / 1e12,
                }
            )
            options.progress(number, len(REQUESTS))
    return Outcome(rows, _caption(rows), lambda: _draw(rows))


def _caption(rows: list[Row]) -> str:
    cases: dict[str, list[int]] = {}
    for row in rows:
        cases.setdefault(row["case"], []).append(row["request"])
    naive = sum(row["naive cost"] for row in rows)
    return "\n".join(
        [
            "Table 4.2: thirteen requests of three types (Delta = 1), asked of the engine.",
            "",
            "Printed: case 1: 1, 2, 3; 2A: 7; 2B: 5, 6, 9, 10, 11, 13; 2C: 8, 12 (request 4 is 2C in the",
            "table, and left out of the list in the text).",
            "Found: "
            + "; ".join(f"case {name}: {', '.join(map(str, cases[name]))}" for name in sorted(cases))
            + ".",
            f"V = {rows[-1]['spent']:.4f} (1/sigma^2 of the finest of each type), "
            f"against {naive:.4f} without reuse.",
        ]
    )


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 1, size=(8.0, 4.5))
    axis = axes[0][0]
    numbers = [row["request"] for row in rows]
    total, naive = 0.0, []
    for row in rows:
        total += row["naive cost"]
        naive.append(total)
    axis.step(numbers, naive, where="post", color="#0072B2", label="fresh noise each time")
    axis.step(numbers, [row["spent"] for row in rows], where="post", color=plots.ACCENT, label="reuse (ours)")
    for row in rows:
        axis.annotate(
            row["case"], (row["request"], row["spent"]), textcoords="offset points", xytext=(2, 4), fontsize=8
        )
    axis.set_xlabel("request")
    axis.set_ylabel("V = sum of Delta^2 / sigma^2")
    axis.legend(frameon=False)
    return figure
