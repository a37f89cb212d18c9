"""Fig. 5.6: accuracy by global epochs and batch size, under noise."""

from __future__ import annotations

from itertools import pairwise

from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.zhao_2022.chapter_5.batches import BATCHES
from reticent.experiments.zhao_2022.chapter_5.split_figures import drawn, said
from reticent.experiments.zhao_2022.chapter_5.split_training import EPSILON, accuracies, setting, task_of
from reticent.federated.split.documented import PUBLIC

ROUNDS = 5


def run(options: Options) -> Outcome:
    """Train five global epochs for every batch size, with public bounds."""
    rounds = 2 if options.quick else ROUNDS
    rows: list[Row] = []
    for batch in BATCHES:
        found = accuracies(options, task_of(options, normalisation=PUBLIC, batch=batch), rounds)
        rows += [{"batch": batch, "global epochs": at + 1, "accuracy": one} for at, one in enumerate(found)]
        options.progress(len(rows), len(BATCHES) * rounds)
    falls = sum(b["accuracy"] < a["accuracy"] - 0.01 for a, b in pairwise(rows) if a["batch"] == b["batch"])
    caption = wrapped(
        f"Fig 5.6: global epochs by batch size at epsilon {EPSILON:g}, public bounds. " + setting(options),
        "Printed: two global epochs are best, since noise increases with the number of global epochs.",
        f"Found: {said(rows, 'batch', 'global epochs')}. Steps from one global epoch to the next that lose "
        f"more than 0.01: {falls} of {len(BATCHES) * (rounds - 1)}.",
        "Differences: noise is drawn anew in every pass and grows with none of them; what grows is what a "
        "record gives away.",
    )
    return Outcome(rows, caption, lambda: drawn(rows, "global epochs", "batch"))
