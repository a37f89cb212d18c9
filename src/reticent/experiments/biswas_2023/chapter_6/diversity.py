"""The open question of the chapter: how the leakage of a batch depends on how different its records are.

Reference: Biswas 2023, Section 6.6: the trade-off between the diversity of a training batch and its leakage.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.audit.leakage import invert, sensitivity
from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_6.networks import CLASSES, distinct, error, network, scattered
from reticent.randomness import SimulationStream

SIZES = (20, 32, CLASSES)
RECORDS = 4
SPREADS, QUICK_SPREADS = (0.1, 0.2, 0.3, 0.5, 1.0), (0.3, 1.0)
TRIALS, QUICK_TRIALS = 20, 2
NEAR = {"float64": 1e-6, "float32": 1e-3}
LABELS = ("different classes", "one class")


def run(options: Options) -> Outcome:
    """Batches around a common centre, from nearly alike to independent: what comes back, and how surely."""
    spreads = QUICK_SPREADS if options.quick else SPREADS
    cases = [(labels, spread) for labels in LABELS for spread in spreads]
    rows: list[Row] = []
    for place, (labels, spread) in enumerate(cases):
        rows.append(_row(labels, spread, options))
        options.progress(place + 1, len(cases))
    ends = {labels: [row for row in rows if row["labels"] == labels] for labels in LABELS}
    caption = wrapped(
        f"Section 6.6: batches of {RECORDS} records, each a common centre and a part of its own, {SIZES[1]} "
        f"hidden units, {CLASSES} classes; gradients of weights and biases, no label told.",
        "",
        "Printed: an open question.",
        "Found: "
        + "; ".join(
            f"{labels}: the least error under noise s on each number sent is, in the median, "
            f"{mine[-1]['error']:.3g} s for independent records and {mine[0]['error']:.3g} s where own parts "
            f"are {mine[0]['spread']:g} of the centre, that of their mean {mine[-1]['error_of_mean']:.3g} s "
            f"and {mine[0]['error_of_mean']:.3g} s; back in doubles {mine[-1]['float64']} and "
            f"{mine[0]['float64']} of {mine[0]['tried']}, in singles {mine[-1]['float32']} and "
            f"{mine[0]['float32']}"
            for labels, mine in ends.items()
        )
        + f". Wrong, and called certain: {sum(row['wrong'] for row in rows)}.",
        "What does not come back was not found by the search, or not called known because the rounding of "
        "the update would move it.",
    )
    return Outcome(rows, caption, lambda: _draw(rows))


def _row(labels: str, spread: float, options: Options) -> Row:
    found = {"float64": 0, "float32": 0, "wrong": 0}
    errors, means = [], []
    times = options.repetitions or (QUICK_TRIALS if options.quick else TRIALS)
    for trial in range(times):
        stream = SimulationStream(options.seed, path=(6, 4, trial))
        layers = network(stream, SIZES)
        centre, own = scattered(stream, 1, SIZES[0]), scattered(stream, RECORDS, SIZES[0])
        order = distinct(stream, RECORDS)
        records = centre + spread * own
        targets = order if labels == LABELS[0] else np.full(RECORDS, order[0])
        each = sensitivity(layers, records, targets)
        errors.append(each.error(1.0))
        means.append(each.error_of_mean(1.0))
        update = layers.update(records, targets)
        for number, shown in (("float64", update), ("float32", update.rounded())):
            leak = invert(layers, shown, records=RECORDS)
            if leak.certain is not None:
                far = error(leak.certain, records)
                found[number] += far <= NEAR[number]
                found["wrong"] += far > NEAR["float32"]
    return {
        "labels": labels,
        "spread": spread,
        "tried": times,
        **found,
        "error": float(f"{np.median(errors):.3g}"),
        "error_of_mean": float(f"{np.median(means):.3g}"),
    }


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 2, size=(9.6, 3.9))
    for labels, colour in zip(LABELS, ("#0072B2", plots.ACCENT), strict=True):
        mine = [row for row in rows if row["labels"] == labels]
        x = [row["spread"] for row in mine]
        axes[0, 0].plot(x, [row["error"] for row in mine], "o-", color=colour, label=f"a record, {labels}")
        axes[0, 0].plot(
            x, [row["error_of_mean"] for row in mine], "s--", color=colour, label=f"their mean, {labels}"
        )
        for number, dash in (("float64", "-"), ("float32", "--")):
            shares = [row[number] / row["tried"] for row in mine]
            axes[0, 1].plot(x, shares, dash, marker="o", color=colour, label=f"{number}, {labels}")
    axes[0, 0].set(xscale="log", yscale="log", xlabel="own part by the centre", ylabel="least error / noise")
    axes[0, 1].set(xscale="log", ylim=(-0.03, 1.05), xlabel="own part by the centre", ylabel="share back")
    for axis in axes.flat:
        axis.legend(frameon=False, fontsize=7)
    return figure
