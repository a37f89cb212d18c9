"""Fig 7.4 of the thesis: what one seller brings a buyer and costs her, by c.

Reference: Biswas 2023, Section 7.3.3, Fig 7.4, Definition 7.3.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.market import Linear, Log
from reticent.market.clearing import Family

FAMILIES: dict[str, Family] = {"log": Log, "linear": Linear}
PRICE, WORTH = 0.5, 2.0  # what the seller asks, and what an epsilon of 1 brings the buyer


def run(options: Options) -> Outcome:
    """Epsilon, payment, incentive, payoff and profit over c."""
    grid = np.linspace(0.1, 4.0, 40 if options.quick else 391)
    rows: list[Row] = []
    for name, family in FAMILIES.items():
        for c in grid.tolist():
            offer = family(c)
            epsilon, paid = float(offer.epsilon(PRICE)), float(offer.payment(PRICE))
            rows.append(
                {
                    "family": name,
                    "c": c,
                    "epsilon": epsilon,
                    "payment": paid,
                    "incentive": paid - PRICE * epsilon,
                    "payoff": WORTH * epsilon,
                    "profit": WORTH * epsilon - paid,
                }
            )
    options.progress(1, 1)
    best = {
        name: max((row for row in rows if row["family"] == name), key=lambda row: row["profit"])
        for name in FAMILIES
    }
    said = "; ".join(
        f"{name} c = {row['c']:.2f} with {row['profit']:.3f} for epsilon {row['epsilon']:.2f}"
        for name, row in best.items()
    )
    caption = wrapped(
        f"Fig 7.4: one seller who asks {PRICE:g}; an epsilon of 1 brings the buyer {WORTH:g}.",
        "",
        "Printed: a payoff and an incentive over c, without numbers.",
        f"Found: a small c buys more and pays far more for it. Of this one seller the profit is largest at "
        f"{said}. Where c is below {_least(rows)}, the incentive alone is more than the payoff.",
        "Differences: with a budget there is nothing to find by a Lagrangian: the c that just spends it.",
    )
    return Outcome(rows, caption, lambda: _draw(rows))


def _least(rows: list[Row]) -> str:
    """The c of each family from which on the payoff is more than the incentive."""
    found: dict[str, float] = {}
    for row in rows:
        if row["incentive"] <= row["payoff"]:
            found.setdefault(row["family"], row["c"])
    return " and ".join(f"{c:.2f} ({name})" for name, c in found.items())


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 2, size=(9.0, 4.0))
    lines = {"payoff": "#0072B2", "payment": "#009E73", "incentive": "#999999", "profit": plots.ACCENT}
    for axis, name in zip(axes[0], FAMILIES, strict=True):
        mine = [row for row in rows if row["family"] == name]
        for line, colour in lines.items():
            axis.plot([row["c"] for row in mine], [row[line] for row in mine], color=colour, label=line)
        axis.set(xlabel="c", ylabel="money", ylim=(-2.0, 3.0))
        axis.set_title(name, loc="left", fontsize=10)
        axis.legend(frameon=False, fontsize=8)
    return figure
