"""Fig 7.1 of the thesis: two sellers and a buyer, with the pay that is printed and the pay that is truthful.

Reference: Biswas 2023, Section 7.3.1, Fig 7.1, Definition 7.3.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.market import Linear

OFFER = Linear(0.03)  # takes 0.7 at 10 for an epsilon of 1, and 0.4 at 20, as in the figure
SELLERS = {"u1": 10.0, "u2": 20.0}


def run(options: Options) -> Outcome:
    """What each seller gains by what she asks, under both rules."""
    asked = np.linspace(0.0, 40.0, 81 if options.quick else 401)
    taken, paid = OFFER.epsilon(asked), OFFER.payment(asked)
    rows: list[Row] = [
        {
            "seller": name,
            "true price": price,
            "asked": float(one),
            "epsilon": float(epsilon),
            "printed pay": float(one * epsilon),
            "printed gain": float((one - price) * epsilon),
            "pay": float(pay),
            "gain": float(pay - price * epsilon),
        }
        for name, price in SELLERS.items()
        for one, epsilon, pay in zip(asked, taken, paid, strict=True)
    ]
    options.progress(1, 1)
    said = []
    for name, price in SELLERS.items():
        mine = [row for row in rows if row["seller"] == name]
        honest = next(row for row in mine if row["asked"] == price)
        lie = max(mine, key=lambda row: row["printed gain"])
        best = max(mine, key=lambda row: row["gain"])
        said.append(
            f"{name} sells {honest['epsilon']:.1f} for {honest['printed pay']:.2f} as printed, "
            f"{honest['pay']:.2f} with the incentive; as printed she gains {lie['printed gain']:.2f} "
            f"by asking {lie['asked']:.1f}, with the incentive {best['gain']:.2f} by asking "
            f"{best['asked']:.1f}"
        )
    caption = wrapped(
        "Fig 7.1: two sellers whose true prices are 10 and 20 for an epsilon of 1; a buyer who takes "
        "1 - 0.03 z.",
        "",
        "Printed: D1 takes 0.7 and 0.4 and pays 7 and 8.",
        f"Found: {'; '.join(said)}.",
        "Differences: the figure's pay leaves out the integral of Definition 7.3.1, without which every "
        "seller gains by asking for more.",
    )
    return Outcome(rows, caption, lambda: _draw(rows))


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 2, size=(9.0, 4.0))
    for axis, (name, price) in zip(axes[0], SELLERS.items(), strict=True):
        mine = [row for row in rows if row["seller"] == name]
        asked = [row["asked"] for row in mine]
        axis.plot(
            asked, [row["printed gain"] for row in mine], color="#0072B2", linestyle="--", label="printed"
        )
        axis.plot(asked, [row["gain"] for row in mine], color=plots.ACCENT, label="with the incentive")
        axis.axvline(price, color="#999999", linestyle=":", label="true price")
        axis.set(xlabel="asked for an epsilon of 1", ylabel="gain", ylim=(-8.0, None))
        axis.set_title(name, loc="left", fontsize=10)
        axis.legend(frameon=False, fontsize=8)
    return figure
