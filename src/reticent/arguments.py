"""Validation of public parameters: one line that names the field, the rule and the value.

Parameters only (epsilon, bounds, sizes). Private values are never checked, they are clamped:
a device is a total function of its data (mathematics 4.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from reticent.errors import ParameterError, ParameterTypeError


def _rule(low: float, high: float, *, open_low: bool, open_high: bool) -> str:
    parts = []
    if low != -math.inf:
        parts.append(f"{'>' if open_low else '>='} {low:g}")
    if high != math.inf:
        parts.append(f"{'<' if open_high else '<='} {high:g}")
    return " and ".join(parts) if parts else "finite"


def real(
    name: str,
    given: Any,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return `given` as a finite float within the bounds, or raise with a one-line reason."""
    if isinstance(given, (bool, np.bool_)) or not isinstance(given, (int, float, np.integer, np.floating)):
        raise ParameterTypeError(f"{name} must be a number, got {_shown(given)}")
    try:
        number = float(given)
    except OverflowError:
        number = math.inf
    rule = _rule(low, high, open_low=open_low, open_high=open_high)
    if not math.isfinite(number):
        raise ParameterError(f"{name} must be finite, got {_shown(given)}")
    below = number <= low if open_low else number < low
    above = number >= high if open_high else number > high
    if below or above:
        raise ParameterError(f"{name} must be {rule}, got {_shown(given)}")
    return number


def whole(name: str, given: Any, *, low: int | None = None, high: int | None = None) -> int:
    """Return `given` as an int within the bounds, or raise with a one-line reason."""
    if isinstance(given, (bool, np.bool_)) or not isinstance(given, (int, np.integer)):
        raise ParameterTypeError(f"{name} must be a whole number, got {_shown(given)}")
    number = int(given)
    if low is not None and number < low:
        raise ParameterError(f"{name} must be >= {low}, got {_shown(number)}")
    if high is not None and number > high:
        raise ParameterError(f"{name} must be <= {high}, got {_shown(number)}")
    return number


def meant(given: Any, known: Iterable[str]) -> str:
    """Return a suggestion for a mistyped public name, to end an error message; empty if no name is near."""
    import difflib  # late: devices never mistype

    near = difflib.get_close_matches(given[:100], list(known)[:1000], n=1) if isinstance(given, str) else []
    return f": did you mean {near[0]}?" if near else ""


def _shown(given: Any) -> str:
    """Format a parameter as a short line."""
    if isinstance(given, (np.integer, np.floating)):
        given = given.item()
    try:
        text = " ".join(repr(given).split())
    except ValueError:  # an int with too many digits to print
        text = "a huge number"
    return text if len(text) <= 60 else text[:57] + "..."
