"""Captions and plots of the error of means (Fig. 3.6 and 3.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Row
from reticent.experiments.protocol import WAVES
from reticent.experiments.zhao_2022.chapter_3.means import DEFAULT, NAMES, OURS, select


def is_document(row: Row) -> bool:
    """Whether a row is a mechanism of the documents."""
    return row["mechanism"] not in OURS


def printed(rows: Sequence[Row]) -> list[Row]:
    """The documents' mechanisms as printed: their rule for k, d/k weights."""
    return [row for row in select(rows, rule="documents", weights="design") if is_document(row)]


def strengthened(rows: Sequence[Row]) -> list[Row]:
    """The documents' mechanisms with our estimator and their own best k."""
    return [row for row in select(rows, rule="best", weights="realised") if is_document(row)]


def table(rows: Sequence[Row]) -> list[str]:
    """Per data set and epsilon: our error, the best document's as printed and strengthened, two waves.

    "Best" goes by the exact expected errors: the least of eight simulated ones would be chance.
    """
    columns = f"{'mechanism':<15}{'ratio':<7}{'exact':<15}"
    lines = [
        f"  {'':<27}{'best document as printed':<37}with our estimator and its best k",
        f"  {'data':<10}{'eps':<5}{'ours, MSE':<12}{columns}{columns}two waves",
    ]
    for here in cases(rows):
        (ours,) = select(here, mechanism=DEFAULT, weights="realised")
        (waves,) = select(here, mechanism=WAVES, weights="realised")
        cells = []
        for row in (best_document(printed(here)), best_document(strengthened(here))):
            exact = row["expected_mse"] / ours["expected_mse"]
            cells.append(f"{row['mechanism']:<14} {row['ratio']:<6.2f} {exact:<6.2f} {_mark(row):<7}")
        lines.append(
            f"  {ours['data']:<9} {ours['epsilon']:<4g} {ours['mse']:<11.3e} {cells[0]} {cells[1]} "
            f"{waves['ratio']:.2f} {_mark(waves)}".rstrip()
        )
    return lines


def cases(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each data set and epsilon."""
    keys = dict.fromkeys((row["data"], row["epsilon"]) for row in rows)
    return [select(rows, data=data, epsilon=epsilon) for data, epsilon in keys]


def best_document(rows: Sequence[Row]) -> Row:
    """The row of least exact expected error."""
    return min(rows, key=lambda row: float(row["expected_mse"]))


def _mark(row: Row) -> str:
    return {"ours smaller": "", "equal": "equal", "ours larger": "LOWER"}[row["verdict"]]


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Where ours is smallest or statistically equal, and where a document's mechanism wins."""
    lines = []
    for title, pick in (("as printed", printed), ("with our estimator and their best k", strengthened)):
        for ours, key in (("our default", "verdict"), ("two waves", "verdict_two_waves")):
            lost = {}
            for here in cases(rows):
                (base,) = select(here, mechanism=DEFAULT, weights="realised")
                names = [
                    f"{row['mechanism']} ({row['expected_mse'] / base['expected_mse']:.3f})"
                    for row in pick(here)
                    if row[key] == "ours larger"
                ]
                if names:
                    lost[here[0]["data"], here[0]["epsilon"]] = names
            count = len(cases(rows))
            lines.append(
                f"Documents {title}: {ours} is smallest or statistically equal in {count - len(lost)} of "
                f"{count} cases{', all but' if lost else '.'}"
            )
            lines += [
                f"    {data}, epsilon {eps:g}: {', '.join(names)}" for (data, eps), names in lost.items()
            ]
    note = (
        "In brackets the exact ratio to our default: where it is not below 1, the simulated one is chance\n"
        "(one comparison in forty, and those of one data set share their random numbers)."
    )
    return [*lines, note, *_exact_verdict(rows)]


def _exact_verdict(rows: Sequence[Row]) -> list[str]:
    """The same by exact expected errors, where no chance is left."""
    worse = []
    for here in cases(rows):
        (ours,) = select(here, mechanism=DEFAULT, weights="realised")
        best = best_document([*printed(here), *strengthened(here)])
        if best["expected_mse"] < ours["expected_mse"]:
            less = 1.0 - best["expected_mse"] / ours["expected_mse"]
            worse.append(
                f"    {ours['data']}, epsilon {ours['epsilon']:g}: {best['mechanism']} by {less:.1%}"
            )
    heading = (
        f"By exact expected errors a document's mechanism is below our default in {len(worse)} of "
        f"{len(cases(rows))} cases{':' if worse else '.'}"
    )
    return [heading, *worse, *_one_bit_note(rows)]


def _one_bit_note(rows: Sequence[Row]) -> list[str]:
    """How the mechanism that is best for the worst data does on these."""
    count = sum(
        best_document(printed(here))["expected_mse"]
        < select(here, mechanism="OneBit", weights="design")[0]["expected_mse"]
        for here in cases(rows)
    )
    return [
        "OneBit with rho = k/d and d/k weights, the best for the worst data there can be, has more expected",
        f"error than the best document as printed in {count} of {len(cases(rows))} cases: these are milder.",
    ]


def how_often_best(rows: Sequence[Row], name: str) -> str:
    """In how many cases a mechanism has, or shares, the least exact expected error, as printed.

    At a small epsilon HM, Three-Outputs and HM-TP are Duchi's mechanism but for rounding: a relative
    difference of 1e-5 is none.
    """
    count = 0
    for here in cases(rows):
        least = best_document(printed(here))["expected_mse"]
        (mine,) = select(printed(here), mechanism=name)
        count += mine["expected_mse"] <= least * (1.0 + 1e-5)
    return f"{count} of {len(cases(rows))} cases"


def data_notes(rows: Sequence[Row]) -> str:
    """The mean square of each data set, which decides who wins."""
    squares = {row["data"]: row["mean_square"] for row in rows}
    return ", ".join(f"{data} {square:.2f}" for data, square in squares.items())


def bias_note(rows: Sequence[Row]) -> str:
    """What the check for bias said."""
    checked = [row for row in rows if row["biased"] is not None]
    if not checked:
        return "Bias: not checked, too few repetitions."
    flagged = sorted({row["mechanism"] for row in checked if row["biased"]})
    return f"Bias: {len(checked)} estimates checked, {'none' if not flagged else ', '.join(flagged)} flagged."


LEGEND = (
    "Ratio: error divided by that of our default (Optimal, best k, realised weights), simulated and exact.",
    "LOWER and equal: by the 95 % interval of the paired difference; otherwise ours is smaller.",
)
WHY = """\
Why a document's mechanism wins where it does: ours has (nearly) the same variance for every input, the least
that is possible in the worst case. The piecewise mechanisms have less near 0 and more near -1 and 1; on data
concentrated near 0 (small mean square, below) and from about epsilon 1 per number on, that is an advantage.
No choice made before seeing data can win on both kinds. "Two waves" is the remedy: a tenth of the people,
with their one report each, tell which mechanism suits the others. It costs a second round, but no budget."""


def draw(rows: Sequence[Row], title: str) -> Any:
    """Per data set: the errors over epsilon, and their ratio to ours with 95 % intervals."""
    populations = list(dict.fromkeys(row["data"] for row in rows))
    figure, axes = plots.panels(2, len(populations), size=(4.0 * len(populations) + 2.2, 8.6))
    best = select(rows, rule="best", weights="realised")
    for column, data in enumerate(populations):
        top, below = axes[:, column]
        ours = select(best, data=data, mechanism=DEFAULT)
        for name in NAMES:
            mine = select(best, data=data, mechanism=name)
            epsilons = np.array([row["epsilon"] for row in mine])
            look = plots.style(name)
            top.plot(epsilons, [row["mse"] for row in mine], label=plots.label(name), **look)
            _ratios(below, mine, ours, name)
        doc = printed(select(rows, data=data))
        lowest = [best_document(select(doc, epsilon=e))["mse"] for e in epsilons]
        top.plot(epsilons, lowest, color="black", linestyle=(0, (1, 2)), linewidth=1.4,
                 label="best document as printed\n(k = floor(eps/2.5), d/k weights)")  # fmt: skip
        exact = [best_document(select(doc, epsilon=row["epsilon"]))["expected_mse"] for row in ours]
        below.plot(epsilons, np.array(exact) / [row["expected_mse"] for row in ours], color="black",
                   linestyle=(0, (1, 2)), linewidth=1.4)  # fmt: skip
        top.set_yscale("log")
        top.set_title(f"{data}  (mean square {select(rows, data=data)[0]['mean_square']:.2f})", fontsize=11)
        below.axhline(1.0, color=plots.ACCENT, linewidth=0.8)
        below.set_yscale("log")
        below.set_ylim(0.55, 4.2)
        ticks = [0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0]
        below.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        below.set_yticks([], minor=True)
        for axis in (top, below):
            plots.epsilon_axis(axis, [float(e) for e in epsilons], "epsilon of the whole record")
    axes[0, 0].set_ylabel("mean squared error of the means")
    axes[1, 0].set_ylabel("error / error of our default (Optimal)")
    note = "below: exact ratios (lines), simulated ones with 95 % intervals (points)"
    figure.suptitle(f"{title}; {note}", x=0.01, ha="left", fontsize=12)
    plots.legend_right(figure, axes[0, 0])
    return figure


def _ratios(axis: Any, mine: Sequence[Row], ours: Sequence[Row], name: str) -> None:
    """The exact ratio as a line (for two waves the simulated one), the simulated ratio with its interval."""
    epsilons = np.array([row["epsilon"] for row in mine])
    ratio, low, high = (np.array([row[key] for row in mine]) for key in ("ratio", "ratio_low", "ratio_high"))
    exact = np.array([row["expected_mse"] for row in mine]) / [row["expected_mse"] for row in ours]
    axis.plot(epsilons, ratio if name == WAVES else exact, **plots.style(name, marker=False))
    look = {**plots.style(name), "linestyle": "none", "markersize": 3.5}
    shift = 1.0 + 0.016 * (NAMES.index(name) - len(NAMES) / 2)
    axis.errorbar(epsilons * shift, ratio, [ratio - low, high - ratio], elinewidth=0.6, alpha=0.7, **look)
