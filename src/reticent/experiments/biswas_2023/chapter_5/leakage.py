"""Fig. 5.4 of the thesis: the largest leakage of a client, round by round: claimed, and what it is.

Reference: Biswas 2023, Fig. 5.4; mathematics 4.11.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.biswas_2023.chapter_5 import runs
from reticent.experiments.biswas_2023.chapter_5.runs import Run
from reticent.privacy import epsilon_of

DELTA = 1e-6


def run(options: Options) -> Outcome:
    """Train twice, with Laplace noise for a public clip and with slots, and add up what clients pay."""
    rows: list[Row] = []
    ways = (runs.FIXED_SCALE, runs.OURS)
    for done, way in enumerate(ways):
        one = runs.run(runs.shorter(way) if options.quick else way, options.seed)
        rows += _rows(way.name, way.users, one, gaussian=way is runs.OURS)
        options.progress(done + 1, len(ways))
    return Outcome(rows, _caption(rows), lambda: _draw(rows))


def _rows(name: str, users: int, one: Run, *, gaussian: bool) -> list[Row]:
    claimed, spent = np.zeros(users), np.zeros(users)
    rows: list[Row] = []
    for seen in one.rounds:
        claimed[seen.who] += 2.0 / runs.NU
        spent[seen.who] += seen.charge
        for law in (0, 1):
            most = float(spent[law::2].max())
            rows.append(
                {
                    "way": name,
                    "round": seen.number,
                    "cluster": law + 1,
                    "claimed": float(claimed[law::2].max()),
                    "charge of a report": seen.charge,
                    "charged": most,
                    "epsilon": epsilon_of(math.sqrt(most), DELTA) if gaussian and most else most,
                }
            )
    return rows


def _last(rows: list[Row], name: str) -> dict[str, float]:
    mine = [row for row in rows if row["way"] == name]
    return {key: max(row[key] for row in mine) for key in ("claimed", "epsilon", "charge of a report")}


def _caption(rows: list[Row]) -> str:
    fixed, ours = _last(rows, runs.FIXED_SCALE.name), _last(rows, runs.OURS.name)
    return runs.wrapped(
        "Fig. 5.4: the largest privacy leakage of a client, over the rounds.",
        "",
        "Printed: it grows by n/nu = 0.4 whenever the client with the largest takes part, and stays "
        "otherwise.",
        "Found: the steps are as printed, their height is not. The claim compares updates about one known "
        "hypothesis, with a scale taken from the update itself. With a public clip, and the choice of the "
        "hypothesis hidden too, one report costs epsilon (2 S + |theta_i - theta_j|) (mathematics 4.11):",
        f"- S = 1 at the optima: {runs.charge_at_the_optima(1.0):.2f}, where 0.4 or 0.8 was claimed.",
        f"- S = {runs.SMALL_CLIP:g}: up to {fixed['charge of a report']:.1f} a report; the client that took "
        f"part most often has spent {fixed['epsilon']:.0f} at the end, where {fixed['claimed']:.1f} was "
        "claimed.",
        f"Ours: everybody takes part once. mu = {math.sqrt(ours['charge of a report']):.3f}, which is "
        "epsilon "
        f"{ours['epsilon']:.2f} at delta {DELTA:g}; nothing grows.",
        "Differences: the printed figure is one run; so is this. Simulation only: ledgers of all clients.",
    )


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 2, size=(12.0, 4.4))
    for axis, way in zip(axes[0], (runs.FIXED_SCALE, runs.OURS), strict=True):
        for law, style in ((1, "-"), (2, "--")):
            mine = [row for row in rows if row["way"] == way.name and row["cluster"] == law]
            numbers = [row["round"] for row in mine]
            for key, colour in (("claimed", "#0072B2"), ("epsilon", plots.ACCENT)):
                values = [row[key] for row in mine]
                text = f"{'claimed' if key == 'claimed' else 'true'}, cluster {law}"
                axis.step(numbers, values, style, where="post", color=colour, label=text)
        axis.set_yscale("log")
        axis.set_xlabel("round")
        axis.set_ylabel("largest epsilon of a client")
        axis.set_title(way.name, loc="left", fontsize=10)
    plots.legend_right(figure, axes[0][0])
    return figure
