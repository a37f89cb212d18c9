"""The means of Figs. 3.6 and 3.7 where a tenth of the people shape the mechanisms of the rest.

All 48 cases of the two figures: the documents' mechanisms with our estimator and their best k, against
`LearningWaves`. First by exact expected errors (of learning waves exact given a first wave, and averaged over
a few), then by paired repetitions. Beside them what a guess costs that is wrong on purpose, which the regret
bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reticent.collect.waves import REGRET, SHARE
from reticent.experiments import contenders, plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.data import People
from reticent.experiments.ours.learning_waves import LearningWaves
from reticent.experiments.paired import biased, paired, squared_errors
from reticent.experiments.protocol import LEARNING, VECTOR, Batch, Estimates, Plan, simulate
from reticent.experiments.zhao_2022.chapter_3 import fig_3_6, fig_3_7
from reticent.experiments.zhao_2022.chapter_3.means import (
    DEFAULT,
    EPSILONS,
    QUICK_EPSILONS,
    best_k,
    expected_errors,
)
from reticent.randomness import SimulationStream

FIRST_WAVES, QUICK_FIRST_WAVES = 8, 2  # over which the expected error is averaged
DOCUMENTS = (*(contender.name for contender in contenders.DOCUMENTS), VECTOR)


def plans(epsilon: float, dimensions: int) -> list[Plan]:
    """Every document's mechanism with its best k, our default, and learning waves."""
    names = {name: best_k(name, epsilon, dimensions) for name in (*DOCUMENTS, DEFAULT)}
    listed = [Plan(name, epsilon, k) for name, k in names.items()]
    return [*listed, Plan(LEARNING, epsilon, names[DEFAULT])]


def expected(people: People, listed: Sequence[Plan], times: int) -> dict[str, float]:
    """The expected squared error of each way to collect, every report counted once."""
    found = {one.mechanism: expected_errors(people, one)[1] for one in listed[:-1]}
    x, waves = people.numbers, _waves(people, listed)
    stream = SimulationStream(48)
    found[LEARNING] = waves.expected_error(x, Batch(x, times, stream.spawn(0)), stream.spawn(1))
    return found


def _waves(people: People, listed: Sequence[Plan]) -> LearningWaves:
    plan = listed[-1]
    return LearningWaves(plan.epsilon, plan.sample_size, people.dimensions)


def case(
    people: People, epsilon: float, listed: Sequence[Plan], found: dict[Plan, Estimates], times: int
) -> Row:
    """One data set at one epsilon: exact, then paired."""
    exact, truth = expected(people, listed, times), people.numbers.mean(axis=0)
    best = min(DOCUMENTS, key=exact.__getitem__)
    errors = {one.mechanism: squared_errors(found[one].realised, truth) for one in listed}
    ours = errors[LEARNING]
    gaps = {name: paired(errors[name], ours) for name in DOCUMENTS}
    gap = gaps[best]
    return {
        "data": people.name,
        "epsilon": epsilon,
        "document": best,
        "expected_document": exact[best],
        "expected_default": exact[DEFAULT],
        "expected_learning": exact[LEARNING],
        "exact_ratio": exact[LEARNING] / exact[best],
        "mse_document": float(errors[best].mean()),
        "mse_learning": float(ours.mean()),
        "ratio": float(ours.mean() / errors[best].mean()),
        "verdict": gap.verdict,
        "lost_to": ", ".join(name for name, one in gaps.items() if one.verdict == "ours larger"),
        "wrong_guess": _waves(people, listed).wrong_guess(people.numbers),
        "biased": biased(found[listed[-1]].realised, truth),
        "repetitions": ours.size,
    }


def run(options: Options) -> Outcome:
    """All cases of both figures."""
    populations = [*fig_3_6.populations(options), *fig_3_7.populations(options)]
    epsilons = QUICK_EPSILONS if options.quick else EPSILONS
    times = QUICK_FIRST_WAVES if options.quick else FIRST_WAVES
    rows: list[Row] = []
    for number, people in enumerate(populations):
        listed = {one: plans(one * people.numeric_share, people.dimensions) for one in epsilons}
        together = [plan for some in listed.values() for plan in some]
        # One process: the tables of one repetition serve the others.
        found = simulate(people.numbers, together, options.times, options.seed)
        rows += [case(people, epsilon, some, found, times) for epsilon, some in listed.items()]
        options.progress(number + 1, len(populations))
    return Outcome(rows, _caption(rows, times), lambda: _draw(rows))


def _caption(rows: Sequence[Row], times: int) -> str:
    below = sum(row["exact_ratio"] < 1.0 for row in rows)
    smaller = sum(row["verdict"] == "ours smaller" for row in rows)
    lost = [row for row in rows if row["lost_to"]]
    flagged = sum(row["biased"] is True for row in rows)
    ratios = [row["exact_ratio"] for row in rows]
    lines = [
        f"Means where {SHARE:.0%} of the people shape the mechanisms of the rest, against the documents with",
        f"our estimator and their best k: {rows[0]['repetitions']} paired repetitions, 95 % intervals.",
        "",
        "Ratio: our error divided by that of the document of least expected error, exact and simulated.",
        f"  {'data':<10}{'eps':<5}{'document':<15}{'exact':<9}{'simulated':<14}default, exact",
    ]
    for row in rows:
        mark = {"ours smaller": "", "equal": " equal", "ours larger": " LOWER"}[row["verdict"]]
        simulated = f"{row['ratio']:.3f}{mark}"
        default = row["expected_default"] / row["expected_document"]
        lines.append(
            f"  {row['data']:<10}{row['epsilon']:<5g}{row['document']:<15}{row['exact_ratio']:<9.4f}"
            f"{simulated:<14}{default:.3f}"
        )
    lines += [
        "",
        f"By exact expected error (averaged over {times} first waves) ours is strictly smaller in {below} of "
        f"{len(rows)} cases,",
        f"from {min(ratios):.3f} to {max(ratios):.4f} of the document's.",
        f"By paired intervals ours is smaller than the document of least expected error in {smaller}, and",
        f"smallest or statistically equal among all documents in {len(rows) - len(lost)} of {len(rows)} cases"
        f"{':' if lost else '.'}",
        *(f"    {row['data']}, epsilon {row['epsilon']:g}: {row['lost_to']}" for row in lost),
        "With a guess at the wrong end on purpose, a report of the second wave has at most "
        f"{max(row['wrong_guess'] for row in rows):.3f}",
        f"times the least variance in the worst case; the regret allows {1.0 + REGRET:g}.",
        f"Bias: {len(rows)} estimates checked, {flagged} flagged."
        if rows[0]["biased"] is not None
        else "Bias: not checked, too few repetitions.",
    ]
    return "\n".join(lines)


def _draw(rows: Sequence[Row]) -> Any:
    figure, axes = plots.panels(1, 2, size=(12, 4.6))
    names = list(dict.fromkeys(row["data"] for row in rows))
    for axis, some in zip(axes[0], (names[:4], names[4:]), strict=True):
        for name in some:
            mine = [row for row in rows if row["data"] == name]
            axis.plot(
                [row["epsilon"] for row in mine], [row["exact_ratio"] for row in mine], "o-", label=name
            )
        axis.axhline(1.0, color="black", linewidth=0.8)
        axis.set_ylabel("expected error / that of the best document")
        plots.epsilon_axis(
            axis, sorted({float(row["epsilon"]) for row in rows}), "epsilon of the whole record"
        )
        axis.legend()
    return figure
