"""Support (T12b): nothing may be possible under one input and impossible under another.

For finite channels this is exact: the zeros of all rows are in the same places. For callables there are two
ways. With a membership test (could this output come from that input?), outputs are drawn and the
impossible ones counted. Without one, sets are compared: the first half of the samples says which exact
outputs came from a (at all, or often) and never from b. If outputs of the second half of a fall into that
set k times and those of b never do, then under epsilon the chance of that is at most
(e^eps / (1 + e^eps))^k, and the check fails when it is below the false-alarm rate (1e-6 per check, over all
pairs, views and sets). Doubles are also compared by their last binary digit, where additive noise on
doubles shows (Mironov 2012).

What it cannot see: outputs too rare to come twice, unless a membership test is given. For claims with
delta > 0 differing supports are allowed up to delta; do not use this check for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations, product
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.audit.exact import Row, telling_inputs
from reticent.audit.findings import SupportFinding
from reticent.audit.outputs import Array, as_sampler, drawn, last_digit, row_codes
from reticent.mechanisms.base import Channel
from reticent.randomness import Stream

FULL_OUTPUTS = 1_000_000
QUICK_OUTPUTS = 100_000
FALSE_ALARM = 1e-6
_SEEN = (1, 8)  # every output counts, or only those that are not there by accident


def check_support_exact(channel: Channel, *, inputs: Sequence[Any] | None = None) -> SupportFinding:
    """Compare the zeros of all rows of a finite channel."""
    values = telling_inputs(channel) if inputs is None else list(inputs)
    return check_support_rows([channel.exact_probabilities(value) for value in values])


def check_support_rows(rows: Sequence[Row]) -> SupportFinding:
    """Compare the zeros of rows, one for each input."""
    patterns = [tuple(chance > 0 for chance in row) for row in rows]
    longest = max(len(pattern) for pattern in patterns)
    if min(len(pattern) for pattern in patterns) != longest:
        return SupportFinding("support", False, "inputs have alphabets of different size", 1, longest)
    differing = sum(len(set(column)) > 1 for column in zip(*patterns, strict=True))
    unused = sum(not any(column) for column in zip(*patterns, strict=True))
    detail = f"{differing} of {longest} symbols are possible under some inputs only ({len(rows)} inputs)"
    if unused:
        detail += f"; {unused} never occur"
    return SupportFinding("support", not differing, detail, differing, longest)


def check_support(
    mechanism: Any,
    inputs: Sequence[Any],
    *,
    epsilon: float,
    possible: Callable[[Array, Any], Any] | None = None,
    outputs: int = FULL_OUTPUTS,
    false_alarm: float = FALSE_ALARM,
    rng: Stream | None = None,
) -> SupportFinding:
    """Look for outputs of one input that another one cannot give.

    Args:
        mechanism: f(value), f(value, size) or f(value, size, rng) -> outputs.
        inputs: at least two private values.
        epsilon: the claim, which bounds how often chance alone would show such a difference.
        possible: (outputs, value) -> booleans, whether each output can come from the value at all.
        outputs: Number of outputs to draw per input.
        false_alarm: chance to accuse a mechanism that keeps its claim (no role with `possible`).
        rng: handed on to a mechanism that takes it.
    """
    outputs = whole("outputs", outputs, low=100)
    epsilon = real("epsilon", epsilon, low=0.0)
    sampler = as_sampler(mechanism, rng)
    reports = [drawn(sampler, value, outputs) for value in inputs]
    pairs = list(permutations(range(len(inputs)), 2))
    if possible is not None:
        return _by_membership(reports, inputs, pairs, possible)
    names = _views(reports[0])
    needed = _needed(epsilon, false_alarm / len(pairs) / len(names) / len(_SEEN))
    worst, where = 0, ""
    for name, view in names.items():
        halves = [np.array_split(view(report), 2) for report in reports]
        for (a, b), seen in product(pairs, _SEEN):
            alone = _only_in(halves[a][0], halves[b][0], seen)
            hits, others = (int(np.isin(halves[x][1], alone).sum()) for x in (a, b))
            if others == 0 and hits >= needed and hits > worst:
                worst, where = hits, f"{name}, inputs {a} and {b}"
    if worst:
        detail = f"{worst} of {outputs // 2} outputs of one input never come from the other ({where})"
        return SupportFinding("support", False, detail, worst, outputs)
    detail = f"no output of {outputs} was peculiar to one input ({', '.join(names)})"
    return SupportFinding("support", True, detail, 0, outputs)


def _by_membership(
    reports: list[Array],
    inputs: Sequence[Any],
    pairs: list[tuple[int, int]],
    possible: Callable[[Array, Any], Any],
) -> SupportFinding:
    worst, where = 0, (0, 1)
    for a, b in pairs:
        impossible = int(np.count_nonzero(~np.asarray(possible(reports[a], inputs[b]), dtype=np.bool_)))
        if impossible > worst:
            worst, where = impossible, (a, b)
    total = len(reports[0])
    detail = f"{worst} of {total} outputs of input {where[0]} are impossible under input {where[1]}"
    return SupportFinding("support", worst == 0, detail, worst, total)


def _needed(epsilon: float, error: float) -> int:
    """Return the number of one-sided hits that is beyond chance: (e^eps / (1 + e^eps))^k <= error."""
    return math.ceil(math.log(error) / -math.log1p(math.exp(-epsilon)))


def _only_in(here: Array, there: Array, seen: int) -> Array:
    """Outputs that came at least `seen` times here and never there."""
    values, counts = np.unique(here, return_counts=True)
    return np.setdiff1d(values[counts >= seen], np.unique(there), assume_unique=True)


def _views(reports: Array) -> dict[str, Callable[[Array], Array]]:
    """Exact outputs (doubles by their bits, so that NaN equals itself), and last digits of doubles."""
    if reports.ndim == 2:
        found: dict[str, Callable[[Array], Array]] = {"rows": row_codes}
        for column in range(min(4, reports.shape[1])):
            found[f"column {column}"] = partial(_column_bits, column)
        return found
    if reports.dtype.kind != "f":
        return {"exact outputs": lambda array: array}
    return {"exact doubles": _bits, "last binary digits": last_digit}


def _column_bits(column: int, array: Array) -> Array:
    return _bits(array[:, column])


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(np.int64) if array.dtype.kind == "f" else array
