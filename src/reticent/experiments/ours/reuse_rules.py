"""Reuse against DProvDB's rule: how exact an answer is after the same epsilon, bought in steps.

DProvDB adds a fresh synopsis for the *difference of the epsilons* and combines the two; epsilons add up
loosely, so the more steps, the more is lost. Here the difference of the informations is bought, which adds up
exactly: any number of steps ends where one purchase would.

Reference: Zhang and He 2023, section 5.2 (the additive Gaussian approach).
"""

from __future__ import annotations

import math
from typing import Any

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.privacy import mu_of

DELTA = 1e-5
TOTALS = (0.5, 1.0, 2.0, 4.0, 8.0)
STEPS = (1, 2, 3, 5, 10, 20)


def run(options: Options) -> Outcome:
    """Work out the standard deviation reached by equal steps of epsilon, sensitivity 1."""
    rows: list[Row] = []
    for done, total in enumerate(TOTALS):
        exact = 1 / mu_of(total, DELTA)
        for steps in STEPS:
            rows.append(
                {"epsilon": total, "steps": steps, "DProvDB": dprovdb(total, steps), "exact (ours)": exact}
            )
        options.progress(done + 1, len(TOTALS))
    return Outcome(rows, _caption(rows), lambda: _draw(rows))


def dprovdb(total: float, steps: int) -> float:
    """The standard deviation after `steps` purchases of total/steps, combined by their precisions."""
    precision = steps * mu_of(total / steps, DELTA) ** 2
    return 1 / math.sqrt(precision)


def _caption(rows: list[Row]) -> str:
    at = {(row["epsilon"], row["steps"]): row for row in rows}
    two = at[2.0, 2]
    parts = ", ".join(f"{at[2.0, steps]['DProvDB']:.2f} after {steps}" for steps in STEPS if steps > 1)
    return "\n".join(
        [
            "Reuse by difference of epsilons (DProvDB) against reuse by difference of information (ours),",
            "sensitivity 1.",
            "",
            "Printed (Zhang and He 2023): a request for more epsilon buys the difference and combines it",
            "with the old answer.",
            f"Found: asked for epsilon 1 and then 2 (delta {DELTA:g}), that ends at standard deviation "
            f"{two['DProvDB']:.2f}; the exact",
            f"rule gives {two['exact (ours)']:.2f}, as if 2 had been asked for at once. With more steps: ",
            f"{parts}; ours stays at {two['exact (ours)']:.2f}.",
        ]
    )


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 1, size=(8.0, 5.0))
    axis = axes[0][0]
    colors = ("#999999", "#56B4E9", "#0072B2", "#009E73", "#5D3A9B")
    for total, color in zip(TOTALS, colors, strict=True):
        chosen = [row for row in rows if row["epsilon"] == total]
        steps = [row["steps"] for row in chosen]
        axis.plot(steps, [row["DProvDB"] / row["exact (ours)"] for row in chosen], color=color, marker="o",
                  label=f"DProvDB, epsilon {total:g}")  # fmt: skip
    axis.axhline(1.0, color=plots.ACCENT, linewidth=2.4, label="ours, any number of steps")
    axis.set_xscale("log")
    axis.set_xticks(STEPS, [str(step) for step in STEPS])
    axis.set_xticks([], minor=True)
    axis.set_xlabel("purchases until the same total epsilon")
    axis.set_ylabel("standard deviation / that of one purchase")
    axis.legend(frameon=False)
    return figure
