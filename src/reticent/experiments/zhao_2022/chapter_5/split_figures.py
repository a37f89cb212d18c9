"""One panel of accuracies by lines: what Figs. 5.3 to 5.8 look like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reticent.experiments import plots
from reticent.experiments.base import Row

COLOURS = ("#1f5fa8", "#c2571a", "#2d8a4e", "#7a4fa3", "#444444")


def drawn(rows: Sequence[Row], across: str, line: str, *, log: bool = False) -> Any:
    """Accuracy over one column, a line for each value of another."""
    figure, axes = plots.panels(1, 1, size=(7.0, 4.2))
    axis = axes[0, 0]
    for place, name in enumerate(dict.fromkeys(row[line] for row in rows)):
        mine = [row for row in rows if row[line] == name]
        shown = name if isinstance(name, str) else f"{line} {name:g}"
        axis.plot(
            [row[across] for row in mine], [row["accuracy"] for row in mine],
            marker="o", markersize=4.5, color=COLOURS[place % len(COLOURS)], label=shown,
        )  # fmt: skip
    ticks = sorted({row[across] for row in rows})
    if log:
        axis.set_xscale("log")
        axis.set_xticks([], minor=True)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_xlabel(across)
    axis.set_ylabel("accuracy (simulation only)")
    axis.set_ylim(0.0, 1.0)
    axis.legend(frameon=False, fontsize=9, loc="lower right")
    return figure


def said(rows: Sequence[Row], line: str, across: str) -> str:
    """The accuracies of each line, in the order of the other column."""
    parts = []
    for name in dict.fromkeys(row[line] for row in rows):
        mine = [row for row in rows if row[line] == name]
        shown = name if isinstance(name, str) else f"{line} {name:g}"
        parts.append(f"{shown}: " + ", ".join(format(row["accuracy"], ".3f") for row in mine))
    ticks = ", ".join(f"{tick:g}" for tick in dict.fromkeys(row[across] for row in rows))
    return f"accuracy at {across} {ticks}: " + "; ".join(parts)
