"""Fig. 5.8 of the thesis: the people of the fairness experiment, a majority and a minority.

Reference: Biswas 2023, Fig. 5.8, Section 5.5.5.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.biswas_2023.chapter_5 import data
from reticent.experiments.biswas_2023.chapter_5.runs import wrapped

USERS, QUICK_USERS = 1000, 100


def run(options: Options) -> Outcome:
    """Draw the people and count who is granted a loan."""
    people = data.two_groups(QUICK_USERS if options.quick else USERS, data.stream(options.seed))
    records = people.records
    labels = people.labels(records.targets)
    rows: list[Row] = [
        {
            "group": int(people.group[user]) + 1,
            "x1": float(x[0]),
            "x2": float(x[1]),
            "y": float(y),
            "label": int(label),
        }
        for user in range(len(records))
        for x, y, label in zip(records.features[user], records.targets[user], labels[user], strict=True)
    ]
    options.progress(1, 1)
    shares = [float(np.mean([row["label"] for row in rows if row["group"] == g])) for g in (1, 2)]
    caption = wrapped(
        "Fig. 5.8: the samples of the majority g1 (four fifths of the users) and of the minority g2.",
        "",
        "Printed: the two groups overlap in the space of x and lie apart in y; the rule that grants a "
        "loan is "
        "turned round for g2, whose y is 15 higher.",
        f"Found: the same by construction. A loan is granted to {shares[0]:.1%} of g1 and {shares[1]:.1%} of "
        "g2, so even a perfect model has a gap in demographic parity.",
        "Differences: how x is drawn is not printed; standard normal here. u is uniform in [0, 1).",
    )
    return Outcome(rows, caption, lambda: _draw(rows))


def _draw(rows: list[Row]) -> Any:
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(13.0, 4.2), layout="constrained")
    for place, shown in enumerate(((1,), (2,), (1, 2)), 1):
        axis: Any = figure.add_subplot(1, 3, place, projection="3d")
        for group in shown:
            for label, mark in ((0, "x"), (1, "o")):
                mine = [row for row in rows if row["group"] == group and row["label"] == label]
                x1, x2, y = (np.array([row[key] for row in mine]) for key in ("x1", "x2", "y"))
                colour = ("#0072B2", plots.ACCENT)[group - 1]
                axis.scatter(x1, x2, y, marker=mark, s=5, color=colour, label=f"g{group}, label {label}")
        axis.set_xlabel("x1")
        axis.set_ylabel("x2")
        axis.set_zlabel("y")
        axis.legend(fontsize=7, frameon=False)
        axis.set_title(" and ".join(f"g{group}" for group in shown), loc="left", fontsize=10)
    return figure
