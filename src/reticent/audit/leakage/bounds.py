"""Bounds on the success of any attack against an update that is private, to set beside every attack.

An attacker wants a record, or one within some distance of it. `guess` is kappa: the best chance of success
without having seen the update, over the attacker's prior. Each bound holds for every attack, whatever it
computes, if the update keeps its guarantee and the prior is the attacker's real one.

What is not here: attacks (`leakage`, `reconstruction`), and any claim that an attack reaches its bound.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from reticent.arguments import real

_NORMAL = NormalDist()


def success_under_epsilon(guess: float, epsilon: float, *, delta: float = 0.0) -> float:
    """Bound the chance of success against an (epsilon, delta)-private update: guess e^epsilon + delta.

    Args:
        guess: Best chance without the update, kappa.
        epsilon: Epsilon of the update, for the relation between the record and what stands in its place.
        delta: Delta of the update.

    Reference: Balle et al. 2022, reconstruction robustness.
    """
    kappa, level = real("guess", guess, low=0.0, high=1.0), real("epsilon", epsilon, low=0.0)
    slack = real("delta", delta, low=0.0, high=1.0)
    if kappa == 0.0:
        return slack
    log_success = math.log(kappa) + level
    return 1.0 if log_success >= 0.0 else min(1.0, math.exp(log_success) + slack)


def success_under_exchange(guess: float, epsilon: float) -> float:
    """Bound the chance of success under pure epsilon between any two records.

    The bound is e^epsilon guess / (1 - guess + e^epsilon guess).

    A sharper bound than `success_under_epsilon`, for updates which hide *which* record was used (local
    privacy, replace one): given an output y, records outside of the guessed set have at least e^-epsilon
    times its chance, so Bayes' rule bounds the posterior of the set. For N candidates that are equally likely
    it is e^epsilon / (N - 1 + e^epsilon), which randomised response reaches.

    Args:
        guess: Best chance without the update, kappa.
        epsilon: Epsilon of the update, between any two records.
    """
    kappa, level = real("guess", guess, low=0.0, high=1.0), real("epsilon", epsilon, low=0.0)
    if kappa == 0.0:
        return 0.0
    return kappa / (kappa + (1.0 - kappa) * math.exp(-level))


def success_under_mu(guess: float, mu: float) -> float:
    """Bound the chance of success against a mu-GDP update: Phi(Phi^-1(guess) + mu).

    Args:
        guess: Best chance without the update, kappa.
        mu: Level mu of the update, for the relation between the record and what stands in its place.

    Reference: Hayes et al. 2023, for Gaussian noise and one release; Dong, Roth and Su 2022 for the
        trade-off curve, which is concave in kappa, so that a mean over records keeps the bound.
    """
    kappa, shift = real("guess", guess, low=0.0, high=1.0), real("mu", mu, low=0.0)
    if kappa in (0.0, 1.0):
        return kappa
    return 0.5 * math.erfc(-(_NORMAL.inv_cdf(kappa) + shift) / math.sqrt(2.0))
