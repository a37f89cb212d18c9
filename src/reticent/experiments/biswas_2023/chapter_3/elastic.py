"""Fig. 3.2 of the thesis: what is reported of an isolated place and of a crowded one, by level.

Reference: Biswas 2023, Section 3.4.1, Figs. 3.1 and 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_3 import maps
from reticent.experiments.biswas_2023.chapter_3.data import PARIS, Island, load, with_island
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location import blahut_arimoto, planar_laplace

EPSILONS = (0.4, 1.2, 1.6, 2.0)
NEAR = 2.0  # cells


def run(options: Options) -> Outcome:
    """Work out the laws of the reports; nothing is drawn at random."""
    island = with_island(load(PARIS, options.data))
    rows: list[Row] = []
    laws: dict[tuple[str, str, float], Floats] = {}
    epsilons = EPSILONS[1:3] if options.quick else EPSILONS
    for done, epsilon in enumerate(epsilons):
        for name, channel in channels(island, epsilon).items():
            for place, cell in (("A", island.alone), ("B", island.crowded)):
                laws[name, place, epsilon] = channel.probabilities(cell)
                row = {"epsilon": epsilon, "channel": name, "place": place}
                rows.append(row | told(channel, island, cell))
        options.progress(done + 1, len(epsilons))
    return Outcome(rows, _caption(rows, epsilons), partial(_draw, island, laws, epsilons))


def channels(island: Island, epsilon: float) -> dict[str, Any]:
    """Both channels at the same level per cell; Blahut-Arimoto for the true distribution, to its end."""
    people = island.people
    return {
        "Blahut-Arimoto": blahut_arimoto(people.grid, people.shares, epsilon / 2.0, floor=0.0, tolerance=0.0),
        "Laplace": planar_laplace(people.grid, epsilon),
    }


def told(channel: Any, island: Island, cell: int) -> dict[str, float]:
    """What the reports of a place tell.

    "recognised" is what somebody who knows where everybody is would think of the place after its report: the
    mean of P(place | report) over the reports of the place.
    """
    law, people = channel.probabilities(cell), island.people
    away = people.grid.distances(cell)
    posterior = people.shares[cell] * law / np.maximum(channel.forward(people.shares), 1e-300)
    return {
        "P(itself)": float(law[cell]),
        "P(within 2 cells)": float(law[away <= NEAR].sum()),
        "P(where nobody is)": float(law[people.counts == 0].sum()),
        "mean distance": float(law @ away),
        "distance of the likeliest": float(away[law.argmax()]),
        "recognised": float(law @ posterior),
    }


def _caption(rows: list[Row], epsilons: Sequence[float]) -> str:
    at = {(row["channel"], row["place"], row["epsilon"]): row for row in rows}
    lines = [
        "Fig. 3.2 of Biswas 2023: the reports of an isolated place A and a crowded one B in Paris, by level.",
        "",
        "Printed: the likeliest report of A under Blahut-Arimoto moves from the most crowded region towards "
        "A as epsilon grows, and stays in crowded cells; Laplace reports A around A, in deserted cells. For "
        "B both report cells around B.",
        "Found (beta = epsilon / 2, both at the same level per cell; exact, no simulation):",
    ]
    for epsilon in epsilons:
        parts = []
        for name in ("Blahut-Arimoto", "Laplace"):
            row = at[name, "A", epsilon]
            parts.append(
                f"{name} {row['distance of the likeliest']:.1f} cells from A, "
                f"{row['P(where nobody is)']:.0%} where nobody is, recognised {row['recognised']:.3f}"
            )
        lines.append(f"- epsilon {epsilon:g}: likeliest report {'; '.join(parts)}.")
    strong = at["Blahut-Arimoto", "A", epsilons[-1]]
    lines += [
        "Confirmed as long as A has too few people to be a crowd of its own: at epsilon "
        f"{epsilons[-1]:g}, {strong['P(itself)']:.2f} of the reports of A are A itself.",
        '"Recognised" is the mean of P(A given the report) for somebody who knows where everybody is.',
        "Differences: the documents do not say which cell A is, nor how wide its surroundings; here it is "
        "the cell of the south-western quarter with the fewest people in and around it, and the eight cells "
        "around it are emptied. B is the cell with the most people. Grid 11 x 15 (the text says 16 x 12). "
        "Three other islands were looked at first; the two with 24 cells emptied have about five times the "
        "people, and PRIVIC reports them as themselves half of the time at epsilon 1.2 (loc-3.11).",
    ]
    return wrapped(*lines)


def _draw(island: Island, laws: dict[tuple[str, str, float], Floats], epsilons: Sequence[float]) -> Any:
    figure, axes = plots.panels(len(epsilons), 4, size=(14.0, 2.5 * len(epsilons)))
    for down, epsilon in enumerate(epsilons):
        for across, (name, place) in enumerate((n, p) for p in "AB" for n in ("Blahut-Arimoto", "Laplace")):
            axis, cell = axes[down][across], island.alone if place == "A" else island.crowded
            maps.heat(axis, island.people.grid, laws[name, place, epsilon])
            maps.mark(axis, island.people.grid, cell, place)
            axis.set_title(f"{name}, {place}, epsilon {epsilon:g}", loc="left", fontsize=9)
    return figure
