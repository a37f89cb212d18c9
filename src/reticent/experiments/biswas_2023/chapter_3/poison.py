"""Fig. 3.11 of the thesis: liars make PRIVIC tell where isolated people are; with and without our defence.

Reference: Biswas 2023, Section 3.8, Fig. 3.11 (case ii, the vulnerable place).

Liars take the place of honest people: a share of all reports of every cycle is theirs. They
- report A: send A itself, whatever the channel;
- claim A: say that they are at A to the ordinary program, which reports by the channel;
- around A: send a cell within two of A, each as often, which a cap on P(A given A) does not see;
- slowly: send A, a few in the first cycle and all of them in the last, below any bound on jumps.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_3 import maps, runs
from reticent.experiments.biswas_2023.chapter_3.data import PARIS, Island, load, with_island
from reticent.experiments.biswas_2023.chapter_3.elastic import NEAR, told
from reticent.location.privic import NONE, Defence, Privic
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location import ElasticChannel, blahut_arimoto, planar_laplace
from reticent.randomness import Stream
from reticent.spaces.grid import Cells

PRINTED = {0.8: (0.29, 0.34, 0.39), 1.2: (0.10, 0.15, 0.20)}
SHARES = {epsilon: tuple(sorted({0.0, 0.1, 0.2, 0.3, 0.4, *printed})) for epsilon, printed in PRINTED.items()}
QUICK_SHARES = {0.8: (0.0, 0.39), 1.2: (0.0, 0.2)}
REPORT, CLAIM, AROUND, SLOWLY = "report A", "claim A", "around A", "slowly"
WAYS = (REPORT, CLAIM, AROUND, SLOWLY)
DEFENCES = {"undefended": NONE, "defended": Defence()}
CYCLES = PARIS.cycles - 1
TO_THE_END = 100  # turns of Blahut-Arimoto


def run(options: Options) -> Outcome:
    """Run PRIVIC among liars."""
    island = with_island(load(PARIS, options.data))
    shares = QUICK_SHARES if options.quick else SHARES
    ways = WAYS[:1] if options.quick else WAYS
    cases = [(epsilon, way, share) for epsilon in shares for way in ways for share in shares[epsilon]]
    rows: list[Row] = []
    laws: dict[tuple[float, float, str], Floats] = {}
    for done, (epsilon, way, share) in enumerate(cases):
        for name, defence in DEFENCES.items():
            rng = runs.stream(options.seed, 11, done)
            service = among_liars(island, epsilon, way, share, defence, rng)
            if way == REPORT:
                laws[epsilon, share, name] = service.channel().probabilities(island.alone)
            row = {"epsilon": epsilon, "liars": way, "share": share, "defence": name}
            rows.append(row | seen(island, service))
        options.progress(done + 1, len(cases))
    return Outcome(rows, _caption(island, rows), partial(_draw, island, laws, shares))


def among_liars(
    island: Island, epsilon: float, way: str, share: float, defence: Defence, rng: Stream
) -> Privic:
    """The service after all cycles, with a share of liars among those who report."""
    everybody = island.people.reports
    liars = round(share * everybody)
    service = Privic(island.people.grid, epsilon / 2.0, defence=defence)
    for cycle in range(CYCLES):
        channel = service.channel()
        lies = _lies(island, channel, way, _many(way, liars, cycle), rng)
        honest = runs.drawn(channel.forward(island.people.shares), everybody - int(lies.sum()), rng)
        service.learn(channel, honest + lies)
    return service


def _many(way: str, liars: int, cycle: int) -> int:
    return round(liars * (cycle + 1) / CYCLES) if way == SLOWLY else liars


def _lies(island: Island, channel: ElasticChannel, way: str, liars: int, rng: Stream) -> Cells:
    grid, place = island.people.grid, island.alone
    if way == CLAIM:
        return runs.drawn(channel.probabilities(place), liars, rng)
    if way == AROUND:
        return runs.drawn((grid.distances(place) <= NEAR).astype(np.float64), liars, rng)
    lies = np.zeros(grid.size, dtype=np.int64)
    lies[place] = liars
    return lies


def seen(island: Island, service: Privic) -> dict[str, Any]:
    """What the last channel does to honest people at A, and what became of the estimate."""
    people, place = island.people, island.alone
    last = service.channel()
    told_of = told(last, island, place)
    ended = blahut_arimoto(people.grid, service.prior, service.beta, turns=TO_THE_END, floor=0.0)
    return {
        "P(A|A)": told_of["P(itself)"],
        "P(A|A), to the end": float(ended.staying[place]) if service.defence is NONE else float("nan"),
        "P(within 2 cells|A)": told_of["P(within 2 cells)"],
        "mean distance": told_of["mean distance"],
        "recognised": told_of["recognised"],
        "alarms": len(service.alarms),
        "estimated share of A": float(service.estimate[place]),
        "EMD": runs.distance(people.grid, service.estimate, people.shares),
    }


def _worst(rows: list[Row], key: str, defence: str, epsilon: float, way: str | None = None) -> float:
    return max(
        float(row[key])
        for row in rows
        if row["defence"] == defence
        and row["epsilon"] == epsilon
        and row["share"]
        and way in (None, row["liars"])
    )


def _caption(island: Island, rows: list[Row]) -> str:
    grid, place = island.people.grid, island.alone
    lines = [
        "Fig. 3.11 of Biswas 2023: what liars do to honest people at an isolated place A in Paris.",
        "",
        "Printed: with 29, 34 and 39 % liars at epsilon 0.8, and 10, 15 and 20 % at 1.2, more and more of "
        "the reports of A are in and around A (plots; no numbers). No defence.",
        f"Found ({CYCLES} collections of {island.people.reports:,} reports, a share of them by liars; one "
        "run each):",
    ]
    for epsilon, printed in PRINTED.items():
        mine = [
            row
            for row in rows
            if (row["epsilon"], row["liars"]) == (epsilon, REPORT) and row["share"] in (0.0, *printed)
        ]
        for name in DEFENCES:
            parts = [f"{row['P(A|A)']:.2f} ({row['share']:.0%})" for row in mine if row["defence"] == name]
            lines.append(f"- epsilon {epsilon:g}, {name}: P(report A | at A) = {', '.join(parts)}.")
        ends = _worst(rows, "P(A|A), to the end", "undefended", epsilon)
        most = _worst(rows, "P(A|A)", "undefended", epsilon)
        lines.append(
            f"  All shares and ways to lie: at most {most:.2f} undefended ({ends:.2f} if Blahut-Arimoto is "
            f"run to its end), {_worst(rows, 'P(A|A)', 'defended', epsilon):.2f} defended."
        )
    lines.append("What remains with the defence, worst over the shares:")
    for epsilon in PRINTED:
        clean = next(row for row in rows if row["epsilon"] == epsilon and row["defence"] == "defended")
        laplace = told(planar_laplace(grid, epsilon), island, place)
        parts = [
            f"{way} {_worst(rows, 'P(within 2 cells|A)', 'defended', epsilon, way):.2f} and "
            f"{_worst(rows, 'recognised', 'defended', epsilon, way):.3f}"
            for way in dict.fromkeys(row["liars"] for row in rows)
        ]
        lines.append(
            f"- epsilon {epsilon:g}: P(within 2 cells | at A), and how far A is recognised: "
            f"{'; '.join(parts)}. Without liars {clean['P(within 2 cells|A)']:.2f} and "
            f"{clean['recognised']:.3f}; Laplace noise {laplace['P(within 2 cells)']:.2f} and "
            f"{laplace['recognised']:.3f}, whoever lies."
        )
    lines += [
        "The level 2 beta holds throughout: liars take elasticity, not the guarantee. The cap holds against "
        "every way to lie, but what it takes from A goes to A's neighbours, and nothing defends the "
        f"estimate: liars make it up to {max(row['EMD'] for row in rows):.1f} cells wrong.",
        _alarms(rows),
        "Differences: the documents do not say whether liars send A or claim it; both are here. A is chosen "
        "as in loc-3.2; on wider islands P(A|A) is 0.47 to 0.59 undefended at epsilon 1.2 without any liar.",
    ]
    return wrapped(*lines)


def _alarms(rows: list[Row]) -> str:
    told_of = [row for row in rows if row["defence"] == "defended"]
    parts = []
    for way in dict.fromkeys(row["liars"] for row in rows):
        among = [row for row in told_of if row["liars"] == way and row["share"]]
        parts.append(f"{way} {sum(row['alarms'] > 0 for row in among)} of {len(among)}")
    silent = [row for row in told_of if not row["share"]]
    return (
        f"The alarm on jumps rang among liars who {', '.join(parts)} times, and without liars "
        f"{sum(row['alarms'] > 0 for row in silent)} of {len(silent)}. It is a hint to look, no defence."
    )


def _draw(island: Island, laws: dict[tuple[float, float, str], Floats], shares: Any) -> Any:
    shown = {
        epsilon: [share for share in (0.0, *printed) if share in shares[epsilon]]
        for epsilon, printed in PRINTED.items()
    }
    columns = max(len(of) for of in shown.values())
    figure, axes = plots.panels(2 * len(shown), columns, size=(3.2 * columns, 9.0))
    lines = [(epsilon, name) for epsilon in shown for name in DEFENCES]
    for line, (epsilon, name) in zip(axes, lines, strict=True):
        for axis, share in zip(line, shown[epsilon], strict=False):
            law = laws[epsilon, share, name]
            maps.heat(axis, island.people.grid, law)
            maps.mark(axis, island.people.grid, island.alone, "A")
            axis.set_title(
                f"epsilon {epsilon:g}, {share:.0%}, {name}: {law[island.alone]:.2f}", loc="left", fontsize=8
            )
    return figure
