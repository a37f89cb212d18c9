"""Fig. 5.8: accuracy by local and global epochs, under noise."""

from __future__ import annotations

from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.zhao_2022.chapter_5.split_figures import drawn, said
from reticent.experiments.zhao_2022.chapter_5.split_training import EPSILON, accuracies, setting, task_of
from reticent.federated.split.documented import PUBLIC

LOCAL, ROUNDS = (5, 10, 15), 5


def run(options: Options) -> Outcome:
    """Train five global epochs for every number of local ones, with public bounds."""
    rounds = 2 if options.quick else ROUNDS
    rows: list[Row] = []
    for local in LOCAL:
        found = accuracies(options, task_of(options, normalisation=PUBLIC, epochs=local), rounds)
        rows += [
            {"local epochs": local, "global epochs": at + 1, "accuracy": one} for at, one in enumerate(found)
        ]
        options.progress(len(rows), len(LOCAL) * rounds)
    best = {
        local: max(
            (row for row in rows if row["local epochs"] == local), key=lambda row: float(row["accuracy"])
        )["global epochs"]
        for local in LOCAL
    }
    caption = wrapped(
        f"Fig 5.8: local epochs by global epochs at epsilon {EPSILON:g}, public bounds. " + setting(options),
        "Printed: with 40 local epochs accuracy drops after two global epochs; 20 or 30 need four.",
        f"Found: {said(rows, 'local epochs', 'global epochs')}. Best after "
        + ", ".join(f"{at} global epochs with {local} local ones" for local, at in best.items())
        + ".",
        "Differences: every local epoch is one more pass of every record, and costs as much as the first.",
    )
    return Outcome(rows, caption, lambda: drawn(rows, "global epochs", "local epochs"))
