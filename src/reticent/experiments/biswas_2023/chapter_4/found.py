"""Fig. 4.2 of the thesis, attacked: how often the true journey is found among dummies, and among companions.

The taxis' trips are split at random: some are the public library, some the attacker's own, and the rest are
the true journeys, which neither holds. Everybody asks once a minute.

Reference: Biswas 2023, Section 4.4.5, Fig. 4.2, and its claim of 1/m^k.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_4 import data
from reticent.location.stations import Companions
from reticent.location.stations.tracing import Driving, Law, RandomDummies, chance_of_finding, sight
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location import ElasticChannel
from reticent.spaces.grid import Cells

LEVELS = (5.0, 10.0)  # per km
HORIZON_KM = 4.0
MS = (10, 20)
QUERIES = 5
SPLITS, TRUE, MADE = 5, 200, 400
QUICK_SPLITS, QUICK_TRUE, QUICK_MADE = 1, 20, 30
REACH_KM = 1.0  # of a car in a minute, for the documents' dummies
COMPANIONS, REPLAYED, DUMMIES = "companions", "replayed journeys", "documents' dummies"
WAYS = (COMPANIONS, REPLAYED, DUMMIES)


def run(options: Options) -> Outcome:
    """Attack each split at each level; of the larger level companions alone."""
    city = data.load(options)
    splits = options.repetitions or (QUICK_SPLITS if options.quick else SPLITS)
    found: dict[tuple[float, str, int, int], list[float]] = {}
    for number, level in enumerate(LEVELS[:1] if options.quick else LEVELS):
        channel = ElasticChannel(city.roads.within(HORIZON_KM), np.ones(city.roads.size), level / 2.0)
        for split in range(splits):
            ways = WAYS if level == LEVELS[0] else WAYS[:1]
            for key, chance in _attacked(city, channel, ways, options, split).items():
                found.setdefault((level, *key), []).append(chance)
            options.progress(number * splits + split + 1, splits * len(LEVELS))
    rows: list[Row] = [
        {
            "level": level,
            "beside": way,
            "m": m,
            "queries": queries,
            "found": float(np.mean(chances)),
            "least": min(chances),
            "most": max(chances),
            "times guessing": float(np.mean(chances)) * m,
        }
        for (level, way, m, queries), chances in found.items()
    ]
    return Outcome(rows, _caption(rows, splits), partial(_draw, rows))


def _attacked(
    city: data.City, channel: ElasticChannel, ways: tuple[str, ...], options: Options, split: int
) -> dict[tuple[str, int, int], float]:
    """The chance of each way, m and number of queries, in one split."""
    rng = data.stream(options.seed, 2, split, int(channel.beta))
    held = np.array([one for one, journey in enumerate(city.journeys) if len(journey) >= QUERIES])
    library, his, true = np.array_split(held[np.argsort(rng.units(len(held)), kind="stable")], 3)
    count = QUICK_TRUE if options.quick else TRUE
    truth = np.array([_window(city.journeys[one], rng) for one in true[:count].tolist()])
    people = Driving(Companions(city.roads, city.library(his)), QUERIES)
    made: dict[str, Any] = {
        COMPANIONS: Companions(city.roads, city.library(library)),
        REPLAYED: Companions(city.roads, city.library(library), neighbours=1),
        DUMMIES: RandomDummies(city.roads, REACH_KM),
    }
    laws: dict[str, Law] = {way: made[way] if way == DUMMIES else Driving(made[way], QUERIES) for way in ways}
    true_scores = _scores(channel, people, laws, data.reported(channel, truth, rng))
    found = {}
    for way in ways:
        sent = made[way].journeys(QUICK_MADE if options.quick else MADE, QUERIES, rng)
        sent = sent if way == DUMMIES else data.reported(channel, sent, rng)
        scores = _scores(channel, people, {way: laws[way]}, sent)[way]
        for m in MS:
            for query in range(QUERIES):
                chance = chance_of_finding(true_scores[way][:, query], scores[:, query], m)
                found[way, m, query + 1] = chance
    return found


def _window(journey: Cells, rng: Any) -> Cells:
    """Five minutes of a journey."""
    first = int((rng.units(1)[0] - 1.0) * (len(journey) - QUERIES + 1))
    return journey[first : first + QUERIES]


def _scores(
    channel: ElasticChannel, people: Driving, laws: dict[str, Law], reports: Cells
) -> dict[str, Floats]:
    """The log ratio of people to each law: shape (journeys, queries) each."""
    found = {way: np.empty(reports.shape) for way in laws}
    for number, journey in enumerate(reports):
        sights = [sight(channel, int(one)) for one in journey]
        theirs = people.logs(journey, sights)
        for way, law in laws.items():
            found[way][number] = theirs - law.logs(journey, sights)
    return found


def _line(rows: list[Row], level: float, way: str, m: int) -> str:
    held = sorted(
        (row["queries"], row["found"])
        for row in rows
        if (row["level"], row["beside"], row["m"]) == (level, way, m)
    )
    return " / ".join(f"{100.0 * chance:.1f}" for _, chance in held)


def _caption(rows: list[Row], splits: int) -> str:
    levels = sorted({row["level"] for row in rows})
    found = [
        f"- {way}, {level:g} per km, m = {m}: {_line(rows, level, way, m)} % (guessing {100 / m:g} %)."
        for level in levels
        for way in WAYS
        if any((row["level"], row["beside"]) == (level, way) for row in rows)
        for m in MS
    ]
    return wrapped(
        "Fig. 4.2 of Biswas 2023, attacked: how often the true journey is found among m.",
        "",
        "Printed: a chance of 1/m^k after k queries, 0.1 % for m = 10 and three. Guessing alone finds 1/m.",
        f"Found after 1 to {QUERIES} queries, a minute apart (mean of {splits} splits of the trips):",
        *found,
        "The attacker knows the channel, the map, a third of the trips for how people drive, and the exact "
        "law of what is sent beside: the very library, which holds none of the true journeys. He is told "
        "which reports belong together.",
        "Companions are made of the library's journeys, step by step from several; replayed journeys are as "
        "they are in it. Dummies are sent without noise, and people with it, which tells them apart. The "
        "pure channel has a horizon of 4 km.",
    )


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, len(MS), size=(12.0, 4.6))
    looks = {COMPANIONS: (plots.ACCENT, "-"), REPLAYED: ("#009E73", "--"), DUMMIES: ("#0072B2", ":")}
    for axis, m in zip(axes[0], MS, strict=True):
        for level in sorted({row["level"] for row in rows}):
            for way, (colour, line) in looks.items():
                points = sorted(
                    (row["queries"], row["found"])
                    for row in rows
                    if (row["level"], row["beside"], row["m"]) == (level, way, m)
                )
                if points:
                    marker = "o" if level == LEVELS[0] else "s"
                    label = f"{way}, {level:g} per km"
                    axis.plot(*zip(*points, strict=True), line, color=colour, marker=marker, label=label)
        axis.axhline(1.0 / m, color="black", linewidth=1.0, label="guessing")
        axis.axhline(2.0 / m, color="black", linewidth=0.8, linestyle=":", label="twice that")
        axis.set_ylim(0.0, 1.0)
        axis.set_xlabel("queries, a minute apart")
        axis.set_ylabel("how often the true journey is found")
        axis.set_title(f"m = {m}", loc="left", fontsize=11)
    plots.legend_right(figure, axes[0][0])
    return figure
