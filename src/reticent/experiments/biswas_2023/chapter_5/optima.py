"""Fig. 5.3 of the thesis: two linear laws learnt by one hypothesis, by two, and by two under noise.

Reference: Biswas 2023, Fig. 5.3, Section 5.5.2, Appendix E.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.biswas_2023.chapter_5 import data, runs
from reticent.experiments.biswas_2023.chapter_5.runs import Run, Way
from reticent.privacy import epsilon_of

WAYS = (runs.AVERAGING, runs.CLUSTERED, runs.AS_PRINTED, runs.FIXED_SCALE, runs.OURS)
NEAR = 0.05
DELTA = 1e-6
EARLY, LATE = 3, 10  # rounds whose vectors are drawn


def run(options: Options) -> Outcome:
    """Train in every way, several times; the first time is drawn."""
    found: dict[str, list[Run]] = {way.name: [] for way in WAYS}
    total = options.times * len(WAYS)
    for time in range(options.times):
        for way in WAYS:
            taken = runs.shorter(way) if options.quick else way
            found[way.name].append(runs.run(taken, options.seed + time))
            options.progress(sum(map(len, found.values())), total)
    rows: list[Row] = [
        {
            "way": way.name,
            "time": time,
            "error": _error(way, one),
            "within": int(_error(way, one) <= NEAR),
            "charge of a report": one.most_charged,
            "spent at most": float(one.spent.max()),
            "held-out RMSE": one.rmse[-1],
        }
        for way in WAYS
        for time, one in enumerate(found[way.name])
    ]
    return Outcome(rows, _caption(rows, options.times), lambda: _draw(found))


def _error(way: Way, one: Run) -> float:
    return data.error(one.hypotheses) if way.hypotheses == 2 else math.inf


def within(rows: list[Row], way: Way) -> int:
    """In how many runs both optima were found within 5 %."""
    return sum(int(row["within"]) for row in rows if row["way"] == way.name)


def _caption(rows: list[Row], times: int) -> str:
    def worst(way: Way, key: str) -> float:
        return max(float(row[key]) for row in rows if row["way"] == way.name)

    mu2 = worst(runs.OURS, "charge of a report")
    epsilon = epsilon_of(math.sqrt(mu2), DELTA)
    fixed, fixed_all = (worst(runs.FIXED_SCALE, key) for key in ("charge of a report", "spent at most"))
    return runs.wrapped(
        "Fig. 5.3: two linear laws, theta_1 = (5, 6) and theta_2 = (4, -4.5), learnt by federated clients.",
        "",
        "Printed: one hypothesis settles between the optima (a-c), two without noise almost overlap them "
        "(d-f), "
        'two with noise multiplier nu = 5 come "very close to the two optimal parameters" (g-i), for a '
        "leakage "
        "of at most n/nu = 0.4 a round.",
        f"Found: the noiseless rows hold. Both optima within {NEAR:.0%}, of {times} runs:",
        *(f"  {within(rows, way):>4}  {way.name}" for way in WAYS if way.hypotheses == 2),
        "What these guarantee:",
        "- documents' noise: nothing. Its scale is the length of the client's own update (mathematics 3.2).",
        "- a public clip S, epsilon = n / (nu S): a report is charged epsilon (2 S + |theta_i - "
        "theta_j|), for "
        f"S = {runs.SMALL_CLIP:g} up to {fixed:.1f}, and a client spent up to {fixed_all:.0f}: no "
        "protection. "
        f"With S = 1 at the optima it is {runs.charge_at_the_optima(1.0):.2f}, where 0.4, or 0.8 between two "
        "clients of one cluster, was claimed.",
        f"- slots (ours): mu = {math.sqrt(mu2):.3f} for all that a client ever sends, epsilon "
        f"{epsilon:.2f} at "
        f"delta {DELTA:g}, which hypothesis it chose included; one round of each of {runs.OURS.users:,} "
        "people "
        "a start.",
        "Differences: x is standard normal, which is not printed; of 3 starts, each with people of its "
        "own, the "
        "best on 50 public held-out users is kept; hypotheses are averaged over the last rounds. Ours takes "
        "more people and ten local steps, which cost nothing. Simulation only: vectors of clients are drawn.",
    )


def _draw(found: dict[str, list[Run]]) -> Any:
    figure, axes = plots.panels(len(WAYS), 3, size=(12.0, 3.0 * len(WAYS)))
    for row, way in enumerate(WAYS):
        one = found[way.name][0]
        for axis, rounds, title in (
            (axes[row][0], one.rounds[:EARLY], f"first {EARLY} rounds"),
            (axes[row][1], one.rounds[-LATE:], f"last {LATE} rounds"),
        ):
            sent = np.concatenate([seen.sent for seen in rounds])
            choices = np.concatenate([seen.choices for seen in rounds])
            for choice, colour in enumerate(("#0072B2", "#009E73")):
                axis.scatter(*sent[choices == choice].T, s=6, color=colour, alpha=0.4, linewidths=0)
            axis.scatter(*data.OPTIMA.T, marker="*", s=110, color=plots.LIMIT, zorder=5)
            axis.scatter(*rounds[-1].hypotheses.T, marker="x", s=60, color=plots.ACCENT, zorder=6)
            axis.set_xlim(-14, 20)
            axis.set_ylim(-18, 20)
            axis.set_title(f"{way.name}; {title}", loc="left", fontsize=8)
        axes[row][2].plot(one.rmse, color=plots.ACCENT, linewidth=1.3)
        axes[row][2].set_yscale("log")
        axes[row][2].set_xlabel("round")
        axes[row][2].set_title("RMSE of held-out users", loc="left", fontsize=8)
    return figure
