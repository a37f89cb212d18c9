"""Fig. 3.3 of the thesis: the best P(0|0) of Three-Outputs over epsilon; and what few outputs can do.

Reference: Zhao 2022, Fig. 3.3, Eqs. 3.4 to 3.7.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reticent.experiments import contenders, plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.ours import limit
from reticent.experiments.zhao_2022.chapter_3.table_3_1 import Crossing, found
from reticent.mechanisms.numeric import Window, formulas


def worst_variance(epsilon: float, a: float) -> float:
    """The worst-case variance of Three-Outputs with P(0|0) = a, whatever a is."""
    c, bound = math.exp(epsilon), formulas.three_outputs_bound(epsilon, a)
    slope = bound**2 * a * (1.0 - 1.0 / c)
    peak = min(1.0, slope / 2.0)
    return bound**2 * (1.0 - a) + slope * peak - peak * peak


def brute_force_p00(epsilon: float) -> float:
    """The a in [0, c/(c+2)] of least worst-case variance, by a grid refined around its best point."""
    low, high = 0.0, math.exp(epsilon) / (math.exp(epsilon) + 2.0)
    for _ in range(12):
        grid = np.linspace(low, high, 41)
        best = int(np.argmin([worst_variance(epsilon, float(a)) for a in grid]))
        low, high = float(grid[max(0, best - 1)]), float(grid[min(40, best + 1)])
    return (low + high) / 2.0


def run(options: Options) -> Outcome:
    """Compare the closed form with brute force, and mechanisms of few outputs with the limit."""
    epsilons = list(limit.KNOWN) if options.quick else [float(e) for e in np.linspace(0.1, 8.0, 80).round(6)]
    rows: list[Row] = []
    for done, epsilon in enumerate(epsilons):
        row: dict[str, Any] = {
            "epsilon": epsilon,
            "p00": formulas.three_outputs_p00(epsilon),
            "p00_brute_force": brute_force_p00(epsilon),
            "limit": limit.limit(epsilon),
            "Window, 3 outputs": Window(epsilon=epsilon, outputs=3).worst_case_variance,
            "Window, 4 outputs": Window(epsilon=epsilon, outputs=4).worst_case_variance,
        }
        row |= {contender.name: contender.ideal(epsilon) for contender in contenders.ALL}
        rows.append(row)
        options.progress(done + 1, len(epsilons))
    return Outcome(rows, _caption(rows), lambda: _draw(rows))


def _caption(rows: list[Row]) -> str:
    gap = max(abs(row["p00"] - row["p00_brute_force"]) for row in rows)
    loss = max(
        worst_variance(row["epsilon"], row["p00"]) / worst_variance(row["epsilon"], row["p00_brute_force"])
        for row in rows
    )
    four = min(rows, key=lambda row: float(row["Window, 4 outputs"]) / row["Three-Outputs"])
    saved = 1.0 - four["Window, 4 outputs"] / four["Three-Outputs"]
    (*_, one_bit) = found(Crossing("OneBit", "Three-Outputs", ""))
    return "\n".join(
        [
            "Fig. 3.3: the chance P(0|0) that Three-Outputs reports 0 for input 0, at its best value.",
            "",
            "Printed: 0 for small epsilon, a cubic's root between ln 2 and 1.7104, then c/(c+2).",
            f"Found: confirmed. The formula is within {gap:.1e} of a brute-force search, and its variance",
            f"within {loss - 1.0:.1e}.",
            "",
            "Three-Outputs is the best of its own family, not of all that fit into two bits: Window with",
            f"4 outputs has less variance, by {saved:.0%} at epsilon {four['epsilon']:g}; and OneBit,",
            f"with one bit, has less up to epsilon {one_bit:.3f}. Black: the limit for any number of bits.",
        ]
    )


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 2, size=(13.5, 5.0))
    chance, few = axes[0]
    epsilons = np.array([row["epsilon"] for row in rows])
    chance.plot(epsilons, [row["p00"] for row in rows], color=plots.STYLES["Three-Outputs"]["color"],
                linewidth=2, label="formula (3.4-3.7)")  # fmt: skip
    chance.plot(epsilons[::3], [row["p00_brute_force"] for row in rows[::3]], "o", color="black",
                markersize=4, markerfacecolor="none", label="brute force")  # fmt: skip
    for epsilon, text in ((formulas.LN2, "ln 2"), (formulas.EPSILON_THREE, "1.7104")):
        chance.axvline(epsilon, color="#888888", linewidth=0.8, linestyle="--")
        chance.annotate(text, (epsilon, 0.02), xytext=(3, 0), textcoords="offset points", fontsize=8)
    chance.set(xlabel="epsilon", ylabel="P(0|0)", ylim=(-0.02, 1.02))
    chance.set_title("P(0|0) of Three-Outputs", loc="left", fontsize=11)
    chance.legend(frameon=False, loc="lower right")

    bound = np.array([row["limit"] for row in rows])
    for contender in contenders.ALL:
        worst = np.array([row[contender.name] for row in rows])
        few.plot(epsilons, worst / bound, label=plots.label(contender.name),
                 **plots.style(contender.name, marker=False))  # fmt: skip
    for outputs, dashes in ((3, (0, (1, 1))), (4, (0, (5, 1)))):
        worst = np.array([row[f"Window, {outputs} outputs"] for row in rows])
        few.plot(epsilons, worst / bound, color=plots.ACCENT, linestyle=dashes, linewidth=1.6,
                 label=f"Window, {outputs} outputs (ours)")  # fmt: skip
    few.axhline(1.0, color=plots.LIMIT, linewidth=1.0, label="physical limit")
    few.set_ylim(0.97, 2.2)
    few.set_ylabel("worst-case variance / physical limit")
    few.set_title("few outputs against all", loc="left", fontsize=11)
    plots.epsilon_axis(few, [0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0])
    plots.legend_right(figure, few)
    return figure
