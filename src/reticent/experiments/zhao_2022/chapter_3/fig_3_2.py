"""Fig. 3.2 of the thesis: worst-case variance of all mechanisms over epsilon, with the limit drawn in.

Reference: Zhao 2022, Fig. 3.2; Zhao et al. 2020, Fig. 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.experiments import contenders, plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.ours import limit
from reticent.experiments.zhao_2022.chapter_3.table_3_1 import Crossing, found
from reticent.mechanisms.numeric import formulas

TICKS = [0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0]


def run(options: Options) -> Outcome:
    """Work out both kinds of variance, in real-number arithmetic and on the wire, over epsilon."""
    grid = () if options.quick else np.geomspace(0.1, 8.0, 49).round(6)
    epsilons = sorted({*map(float, grid), *limit.KNOWN})
    rows: list[Row] = []
    for done, epsilon in enumerate(epsilons):
        bound = limit.limit(epsilon)
        for contender in contenders.ALL:
            rows.append(
                {
                    "epsilon": epsilon,
                    "mechanism": contender.name,
                    "ideal": contender.ideal(epsilon),
                    "wire": contenders.wire_worst(contender.name, epsilon),
                    "limit": bound,
                    "limit_is": "exact or bound" if _known(epsilon) else "interpolated",
                }
            )
        options.progress(done + 1, len(epsilons))
    return Outcome(rows, _caption(rows), lambda: _draw(rows))


def _known(epsilon: float) -> bool:
    return epsilon in limit.LOWER_BOUNDS or epsilon <= formulas.EPSILON_ONEBIT_OPTIMAL


def _caption(rows: list[Row]) -> str:
    hm = found(Crossing("HM", "HM-TP", ""))
    opt = found(Crossing("PM-OPT", "HM-TP", ""))
    lines = [
        "Fig. 3.2: worst-case variance of one report of a number in [-1, 1].",
        "",
        'Printed: "HM-TP obtains a lower worst-case noise variance than other solutions."',
        f"Found: not everywhere. HM and HM-TP cross at {', '.join(f'{e:.4f}' for e in hm)}: HM is lower",
        f"between the first two and between the last two. PM-OPT is lower than HM-TP from {opt[-1]:.4f} on.",
        "The other statements hold: Three-Outputs is Duchi up to ln 2 and below it beyond; PM-SUB and PM-OPT",
        "are below PM at every epsilon.",
        "",
        "Ours against the best of the documents and the limit (wire: as really sent):",
        "  epsilon  limit       Optimal     above limit  best document        saved",
    ]
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0):
        here = {row["mechanism"]: row for row in rows if row["epsilon"] == epsilon}
        best = min((here[c.name] for c in contenders.DOCUMENTS), key=lambda row: round(row["ideal"], 9))
        ours, bound = here["Optimal"]["wire"], here["Optimal"]["limit"]
        lines.append(
            f"  {epsilon:<8g} {bound:<11.6g} {ours:<11.6g} {ours / bound - 1.0:<12.3%} "
            f"{best['mechanism']:<9} {best['ideal']:<10.6g} {1.0 - ours / best['ideal']:.1%}"
        )
    largest = max(row["wire"] / row["ideal"] - 1.0 for row in rows)
    lines.append(
        f"Discretising (2001 levels) and integer probabilities cost at most {largest:.1e} of the variance."
    )
    return "\n".join(lines)


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 2, size=(13.5, 5.2))
    absolute, ratio = axes[0]
    for contender in contenders.ALL:
        mine = [row for row in rows if row["mechanism"] == contender.name]
        epsilons = np.array([row["epsilon"] for row in mine])
        wire, bound = (np.array([row[key] for row in mine]) for key in ("wire", "limit"))
        look = plots.style(contender.name, marker=False)
        absolute.plot(epsilons, wire, label=plots.label(contender.name), **look)
        ratio.plot(epsilons, wire / bound, **look)
        if contender.name == "Optimal":
            absolute.plot(epsilons, bound, color=plots.LIMIT, linewidth=1.0, label="physical limit", zorder=5)
    ratio.axhline(1.0, color=plots.LIMIT, linewidth=1.0)
    absolute.set_yscale("log")
    absolute.set_ylabel("worst-case variance")
    absolute.set_title("as printed, with ours and the limit", loc="left", fontsize=11)
    ratio.set_ylim(0.97, 2.1)
    ratio.set_ylabel("worst-case variance / physical limit")
    ratio.set_title("how far above the limit", loc="left", fontsize=11)
    ratio.annotate("HM-TP is not lowest here: HM is", (1.0, 1.09), xytext=(0.13, 1.2), fontsize=8,
                   arrowprops={"arrowstyle": "-", "color": "#555555", "linewidth": 0.7})  # fmt: skip
    for axis in (absolute, ratio):
        plots.epsilon_axis(axis, TICKS)
    plots.legend_right(figure, absolute)
    return figure
