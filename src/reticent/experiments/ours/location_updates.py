"""How many updates a round of PRIVIC should take: fixed numbers against the rule, by the number of reports.

Reference: Reticent, docs/references.md [Updates]. The documents take 10 in Paris and 5 in San Francisco. The
rule was chosen on the two cities at beta 0.5 and 1; the other people here had no part in it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_3 import runs
from reticent.experiments.biswas_2023.chapter_3.data import BETAS, CITIES, City, Population, load
from reticent.mechanisms.base import Floats
from reticent.spaces import Grid

REPORTS = (3_000, 10_000, 88_000)
FIXED = (2, 5, 10, 20, 40, 80, 160, 320)
OLD = 20  # what every round took before there was a rule
RULE = "rule"
QUICK_REPORTS, QUICK_FIXED = (3_000,), (5, 20)
_SIZE, _COLLECTIONS, _PEOPLE = (11, 15), 8, 1_000_000

# Drawn by lot, once: (north, east, weight, width) of crowds, (cell, weight) of villages.
_CROWDS = (
    (9, 5, 0.5496616857083088, 0.552740995232403),
    (4, 1, 2.0037228992149774, 0.8075340708311567),
    (6, 9, 0.10958174728753069, 0.7278248727569423),
    (3, 1, 0.7680592854860236, 0.9625877244164927),
    (7, 13, 2.3331479465435527, 1.1534887936829477),
    (5, 0, 1.3179420233639327, 0.9053400689116391),
    (8, 9, 1.7145457378649627, 0.4136438023786806),
    (7, 9, 0.7224048135307011, 0.3066609353921037),
    (0, 13, 0.30129909398533716, 0.6381354654505691),
    (9, 8, 2.271547529909592, 0.7944857479588101),
    (0, 5, 1.60702881202858, 0.6569603405677769),
    (7, 13, 0.08989756864766565, 0.8631475710316987),
    (8, 12, 0.14210653220771735, 0.45380819773640724),
    (1, 10, 0.07925893934485337, 0.3153276116285911),
    (9, 2, 1.7109999861987677, 0.9323870095275231),
    (1, 10, 0.19892873149767754, 0.5020545175112321),
    (1, 0, 0.15618907121154552, 0.42131452917190304),
    (2, 11, 0.37056315176544696, 0.6132928298756934),
    (9, 5, 0.6575981812541297, 1.1472913641083555),
    (0, 14, 3.6580813446458893, 0.9480531109931023),
    (5, 9, 0.8821876571015775, 0.6684426480064162),
    (10, 10, 3.131335000956618, 0.9773634583823083),
    (5, 11, 0.6997523508942822, 0.7384687503872164),
    (6, 10, 2.8480243901344284, 0.9393095112556542),
    (10, 2, 0.7910958492008077, 0.9047205055160705),
)
_VILLAGES = (
    (148, 0.508451321989282),
    (106, 1.4141853628057308),
    (105, 0.0034949711043920696),
    (40, 1.4310615927466497),
    (11, 0.5997961914494926),
    (84, 4.560428093987087),
    (93, 2.332978172986778),
    (134, 1.3721837634135903),
    (56, 0.15368815361402155),
    (30, 0.757923224592989),
    (92, 0.8582292240968855),
    (79, 0.9385629808852133),
)

Found = dict[tuple[str, float, int], dict[str, float]]  # (people, beta, reports) -> updates -> distance


def elsewhere() -> list[Population]:
    """People that the rule was not chosen on: crowds of all widths, villages of one cell, everywhere."""
    grid = Grid(*_SIZE, 1.0, 1.0, unit="cell")
    crowds, villages = np.full(grid.size, 2e-4), np.full(grid.size, 1e-3)
    for north, east, weight, width in _CROWDS:
        away = np.square(grid.centres - [east, north]).sum(axis=1)
        crowds += weight * np.exp(-away / (2 * width**2))
    for place, weight in _VILLAGES:
        villages[place] += weight
    shares = {"crowds": crowds, "villages": villages, "everywhere": np.ones(grid.size)}
    return [_made(name, grid, of) for name, of in shares.items()]


def _made(name: str, grid: Grid, weights: Floats) -> Population:
    city = City(name, "", grid.rows, grid.columns, _COLLECTIONS + 1, {})
    return Population(city, grid, np.rint(_PEOPLE * weights / weights.sum()).astype(np.int64))


def reached(people: Population, beta: float, reports: int, updates: int | None, *stream: int) -> float:
    """The distance after the last collection; as many updates as the rule says for None."""
    service = runs.privic(
        people,
        beta,
        runs.stream(*stream),
        cycles=people.city.cycles - 1,
        reports=reports,
        updates=updates,
    )
    return runs.distance(people.grid, service.estimate, people.shares)


def run(options: Options) -> Outcome:
    """Run every number of updates on the same people, as often and in the same streams."""
    groups = [load(city, options.data) for city in (CITIES[:1] if options.quick else CITIES)]
    groups += elsewhere()[:1] if options.quick else elsewhere()
    sizes, fixed = (QUICK_REPORTS, QUICK_FIXED) if options.quick else (REPORTS, FIXED)
    times, found = runs.runs_of(options), Found()
    cases = [
        (place, people, number, beta, reports)
        for place, people in enumerate(groups)
        for number, beta in enumerate(BETAS)
        for reports in sizes
    ]
    for done, (place, people, number, beta, reports) in enumerate(cases):
        found[people.city.name, beta, reports] = {
            str(updates or RULE): float(
                np.mean(
                    [
                        reached(
                            people, beta, reports, updates, options.seed, 12, place, number, reports, again
                        )
                        for again in range(times)
                    ]
                )
            )
            for updates in (None, *fixed)
        }
        options.progress(done + 1, len(cases))
    rows: list[Row] = [
        {
            "people": name,
            "beta": beta,
            "reports": reports,
            "updates": updates,
            "EMD": distance,
            "above the best fixed": distance / _best(of) - 1.0,
        }
        for (name, beta, reports), of in found.items()
        for updates, distance in of.items()
    ]
    return Outcome(rows, _caption(found, times), partial(_draw, found))


def _best(of: dict[str, float]) -> float:
    return min(distance for updates, distance in of.items() if updates != RULE)


def _above(found: Found, names: set[str], reports: int, updates: str) -> str:
    """Mean and most of the excess over the best fixed number, for some people."""
    above = [
        of[updates] / _best(of) - 1.0
        for (name, _, size), of in found.items()
        if name in names and size == reports
    ]
    return f"{np.mean(above):+.0%} in the mean, {max(above):+.0%} at most"


def _caption(found: Found, times: int) -> str:
    cities = {city.name for city in CITIES}
    sizes = sorted({reports for _, _, reports in found})
    lines = [
        "How far PRIVIC's estimate is above that of the best fixed number of updates, by reports a round "
        f"(earth mover's distance, mean of {times} runs; beta 0.5 and 1).",
        "",
        "Printed: 10 updates in Paris and 5 in San Francisco, whatever the reports. Before there was a rule, "
        f"we took {OLD}.",
        "Found in the cities, which the rule was chosen on:",
    ]
    parts = [
        ("", cities),
        ("Found with people that it was not chosen on:", {name for name, _, _ in found} - cities),
    ]
    for said, names in parts:
        lines += [said] if said else []
        lines += [
            f"- {reports:,} reports: {OLD} updates {_above(found, names, reports, str(OLD))}; "
            f"the rule {_above(found, names, reports, RULE)}."
            for reports in sizes
        ]
    lines.append(f"Case by case (the best fixed number and its distance; {OLD}; the rule):")
    for (name, beta, reports), of in found.items():
        best = min((updates for updates in of if updates != RULE), key=lambda updates: of[updates])
        lines.append(
            f"- {name}, beta {beta:g}, {reports:,}: {best} updates {of[best]:.3f}; "
            f"{of[str(OLD)]:.3f} ({of[str(OLD)] / of[best] - 1.0:+.0%}); "
            f"{of[RULE]:.3f} ({of[RULE] / of[best] - 1.0:+.0%})"
        )
    return wrapped(*lines)


def _draw(found: Found) -> Any:
    names = list(dict.fromkeys(name for name, _, _ in found))
    figure, axes = plots.panels(1, len(names), size=(3.4 * len(names), 4.6))
    for axis, name in zip(axes[0], names, strict=True):
        for (own, beta, reports), of in found.items():
            if own != name:
                continue
            numbers = [int(updates) for updates in of if updates != RULE]
            line = axis.plot(
                numbers,
                [of[str(number)] for number in numbers],
                linestyle="-" if beta == BETAS[0] else "--",
                label=f"{reports:,}, beta {beta:g}",
            )
            axis.axhline(of[RULE], color=line[0].get_color(), linewidth=0.6)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("updates a round")
        axis.set_ylabel("earth mover's distance, cells")
        axis.set_title(name, loc="left", fontsize=11)
    plots.legend_right(figure, axes[0][0])
    return figure
