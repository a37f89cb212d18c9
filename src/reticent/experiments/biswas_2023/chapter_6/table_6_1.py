"""Table 6.1 of the thesis: a batch of three similar pictures, and what its update leaves open.

Reference: Biswas 2023, Table 6.1, Definitions 6.4.2 and 6.4.3, Theorem 6.9.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.audit.leakage import Layers, sensitivity
from reticent.audit.leakage.batch_clones import residuals
from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_6.networks import scattered
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream

TABLE = np.array([[0.70, 0.13, 0.17], [0.12, 0.71, 0.17], [0.13, 0.15, 0.72]])
INPUTS = 12
MOST_CLASSES, QUICK_CLASSES = 10, 4


def run(options: Options) -> Outcome:
    """Rank of pi and the family that is left: for the table, and for batches that are exactly similar."""
    stream = SimulationStream(options.seed, path=(6, 2))
    rows: list[Row] = [_row("Table 6.1", TABLE, stream)]
    most = QUICK_CLASSES if options.quick else MOST_CLASSES
    for classes in range(3, most + 1):
        for count in range(2, classes + 1):
            rows.append(_row("similar", _similar(count, classes), stream))
        options.progress(classes - 2, most - 2)
    walk = _walked(stream)
    first = rows[0]
    below = [row for row in rows if row["records"] < row["classes"]]
    at = [row for row in rows if row["records"] == row["classes"]]
    closed = sum(row["rank"] == row["records"] and row["family"] == 0 for row in below)
    opened = sum(row["rank"] == row["records"] - 1 and row["family"] == INPUTS for row in at)
    caption = wrapped(
        "Table 6.1: dog, wolf and fox, three similar pictures in a batch, of a model that has learnt well.",
        "",
        "Printed: for similar data the arrangement of a batch is unique, so that one picture gives the "
        "others (Theorem 6.9, Remark 6.4.6); pi has a right inverse for batches of 2 and 3, and perhaps "
        "for any (Remark 6.4.7).",
        f"Found: the table itself has 3 pictures and 3 classes: its pi has rank {first['rank']}, and "
        f"batches of {INPUTS} numbers each with the same update are a family of dimension "
        f"{first['family']} without and {first['family_with_biases']} with the gradients of biases. Walking "
        f"along it, another batch is found at a distance of {walk['distance']:.2f} of the batch's own size, "
        "with the same update to better than 1e-9; distances between its pictures have changed by up to "
        f"{walk['change']:.1%}: the arrangement is kept only as long as the probabilities are.",
        f"With fewer records than classes pi has full rank and nothing is left open in {closed} of "
        f"{len(below)} similar batches; with as many, {opened} of {len(at)} leave a dimension for each "
        "number of a record.",
        "Differences: the proof of Theorem 6.9 sums over m records where the batch has k.",
    )
    return Outcome(rows, caption, lambda: _draw(rows))


def _similar(count: int, classes: int, right: float = 0.7) -> Floats:
    """Rows with the same chance at each record's own class, and the rest shared evenly."""
    found = np.full((count, classes), (1.0 - right) / (classes - 1))
    found[np.arange(count), np.arange(count)] = right
    return found


def _made(probabilities: Floats, stream: SimulationStream) -> tuple[Layers, Floats, Floats]:
    """One layer, and records that have these probabilities under it."""
    count, classes = probabilities.shape
    records = 1.0 + scattered(stream, count, INPUTS)
    weights = np.linalg.lstsq(records, np.log(probabilities), rcond=None)[0].T
    return (
        Layers((weights.astype(np.float64),), (np.zeros(classes),)),
        records,
        np.arange(count, dtype=np.float64),
    )


def _row(name: str, probabilities: Floats, stream: SimulationStream) -> Row:
    count, classes = probabilities.shape
    pi = residuals(probabilities, np.arange(count))
    layers, records, labels = _made(probabilities, stream)
    return {
        "batch": name,
        "records": count,
        "classes": classes,
        "rank": int(np.linalg.matrix_rank(pi)),
        "family": sensitivity(layers, records, labels, biases=False).dimension,
        "family_with_biases": sensitivity(layers, records, labels, biases=True).dimension,
    }


def _walked(stream: SimulationStream) -> dict[str, float]:
    """Another batch with the update of Table 6.1's: along what the derivative leaves open, and back."""
    layers, records, labels = _made(TABLE, stream)
    seen = layers.update(records, labels, biases=False).weights[0]
    here, step = records.copy(), 0.05
    direction = np.ones(here.size)
    for _ in range(20):
        free = _left_open(layers, here, labels)
        direction = free.T @ (free @ direction)  # the same way on
        direction /= np.linalg.norm(direction)
        here = here + step * direction.reshape(here.shape)
        for _ in range(4):
            gap = (layers.update(here, labels, biases=False).weights[0] - seen).reshape(-1)
            back = np.linalg.lstsq(_derivative(layers, here, labels), gap, rcond=1e-9)[0]
            here = here - back.reshape(here.shape)
    gap = np.abs(layers.update(here, labels, biases=False).weights[0] - seen).max() / np.abs(seen).max()
    assert gap < 1e-9
    before, after = _pairs(records), _pairs(here)
    return {
        "distance": float(np.linalg.norm(here - records) / np.linalg.norm(records)),
        "change": float(np.abs(after / before - 1.0).max()),
    }


def _derivative(layers: Layers, records: Floats, labels: Floats) -> Floats:
    step, flat = 1e-6, records.reshape(-1)
    columns = []
    for unit in np.eye(flat.size):
        ends = [
            layers.update((flat + side * step * unit).reshape(records.shape), labels, biases=False).weights[0]
            for side in (1.0, -1.0)
        ]
        columns.append((ends[0] - ends[1]).reshape(-1) / (2.0 * step))
    return np.array(columns).T


def _left_open(layers: Layers, records: Floats, labels: Floats) -> Floats:
    """An orthonormal basis of the directions in which the update stands still, by rows."""
    _, values, vectors = np.linalg.svd(_derivative(layers, records, labels))
    return np.asarray(vectors[int((values > 1e-6 * values[0]).sum()) :])


def _pairs(records: Floats) -> Floats:
    first, second = np.triu_indices(len(records), 1)
    return np.asarray(np.linalg.norm(records[first] - records[second], axis=1))


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 1, size=(7.0, 4.2))
    axis = axes[0, 0]
    for key, colour, mark, text in (
        ("family", plots.ACCENT, "o", "gradients of weights alone"),
        ("family_with_biases", "#0072B2", "s", "and of biases"),
    ):
        mine = [row for row in rows if row["batch"] == "similar"]
        axis.scatter(
            [row["records"] - row["classes"] for row in mine],
            [row[key] for row in mine],
            color=colour,
            marker=mark,
            label=text,
            alpha=0.7,
        )
        axis.scatter([0], [rows[0][key]], s=120, facecolors="none", edgecolors=colour)
    axis.set(xlabel="records less classes", ylabel=f"dimension of the family ({INPUTS} numbers a record)")
    axis.legend(frameon=False, fontsize=8)
    axis.set_title(
        "what the update of a similar batch leaves open; rings: Table 6.1", loc="left", fontsize=10
    )
    return figure
