"""Fig. 3.6 of the thesis: the error of estimated means on real data, over epsilon.

Reference: Zhao 2022, Section 3.5.1 and Fig. 3.6; Zhao et al. 2020, Fig. 6.
Departures: the data sets are those that can be had (see `data`); the budget is split between numbers and
    categories as printed, d_n/d to the numbers; every mechanism also has its best k and our estimator.
"""

from __future__ import annotations

from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.data import People, load_all
from reticent.experiments.zhao_2022.chapter_3 import means_report
from reticent.experiments.zhao_2022.chapter_3.categories import run_categories
from reticent.experiments.zhao_2022.chapter_3.means import run_means

QUICK_PEOPLE = 2_000


def populations(options: Options) -> list[People]:
    """The data sets; at most 2,000 people of each in a quick run."""
    loaded = load_all(options.data)
    return [people.some(QUICK_PEOPLE, options.seed) for people in loaded] if options.quick else loaded


def run(options: Options) -> Outcome:
    """Simulate every mechanism on every data set."""
    loaded = populations(options)
    rows = run_means(loaded, options)
    categories = run_categories(loaded, options)
    return Outcome(
        [*rows, *_aligned(categories, rows[0])],
        _caption(rows, categories),
        lambda: means_report.draw(
            rows, "Fig. 3.6: error of the means, every mechanism with our estimator and its best k"
        ),
    )


def _aligned(rows: list[Row], like: Row) -> list[Row]:
    """The rows with all the columns of the others."""
    return [{key: row.get(key, "") for key in like} for row in rows]


def _caption(rows: list[Row], categories: list[Row]) -> str:
    times = rows[0]["repetitions"]
    lines = [
        f"Fig. 3.6: mean squared error of means, {times} paired repetitions, 95 % intervals.",
        "",
        'Printed: "HM-TP outperforms existing solutions in all settings"; PM-SUB better than PM at large',
        "epsilon, Three-Outputs good at small epsilon (no numbers in the text).",
        "Found: HM-TP has or shares the least expected error of the documents' mechanisms, as printed, in",
        f"{means_report.how_often_best(rows, 'HM-TP')}; who is best depends on the data.",
        "",
        *means_report.LEGEND,
        *means_report.table(rows),
        "",
        *means_report.verdicts(rows),
        "",
        means_report.WHY,
        f"Mean squares of the numbers in [-1, 1]: {means_report.data_notes(rows)}.",
        means_report.bias_note(rows),
        "",
        "Categories (the other part of the budget): mean squared error of shares, OUE as in the documents,",
        "then ours (best oracle, best k, realised weights):",
    ]
    for row in categories:
        lines.append(
            f"  {row['data']:<9} {row['epsilon']:<4g} {row['mechanism']:<19} {row['mse']:.3e} "
            f"ratio {row['ratio']:.2f} {'equal' if row['verdict'] == 'equal' else ''}".rstrip()
        )
    return "\n".join(lines)
