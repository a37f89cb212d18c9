"""Fig. 3.7 of the thesis: the error of means on synthetic data, 16 numbers with four different means.

Reference: Zhao 2022, Section 3.5.1 and Fig. 3.7: Gaussian with standard deviation 1/4 and mean 0, 1/3,
2/3, 1, truncated to [-1, 1]. The number of people is not printed; here it is 20,000.
"""

from __future__ import annotations

import numpy as np

from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.data import People
from reticent.experiments.zhao_2022.chapter_3 import means_report
from reticent.experiments.zhao_2022.chapter_3.means import run_means
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream

MEANS = (0.0, 1.0 / 3.0, 2.0 / 3.0, 1.0)
CLAIMED = ("PM-SUB", "Three-Outputs", "HM-TP")
DEVIATION, DIMENSIONS, PEOPLE, QUICK_PEOPLE = 0.25, 16, 20_000, 1_000


def truncated_normal(mean: float, count: int, stream: SimulationStream) -> Floats:
    """Normal numbers with the standard deviation 1/4, those outside [-1, 1] drawn again."""
    kept = np.empty(0)
    while kept.size < count:
        radius, angle = (stream.units(count) - 1.0 for _ in range(2))
        normal = np.sqrt(-2.0 * np.log1p(-radius)) * np.cos(2.0 * np.pi * angle)
        drawn = mean + DEVIATION * normal
        kept = np.concatenate([kept, drawn[np.abs(drawn) <= 1.0]])
    return kept[:count]


def populations(options: Options) -> list[People]:
    """One population for each mean."""
    n = QUICK_PEOPLE if options.quick else PEOPLE
    stream = SimulationStream(options.seed, path=(37,))
    return [
        People(
            f"mean {mean:.2g}", truncated_normal(mean, n * DIMENSIONS, stream.spawn(i)).reshape(n, DIMENSIONS)
        )
        for i, mean in enumerate(MEANS)
    ]


def run(options: Options) -> Outcome:
    """Simulate every mechanism on every population."""
    rows = run_means(populations(options), options)
    return Outcome(
        rows,
        _caption(rows),
        lambda: means_report.draw(rows, "Fig. 3.7: error of the means on synthetic data, 16 numbers"),
    )


def _caption(rows: list[Row]) -> str:
    times = rows[0]["repetitions"]
    often = ", ".join(f"{name} in {means_report.how_often_best(rows, name)}" for name in CLAIMED)
    return "\n".join(
        [
            f"Fig. 3.7: mean squared error of 16 means, {times} paired repetitions, 95 % intervals.",
            "",
            'Printed: "PM-SUB, Three-Outputs, and HM-TP outperform existing solutions" (no numbers).',
            "Found: least expected error of the documents' mechanisms as printed, alone or shared:",
            f"{often}.",
            "",
            *means_report.LEGEND,
            *means_report.table(rows),
            "",
            *means_report.verdicts(rows),
            "",
            means_report.WHY,
            f"Mean squares: {means_report.data_notes(rows)}.",
            means_report.bias_note(rows),
        ]
    )
