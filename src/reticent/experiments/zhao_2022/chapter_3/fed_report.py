"""Rows, captions and plots of Figs. 3.8 to 3.15."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from reticent.estimation.student import half_width
from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.paired import paired
from reticent.experiments.zhao_2022.chapter_3.fed_methods import (
    CONTINUOUS,
    DEFAULT,
    DOCUMENTS,
    NOBODY,
    OURS,
    TYPICAL,
)
from reticent.experiments.zhao_2022.chapter_3.fed_training import Found, cross_validated, settled
from reticent.experiments.zhao_2022.chapter_3.means import select
from reticent.mechanisms.base import Floats

EPSILONS, QUICK_EPSILONS = (0.5, 1.0, 2.0, 4.0), (4.0,)
MEASURE = {
    "linear": "mean squared error",
    "logistic": "misclassification rate",
    "svm": "misclassification rate",
}
PRINTED = ("PM-SUB", "Three-Outputs", "HM-TP")  # whom the documents found best


def compare_methods(kind: str, title: str, printed: str, options: Options) -> Outcome:
    """Figs. 3.8 to 3.10: every method on every data set, over epsilon."""
    epsilons = QUICK_EPSILONS if options.quick else EPSILONS
    arms = settled(kind, epsilons, CONTINUOUS, options)
    found = cross_validated(kind, arms, CONTINUOUS, options)
    rows = [row for data, errors in found.items() for row in rows_of(data, errors)]
    return Outcome(rows, _caption(kind, title, printed, rows), lambda: draw_over_epsilon(kind, title, rows))


def rows_of(data: str, found: Found) -> list[Row]:
    """One row for each method and epsilon, against the best document."""
    rows: list[Row] = []
    for epsilon in dict.fromkeys(arm.epsilon for arm in found):
        here = {arm.method: (arm.setting, errors) for arm, errors in found.items() if arm.epsilon == epsilon}
        documents = {name: errors for name, (_, errors) in here.items() if name in DOCUMENTS}
        best = best_by_the_others(np.stack(list(documents.values())))
        for name, (setting, errors) in here.items():
            gap = paired(best, errors)
            rows.append(
                {
                    "data": data,
                    "epsilon": epsilon,
                    "method": name,
                    "error": _mean(errors),
                    "half_width": half_width(errors) if np.isfinite(errors).all() else math.inf,
                    "best_document": min(documents, key=lambda name: _mean(documents[name])),
                    "error_of_best": _mean(best),
                    "less_than_best": gap.difference,
                    "less_low": gap.low,
                    "less_high": gap.high,
                    "verdict": gap.verdict,
                    "rate": setting.rate,
                    "bound": setting.bound,
                    "rounds": setting.rounds,
                    "trainings": errors.size,
                }
            )
    return rows


def best_by_the_others(errors: Floats) -> Floats:
    """The error in each training of the method that is best in all the others.

    Errors have shape (methods, trainings). Where methods are equal, the least of their means would be chance.
    """
    finite = np.where(np.isfinite(errors), errors, 1e300)
    others = finite.sum(axis=1, keepdims=True) - finite
    return np.asarray(np.take_along_axis(errors, others.argmin(axis=0)[None], axis=0)[0])


def _mean(errors: Floats) -> float:
    return float(errors.mean())


def cases(rows: Sequence[Row]) -> Iterator[dict[str, Row]]:
    """The rows of each data set and epsilon, by method."""
    for data, epsilon in dict.fromkeys((row["data"], row["epsilon"]) for row in rows):
        yield {row["method"]: row for row in select(rows, data=data, epsilon=epsilon)}


def table(rows: Sequence[Row]) -> list[str]:
    """Per data set and epsilon: without noise, the best document, and ours with what they gain on it."""
    lines = [
        f"  {'data':<9}{'eps':<5}{NOBODY:<13}{'best document':<22}"
        f"{'ours, worst case: gain':<43}ours, typical: gain"
    ]
    for here in cases(rows):
        first = here[DEFAULT]
        lines.append(
            f"  {first['data']:<9}{first['epsilon']:<5g}{here[NOBODY]['error']:<13.4g}"
            f"{first['error_of_best']:<8.4g}{first['best_document']:<14}{_gain(first):<43}{_gain(here[TYPICAL])}".rstrip()
        )
    return lines


def _gain(row: Row) -> str:
    mark = {"ours smaller": "better", "ours larger": "WORSE"}.get(row["verdict"], "equal")
    return (
        f"{row['error']:.4g} {row['less_than_best']:+.4f} "
        f"[{row['less_low']:+.4f}, {row['less_high']:+.4f}] {mark}"
    )


def counts(rows: Sequence[Row], name: str) -> str:
    """How often a method is better than, equal to and worse than the best document."""
    verdicts = [here[name]["verdict"] for here in cases(rows)]
    better, worse = verdicts.count("ours smaller"), verdicts.count("ours larger")
    return (
        f"better in {better}, equal in {len(verdicts) - better - worse}, worse in {worse} of {len(verdicts)}"
    )


def lost(rows: Sequence[Row]) -> list[str]:
    """Where both of ours are behind the best document, and with which settings."""
    lines = []
    for here in cases(rows):
        if all(here[name]["verdict"] == "ours larger" for name in OURS):
            best = here[here[DEFAULT]["best_document"]]
            lines.append(
                f"    {best['data']}, epsilon {best['epsilon']:g}: {best['method']} with {_setting(best)}; "
                f"typical with {_setting(here[TYPICAL])}"
            )
    return lines


def _setting(row: Row) -> str:
    return f"rate {row['rate']:g}, bound {row['bound']:g}, {row['rounds']} rounds"


def often_best(rows: Sequence[Row]) -> str:
    """Which documents' methods have the least mean error, how often."""
    winners = [next(iter(here.values()))["best_document"] for here in cases(rows)]
    return ", ".join(f"{name} {winners.count(name)}" for name in DOCUMENTS if name in winners)


WHY = """\
Gain: error of the best document less ours, with the 95 % interval of the paired difference over folds. The
best document is, for each training, the one that is best in all the others: chance does not choose it.
Folds share training records, so intervals are somewhat too narrow; and tuning leaves some chance too.
Why a document wins where it does: "worst case" has the same variance for every gradient, the least where
gradients reach their bounds; most are near 0, where the piecewise mechanisms and Three-Outputs have far less
from epsilon 2 on. "Typical" takes the mechanism and k of least variance there: at epsilon 2 and 4 these are
the documents' own, and it can only be equal; below it has 4 to 13 % less variance, which hardly shows."""


def _caption(kind: str, title: str, printed: str, rows: Sequence[Row]) -> str:
    behind = lost(rows)
    trainings = rows[0]["trainings"]
    return "\n".join(
        [
            f"{title}: {MEASURE[kind]}, {trainings} cross-validated trainings each.",
            "Every record is a client that reports once. The documents' mechanisms run in doubles, as",
            "printed; ours as really sent.",
            "",
            f"Printed: {printed}",
            f"Found: of the documents' methods the least mean error has, how often: {often_best(rows)}.",
            "",
            *table(rows),
            "",
            f"Ours for the worst case against the best document: {counts(rows, DEFAULT)} cases.",
            f"Ours for typical gradients against the best document: {counts(rows, TYPICAL)} cases.",
            *(["Both behind the best document:", *behind] if behind else ["Nowhere are both behind it."]),
            "",
            WHY,
        ]
    )


def draw_over_epsilon(kind: str, title: str, rows: Sequence[Row]) -> Any:
    """Per data set: the errors over epsilon, with 95 % intervals."""
    listed = list(dict.fromkeys(row["data"] for row in rows))
    figure, axes = plots.panels(1, len(listed), size=(4.4 * len(listed) + 2.2, 5.0))
    for axis, data in zip(axes[0], listed, strict=True):
        for name in (NOBODY, *DOCUMENTS, *OURS):
            mine = select(rows, data=data, method=name)
            epsilons = np.array([row["epsilon"] for row in mine])
            axis.errorbar(
                epsilons * (1.0 + 0.012 * (len(name) % 7 - 3)),
                [row["error"] for row in mine],
                [min(row["half_width"], row["error"]) for row in mine],
                label=plots.label(name),
                elinewidth=0.7,
                **plots.style(name),
            )
        axis.set_title(data, fontsize=11)
        plots.epsilon_axis(axis, sorted(set(epsilons.tolist())), "epsilon of a client's one report")
    axes[0, 0].set_ylabel(MEASURE[kind])
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    plots.legend_right(figure, axes[0, 0])
    return figure
