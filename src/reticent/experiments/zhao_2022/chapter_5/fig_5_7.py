"""Fig. 5.7: accuracy by epsilon and global epochs, with public bounds, and what a record gives away."""

from __future__ import annotations

from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.zhao_2022.chapter_5.split_figures import drawn, said
from reticent.experiments.zhao_2022.chapter_5.split_training import EPSILON, accuracies, setting, task_of
from reticent.federated.split.documented import PUBLIC, Documented

EPSILONS, ROUNDS = (1.0, 2.0, 10.0), 5
GIVEN = "epsilon of a record's features"


def run(options: Options) -> Outcome:
    """Train five global epochs at every epsilon, with public bounds."""
    rounds = 2 if options.quick else ROUNDS
    rows: list[Row] = []
    for epsilon in EPSILONS:
        task = task_of(options, normalisation=PUBLIC, epsilon=epsilon)
        for at, one in enumerate(accuracies(options, task, rounds)):
            spent = task.spent(at + 1)
            assert spent is not None
            rows.append(
                {
                    "epsilon": epsilon,
                    "global epochs": at + 1,
                    "accuracy": one,
                    GIVEN: float(spent.of_all),
                }
            )
        options.progress(len(rows), len(EPSILONS) * rounds)
    printed = Documented(epochs=40).spent(2)
    mine = [row for row in rows if row["epsilon"] == EPSILON]
    assert printed is not None
    caption = wrapped(
        "Fig 5.7: epsilon by global epochs, public bounds. " + setting(options),
        "Printed: at least 90 % with 2 global epochs and epsilon above 1; accuracy may fall after two.",
        f"Found: {said(rows, 'epsilon', 'global epochs')}. At epsilon {EPSILON:g} it rises from "
        f"{mine[0]['accuracy']:.3f} to {mine[-1]['accuracy']:.3f} in {rounds}.",
        f"A record's features cost {mine[0][GIVEN]:,.0f} after the first, "
        f"{mine[-1][GIVEN]:,.0f} after the last at epsilon {EPSILON:g}; at the "
        f"printed size {float(printed.of_a_pass):,.0f} in each pass and {float(printed.of_all):,.0f} in two "
        "global epochs. With labels in clear and front layers learnt from raw images no finite epsilon "
        "holds.",
    )
    return Outcome(rows, caption, lambda: drawn(rows, "global epochs", "epsilon"))
