"""Categorical mechanisms and the iterative Bayesian update against multi-freq-ldpy."""

from __future__ import annotations

import numpy as np

from benchmarks.measure import Figure, cpu_ratio
from reticent.estimation import ibu
from reticent.mechanisms.categorical import KRR, OUE
from reticent.randomness import SimulationStream

CATEGORIES = 100
EPSILON = 1.0
ITERATIONS = 300


def against_clients(mechanism, client, *, count: int, few: int) -> float:
    """Reports per CPU second / those of a client function called value by value."""
    values = np.random.default_rng(0).integers(0, CATEGORIES, count)
    listed = values[:few].tolist()
    return cpu_ratio(
        lambda: [client(value, CATEGORIES, EPSILON) for value in listed],
        lambda: mechanism.perturb(values),
        peer_work=few,
        our_work=count,
    )


def krr() -> float:
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client

    mechanism = KRR(epsilon=EPSILON, categories=CATEGORIES)
    return against_clients(mechanism, GRR_Client, count=2_000_000, few=100_000)


def oue() -> float:
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Client

    mechanism = OUE(epsilon=EPSILON, categories=CATEGORIES)
    return against_clients(mechanism, UE_Client, count=100_000, few=20_000)


def ibu_time(*, same_iterations: bool) -> float:
    """CPU time of our update / of theirs, for the same counts.

    Either each as it is called by default (theirs runs 10,000 plain iterations, ours stops when no
    distribution can be better by more than 1e-9 per report), or both for the same number of plain ones.
    """
    from multi_freq_ldpy.estimators.Histogram_estimator import IBU

    mechanism = KRR(epsilon=EPSILON, categories=CATEGORIES)
    values = np.minimum(np.random.default_rng(0).geometric(0.05, 100_000) - 1, CATEGORIES - 1)
    counts = mechanism.support_counts(mechanism.sample(values, SimulationStream(1)))
    matrix = mechanism.probabilities(np.arange(CATEGORIES))
    observed = counts / counts.sum()
    if same_iterations:
        return 1.0 / cpu_ratio(
            lambda: IBU(CATEGORIES, matrix, observed, ITERATIONS, 0.0, "max_abs"),
            lambda: ibu(matrix, counts, tolerance=0.0, max_iterations=ITERATIONS, accelerated=False),
        )
    theirs = IBU(CATEGORIES, matrix, observed, 10_000, 1e-12, "max_abs")
    ours = ibu(matrix, counts)
    if ours.log_likelihood < counts @ np.log(theirs @ matrix) - 1e-6:
        raise SystemExit("our estimate is less likely than theirs: the times are not comparable")
    return 1.0 / cpu_ratio(
        lambda: IBU(CATEGORIES, matrix, observed, 10_000, 1e-12, "max_abs"), lambda: ibu(matrix, counts)
    )


PEER = "multi-freq-ldpy"
FIGURES = [
    Figure("KRR, 100 categories", PEER, 15.0, krr),
    Figure("OUE, 100 categories", PEER, 7.0, oue),
    Figure("IBU, time", PEER, 1.3, lambda: ibu_time(same_iterations=False), at_most=True),
    Figure("IBU, time per plain iteration", PEER, 1.3, lambda: ibu_time(same_iterations=True), at_most=True),
]
