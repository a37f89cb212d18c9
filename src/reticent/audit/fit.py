"""Fit (T2): does the sampler draw from the law that the exact check was about?

Pearson's chi-square over pooled cells, coarse and fine, for several inputs; the smallest p-value is
multiplied by the number of tests (Bonferroni), and the check passes while that is above 1e-6. That is the
false-alarm rate of one fit, up to the chi-square approximation with at least 50 expected per cell.

What it shows: deviations larger than the draws resolve are absent. With 10^6 draws a scale that is 1 %
off is found; 0.5 % is out of reach. It is no proof of privacy by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reticent.audit.cells import Law, laws_of
from reticent.audit.findings import FitFinding
from reticent.audit.statistics import fit_p_values
from reticent.randomness import Stream

FULL_DRAWS = 1_000_000
QUICK_DRAWS = 100_000
FALSE_ALARM = 1e-6


def draw(mechanism: Any, value: Any, size: int, rng: Stream | None = None) -> Any:
    """`size` reports of one value as they go on the wire: symbols, rows of bits, records, steps."""
    sampler = mechanism.sample if hasattr(mechanism, "sample") else mechanism.perturb
    row = np.asarray(value, dtype=object) if isinstance(value, str) else np.asarray(value)
    many = np.broadcast_to(row, (size, *row.shape)) if row.ndim else np.full(size, value)
    return sampler(np.ascontiguousarray(many), rng)


def fit(
    mechanism: Any,
    inputs: Sequence[Any],
    *,
    draws: int = FULL_DRAWS,
    rng: Stream | None = None,
    sampler: Callable[[Any, int], Any] | None = None,
) -> FitFinding:
    """Compare the reports of each input with their exact law.

    Args:
        mechanism: a channel, or a randomiser that `cells` knows the law of.
        inputs: private values to draw for.
        draws: per input.
        rng: None for the stream of production.
        sampler: (value, size) -> reports, where these do not come from the mechanism itself.
    """
    tests: list[tuple[float, str]] = []
    for number, value in enumerate(inputs):
        reports = sampler(value, draws) if sampler is not None else draw(mechanism, value, draws, rng)
        for law in laws_of(mechanism, value):
            what = f"{law.what}, input {number}"
            tests += [(p, what) for p in p_values(law, reports)]
    return _finding(tests, draws)


def p_values(law: Law, reports: Any) -> list[float]:
    """P-values of reports under a law; [0] where a code is outside of it."""
    codes = np.asarray(law.encode(reports)).reshape(-1)
    size = law.law.size
    if codes.size and (codes.min() < 0 or codes.max() >= size):
        return [0.0]
    return fit_p_values(np.bincount(codes, minlength=size), law.law)


def _finding(tests: list[tuple[float, str]], draws: int) -> FitFinding:
    least, what = min(tests)
    corrected = min(1.0, least * len(tests))
    passed = corrected > FALSE_ALARM
    verdict = "agree with the law" if passed else "do not follow the law"
    detail = f"{draws:,} draws per input {verdict}: p = {corrected:.2g} over {len(tests)} tests ({what})"
    return FitFinding("fit", passed, detail, p_value=corrected, draws=draws, tests=len(tests))
