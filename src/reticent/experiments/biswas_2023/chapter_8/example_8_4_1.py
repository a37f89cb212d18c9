"""Example 8.4.1 of the thesis: who earned what, for every quota.

Reference: Biswas 2023, Section 8.4.2, Example 8.4.1.
"""

from __future__ import annotations

from typing import Any

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.market import threshold_values

CONTRIBUTIONS, MONEY = (10, 5, 3), 60.0  # tenths


def run(options: Options) -> Outcome:
    """The Shapley values of the example at every quota in tenths."""
    rows: list[Row] = []
    for quota in range(1, sum(CONTRIBUTIONS) + 1):
        first, second, third = (MONEY * threshold_values(CONTRIBUTIONS, quota)).tolist()
        rows.append({"quota": quota / 10, "p1": first, "p2": second, "p3": third})
        options.progress(quota, sum(CONTRIBUTIONS))
    at = next(row for row in rows if row["quota"] == 1.4)
    printed = sum(abs(row["p1"] - 40.0) + abs(row["p2"] - 20.0) + abs(row["p3"]) < 1e-9 for row in rows)
    caption = wrapped(
        "Example 8.4.1: contributions 1.0, 0.5 and 0.3, quota 1.4, 60 to split.",
        "",
        "Printed: 40, 20 and 0.",
        f"Found: {at['p1']:g}, {at['p2']:g} and {at['p3']:g}. The print lets p1 and p3 reach 1.4 with 1.3; "
        f"its values are those of {printed} of the {len(rows)} quotas.",
    )
    return Outcome(rows, caption, lambda: _draw(rows))


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 1, size=(6.4, 3.8))
    axis = axes[0, 0]
    for name, colour in (("p1", "#0072B2"), ("p2", "#009E73"), ("p3", plots.ACCENT)):
        axis.step(
            [row["quota"] for row in rows], [row[name] for row in rows], where="mid", color=colour, label=name
        )
    axis.axvline(1.4, color="#999999", linestyle=":")
    axis.set(xlabel="quota", ylabel="earned of 60")
    axis.legend(frameon=False, fontsize=8)
    return figure
