"""Fig. 4.5 of the thesis: how much farther cars drive, by epsilon and by radius; exact, not simulated.

Reference: Biswas 2023, Section 4.6.3, Fig. 4.5; Definition 4.5.1, Theorems 4.4 and 4.5.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_4 import data
from reticent.location.stations import Queries

EPSILONS = (0.2, 0.4, 0.5, 0.6, 0.8, 1.0, 1.2, 1.5, 1.8, 2.0)
RADII = (1, 2, 3, 5, 7, 10, 15, 20)
QUICK_EPSILONS, QUICK_RADII = (0.5, 1.5), (3, 10)
RADIUS, EPSILON = 10, 0.5  # of the other panel
HORIZON_KM = 4.0
KS = (1, 3)
TRUNCATED, PURE = "truncated", "pure"


def rows_of(options: Options) -> list[Row]:
    """Share of free queries and mean detour, by stations, sites told, channel, epsilon and radius."""
    city = data.load(options)
    asked = city.shares(city.asked(data.stream(options.seed, 5)))
    sets = {"sparse": city.sparse, "dense": city.dense(data.stream(options.seed, 6))}
    epsilons = QUICK_EPSILONS if options.quick else EPSILONS
    radii = QUICK_RADII if options.quick else RADII
    settings = [(epsilon, RADIUS) for epsilon in epsilons] + [(EPSILON, radius) for radius in radii]
    rows: list[Row] = []
    for name, stations in sets.items():
        for k in KS:
            queries = Queries(stations, asked, k=k, limit_km=HORIZON_KM)
            for epsilon, radius in dict.fromkeys(settings):
                level, far = epsilon * data.PER_SEGMENT, radius * data.SEGMENT_M / 1000.0
                ways = [(TRUNCATED, queries.truncated(level, far))]
                if radius == RADIUS:
                    ways.append((PURE, queries.pure(level / 2.0)))
                for way, cost in ways:
                    rows.append(
                        {
                            "stations": name,
                            "sites told": k,
                            "channel": way,
                            "epsilon": epsilon,
                            "radius": radius,
                            "share free": cost.share_free,
                            "mean detour m": 1000.0 * cost.mean_detour,
                        }
                    )
            options.progress(len(rows), len(rows))
    return rows


def run(options: Options) -> Outcome:
    """Redo the figure."""
    rows = rows_of(options)
    return Outcome(rows, _caption(rows), partial(drawn, rows, "mean detour m", "metres more, on average"))


def value(
    rows: list[Row], key: str, name: str, k: int, way: str, epsilon: float, radius: int = RADIUS
) -> float:
    """One number of a table."""
    wanted = (name, k, way, epsilon, radius)
    names = ("stations", "sites told", "channel", "epsilon", "radius")
    return float(next(row[key] for row in rows if tuple(row[one] for one in names) == wanted))


def _caption(rows: list[Row]) -> str:
    key = "mean detour m"
    found = [
        f"- {name} stations, epsilon {epsilon:g}, radius 10: "
        f"{value(rows, key, name, 1, TRUNCATED, epsilon):.0f} m with one site told, "
        f"{value(rows, key, name, 3, TRUNCATED, epsilon):.0f} m with three; pure channel at its level "
        f"{value(rows, key, name, 1, PURE, epsilon):.0f} and "
        f"{value(rows, key, name, 3, PURE, epsilon):.0f} m."
        for name in ("sparse", "dense")
        for epsilon in (0.5, 1.5)
    ]
    return wrapped(
        "Fig. 4.5 of Biswas 2023: how much farther cars drive for the station that they are told.",
        "",
        "Printed: a negligible cost, which falls with epsilon (plots; no numbers).",
        "Found (exact sums over the law of reports, three queries of each of 536 trips):",
        *found,
        "Confirmed in kind: it falls with epsilon. By radius it grows, until reports beyond are rare.",
        "Differences: see loc-4.6.",
    )


def drawn(rows: list[Row], key: str, label: str) -> Any:
    """Two panels for each set of stations: by epsilon and by radius."""
    figure, axes = plots.panels(2, 2, size=(11.0, 7.6))
    for line, name in zip(axes, ("sparse", "dense"), strict=True):
        for k, style in zip(KS, ("-", "--"), strict=True):
            for way, colour in ((TRUNCATED, "#0072B2"), (PURE, plots.ACCENT)):
                held = [
                    row
                    for row in rows
                    if (row["stations"], row["sites told"], row["channel"]) == (name, k, way)
                ]
                for axis, over, other, fixed in (
                    (line[0], "epsilon", "radius", RADIUS),
                    (line[1], "radius", "epsilon", EPSILON),
                ):
                    points = sorted((row[over], row[key]) for row in held if row[other] == fixed)
                    if len(points) > 1:
                        axis.plot(
                            *zip(*points, strict=True),
                            style,
                            color=colour,
                            marker="o",
                            label=f"{way}, {k} told",
                        )
        line[0].set_xlabel("epsilon per segment of 100 m (radius 10)")
        line[1].set_xlabel("radius in segments (epsilon 0.5)")
        for axis in line:
            axis.set_ylabel(label)
            axis.set_title(f"{name} stations", loc="left", fontsize=11)
    plots.legend_right(figure, axes[0][0])
    return figure
