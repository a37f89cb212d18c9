"""Eq. 7.3 of the thesis against the best answer: a seller's budget over several buyers.

Reference: Biswas 2023, Section 7.3.5, Eq. 7.3, Algorithm 8.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.market import Linear, Log, Menu, best_levels
from reticent.privacy import MAX_UNITS, UNITS_PER_ONE
from reticent.randomness import SimulationStream

CASES, QUICK_CASES = 3_000, 100
CENTS = 10_000  # of one unit of money: fine enough that cents do not show


def run(options: Options) -> Outcome:
    """Gains of whole honest offers or none, and of the best level of each, over drawn sellers."""
    count = QUICK_CASES if options.quick else CASES
    rows: list[Row] = []
    for case in range(count):
        rows.append(_case(SimulationStream(options.seed, path=(7, 3, case)), case))
        options.progress(case + 1, count)
    bound = [row for row in rows if row["binds"]]
    more = [row["best"] / row["knapsack"] - 1.0 for row in bound if row["knapsack"] > 0.0]
    worse = sum(row["best"] < row["knapsack"] for row in rows)
    better = sum(row["best"] > row["knapsack"] for row in bound)
    caption = wrapped(
        "Eq. 7.3: a seller with a budget and 2 to 6 buyers, drawn.",
        "",
        "Printed: report the true price, and choose among whole offers by a knapsack.",
        f"Found: in {count:,} cases the budget binds in {len(bound):,}; there a level of each menu gains "
        f"more in {better:,}, by {100 * float(np.median(more)):.0f} % in the median, and less in {worse}.",
        "Differences: values are utilities, Algorithm 8 prints prices; menus of 64 levels, not functions.",
    )
    return Outcome(rows, caption, lambda: _draw(bound))


def _case(stream: SimulationStream, case: int) -> Row:
    units = iter((stream.units(32) - 1.0).tolist())
    buyers = 2 + int(5 * next(units))
    menus = []
    for _ in range(buyers):
        family = Log if next(units) < 0.5 else Linear
        menus.append(Menu.of(family(0.5 + 1.5 * next(units), 0.5 + next(units)), cents=CENTS))
    price, budget = int(CENTS * 0.8 * next(units)), int(UNITS_PER_ONE * (0.2 + 2.0 * next(units)))
    honest = [best_levels([menu], price, MAX_UNITS) for menu in menus]
    binds = sum(one.units for one in honest) > budget
    whole_offers = max(
        (
            sum((one.gain for one, keep in zip(honest, kept, strict=True) if keep), Fraction(0))
            for kept in itertools.product((False, True), repeat=buyers)
            if sum(one.units for one, keep in zip(honest, kept, strict=True) if keep) <= budget
        ),
    )
    return {
        "case": case,
        "buyers": buyers,
        "price": price / CENTS,
        "budget": budget / UNITS_PER_ONE,
        "binds": int(binds),
        "knapsack": float(whole_offers) / CENTS,
        "best": float(best_levels(menus, price, budget).gain) / CENTS,
    }


def _draw(bound: list[Row]) -> Any:
    figure, axes = plots.panels(1, 1, size=(5.4, 4.6))
    axis = axes[0, 0]
    axis.scatter(
        [row["knapsack"] for row in bound], [row["best"] for row in bound], s=5, color=plots.ACCENT, alpha=0.5
    )
    most = max(row["best"] for row in bound)
    axis.plot([0.0, most], [0.0, most], color="black", linewidth=0.8)
    axis.set(xlabel="gain by whole offers (Eq. 7.3)", ylabel="gain by the best level of each")
    axis.set_title("where the budget binds", loc="left", fontsize=10)
    return figure
