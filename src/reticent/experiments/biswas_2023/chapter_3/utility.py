"""Fig. 3.3 of the thesis: one collection estimated under Blahut-Arimoto and under Laplace, by beta.

Reference: Biswas 2023, Section 3.4.2, Fig. 3.3.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from reticent.estimation.locations import estimated
from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_3 import runs
from reticent.experiments.biswas_2023.chapter_3.data import CITIES, Population, load
from reticent.location.privic import TURNS
from reticent.mechanisms.location import blahut_arimoto, planar_laplace
from reticent.randomness import Stream

BETAS = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 2.0, 3.0, 4.0, 5.0)
QUICK_BETAS = (0.4, 1.0, 3.0)
UPDATES = 100
BA, LAPLACE, HALF = "Blahut-Arimoto", "Laplace", "Laplace at half the level"
WAYS = (BA, LAPLACE, HALF)


def run(options: Options) -> Outcome:
    """Estimate once for each city, beta, channel and run."""
    people = [load(city, options.data) for city in (CITIES[:1] if options.quick else CITIES)]
    betas = QUICK_BETAS if options.quick else BETAS
    rows: list[Row] = []
    for place, one in enumerate(people):
        for number, beta in enumerate(betas):
            for way in WAYS:
                channel = made(way, one, beta)
                off = [
                    one_collection(channel, one, runs.stream(options.seed, 3, place, number, again))
                    for again in range(runs.runs_of(options))
                ]
                rows.append(
                    {
                        "city": one.city.name,
                        "beta": beta,
                        "channel": way,
                        "level": channel.level,
                        "mean distance of a report": channel.distortion(one.shares),
                        "EMD": float(np.mean(off)),
                        "least": min(off),
                        "most": max(off),
                    }
                )
            options.progress(place * len(betas) + number + 1, len(people) * len(betas))
    return Outcome(rows, _caption(rows, people, runs.runs_of(options)), partial(_draw, rows, people))


def made(way: str, people: Population, beta: float) -> Any:
    """The channel; Blahut-Arimoto for the true distribution, as the documents."""
    if way == BA:
        return blahut_arimoto(people.grid, people.shares, beta, turns=TURNS, tolerance=0.0)
    return planar_laplace(people.grid, 2.0 * beta if way == LAPLACE else beta)


def one_collection(channel: Any, people: Population, rng: Stream) -> float:
    """The distance of one estimate from the truth."""
    counts = runs.drawn(channel.forward(people.shares), people.reports, rng)
    found = estimated([(channel, counts)], tolerance=0.0, max_iterations=UPDATES, accelerated=False)
    return runs.distance(people.grid, found.distribution, people.shares)


def _series(rows: list[Row], city: str, way: str, key: str = "EMD") -> dict[float, float]:
    return {row["beta"]: row[key] for row in rows if (row["city"], row["channel"]) == (city, way)}


def _caption(rows: list[Row], people: list[Population], times: int) -> str:
    found = []
    for one in people:
        ours = _series(rows, one.city.name, BA)
        for way in (LAPLACE, HALF):
            other = _series(rows, one.city.name, way)
            better = [f"{beta:g}" for beta in ours if ours[beta] < other[beta]]
            found.append(
                f"- {one.city.name}: Blahut-Arimoto is better than {way} at "
                f"{'beta ' + ', '.join(better) if better else 'no beta'}. At beta 1: {ours[1.0]:.3f} "
                f"against {other[1.0]:.3f}."
            )
    return wrapped(
        "Fig. 3.3 of Biswas 2023: earth mover's distance of an estimate from one collection, by beta.",
        "",
        "Printed: Blahut-Arimoto has significantly better utility than Laplace for beta in (0.4, 1.4] in "
        "Paris and (0, 1) in San Francisco, and is worse beyond (a plot; no numbers).",
        f"Found (mean of {times} runs, in cells):",
        *found,
        "Not confirmed at the same level, epsilon = 2 beta; and with epsilon = beta for Laplace, half the "
        "level, the ranges are not the printed ones either. Blahut-Arimoto hides isolated places (loc-3.2), "
        "and that costs accuracy. Nor was it confirmed with 10 updates, or to the end, or with 100 turns, at "
        "eight betas and two runs each.",
        f"Differences: {TURNS} turns of Blahut-Arimoto for the true distribution and {UPDATES} updates from "
        "the uniform guess for every channel (the documents name no number here; to the end, both fit the "
        "noise). Laplace noise is integrated over the cells of the grid, not drawn and rounded.",
    )


def _draw(rows: list[Row], people: list[Population]) -> Any:
    figure, axes = plots.panels(1, len(people), size=(6.5 * len(people) + 2.0, 4.6))
    looks = {BA: (plots.ACCENT, "-"), LAPLACE: ("#0072B2", "-"), HALF: ("#0072B2", ":")}
    for axis, one in zip(axes[0], people, strict=True):
        for way, (colour, line) in looks.items():
            series = _series(rows, one.city.name, way)
            axis.plot(list(series), list(series.values()), line, color=colour, marker="o", label=way)
        axis.set_yscale("log")
        axis.set_xlabel("beta, 1/cell")
        axis.set_ylabel("earth mover's distance, cells")
        axis.set_title(one.city.name, loc="left", fontsize=11)
    plots.legend_right(figure, axes[0][0])
    return figure
