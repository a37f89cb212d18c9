"""Fig. 5.3: accuracy by normalisation and epsilon, against no noise."""

from __future__ import annotations

from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.zhao_2022.chapter_5.split_figures import drawn, said
from reticent.experiments.zhao_2022.chapter_5.split_training import accuracies, setting, task_of
from reticent.federated.split.documented import BATCH, NORMALISATIONS, PUBLIC, THEIRS

EPSILONS, ROUNDS = (1.0, 2.0, 10.0), 2
NONE = "public bounds, no noise"


def run(options: Options) -> Outcome:
    """Train with every normalisation and epsilon, and once without noise."""
    rounds = 1 if options.quick else ROUNDS
    quiet = accuracies(options, task_of(options, normalisation=PUBLIC, epsilon=None), rounds)[-1]
    rows: list[Row] = [{"normalisation": NONE, "epsilon": one, "accuracy": quiet} for one in EPSILONS]
    for how in NORMALISATIONS:
        for epsilon in EPSILONS:
            found = accuracies(options, task_of(options, normalisation=how, epsilon=epsilon), rounds)[-1]
            rows.append({"normalisation": how, "epsilon": epsilon, "accuracy": found})
            options.progress(len(rows), (1 + len(NORMALISATIONS)) * len(EPSILONS))
    at = {(row["normalisation"], row["epsilon"]): row["accuracy"] for row in rows}
    ahead = sum(at[THEIRS, one] > at[BATCH, one] for one in EPSILONS)
    caption = wrapped(
        f"Fig 5.3: normalisations, {rounds} global epoch(s). " + setting(options),
        "Printed: their normalisation, by the bounds of each batch, is better than batch normalisation under "
        "noise, and both come closer to no noise as epsilon grows.",
        f"Found: {said(rows, 'normalisation', 'epsilon')}. Theirs is ahead of batch normalisation at {ahead} "
        f"of {len(EPSILONS)} epsilons. Public bounds, which no record moves, have {at[PUBLIC, 2.0]:.3f} at "
        "epsilon 2.",
        "Differences: the bound sqrt(N - 1) is only a unit; noise over range is 1/epsilon per value whatever "
        "N. Bounds or statistics of a batch couple its records: one of them moves the features of all.",
    )
    return Outcome(rows, caption, lambda: drawn(rows, "epsilon", "normalisation", log=True))
