"""The numeric mechanisms against numpy's plain uniforms and against per-value libraries."""

from __future__ import annotations

import os
import threading
import time
import tracemalloc

import numpy as np

from benchmarks.measure import Figure, cpu_ratio
from reticent.mechanisms.numeric import HMTP, Duchi, OneBit, PMSub, Tailored, Window, kernels
from reticent.randomness.streams import BUFFER_BYTES

COUNT = 1 << 22


def against_pcg64(mechanism) -> float:
    """Secure reports per second / numpy PCG64 uniforms per second, both into an existing array."""
    values, out = np.random.default_rng(0).uniform(-1, 1, COUNT), np.empty(COUNT)
    generator = np.random.Generator(np.random.PCG64(1))
    return cpu_ratio(lambda: generator.random(out=out), lambda: mechanism.perturb(values, out=out))


def two_threads(mechanism) -> float:
    """Reports per second of wall clock with two threads / with one."""
    values, out = np.random.default_rng(0).uniform(-1, 1, 4 * COUNT), np.empty(4 * COUNT)
    half = values.size // 2

    def together():
        parts = (slice(0, half), slice(half, None))
        threads = [
            threading.Thread(target=mechanism.perturb, args=(values[part],), kwargs={"out": out[part]})
            for part in parts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return cpu_ratio(lambda: mechanism.perturb(values, out=out), together, clock=time.perf_counter)


def extra_memory() -> float:
    """Peak extra bytes of perturbing 16 million values into an existing array / bytes of the random buffer.

    In a new thread, so that its key stream and buffer are made, and counted, too.
    """
    mechanism, count = HMTP(epsilon=1.0), 1 << 24
    values, out = np.zeros(count), np.empty(count)
    mechanism.perturb(values[: kernels.COMPILE_FROM])
    thread = threading.Thread(target=mechanism.perturb, args=(values,), kwargs={"out": out})
    tracemalloc.start()
    thread.start()
    thread.join()
    return tracemalloc.get_traced_memory()[1] / BUFFER_BYTES


def numpy_fallback_against_opendp() -> float:
    """Reports per second without numba / OpenDP's Laplace measurement called value by value."""
    import opendp.prelude as dp

    os.environ["RETICENT_ENGINE"] = "numpy"
    kernels._numba_allowed.cache_clear()
    dp.enable_features("contrib")
    laplace = dp.m.make_laplace(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), scale=2.0)
    values = np.random.default_rng(0).uniform(-1, 1, COUNT)
    few = values[:2000].tolist()
    mechanism, out = HMTP(epsilon=1.0), np.empty(COUNT)
    return cpu_ratio(
        lambda: [laplace(value) for value in few],
        lambda: mechanism.perturb(values, out=out),
        peer_work=len(few),
        our_work=COUNT,
    )


def window_seconds() -> float:
    """CPU seconds to make a Window of up to 64 outputs, the slowest of several epsilons / one second."""
    slowest = 0.0
    for epsilon in (1.0, 2.5, 5.0, 8.0):
        start = time.process_time()
        Window(epsilon=epsilon, outputs=64)
        slowest = max(slowest, time.process_time() - start)
    return slowest


def tailored_seconds() -> float:
    """CPU seconds to solve a Tailored, the slowest of several guesses and epsilons / one second."""
    slowest = 0.0
    for prior in ("uniform", "small gradients", [1.0, 5.0, 2.0, 0.1]):
        for epsilon in (0.1, 1.0, 4.0, 8.0):
            start = time.process_time()
            Tailored(epsilon=epsilon, prior=prior, regret=None if epsilon < 4.0 else 0.2)
            slowest = max(slowest, time.process_time() - start)
    return slowest


PCG = "numpy PCG64 random(out=)"
FIGURES = [
    Figure("HM-TP, secure", PCG, 0.65, lambda: against_pcg64(HMTP(epsilon=1.0))),
    Figure("PM-SUB, secure", PCG, 0.75, lambda: against_pcg64(PMSub(epsilon=1.0))),
    Figure("Duchi, secure", PCG, 0.9, lambda: against_pcg64(Duchi(epsilon=1.0))),
    Figure("OneBit, secure", PCG, 0.7, lambda: against_pcg64(OneBit(epsilon=1.0))),
    Figure("Tailored, secure", PCG, 0.35, lambda: against_pcg64(Tailored(epsilon=1.0))),
    Figure("HM-TP, two threads", "one thread", 1.5, lambda: two_threads(HMTP(epsilon=1.0))),
    Figure("Window, made in CPU seconds", "one second", 1.0, window_seconds, at_most=True),
    Figure("Tailored, solved in CPU seconds", "one second", 3.0, tailored_seconds, at_most=True),
    Figure("extra memory", "the random buffer", 4.0, extra_memory, at_most=True),
    Figure("HM-TP without numba", "OpenDP Laplace per value", 5.0, numpy_fallback_against_opendp),
]
