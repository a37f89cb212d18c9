"""Fig. 4.7 of the thesis: what companions are worth, in noise: how often a place is found, and what it costs.

Reference: Biswas 2023, Section 4.6.3, Fig. 4.7. (alpha, beta)-identifiability is taken by Bayes' rule: the
share of queries whose place is within alpha of the attacker's best guess.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_4 import data
from reticent.location.stations import Companions, Queries
from reticent.location.stations.tracing import Attacker, Driving
from reticent.mechanisms.location import ElasticChannel

ALPHA_KM = 0.2
M = 10
LEVELS = (2.5, 5.0, 10.0, 20.0, 40.0)
QUICK_LEVELS = (10.0,)
HORIZON_KM = 2.0
GROUPS, QUICK_GROUPS = 150, 8
ALONE, SCALED, ACCOMPANIED = "alone", "alone, level over ln m", f"with {M - 1} companions"


def run(options: Options) -> Outcome:
    """Guess the place of one query of some trips, at each level."""
    city = data.load(options)
    rng = data.stream(options.seed, 7)
    order = np.argsort(rng.units(len(city.journeys)), kind="stable")
    library, his, true = np.array_split(order, 3)
    count = options.repetitions or (QUICK_GROUPS if options.quick else GROUPS)
    chosen = [city.journeys[one] for one in true[:count].tolist()]
    truth = np.array([one[int((rng.units(1)[0] - 1.0) * len(one))] for one in chosen])
    people = Driving(Companions(city.roads, city.library(his)), 1)
    companions = Companions(city.roads, city.library(library))
    prior = city.shares(city.asked(data.stream(options.seed, 5)))
    queries = Queries(city.sparse, prior, limit_km=HORIZON_KM)
    within, levels = city.roads.rows(ALPHA_KM), QUICK_LEVELS if options.quick else LEVELS
    rows: list[Row] = []
    for number, level in enumerate(levels):
        for way, kept, m in ((ALONE, level, 1), (SCALED, level / math.log(M), 1), (ACCOMPANIED, level, M)):
            channel = ElasticChannel(city.roads.within(HORIZON_KM), np.ones(city.roads.size), kept / 2.0)
            attacker = Attacker(channel, people, Driving(companions, 1))
            hits, claims = [], []
            for place in truth.tolist():
                group = np.concatenate([[[place]], companions.journeys(m - 1, 1, rng)])
                guess, claim = attacker.guess(data.reported(channel, group, rng), within)
                near, _ = within.row(guess)
                hits.append(place in near)
                claims.append(claim)
            cost = queries.pure(kept / 2.0)
            rows.append(
                {
                    "level": level,
                    "way": way,
                    "level kept": kept,
                    "found": float(np.mean(hits)),
                    "he claims": float(np.mean(claims)),
                    "share free": cost.share_free,
                    "mean detour m": 1000.0 * cost.mean_detour,
                }
            )
        options.progress(number + 1, len(levels))
    return Outcome(rows, _caption(rows, len(truth)), partial(_draw, rows))


def _caption(rows: list[Row], count: int) -> str:
    found = [
        f"- {row['level']:g} per km, {row['way']}: within {1000 * ALPHA_KM:.0f} m in {row['found']:.0%} "
        f"(claimed {row['he claims']:.0%}), {row['mean detour m']:.0f} m farther, "
        f"{row['share free']:.0%} free."
        for row in rows
    ]
    return wrapped(
        "Fig. 4.7 of Biswas 2023: places found with companions, and with more noise instead.",
        "",
        "Printed: the chance to be found within alpha is c e^(-epsilon alpha)/m, so without dummies "
        "epsilon must be divided by ln m for the same, which costs more detour (a plot; no numbers).",
        f"Found by Bayes' rule over all that a provider and an edge see of one query ({count} trips; he "
        "claims the chance that he has himself):",
        *found,
        "The printed chance is a density, which falls with alpha where a chance grows; that epsilon over ln "
        "m makes up for m does not follow from it. Companions hide a place at no detour, noise at a large "
        "one; but their protection has no proof, and lasts as long as they look like people.",
    )


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 2, size=(12.0, 4.6))
    looks = {ALONE: ("#0072B2", "-"), SCALED: ("#0072B2", ":"), ACCOMPANIED: (plots.ACCENT, "-")}
    for axis, key, label in (
        (axes[0][0], "found", f"found within {1000 * ALPHA_KM:.0f} m"),
        (axes[0][1], "mean detour m", "metres more, on average"),
    ):
        for way, (colour, line) in looks.items():
            points = [(row["level"], row[key]) for row in rows if row["way"] == way]
            axis.plot(*zip(*points, strict=True), line, color=colour, marker="o", label=way)
        axis.set_xscale("log")
        axis.set_xlabel("level per km")
        axis.set_ylabel(label)
    plots.legend_right(figure, axes[0][0])
    return figure
