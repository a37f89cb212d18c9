"""Fig. 5.5: accuracy by batch size without noise, one global epoch."""

from __future__ import annotations

from reticent.experiments.base import Options, Outcome, wrapped
from reticent.experiments.zhao_2022.chapter_5 import batches
from reticent.experiments.zhao_2022.chapter_5.split_figures import drawn, said
from reticent.experiments.zhao_2022.chapter_5.split_training import setting


def run(options: Options) -> Outcome:
    """Train one global epoch for every batch size and normalisation."""
    rows = batches.rows(options, None)
    caption = wrapped(
        "Fig 5.5: batch sizes without noise, 1 global epoch. " + setting(options),
        "Printed: without noise batch normalisation is better than theirs, and accuracy falls as the batch "
        "grows.",
        f"Found: {said(rows, 'normalisation', 'batch')}.",
        "Differences: larger batches make fewer steps in the same epochs.",
    )
    return Outcome(rows, caption, lambda: drawn(rows, "batch", "normalisation", log=True))
