"""Table 3.1 of the thesis, Table II of the paper: which mechanism has less worst-case variance where.

Reference: Zhao 2022, Table 3.1; Zhao et al. 2020, Table II.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from reticent.experiments import contenders, plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.ours import limit
from reticent.experiments.zhao_2022.chapter_3.crossings import crossings

LOW, HIGH = 0.05, 8.0


class Crossing(NamedTuple):
    """Two mechanisms, and the epsilon printed for their crossing (empty if it is not printed)."""

    first: str
    second: str
    printed: str


PRINTED = (
    Crossing("Three-Outputs", "Duchi", "0.69"),
    Crossing("PM-SUB", "Duchi", "1.19"),
    Crossing("PM", "Duchi", "1.29"),
    Crossing("Three-Outputs", "PM-SUB", "2.56"),
    Crossing("Three-Outputs", "PM", "3.27"),
)
UNPRINTED = (
    Crossing("Laplace", "Duchi", ""),
    Crossing("Three-Outputs", "PM-OPT", ""),
    Crossing("Three-Outputs", "HM", ""),
    Crossing("HM", "HM-TP", "none: HM-TP is said to be lowest"),
    Crossing("PM-OPT", "HM-TP", "none: HM-TP is said to be lowest"),
    Crossing("OneBit", "HM-TP", ""),
    Crossing("OneBit", "HM", ""),
    Crossing("PM-SUB", "PM", "none: PM-SUB is lower"),
)
# Table 3.1, row by row: the mechanisms in increasing order of variance within each range.
REGIMES = (
    (0.0, math.log(2.0), "Duchi = Three-Outputs < PM-SUB < PM"),
    (math.log(2.0), 1.19, "Three-Outputs < Duchi < PM-SUB < PM"),
    (1.19, 1.29, "Three-Outputs < PM-SUB < Duchi < PM"),
    (1.29, 2.56, "Three-Outputs < PM-SUB < PM < Duchi"),
    (2.56, 3.27, "PM-SUB < Three-Outputs < PM < Duchi"),
    (3.27, math.inf, "PM-SUB < PM < Three-Outputs < Duchi"),
)


@lru_cache(maxsize=64)
def found(pair: Crossing) -> list[float]:
    """Every crossing of a pair in (0.05, 8), in real-number arithmetic."""
    first, second = contenders.BY_NAME[pair.first].ideal, contenders.BY_NAME[pair.second].ideal
    return crossings(first, second, LOW, HIGH)


def regime_holds(low: float, high: float, order: str) -> bool:
    """Whether the printed order of a row is right within its range, whose ends are rounded to 0.005."""
    low, high = max(low + 0.005, LOW), min(high - 0.005, HIGH)
    names = order.replace("=", "<").replace(" ", "").split("<")
    for epsilon in np.linspace(low, high, 25):
        worst = [contenders.BY_NAME[name].ideal(float(epsilon)) for name in names]
        if any(a > b * (1.0 + 1e-9) for a, b in pairwise(worst)):
            return False
    return True


def run(options: Options) -> Outcome:
    """Find the crossings and compare them with the print."""
    rows: list[Row] = []
    pairs = (*PRINTED, *UNPRINTED)
    for done, pair in enumerate(pairs):
        for epsilon in found(pair) or [math.nan]:
            variance = math.nan if math.isnan(epsilon) else contenders.BY_NAME[pair.second].ideal(epsilon)
            rows.append({**pair._asdict(), "epsilon": epsilon, "variance": variance})
        options.progress(done + 1, len(pairs))
    return Outcome(rows, _caption(rows), lambda: _draw(options.quick))


def _caption(rows: list[Row]) -> str:
    lines = ["Table 3.1 / Table II: regimes of worst-case variance.", "", "Printed range and order; ours:"]
    for low, high, order in REGIMES:
        verdict = "confirmed" if regime_holds(low, high, order) else "WRONG"
        lines.append(f"  {low:.4g} < epsilon < {high:.4g}: {order}: {verdict}")
    lines += ["", "Crossings (printed -> found by bisection, first = second):"]
    for row in rows:
        shown = "no crossing" if math.isnan(row["epsilon"]) else f"{row['epsilon']:.11g}"
        lines.append(f"  {row['first']} = {row['second']}: {row['printed'] or 'not printed'} -> {shown}")
    lines += [
        "",
        "The table leaves out HM, PM-OPT and HM-TP. With them: HM is below HM-TP between the crossings of",
        "the two, and PM-OPT is below HM-TP beyond theirs, so no mechanism of the documents is lowest",
        "everywhere. OneBit is below all of them up to its crossing with HM-TP; Optimal is below all of",
        "them everywhere and within 0.5 % of the physical limit up to epsilon 5.",
    ]
    return "\n".join(lines)


def _draw(quick: bool) -> Any:
    """The curves over the limit, with the crossings marked."""
    figure, axes = plots.panels(1, 1, size=(10.5, 5.6))
    axis = axes[0, 0]
    grid = () if quick else np.geomspace(0.3, 8.0, 80)
    epsilons = np.array(sorted({*grid, *limit.KNOWN[1:]}))
    bound = np.array([limit.limit(float(epsilon)) for epsilon in epsilons])
    for contender in contenders.ALL:
        if contender.name == "Laplace":
            continue
        worst = np.array([contender.ideal(float(epsilon)) for epsilon in epsilons])
        axis.plot(epsilons, worst / bound, label=plots.label(contender.name),
                  **plots.style(contender.name, marker=False))  # fmt: skip
    axis.axhline(1.0, color=plots.LIMIT, linewidth=1.0, label="physical limit")
    for number, pair in enumerate(PRINTED):
        for epsilon in found(pair)[-1:]:
            height = contenders.BY_NAME[pair.second].ideal(epsilon) / limit.limit(epsilon)
            axis.plot(epsilon, height, "o", color="black", markersize=5, zorder=5)
            axis.annotate(f"{pair.first} = {pair.second}\nprinted {pair.printed}, found {epsilon:.6g}",
                          (epsilon, height), xytext=_PLACES[number], textcoords="axes fraction", fontsize=8,
                          arrowprops={"arrowstyle": "-", "color": "#555555", "linewidth": 0.7})  # fmt: skip
    axis.set_ylim(0.97, 2.0)
    axis.set_ylabel("worst-case variance / physical limit")
    plots.epsilon_axis(axis, [0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0])
    axis.set_title("Table 3.1: the crossings of the documents' mechanisms", loc="left", fontsize=11)
    plots.legend_right(figure, axis)
    return figure


_PLACES = ((0.02, 0.55), (0.12, 0.70), (0.22, 0.88), (0.80, 0.44), (0.80, 0.60))
