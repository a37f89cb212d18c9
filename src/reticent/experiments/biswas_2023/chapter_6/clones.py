"""Theorems 6.4 to 6.6 of the thesis: when another input has the same update, and which.

Reference: Biswas 2023, Lemma 6.3, Theorems 6.4 to 6.6, Corollary 6.7.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reticent.audit.leakage import clone, clones_of_the_other_label
from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.randomness import SimulationStream

DELTAS = (-4.0, -1.0, 0.0, 1.0, 4.0)
INSTANCES, QUICK_INSTANCES = 10_000, 500


def run(options: Options) -> Outcome:
    """The clone over gamma, by the formula; and the verdicts of drawn instances against bisection."""
    gammas = np.geomspace(0.05, 20.0, 15 if options.quick else 61).round(6)
    rows: list[Row] = [_row(float(gamma), delta) for delta in DELTAS for gamma in gammas]
    count = QUICK_INSTANCES if options.quick else INSTANCES
    stream = SimulationStream(options.seed, path=(6, 1))
    units = stream.units(2 * count) - 1.0
    wrong, printed, worst = 0, 0, 0.0
    for place in range(count):
        gamma, delta = 10.0 ** (6.0 * float(units[place]) - 4.0), 40.0 * float(units[count + place]) - 20.0
        found, right = clone(gamma, delta), _bisected(gamma, delta)
        wrong += (found is None) != (right is None)
        printed += _printed(gamma, delta) == (right is not None)
        if found is not None and right is not None:
            worst = max(worst, abs(found - right) / right)
        options.progress(place + 1, count)
    three = sum(row["clones"] == 3 for row in rows)
    caption = wrapped(
        "Theorem 6.6: the clones K x of a record x, two labels, gradients of weights alone.",
        "",
        "Printed: a clone exists iff (a) K is not 1 and (b) (e^gamma + e^Delta)/e < gamma e^(gamma p_B); "
        "at most two clones in all.",
        f"Found: over {count:,} instances, gamma 1e-4 to 100, Delta -20 to 20, the stable branches say "
        f"{wrong} times something else than bisection does, and K agrees to {_power(worst)}. "
        f"Condition (b) as printed, which is that of no real solution, is right in {printed:,}.",
        f"Of the {len(rows)} points drawn {sum(row['K'] != '' for row in rows)} have a clone of the same "
        f"label, and {three} have three clones in all: the other label can have two.",
        "Differences: the branch of W is not printed; W_-1 where gamma p_A < 1, W_0 where it is above.",
    )
    return Outcome(rows, caption, lambda: _draw(rows))


def _row(gamma: float, delta: float) -> Row:
    k, others = clone(gamma, delta), clones_of_the_other_label(gamma, delta)
    return {
        "gamma": gamma,
        "Delta": delta,
        "K": "" if k is None else k,
        "clones": (k is not None) + len(others),
        "other_labels": " ".join(f"{one:.8g}" for one in others),
    }


def _power(error: float) -> str:
    return f"1e{math.ceil(math.log10(max(error, 1e-16)))}"


def _printed(gamma: float, delta: float) -> bool:
    """Condition (b), in logarithms."""
    total = max(gamma, delta) + math.log1p(math.exp(-abs(gamma - delta)))
    return total - 1.0 < math.log(gamma) + gamma * math.exp(delta - total)


def _bisected(gamma: float, delta: float) -> float | None:
    """K by bisecting ln(e^(K gamma) + e^delta) - ln K - ln(e^gamma + e^delta), whose other root is 1."""

    def above(k: float) -> bool:
        joint = max(k * gamma, delta) + math.log1p(math.exp(-abs(k * gamma - delta)))
        return joint - total > math.log(k)

    total = max(gamma, delta) + math.log1p(math.exp(-abs(gamma - delta)))
    larger = gamma / (1.0 + math.exp(min(delta - gamma, 700.0))) < 1.0
    low, high = (1.0 + 1e-9, 2.0) if larger else (1e-60, 1.0 - 1e-9)
    if above(low) == larger:
        return None
    while larger and not above(high):
        high *= 2.0
    for _ in range(220):
        middle = 0.5 * (low + high) if high < 4.0 * low else math.sqrt(low * high)
        low, high = (middle, high) if above(middle) != larger else (low, middle)
    return low


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 1, size=(7.6, 4.4))
    axis = axes[0, 0]
    colours = ("#0072B2", "#56B4E9", "black", "#B8860B", plots.ACCENT)
    for delta, colour in zip(DELTAS, colours, strict=True):
        mine = [row for row in rows if row["Delta"] == delta and row["K"] != ""]
        axis.plot(
            [row["gamma"] for row in mine],
            [row["K"] for row in mine],
            color=colour,
            marker=".",
            label=f"Delta = {delta:g}",
        )
    axis.axhline(1.0, color="#999999", linewidth=0.8)
    axis.set(
        xscale="log", yscale="log", xlabel="gamma = x . (w_A - w_B)", ylabel="K, the clone's length by x's"
    )
    axis.legend(frameon=False, fontsize=8)
    axis.set_title("the one clone of the same label", loc="left", fontsize=10)
    return figure
