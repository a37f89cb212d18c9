"""Fig. 4.6 of the thesis: the share of queries that privacy costs nothing, by epsilon and by radius; exact.

Reference: Biswas 2023, Section 4.6.3, Fig. 4.6; Theorems 4.4 and 4.5.
"""

from __future__ import annotations

from functools import partial

from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_4.costs import PURE, TRUNCATED, drawn, rows_of, value


def run(options: Options) -> Outcome:
    """Redo the figure."""
    rows = rows_of(options)
    return Outcome(rows, _caption(rows), partial(drawn, rows, "share free", "share of queries without cost"))


def _caption(rows: list[Row]) -> str:
    key = "share free"
    epsilons = sorted({row["epsilon"] for row in rows} & {0.5, 1.0, 1.5, 2.0})

    def told(name: str, k: int, way: str) -> str:
        return " / ".join(f"{value(rows, key, name, k, way, epsilon):.2f}" for epsilon in epsilons)

    found = [
        f"- {name} stations: one site told {told(name, 1, TRUNCATED)}, three {told(name, 3, TRUNCATED)}; "
        f"pure channel at its level {told(name, 1, PURE)} and {told(name, 3, PURE)}."
        for name in ("sparse", "dense")
    ]
    return wrapped(
        "Fig. 4.6 of Biswas 2023: the share of queries that privacy costs nothing.",
        "",
        "Printed: with radius 10 more than 0.6 from epsilon 0.5 and more than 0.9 from 1.5 on, whatever the "
        "radius.",
        f"Found at radius 10 and epsilon {' / '.join(f'{one:g}' for one in epsilons)}:",
        *found,
        "Not confirmed for one station: taxis ask where stations are dense, so that the next cell is near. "
        "With the three nearest sites in an answer drivers have the printed figures.",
        "The pure channel at half of the level as its beta keeps the same epsilon with no delta; what the "
        "truncated one leaves over makes its promise empty beyond some hundred metres.",
        "Differences: exact sums instead of draws; the city's street map, 378 stations for 404, and a denser "
        "set of 716 with places drawn evenly along the streets for theirs, which is not public.",
    )
