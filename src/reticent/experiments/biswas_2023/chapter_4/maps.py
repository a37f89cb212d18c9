"""Fig. 4.9 of the thesis: maps of where people asked: true, as reported, and estimated.

Reference: Biswas 2023, Section 4.6.3, Fig. 4.9.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_4 import data
from reticent.experiments.biswas_2023.chapter_4.updates import ALONE, COMPANIONS, collections
from reticent.location.stations import demand_of
from reticent.mechanisms.base import Floats

SIDE_KM = 0.5
UPDATES, QUICK_UPDATES = 100, 10
Picture = tuple[str, Floats]


def run(options: Options) -> Outcome:
    """Sum what is true, reported and estimated over squares of half a kilometre."""
    rows: list[Row] = []
    pictures: list[list[Picture]] = []
    for city, one in collections(options):
        if one.way not in (ALONE, COMPANIONS):
            continue
        updates = QUICK_UPDATES if options.quick else UPDATES
        even = np.full(city.roads.size, 1.0 / city.roads.size)
        theirs = demand_of(one.channel, one.counts, law=one.law, m=one.m, updates=updates, start=even)
        rng = data.stream(options.seed, 9)
        ours = demand_of(one.channel, one.counts, law=one.law, m=one.m, rng=rng)
        named = {
            "true": one.truth,
            "reported": one.counts / one.counts.sum(),
            f"{updates} updates": theirs.distribution,
            "our rule": ours.distribution,
        }
        squares = {name: _squares(city, mass) for name, mass in named.items()}
        pictures.append(
            [(f"{name}, epsilon {one.epsilon:g}, {one.way}", square) for name, square in squares.items()]
        )
        height, width = squares["true"].shape
        rows += [
            {"epsilon": one.epsilon, "m": one.way, "row": row, "column": column}
            | {name: float(square[row, column]) for name, square in squares.items()}
            for row in range(height)
            for column in range(width)
        ]
        options.progress(len(pictures), 4)
    return Outcome(rows, _caption(pictures), partial(_draw, pictures))


def _squares(city: data.City, mass: Any) -> Floats:
    seen = city.roads.seen
    at = np.floor((seen - seen.min(axis=0)) / SIDE_KM).astype(np.int64)
    width, height = at.max(axis=0) + 1
    found = np.bincount(at[:, 1] * width + at[:, 0], np.asarray(mass), minlength=width * height)
    return np.asarray(found.reshape(height, width), dtype=np.float64)


def _common(pictures: list[Picture], number: int) -> float:
    return float(np.minimum(pictures[0][1], pictures[number][1]).sum())


def _caption(pictures: list[list[Picture]]) -> str:
    found = [
        f"- {group[0][0].removeprefix('true, ')}: reports {_common(group, 1):.0%} of the mass in the right "
        f"square, {group[2][0].split(',')[0]} {_common(group, 2):.0%}, our rule {_common(group, 3):.0%}."
        for group in pictures
    ]
    return wrapped(
        "Fig. 4.9 of Biswas 2023: where people asked, in squares of half a kilometre.",
        "",
        "Printed: heat maps of the original, the noisy and the estimated distribution.",
        "Found:",
        *found,
    )


def _draw(pictures: list[list[Picture]]) -> Any:
    figure, axes = plots.panels(
        len(pictures), len(pictures[0]), size=(4.2 * len(pictures[0]), 3.9 * len(pictures))
    )
    for line, group in zip(axes, pictures, strict=True):
        for axis, (name, square) in zip(line, group, strict=True):
            height, width = square.shape
            shown = axis.imshow(
                square, origin="lower", extent=(0, width * SIDE_KM, 0, height * SIDE_KM), cmap="viridis"
            )
            axis.grid(visible=False)
            axis.set_title(name, loc="left", fontsize=9)
            axis.set_xlabel("km east")
            axis.set_ylabel("km north")
            figure.colorbar(shown, ax=axis, shrink=0.8, label="share of queries")
    return figure
