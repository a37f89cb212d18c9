"""Accuracy by batch size and normalisation after one global epoch: for Figs. 5.4 and 5.5."""

from __future__ import annotations

from reticent.experiments.base import Options, Row
from reticent.experiments.zhao_2022.chapter_5.split_training import accuracies, task_of
from reticent.federated.split.documented import NORMALISATIONS

BATCHES = (16, 64, 256)


def rows(options: Options, epsilon: float | None) -> list[Row]:
    """A row for every setting."""
    found: list[Row] = []
    for how in NORMALISATIONS:
        for batch in BATCHES:
            accuracy = accuracies(
                options, task_of(options, normalisation=how, epsilon=epsilon, batch=batch), 1
            )[0]
            found.append({"normalisation": how, "batch": batch, "accuracy": accuracy})
            options.progress(len(found), len(NORMALISATIONS) * len(BATCHES))
    return found
