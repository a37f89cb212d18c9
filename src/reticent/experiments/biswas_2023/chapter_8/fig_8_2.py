"""Fig 8.2 of the thesis: rounds until a federation has what it promised.

Reference: Biswas 2023, Section 8.5.1, Fig 8.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_8.collecting import (
    COLOURS,
    MOST_ROUNDS,
    PERIOD,
    SIZES,
    WAYS,
    every_case,
)

SETTINGS = {"as printed": (False, 5.0), "thresholds kept": (True, 5.0), "kept, goal 4 a member": (True, 4.0)}


def run(options: Options) -> Outcome:
    """Rounds and how many federations get there, by size, by way of collecting, by what is kept."""
    rows: list[Row] = []
    for setting, size, way, years in every_case(options, 2, SETTINGS):
        there = [year.rounds for year in years if year.reached]
        rows.append(
            {
                "setting": setting,
                "members": size,
                "way": way,
                "possible": sum(year.possible for year in years) / len(years),
                "reached": len(there) / len(years),
                "rounds": float(np.mean(there)) if there else None,
            }
        )
        options.progress(len(rows), len(SETTINGS) * len(SIZES) * len(WAYS))
    caption = wrapped(
        "Fig 8.2: rounds of federations whose goal is 5 for each member, thresholds normal(5, 1); year "
        f"{PERIOD}, {options.times} federations of each size.",
        "",
        "Printed: within 5 rounds, and catalysing is quicker.",
        f"Found, as printed (nobody stops at her threshold), 100 members: {_said(rows, 'as printed')}. "
        "N = saving / threshold is at most 1 within a year, so it slows.",
        f"Found, with thresholds kept: the goal is the whole of them, which sum to it in "
        f"{_share(rows, 'possible')} of the federations; {_share(rows, 'reached')} get there in time.",
        f"Found, with thresholds kept and a goal of 4, 100 members: {_said(rows, 'kept, goal 4 a member')}.",
        f"Differences: ours rounds N up, over {PERIOD} years; at most {MOST_ROUNDS} rounds.",
    )
    return Outcome(rows, caption, lambda: _draw(rows))


def _said(rows: list[Row], setting: str) -> str:
    found = []
    for row in rows:
        if row["setting"] == setting and row["members"] == SIZES[-1]:
            rounds = "never" if row["rounds"] is None else f"{row['rounds']:.2f} rounds"
            found.append(f"{row['way']} {rounds} ({row['reached']:.0%} get there)")
    return ", ".join(found)


def _share(rows: list[Row], what: str) -> str:
    shares = [row[what] for row in rows if row["setting"] == "thresholds kept" and row["way"] == "ours"]
    return f"{min(shares):.0%} to {max(shares):.0%}"


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 3, size=(11.0, 3.8))
    for axis, setting in zip(axes[0], SETTINGS, strict=True):
        for name, colour in COLOURS.items():
            mine = [row for row in rows if row["setting"] == setting and row["way"] == name]
            axis.plot(
                [row["members"] for row in mine],
                [np.nan if row["rounds"] is None else row["rounds"] for row in mine],
                color=colour,
                marker="o",
                label=f"{name}: {np.mean([row['reached'] for row in mine]):.0%} get there",
            )
        axis.set(xlabel="members", ylabel="rounds", ylim=(0.0, None))
        axis.set_title(setting, loc="left", fontsize=10)
        axis.legend(frameon=False, fontsize=8)
    return figure
