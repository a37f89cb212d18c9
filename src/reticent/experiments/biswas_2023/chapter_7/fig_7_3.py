"""Fig 7.3 of the thesis: what a lie costs a seller, as an area.

Reference: Biswas 2023, Section 7.3.2, Fig 7.3, Lemmas 7.1 and 7.2, Theorem 7.3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.market import Linear, Log, Steps
from reticent.market.offers import Offer
from reticent.mechanisms.base import Floats

OFFERS: dict[str, Offer] = {
    "log": Log(1.0),
    "linear": Linear(0.8),
    "steps": Steps((0.3, 0.7, 1.1), (1.0, 0.6, 0.2)),
}
TRUE_PRICES = (0.2, 0.5, 0.9)


def run(options: Options) -> Outcome:
    """The loss by every price that is asked, by the payments and as the area of the figure."""
    asked = np.linspace(0.0, 2.0, 41 if options.quick else 201)
    rows: list[Row] = []
    for name, offer in OFFERS.items():
        for price in TRUE_PRICES:
            gains = offer.payment(asked) - price * offer.epsilon(asked)
            honest = float(offer.payment(price) - price * offer.epsilon(price))
            areas = _areas(offer, price, asked)
            rows += [
                {"offer": name, "true price": price, "asked": float(one), "loss": honest - gain, "area": area}
                for one, gain, area in zip(asked, gains.tolist(), areas, strict=True)
            ]
    options.progress(1, 1)
    apart = max(abs(row["loss"] - row["area"]) for row in rows)
    least = min(row["loss"] for row in rows)
    caption = wrapped(
        "Fig 7.3: a seller's loss by asking p where her true price is pi: the area between f and f(p).",
        "",
        "Printed: the honest answer is never worse (Theorem 7.3).",
        f"Found: so it is for the three kinds of offers and {len(rows):,} prices: the least loss is "
        f"{abs(least):.0f}; losses by payments and areas by quadrature differ by at most {apart:.0e}.",
        "Differences: for one buyer, and a budget that does not bind (market-split shows where it ends).",
    )
    return Outcome(rows, caption, lambda: _draw(rows))


def _areas(offer: Offer, price: float, asked: Floats) -> list[float]:
    """The integral from pi to p of f(z) - f(p), by the midpoints of many pieces."""
    found = []
    for one in asked.tolist():
        cells = np.linspace(price, one, 20_001)
        heights = offer.epsilon((cells[1:] + cells[:-1]) / 2.0) - float(offer.epsilon(one))
        found.append(float(heights.sum()) * (one - price) / 20_000)
    return found


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 3, size=(10.5, 3.6))
    for axis, name in zip(axes[0], OFFERS, strict=True):
        for price, colour in zip(TRUE_PRICES, ("#0072B2", "#009E73", plots.ACCENT), strict=True):
            mine = [row for row in rows if row["offer"] == name and row["true price"] == price]
            axis.plot(
                [row["asked"] for row in mine],
                [row["loss"] for row in mine],
                color=colour,
                label=f"true price {price:g}",
            )
        axis.set(xlabel="asked", ylabel="loss")
        axis.set_title(name, loc="left", fontsize=10)
        axis.legend(frameon=False, fontsize=8)
    return figure
