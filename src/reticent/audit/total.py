"""Totality, streams and memory: the faults that no table of probabilities shows.

* `check_total`: whether and how a report arrives must not depend on the data (mathematics 4.1).
* `check_streams`: two calls, two instances, two forked processes and consecutive reports draw
  independent noise.
* `check_memory`: answers memoised by value make (0, 1) possible for inputs (a, b) and impossible
  for (a, a) (mathematics 4.2).
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.audit.findings import Finding, SupportFinding
from reticent.audit.outputs import Array, Sampler, as_rows, drawn, row_codes
from reticent.audit.statistics import independence_p_value
from reticent.audit.support import check_support

ODD_VALUES = (math.nan, math.inf, -math.inf, 1e308, -1e308, 2.0, -7.0, None, "not a number", 10**400)
FALSE_ALARM = 1e-6
_LAGS = (1, 2, 3)


def check_total(report: Callable[[Any], Any], usual: Any, odd: Sequence[Any] = ODD_VALUES) -> Finding:
    """Ask for one report of each odd value and compare its form with that of a usual one.

    Fails where a value raises, where the number of reports or their type differs, and where a report is
    NaN or infinite although usual ones are finite. It does not judge the law for odd values: the exact
    check and the black box take them as inputs for that.
    """
    form = _form(report(usual))
    for value in odd:
        shown = "a huge whole number" if isinstance(value, int) else repr(value)
        try:
            got = _form(report(value))
        except Exception as err:
            return Finding("total", False, f"input {shown} raises {type(err).__name__}")
        if got != form:
            return Finding("total", False, f"input {shown} gives {got}, a usual one {form}")
    return Finding("total", True, f"{len(odd)} other inputs give {form}, like a usual one")


def _form(report: Any) -> str:
    """Return the public side of a report: how many, of which type, finite or not."""
    if report is None:
        return "no report"
    array = np.asarray(report)
    if array.dtype.kind == "f":
        finite = bool(np.isfinite(array).all())
        return f"{array.size} {'finite' if finite else 'non-finite'} numbers"
    kinds = {"i": "whole numbers", "u": "whole numbers", "b": "bits"}
    return f"{array.size} {kinds.get(array.dtype.kind, 'items')}"


def check_streams(
    make: Callable[[], Sampler], value: Any, *, draws: int = 20_000, fork: bool = True
) -> Finding:
    """Look for noise that comes twice: between calls, instances, forked processes, and neighbours in a batch.

    Two arrays of independent reports are equal with probability (sum of squared chances)^draws, estimated
    from the reports; where that is above 1e-9 (a nearly deterministic mechanism) the comparison is
    left out and the finding says so. Neighbouring reports are tested for independence by chi-square.
    False alarms: below 1e-6 in all.

    Args:
        make: returns a fresh (value, size) -> reports with the randomness of production.
        value: a private value for which reports are as random as they get.
        draws: reports per call.
        fork: True to compare forked processes (where the system has them).
    """
    first = make()
    one, two = (_codes(drawn(first, value, draws)) for _ in range(2))
    collision = _collision(one)
    if draws * math.log(max(collision, 1e-300)) > math.log(1e-9):
        return Finding("streams", True, "reports are nearly deterministic: reuse cannot be seen here")
    if np.array_equal(one, two):
        return Finding("streams", False, "two calls give identical reports")
    if np.array_equal(one, _codes(drawn(make(), value, draws))):
        return Finding("streams", False, "two instances give identical reports")
    if np.array_equal(one[: draws // 2], one[draws // 2 : draws // 2 * 2]):
        return Finding("streams", False, "a batch repeats itself")
    if fork and hasattr(os, "fork"):
        children = [_in_fork(first, value, draws) for _ in range(2)]
        if children[0] == children[1]:
            return Finding("streams", False, "two forked processes give identical reports")
    least = min(independence_p_value(one[:-lag], one[lag:]) for lag in _LAGS) * len(_LAGS)
    if least <= FALSE_ALARM:
        return Finding("streams", False, f"neighbouring reports depend on each other (p = {least:.2g})")
    return Finding(
        "streams", True, f"calls, instances, forks and neighbours differ (p = {min(1.0, least):.2g})"
    )


def check_joint(rows: Array) -> Finding:
    """Columns of the reports of one constant input must be independent of each other (false alarm 1e-6)."""
    pairs = [(i, j) for i in range(rows.shape[1]) for j in range(i)]
    least = min(independence_p_value(rows[:, i], rows[:, j]) for i, j in pairs) * len(pairs)
    verdict = "are independent" if least > FALSE_ALARM else "share their noise"
    return Finding(
        "streams", least > FALSE_ALARM, f"reports of one person {verdict} (p = {min(1.0, least):.2g})"
    )


def _codes(outputs: Array) -> NDArray[np.int64]:
    """One whole number per report that is the same for equal reports, across calls."""
    if outputs.ndim == 2:
        return np.asarray(row_codes(outputs))
    if outputs.dtype.kind == "f":
        return outputs.view(np.int64)
    return outputs.astype(np.int64) if outputs.dtype.kind == "i" else np.asarray(row_codes(outputs))


def _collision(codes: NDArray[np.int64]) -> float:
    """Return an upper-side estimate of the chance that two independent reports are equal."""
    shares = np.unique(codes, return_counts=True)[1] / codes.size
    return float(np.square(shares).sum()) + 3.0 / codes.size


def _in_fork(sampler: Sampler, value: Any, draws: int) -> bytes:
    """Return the reports of a forked child, as bytes through a pipe."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads: the child ends here
        child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            os.close(read)
            with os.fdopen(write, "wb") as pipe:
                pipe.write(np.ascontiguousarray(as_rows(sampler(value, min(draws, 4096)))).tobytes())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        sent = pipe.read()
    os.waitpid(child, 0)
    return sent if sent else os.urandom(16)  # a child that could not report proves nothing


def check_memory(
    reporter: Callable[[], Callable[[Any], Any]],
    first: Any,
    second: Any,
    *,
    epsilon: float,
    devices: int = 20_000,
) -> SupportFinding:
    """Longitudinal: pairs of answers to inputs (a, a) and (a, b) must have the same support.

    Args:
        reporter: makes a fresh device: value -> one report; asked twice in a row.
        first: a.
        second: b.
        epsilon: the claim for one answer; two answers are tested at twice that.
        devices: simulated devices per sequence.
    """

    def answers(sequence: tuple[Any, Any], size: int) -> list[tuple[str, str]]:
        pairs = []
        for _ in range(size):
            device = reporter()
            pairs.append((repr(device(sequence[0])), repr(device(sequence[1]))))
        return pairs

    found = check_support(answers, [(first, first), (first, second)], epsilon=2.0 * epsilon, outputs=devices)
    if found.passed:
        return SupportFinding("memory", True, "pairs of answers have one support", 0, devices)
    detail = f"pairs of answers differ between (a, a) and (a, b): {found.detail}"
    return SupportFinding("memory", False, detail, found.impossible, devices)
