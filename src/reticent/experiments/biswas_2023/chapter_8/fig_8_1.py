"""Fig 8.1 of the thesis: the level that a buyer wants for her money.

Reference: Biswas 2023, Section 8.4.1, Fig 8.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.market import Valuation

CURVES = {
    (0.1, 0.05): plots.ACCENT,
    (0.1, 0.1): "#0072B2",
    (0.5, 0.05): "#009E73",
    (1.0, 0.02): "#CC79A7",
}


def run(options: Options) -> Outcome:
    """f(M) = k1 (e^(k2 M) - 1) for some k1 and k2, and its way back."""
    amounts = np.linspace(0.0, 60.0, 31 if options.quick else 121)
    rows: list[Row] = []
    for k1, k2 in CURVES:
        worth = Valuation(k1, k2)
        for money in amounts.tolist():
            level = worth.level(money)
            rows.append({"k1": k1, "k2": k2, "money": money, "level": level, "back": worth.money(level)})
    options.progress(1, 1)
    apart = max(abs(row["back"] - row["money"]) for row in rows)
    caption = wrapped(
        "Fig 8.1: f(M) = k1 (e^(k2 M) - 1).",
        "",
        "Printed: curves without their numbers.",
        f"Found: four of them; the inverse gives the money back within {apart:.0e}.",
        "Differences: any increasing f is taken, also by points; a level is one of accuracy (Eq. 8.1).",
    )
    return Outcome(rows, caption, lambda: _draw(rows))


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 1, size=(6.4, 4.0))
    axis = axes[0, 0]
    for (k1, k2), colour in CURVES.items():
        mine = [row for row in rows if (row["k1"], row["k2"]) == (k1, k2)]
        axis.plot(
            [row["money"] for row in mine],
            [row["level"] for row in mine],
            color=colour,
            label=f"k1 = {k1:g}, k2 = {k2:g}",
        )
    axis.set(xlabel="money", ylabel="level", ylim=(0.0, 10.0))
    axis.legend(frameon=False, fontsize=8)
    return figure
