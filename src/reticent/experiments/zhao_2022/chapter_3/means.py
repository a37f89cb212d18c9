"""The error of means over epsilon: what Fig. 3.6 and 3.7 share.

Every mechanism is run with its own best k and with the documents' rule, and estimated in both ways
(`protocol`). Our default is `Optimal` with its best k, weighted by what was realised. The best k is the one
that makes

    (d/k) V(epsilon/k) + (d/k - 1) / 9

least: the worst-case variance of the reports plus that of sampling, for data with a standard deviation of
1/3 (three of them fill [-1, 1]). It is fixed before any data are seen, and the same for all mechanisms.
OneBit has the k, and the shape, of the worst case over data (`mechanisms.sampling`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.experiments import contenders
from reticent.experiments.base import Options, Row
from reticent.experiments.data import People
from reticent.experiments.paired import biased, paired, squared_errors
from reticent.experiments.protocol import VECTOR, WAVES, Estimates, Plan, simulate
from reticent.mechanisms.base import Floats
from reticent.mechanisms.sampling import best_sample_size, documents_sample_size, epsilon_each, sample_sizes
from reticent.mechanisms.vector import VectorDuchi

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
PRINTED_EPSILONS = (0.5, 1.0, 2.0, 4.0)
QUICK_EPSILONS = (1.0, 4.0)
TYPICAL_VARIANCE = 1.0 / 9.0
DEFAULT = "Optimal"
NAMES = (*(contender.name for contender in contenders.DOCUMENTS), VECTOR, "OneBit", DEFAULT, WAVES)
OURS = ("OneBit", DEFAULT, WAVES)


def best_k(name: str, epsilon: float, dimensions: int) -> int:
    """The k of a mechanism by the objective above."""
    if name == VECTOR:
        return dimensions
    if name == "OneBit":
        return best_sample_size(epsilon, dimensions)
    ideal = contenders.BY_NAME[DEFAULT if name == WAVES else name].ideal

    def objective(k: int) -> float:
        rate = dimensions / k
        return rate * ideal(epsilon / k) + (rate - 1.0) * TYPICAL_VARIANCE

    return min(sample_sizes(epsilon, dimensions), key=objective)


def documents_k(name: str, epsilon: float, dimensions: int) -> int:
    """The k that the documents use: Laplace and the vector mechanism report every number."""
    return dimensions if name in ("Laplace", VECTOR) else documents_sample_size(epsilon, dimensions)


@dataclass(frozen=True)
class Variant:
    """A mechanism with a rule for k ("best" or "documents")."""

    mechanism: str
    rule: str
    plan: Plan


def variants(epsilon: float, dimensions: int) -> list[Variant]:
    """Everything that is compared at one budget of the numbers."""
    made = []
    for name in NAMES:
        rules = {"best": best_k} if name in OURS else {"best": best_k, "documents": documents_k}
        for rule, k in rules.items():
            made.append(Variant(name, rule, Plan(name, epsilon, k(name, epsilon, dimensions))))
    return made


def expected_errors(people: People, plan: Plan) -> tuple[float, float]:
    """The expected squared error of the design and of the realised estimate, from exact variances.

    design: ((d/k) E[Y^2] - E[x^2]) / n; realised, to first order: ((d/k) E[Var] + (d/k - 1) Var(x)) / n.
    """
    x, (n, d) = people.numbers, people.numbers.shape
    square = float(np.mean(x * x))
    if plan.mechanism == VECTOR:
        error = (VectorDuchi(epsilon=plan.epsilon, dimensions=d).scale ** 2 - square) / n
        return error, error
    if plan.mechanism == WAVES:
        return math.nan, math.nan
    rate = d / plan.sample_size
    made = contenders.BY_NAME[plan.mechanism].make(epsilon_each(plan.epsilon, plan.sample_size), 1.0 / rate)
    spread = contenders.mean_variance(made, x)
    design = rate * (spread + square) - square
    realised = rate * spread + (rate - 1.0) * float(np.mean(x.var(axis=0)))
    return design / n, realised / n


def compare(people: People, epsilon: float, found: dict[Plan, Estimates], listed: list[Variant]) -> list[Row]:
    """One row per variant and way to weigh, against our default and against two waves."""
    truth = people.numbers.mean(axis=0)
    errors: dict[tuple[Plan, str], Floats] = {}
    for plan, estimates in found.items():
        errors[plan, "design"] = squared_errors(estimates.design, truth)
        errors[plan, "realised"] = squared_errors(estimates.realised, truth)
    ours, waves = (
        errors[next(v.plan for v in listed if v.mechanism == name), "realised"] for name in (DEFAULT, WAVES)
    )
    rows: list[Row] = []
    for variant in listed:
        expected = dict(zip(("design", "realised"), expected_errors(people, variant.plan), strict=True))
        both = found[variant.plan]
        for weights, means in (("design", both.design), ("realised", both.realised)):
            mine = errors[variant.plan, weights]
            gap, gap_waves = paired(mine, ours), paired(mine, waves)
            rows.append(
                {
                    "data": people.name,
                    "epsilon": epsilon,
                    "numeric_epsilon": variant.plan.epsilon,
                    "mechanism": variant.mechanism,
                    "rule": variant.rule,
                    "k": variant.plan.sample_size,
                    "weights": weights,
                    "mse": float(mine.mean()),
                    "expected_mse": expected[weights],
                    "ratio": float(mine.mean() / ours.mean()),
                    "ratio_low": 1.0 + gap.low / float(ours.mean()),
                    "ratio_high": 1.0 + gap.high / float(ours.mean()),
                    "verdict": gap.verdict,
                    "ratio_to_two_waves": float(mine.mean() / waves.mean()),
                    "verdict_two_waves": gap_waves.verdict,
                    "biased": biased(means, truth),
                    "mean_square": float(np.mean(people.numbers**2)),
                    "repetitions": mine.size,
                }
            )
    return rows


def run_means(populations: Sequence[People], options: Options) -> list[Row]:
    """Run the protocol on every population and every epsilon."""
    epsilons = QUICK_EPSILONS if options.quick else EPSILONS
    rows: list[Row] = []
    for number, people in enumerate(populations):
        listed = {
            epsilon: variants(epsilon * people.numeric_share, people.dimensions) for epsilon in epsilons
        }
        plans = list(dict.fromkeys(variant.plan for some in listed.values() for variant in some))
        found = simulate(
            people.numbers,
            plans,
            options.times,
            options.seed,
            workers=1 if options.quick else options.workers,
            progress=_part(options.progress, number, len(populations)),
        )
        for epsilon, some in listed.items():
            rows += compare(people, epsilon, found, some)
    return rows


def _part(progress: Callable[[int, int], None], number: int, count: int) -> Callable[[int, int], None]:
    return lambda done, total: progress(number * total + done, count * total)


def select(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    """The rows in which every named column has the value given."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]
