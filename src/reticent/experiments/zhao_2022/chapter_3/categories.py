"""The categorical part of a record: the documents' OUE against the best oracle, on the rest of the budget.

Reference: Wang et al. 2019, Section IV-C: k of the d_c attributes under epsilon/k each, by OUE.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.experiments.base import Options, Row
from reticent.experiments.data import People
from reticent.experiments.paired import paired
from reticent.experiments.zhao_2022.chapter_3.means import EPSILONS, QUICK_EPSILONS
from reticent.mechanisms import categorical
from reticent.mechanisms.base import Floats
from reticent.mechanisms.categorical import OUE
from reticent.mechanisms.sampling import documents_sample_size, epsilon_each, sample_sizes, sampled_attributes
from reticent.randomness import SimulationStream

PRINTED, OURS = "OUE (documents)", "best oracle (ours)"
MOST_REPETITIONS = 100
_MOST_BITS = 1024


def best_k(epsilon: float, sizes: Sequence[int]) -> int:
    """The k of least total variance of rare shares, each attribute by its best oracle."""
    d = len(sizes)

    def objective(k: int) -> float:
        c = math.exp(epsilon / k)
        return sum(d / k * min(size - 2 + c, 4.0 * c) / (c - 1.0) ** 2 for size in sizes)

    return min(sample_sizes(epsilon, d), key=objective)


class Survey:
    """One way to ask for all the categories of a person."""

    def __init__(self, name: str, epsilon: float, sizes: Sequence[int]) -> None:
        self.name, self.sizes = name, sizes
        d = len(sizes)
        self.k = documents_sample_size(epsilon, d) if name == PRINTED else best_k(epsilon, sizes)
        each = epsilon_each(epsilon, self.k)
        self.oracles: list[Any] = [
            OUE(epsilon=each, categories=size)
            if name == PRINTED
            else categorical.best(each, size, bits=_MOST_BITS)
            for size in sizes
        ]

    def error(self, columns: Sequence[NDArray[np.int64]], stream: SimulationStream) -> float:
        """The mean squared error of all the shares in one repetition."""
        n, d = len(columns[0]), len(columns)
        sampled = sampled_attributes(n, d, self.k, stream)
        squares = []
        for place, (column, oracle, size) in enumerate(zip(columns, self.oracles, self.sizes, strict=True)):
            mine = column[(sampled == place).any(axis=1)]
            reports = oracle.perturb(mine, stream)
            counts = oracle.support_counts(reports)
            p, q = float(oracle.p), float(oracle.q)
            total = (counts - mine.size * q) / (p - q)
            effective = n * self.k / d if self.name == PRINTED else mine.size
            truth = np.bincount(column, minlength=size) / n
            squares.append(np.mean((total / effective - truth) ** 2))
        return float(np.mean(squares))


def run_categories(populations: Sequence[People], options: Options) -> list[Row]:
    """Compare the two ways on every data set that has categories."""
    rows: list[Row] = []
    times = min(options.times, MOST_REPETITIONS)
    for people in populations:
        sizes = [int(column.max()) + 1 for column in people.categories]
        for epsilon in QUICK_EPSILONS if options.quick else EPSILONS:
            share = epsilon * (1.0 - people.numeric_share)
            errors: dict[str, Floats] = {}
            surveys = [Survey(name, share, sizes) for name in (PRINTED, OURS)]
            for survey in surveys:
                stream = SimulationStream(options.seed, path=(6,))
                errors[survey.name] = np.array(
                    [survey.error(people.categories, stream.spawn(number)) for number in range(times)]
                )
            for survey in surveys:
                mine = errors[survey.name]
                rows.append(
                    {
                        "data": people.name,
                        "epsilon": epsilon,
                        "numeric_epsilon": 0.0,
                        "mechanism": survey.name,
                        "rule": "documents" if survey.name == PRINTED else "best",
                        "k": survey.k,
                        "weights": "design" if survey.name == PRINTED else "realised",
                        "mse": float(mine.mean()),
                        "ratio": float(mine.mean() / errors[OURS].mean()),
                        "verdict": paired(mine, errors[OURS]).verdict,
                        "repetitions": times,
                    }
                )
    return rows
