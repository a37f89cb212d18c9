"""Fig. 3.10 of the thesis: the distance after the last cycle of PRIVIC, by beta.

Reference: Biswas 2023, Section 3.7, Fig. 3.10.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_3 import runs
from reticent.experiments.biswas_2023.chapter_3.cycles import OURS, distances
from reticent.experiments.biswas_2023.chapter_3.data import CITIES, load

BETAS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
QUICK_BETAS = (0.1, 0.5, 1.0)


def run(options: Options) -> Outcome:
    """Run PRIVIC for each city and beta."""
    people = [load(city, options.data) for city in (CITIES[:1] if options.quick else CITIES)]
    betas, times = QUICK_BETAS if options.quick else BETAS, runs.runs_of(options)
    rows: list[Row] = []
    for place, one in enumerate(people):
        cycles = runs.cycles_of(one.city, options) - 1
        for number, beta in enumerate(betas):
            last = [
                distances(one, OURS, beta, cycles, runs.stream(options.seed, 10, place, number, again))[-1]
                for again in range(times)
            ]
            rows.append(
                {
                    "city": one.city.name,
                    "beta": beta,
                    "EMD": float(np.mean(last)),
                    "least": min(last),
                    "most": max(last),
                }
            )
            options.progress(place * len(betas) + number + 1, len(people) * len(betas))
    return Outcome(rows, _caption(rows, times), partial(_draw, rows))


def _caption(rows: list[Row], times: int) -> str:
    cities = list(dict.fromkeys(row["city"] for row in rows))
    found = [
        f"- {city}: "
        + ", ".join(f"{row['EMD']:.3f} at {row['beta']:g}" for row in rows if row["city"] == city)
        + "."
        for city in cities
    ]
    return wrapped(
        "Fig. 3.10 of Biswas 2023: earth mover's distance after the last cycle of PRIVIC, by beta.",
        "",
        "Printed: it falls sharply, then settles, as beta grows (a plot; no numbers but those of Tables B.1 "
        "and B.2 at 0.5 and 1).",
        f"Found (mean of {times} runs, in cells): confirmed.",
        *found,
        "Differences: as in loc-3.8.",
    )


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 1, size=(7.0, 4.6))
    axis = axes[0][0]
    for city, colour in zip(CITIES, (plots.ACCENT, "#0072B2"), strict=True):
        mine = [row for row in rows if row["city"] == city.name]
        betas = [row["beta"] for row in mine]
        axis.plot(betas, [row["EMD"] for row in mine], color=colour, marker="o", label=city.name)
        axis.fill_between(
            betas, [row["least"] for row in mine], [row["most"] for row in mine], color=colour, alpha=0.15
        )
        if mine:
            printed = [city.printed_mean(beta) for beta in (0.5, 1.0)]
            axis.plot([0.5, 1.0], printed, "x", color=colour, label=f"{city.name}, printed")
    axis.set_xlabel("beta, 1/cell")
    axis.set_ylabel("earth mover's distance, cells")
    axis.set_ylim(bottom=0.0)
    axis.legend(frameon=False)
    return figure
