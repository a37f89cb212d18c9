"""The networks of Figs. 6.1 and 6.2 of the thesis: how many records and batches come back from one update.

Reference: Biswas 2023, Figs. 6.1 and 6.2, Lemmas 6.1 and 6.13, Theorem 6.14.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.audit.leakage import Kind, invert
from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_6.networks import CLASSES, distinct, error, network
from reticent.randomness import SimulationStream

INPUTS, UNITS = 40, 32
TRIALS, QUICK_TRIALS = 40, 2
NEAR = {"float64": 1e-6, "float32": 1e-3}
BATCHES, QUICK_BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12), (1, 2, 10)
DEPTHS, QUICK_DEPTHS = (1, 2, 3, 4, 5, 6), (1, 3)


@dataclass(frozen=True)
class _Case:
    """Batches of one kind."""

    layers: int
    records: int
    number: str
    biases: bool


def toy(options: Options) -> Outcome:
    """Fig. 6.1: one layer, over the batch."""
    batches = QUICK_BATCHES if options.quick else BATCHES
    rows = _rows([_Case(1, k, f, b) for b in (True, False) for f in NEAR for k in batches], options)
    below = [row for row in rows if row["records"] < CLASSES - 1]
    caption = wrapped(
        f"Fig. 6.1: one layer, {INPUTS} inputs and {CLASSES} classes, no label told: batches that come back.",
        "",
        "Printed: one record with the gradients of biases comes back exactly (Lemma 6.1); without them it "
        "has clones; of batches nothing is rebuilt.",
        f"Found: with fewer than {CLASSES - 1} records {sum(r['found'] for r in below):,} of "
        f"{sum(r['tried'] for r in below):,} batches come back whole, by gradients of weights alone "
        f"{sum(r['found'] for r in below if not r['bias_gradients']):,} of "
        f"{sum(r['tried'] for r in below if not r['bias_gradients']):,}. At {CLASSES - 1} records these have "
        f"as many equations as unknowns, and candidates are listed; from {CLASSES} on a family is left. "
        f"Wrong, and called certain: {sum(r['wrong'] for r in rows)}.",
    )
    return Outcome(rows, caption, lambda: _draw(rows, "records", "records in the batch"))


def deep(options: Options) -> Outcome:
    """Fig. 6.2: over the layers, for one record and for batches."""
    depths = QUICK_DEPTHS if options.quick else DEPTHS
    counts: Sequence[int] = (1, 4) if options.quick else (1, 2, 4, 8)
    cases = [_Case(d, k, f, b) for k in counts for b in (True, False) for f in NEAR for d in depths]
    rows = _rows(cases, options)
    ones, more = [r for r in rows if r["records"] == 1], [r for r in rows if r["records"] > 1]
    caption = wrapped(
        f"Fig. 6.2: 1 to {max(depths)} layers of {UNITS} units, {CLASSES} classes: records that come back.",
        "",
        "Printed: the record comes back from any depth once one value of the last hidden layer is known "
        "(Lemma 6.13, Theorem 6.14); batches are left open.",
        f"Found: without any value known {sum(r['found'] for r in ones):,} of "
        f"{sum(r['tried'] for r in ones):,} records come back, {sum(r['silent'] for r in ones)} are silent "
        "(no unit of some layer answers), and of batches of different classes, no class told, "
        f"{sum(r['found'] for r in more):,} of {sum(r['tried'] for r in more):,} whole. "
        f"Wrong, and called certain: {sum(r['wrong'] for r in rows)}.",
    )
    return Outcome(rows, caption, lambda: _draw(rows, "layers", "layers"))


def _rows(cases: Sequence[_Case], options: Options) -> list[Row]:
    rows: list[Row] = []
    for place, case in enumerate(cases):
        rows.append(_row(case, options))
        options.progress(place + 1, len(cases))
    return rows


def _row(case: _Case, options: Options) -> Row:
    """The same networks and batches for every number type, with and without biases."""
    kinds = dict.fromkeys(("found", "candidates", "family", "silent", "undecided", "wrong"), 0)
    times = options.repetitions or (QUICK_TRIALS if options.quick else TRIALS)
    for trial in range(times):
        stream = SimulationStream(options.seed, path=(6, 3, case.layers, case.records, trial))
        layers = network(stream, [INPUTS, *(UNITS,) * (case.layers - 1), CLASSES])
        records = stream.units(case.records * INPUTS).reshape(-1, INPUTS) - 1.0  # pictures: never negative
        labels = distinct(stream, case.records)
        update = layers.update(records, labels, biases=case.biases)
        shown = update.rounded() if case.number == "float32" else update
        leak = invert(layers, shown, records=case.records, non_negative=True)
        if leak.certain is not None:
            near = error(leak.certain, records) <= NEAR[case.number]
            kinds["found" if near else "wrong"] += 1
        else:
            names = {Kind.CANDIDATES: "candidates", Kind.FAMILY: "family", Kind.NOTHING: "silent"}
            kinds[names.get(leak.kind, "undecided")] += 1
    return {
        "layers": case.layers,
        "records": case.records,
        "numbers": case.number,
        "bias_gradients": int(case.biases),
        "tried": times,
        **kinds,
    }


def _draw(rows: list[Row], key: str, text: str) -> Any:
    counts = sorted({row["records"] for row in rows}) if key == "layers" else [0]
    figure, axes = plots.panels(1, len(counts), size=(3.0 * len(counts) + 2.6, 3.8))
    lines = [("float64", 1, "#0072B2", "-"), ("float64", 0, plots.ACCENT, "-")]
    lines += [("float32", 1, "#56B4E9", "--"), ("float32", 0, "#B8860B", "--")]
    for axis, count in zip(axes[0], counts, strict=True):
        for number, biases, colour, dash in lines:
            mine = [r for r in rows if (r["numbers"], r["bias_gradients"]) == (number, biases)]
            mine = [r for r in mine if key == "records" or r["records"] == count]
            said = f"{number}, {'with' if biases else 'no'} bias gradients"
            shares = np.array([r["found"] / r["tried"] for r in mine])
            axis.plot([r[key] for r in mine], shares, dash, color=colour, marker="o", ms=4, label=said)
        axis.set(xlabel=text, ylim=(-0.03, 1.05), ylabel="share that comes back exactly")
        if count:
            axis.set_title(f"{count} record{'s' if count > 1 else ''}", loc="left", fontsize=10)
    axes[0, -1].legend(frameon=False, fontsize=8, loc="lower left")
    return figure
