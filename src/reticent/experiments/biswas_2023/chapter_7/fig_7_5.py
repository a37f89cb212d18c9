"""Fig 7.5 of the thesis: what a budget buys, by c, and the best c.

Reference: Biswas 2023, Section 7.4, Fig 7.5, Appendix H.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.market import Linear, Log, clearing_c
from reticent.market.clearing import Family
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream

FAMILIES: dict[str, Family] = {"log": Log, "linear": Linear}
SIZES = {1000: 60.0, 1500: 90.0, 2000: 120.0}
PRINTED = {"log": 5.36, "linear": 4.9}


def run(options: Options) -> Outcome:
    """Payments, epsilon and the best c, over drawn markets; and what the printed c would pay."""
    grid = np.linspace(1.0, 10.0, 10 if options.quick else 37)
    rows: list[Row] = []
    found: dict[tuple[str, int], list[float]] = {}
    total, done = len(SIZES) * options.times, 0
    for size, budget in SIZES.items():
        for repetition in range(options.times):
            prices = _prices(SimulationStream(options.seed, path=(7, 5, size, repetition)), size)
            for name, family in FAMILIES.items():
                found.setdefault((name, size), []).append(clearing_c(family, prices, budget))
                if repetition == 0:
                    rows += [_row(name, family, prices, size, budget, float(c)) for c in grid]
            done += 1
            options.progress(done, total)
    best = {key: (float(np.mean(all_c)), float(np.std(all_c))) for key, all_c in found.items()}
    prices = _prices(SimulationStream(options.seed, path=(7, 5, 1000, 0)), 1000)
    closed = _closed_form(prices, SIZES[1000])
    overspent = float(Linear(closed).payment(prices).sum())
    said = "; ".join(
        f"{name} {', '.join(f'{best[name, size][0]:.2f} +- {best[name, size][1]:.2f}' for size in SIZES)}"
        for name in FAMILIES
    )
    caption = wrapped(
        "Fig 7.5: prices normal(1, 1) within [0, 2]; budgets 60, 90, 120 for 1,000, 1,500, 2,000 sellers.",
        "",
        "Printed: the best c is 5.36 (log) and 4.9 (linear).",
        f"Found: the c that just spends the budget, {options.times} markets of each size: {said}. A larger c "
        "buys less, a smaller one costs more than there is.",
        f"The closed form of Appendix H takes everybody for active: its linear c of {closed:.2f} pays "
        f"{overspent:.0f} of a budget of 60.",
        "Differences: f and its payment end at zero (the printed condition of f is turned round).",
    )
    return Outcome(rows, caption, lambda: _draw(rows, best))


def _prices(stream: SimulationStream, size: int) -> Floats:
    u, v = stream.units(2 * size).reshape(2, size)
    normal = np.sqrt(-2.0 * np.log(2.0 - u)) * np.cos(2.0 * np.pi * v)
    return np.asarray(np.clip(1.0 + normal, 0.0, 2.0))


def _row(name: str, family: Family, prices: Floats, size: int, budget: float, c: float) -> Row:
    offer = family(c)
    return {
        "family": name,
        "sellers": size,
        "budget": budget,
        "c": c,
        "paid": float(offer.payment(prices).sum()),
        "epsilon": float(offer.epsilon(prices).sum()),
    }


def _closed_form(prices: Floats, budget: float) -> float:
    """Appendix H's c for the linear family: n - 2 budget c - c^2 sum p^2 = 0."""
    squares = float(np.square(prices).sum())
    return len(prices) / (budget + math.sqrt(budget**2 + squares * len(prices)))


def _draw(rows: list[Row], best: dict[tuple[str, int], tuple[float, float]]) -> Any:
    figure, axes = plots.panels(1, 2, size=(9.0, 4.0))
    colours = dict(zip(SIZES, ("#0072B2", "#009E73", plots.ACCENT), strict=True))
    for axis, name in zip(axes[0], FAMILIES, strict=True):
        for size, budget in SIZES.items():
            mine = [row for row in rows if row["family"] == name and row["sellers"] == size]
            axis.plot([row["c"] for row in mine], [row["paid"] / budget for row in mine], color=colours[size])
            axis.plot(best[name, size][0], 1.0, marker="o", color=colours[size], label=f"{size:,} sellers")
        axis.axhline(1.0, color="black", linewidth=0.8)
        axis.axvline(PRINTED[name], color="#999999", linestyle=":", label="printed best c")
        axis.set(yscale="log", xlabel="c", ylabel="paid / budget")
        axis.set_title(name, loc="left", fontsize=10)
        axis.legend(frameon=False, fontsize=8)
    return figure
