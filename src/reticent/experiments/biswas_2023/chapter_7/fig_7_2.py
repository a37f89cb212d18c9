"""Fig 7.2 of the thesis: what a buyer takes at which price.

Reference: Biswas 2023, Section 7.3.2, Fig 7.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.market import Log

CURVES = {0.5: "#0072B2", 1.0: plots.ACCENT, 2.0: "#009E73", 4.0: "#CC79A7"}


def run(options: Options) -> Outcome:
    """f(z) = ln(e - cz) for some c."""
    prices = np.linspace(0.0, 4.0, 41 if options.quick else 201)
    rows: list[Row] = [
        {"c": c, "price": float(price), "epsilon": float(epsilon)}
        for c in CURVES
        for price, epsilon in zip(prices, Log(c).epsilon(prices), strict=True)
    ]
    options.progress(1, 1)
    ends = ", ".join(f"{Log(c).highest_price:.3f} (c = {c:g})" for c in CURVES)
    caption = wrapped(
        "Fig 7.2: f(z) = ln(e - cz).",
        "",
        "Printed: where e - cz is at most 1, and 0 otherwise.",
        "Found: the condition is turned round; with it f would be negative or undefined wherever it is not "
        f"0. Where e - cz is at least 1, f falls from 1 to 0 at the prices {ends}.",
    )
    return Outcome(rows, caption, lambda: _draw(rows))


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 1, size=(6.4, 4.0))
    axis = axes[0, 0]
    for c, colour in CURVES.items():
        mine = [row for row in rows if row["c"] == c]
        axis.plot(
            [row["price"] for row in mine], [row["epsilon"] for row in mine], color=colour, label=f"c = {c:g}"
        )
    axis.set(xlabel="price of an epsilon of 1", ylabel="epsilon that is taken")
    axis.legend(frameon=False, fontsize=8)
    return figure
