"""Numbers for people, rounded to the safe side: costs and errors up, remaining budgets down."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context


def up(number: float, digits: int = 4) -> str:
    """Format a number with so many digits, rounded up."""
    return f"{Context(prec=digits, rounding=ROUND_CEILING).create_decimal(number).normalize():f}"


def down(number: float, digits: int = 4) -> str:
    """Format a number with so many digits, rounded down."""
    return f"{Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(number).normalize():f}"


def rounded(number: float, error: float) -> str:
    """Format a number with the digits that its error leaves it."""
    if not math.isfinite(number):
        return str(number)
    return f"{number:,.{_decimals(error)}f}" if error > 0 else f"{number:,.12g}"


def error_text(error: float) -> str:
    """Format an error with two digits at least, rounded up."""
    if not math.isfinite(error) or error <= 0:
        return f"{error:g}"
    places = _decimals(error)
    return f"{math.ceil(error * 10.0**places - 1e-6) / 10.0**places:,.{places}f}"


def _decimals(error: float) -> int:
    """Return the digits after the point that show two digits of an error; 0.0999999 counts as 0.1."""
    return 0 if not math.isfinite(error) else max(0, min(12, 1 - math.floor(math.log10(error) + 1e-9)))
