"""Table 3.1 of Biswas 2023: seconds of Blahut-Arimoto and of the iterative Bayesian update in a cycle.

Reference: Biswas 2023, Table 3.1. qif is measured beside, if it is installed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from reticent.estimation.locations import estimated
from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_3 import runs
from reticent.experiments.biswas_2023.chapter_3.data import CITIES, Population, load
from reticent.mechanisms.location import blahut_arimoto
from reticent.randomness import Stream

PRINTED = {"Paris": (3.256, 1.30), "San Francisco": (16.805, 128.192)}  # seconds: BA, IBU
STEPS = {"Paris": (8, 10), "San Francisco": (5, 5)}  # turns and updates of a cycle, Section 3.7
BETA = 1.0
OURS, QIF = "ours", "qif"
QIF_STOPS = {"Paris": 0.0057, "San Francisco": 0.014}  # the change at which qif has made as many turns


def run(options: Options) -> Outcome:
    """Measure the CPU of the documents' numbers of steps, best of several times."""
    people = [load(city, options.data) for city in CITIES]
    times = runs.runs_of(options)
    rows: list[Row] = []
    for done, one in enumerate(people):
        rows += _rows(one, times, runs.stream(options.seed, 31, done))
        options.progress(done + 1, len(people))
    return Outcome(rows, _caption(rows, times), partial(_draw, rows))


def _rows(people: Population, times: int, rng: Stream) -> list[Row]:
    name, grid, prior = people.city.name, people.grid, people.shares
    turns, updates = STEPS[name]
    channel = blahut_arimoto(grid, prior, BETA, turns=turns, tolerance=0.0)
    counts = runs.drawn(channel.forward(prior), people.reports, rng)
    work: dict[tuple[str, str], Callable[[], Any]] = {
        (OURS, "BA"): partial(blahut_arimoto, grid, prior, BETA, turns=turns, tolerance=0.0),
        (OURS, "IBU"): partial(
            estimated, [(channel, counts)], tolerance=0.0, max_iterations=updates, accelerated=False
        ),
    }
    if find_spec("qif"):
        work |= {
            (QIF, "BA"): partial(qif_channel, people),
            (QIF, "IBU"): partial(_qif_updates, channel.matrix, counts / counts.sum(), updates),
        }
    return [
        {
            "city": name,
            "who": who,
            "what": what,
            "steps": turns if what == "BA" else updates,
            "printed s": PRINTED[name][what == "IBU"],
            "s": _seconds(job, times),
        }
        for (who, what), job in work.items()
    ]


def _seconds(work: Callable[[], Any], times: int) -> float:
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def qif_channel(people: Population) -> Any:
    """The channel after the documents' number of turns, by qif in one call."""
    import qif

    loss = qif.metric.from_distance_matrix(np.asfortranarray(BETA * people.grid.matrix))
    even = np.full(people.grid.size, 1.0 / people.grid.size)
    return qif.mechanism.shannon.max_entropy_given_same_loss(
        people.shares, even, loss, QIF_STOPS[people.city.name], 0.0
    )


def _qif_updates(matrix: Any, shares: Any, updates: int) -> Any:
    import qif

    found, _ = qif.channel.iterative_bayesian_update(
        np.asfortranarray(matrix), shares, max_diff=0.0, max_iter=updates
    )
    return found


def _caption(rows: list[Row], times: int) -> str:
    at = {(row["city"], row["who"], row["what"]): row for row in rows}
    lines = [
        "Table 3.1 of Biswas 2023: seconds of Blahut-Arimoto and of the Bayesian update in one cycle.",
        "",
        "Printed (Intel i9, Python, per cycle): "
        + "; ".join(f"{city} {ba:g} and {ibu:g}" for city, (ba, ibu) in PRINTED.items())
        + ".",
        f"Found (CPU, best of {times}, the same numbers of turns and updates, beta {BETA:g}):",
    ]
    for city in PRINTED:
        for who in (OURS, QIF):
            if (city, who, "BA") in at:
                ba, ibu = at[city, who, "BA"]["s"], at[city, who, "IBU"]["s"]
                lines.append(f"- {city}, {who}: {1e3 * ba:.2f} and {1e3 * ibu:.2f} ms.")
    if not any(row["who"] == QIF for row in rows):
        lines.append("qif is not installed, so it was not measured.")
    lines.append(
        "qif's turns include working out the losses, pair by pair; ours the kernel. Differences: machine and "
        "language. 128 s for five updates suggest a loop over the reports; their histogram is enough."
    )
    return wrapped(*lines)


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 1, size=(8.0, 4.6))
    axis = axes[0][0]
    labels = [f"{city}\n{what}" for city in PRINTED for what in ("BA", "IBU")]
    whos = ("printed", *dict.fromkeys(row["who"] for row in rows))
    colours = {"printed": "#0072B2", OURS: plots.ACCENT, QIF: "#999999"}
    for place, who in enumerate(whos):
        mine = [row for row in rows if row["who"] == (OURS if who == "printed" else who)]
        values = [row["printed s" if who == "printed" else "s"] for row in mine]
        at = np.arange(len(labels)) + 0.27 * (place - 1)
        axis.bar(at, values, 0.25, color=colours[who], label=who)
    axis.set_yscale("log")
    axis.set_xticks(np.arange(len(labels)), labels)
    axis.set_ylabel("seconds in a cycle")
    axis.legend(frameon=False)
    return figure
