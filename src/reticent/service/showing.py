"""The display of numbers on pages: as exact as their error allows, costs rounded up; values for scripts."""

from __future__ import annotations

import json
import math
from typing import Any

from reticent.privacy.budget import UNITS_PER_ONE

_MOST_DIGITS = 12


def rounded(value: float, error: float) -> str:
    """A number without the digits that its error makes meaningless: two digits of the error are kept."""
    return _shown(value, error, round)


def interval(low: float, high: float) -> tuple[str, str]:
    """Both ends, rounded outwards."""
    error = (high - low) / 2
    return _shown(low, error, math.floor), _shown(high, error, math.ceil)


def error_shown(error: float) -> str:
    """An error of two digits, rounded up."""
    return _shown(error, error, math.ceil)


def _shown(value: float, error: float, whole: Any) -> str:
    if not math.isfinite(value):
        return "unknown"
    if not 0 < error < math.inf:
        return f"{value:,.10g}"
    digits = min(_MOST_DIGITS, 1 - math.floor(math.log10(error)))
    scale = 10.0**digits
    scaled = value * scale
    near = round(scaled)
    steps = near if math.isclose(scaled, near, rel_tol=1e-9) else whole(scaled)  # 0.3 * 10 is 3
    return f"{steps / scale + 0.0:,.{max(0, digits)}f}"


def percent(share: float) -> str:
    """A share with three digits."""
    return f"{100 * share:.3g} %" if share < 1 else f"{100 * share:,.0f} %"


def epsilon(value: float) -> str:
    """An epsilon with three digits."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def mu2(units: int) -> str:
    """Units of the ledger as mu^2."""
    return f"{units / UNITS_PER_ONE:.4g}"


def cents(amount: int) -> str:
    """Whole cents as money: 1,234.05."""
    whole, part = divmod(amount, 100)
    return f"{whole:,}.{part:02d}"


def amount(units: int, unit: str) -> str:
    """Units of an account, by what it adds up."""
    return cents(units) if unit == "money" else mu2(units)


_UNITS = {
    "mu2": "mu²",
    "epsilon": "epsilon",
    "epsilon_per_km": "epsilon per km",
    "metric_delta": "delta",
    "money": "",
}


def capped(units: int, unit: str) -> str:
    """An amount with the unit of its account before it."""
    return f"{_UNITS.get(unit, unit)} {amount(units, unit)}".strip()


def plain(value: Any) -> Any:
    """JSON that browsers can read: what is not finite is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


def data(value: Any) -> str:
    """A value for a data attribute."""
    return json.dumps(plain(value), allow_nan=False)
