"""Fig. 5.4: accuracy by batch size under noise, one global epoch."""

from __future__ import annotations

from reticent.experiments.base import Options, Outcome, wrapped
from reticent.experiments.zhao_2022.chapter_5 import batches
from reticent.experiments.zhao_2022.chapter_5.split_figures import drawn, said
from reticent.experiments.zhao_2022.chapter_5.split_training import EPSILON, setting


def run(options: Options) -> Outcome:
    """Train one global epoch for every batch size and normalisation."""
    rows = batches.rows(options, EPSILON)
    caption = wrapped(
        f"Fig 5.4: batch sizes at epsilon {EPSILON:g}, 1 global epoch. " + setting(options),
        "Printed: accuracy falls as the batch grows, since noise grows with N.",
        f"Found: {said(rows, 'normalisation', 'batch')}.",
        "Differences: noise over range is 1/epsilon for every N. Larger batches make fewer steps in the same "
        "epochs, which Fig. 5.5 has without any noise; under batch normalisation a feature of standard "
        "deviation 1 also shrinks against the range sqrt(N - 1).",
    )
    return Outcome(rows, caption, lambda: drawn(rows, "batch", "normalisation", log=True))
