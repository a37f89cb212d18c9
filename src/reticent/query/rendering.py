"""Answers and prices in Python: a few lines of text, and in notebooks a table with intervals drawn.

What is shown is what the answer holds: released numbers, public ones, and what they cost.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from reticent.numerals import error_text, rounded, up
from reticent.query.kinds.intervals import Cell, shown_half_width
from reticent.query.kinds.listed import KIND
from reticent.query.language.words import in_words

if TYPE_CHECKING:
    from reticent.query.answers import Answer, Price

_MOST_SHOWN = 20  # groups
_WIDE, _HIGH = 160, 12  # of a bar, in pixels


def answer_text(answer: Answer) -> str:
    """The question, what was answered, and what that cost."""
    lines = [in_words(answer.query)]
    lines += [f"  {name}{value} ± {error}" for name, value, error in _rows(answer)]
    if len(answer.cells) > _MOST_SHOWN:
        lines.append(f"  and {len(answer.cells) - _MOST_SHOWN:,} more")
    lines += [f"  {note}" for note in answer.notes]
    return "\n".join([*lines, f"  {_confidence(answer)}; {_cost(answer)}"])


def answer_html(answer: Answer) -> str:
    """The same as a table, with the intervals drawn."""
    low, high = _ends(answer)
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name.removesuffix(': '))}</th><td>{value}</td>"
        f"<td>± {error}</td><td>{_bar(cell, low, high)}</td></tr>"
        for (name, value, error), cell in zip(_rows(answer), answer.cells, strict=False)
    )
    more = len(answer.cells) - _MOST_SHOWN
    rest = f"<p>and {more:,} more</p>" if more > 0 else ""
    rest += "".join(f"<p>{escape(note)}</p>" for note in answer.notes)
    return (
        f"<div><strong>{escape(in_words(answer.query))}</strong><table>{rows}</table>{rest}"
        f"<small>{_confidence(answer)}, {rounded(low, high - low)} to {rounded(high, high - low)} drawn; "
        f"{_cost(answer)}</small></div>"
    )


def price_text(price: Price) -> str:
    """The question, and what an answer would cost."""
    of, whole = (price.budget, "the budget") if price.budget else (price.remaining, "what is left")
    cost = f"costs {_share(price.cost, of)} of {whole}, epsilon {up(price.epsilon)} alone"
    lines = [in_words(price.query), f"  {cost if price.cost else 'free'}"]
    if price.error is not None:
        useless = ", which is useless: it holds all that is possible" if price.useless else ""
        lines.append(f"  ± {error_text(price.error)} expected{useless}")
    if price.assumed is not None:
        fewer = "".join(f"; ± {error_text(error)} if {rows:,.0f}" for rows, error in price.assumed.otherwise)
        lines.append(f"  if {price.assumed.rows:,.0f} rows match{fewer}")
    if not price.affordable:
        lines.append("  more than is left")
    return "\n".join(lines)


def _rows(answer: Answer) -> list[tuple[str, str, str]]:
    """Name, value and half width of the first groups."""
    found = []
    for cell in answer.cells[:_MOST_SHOWN]:
        estimate = cell.estimate
        half = shown_half_width(estimate, answer.confidence)
        name = " / ".join(map(str, cell.labels))
        found.append((f"{name}: " if name else "", rounded(estimate.value, half), error_text(half)))
    return found


def _ends(answer: Answer) -> tuple[float, float]:
    """Between which numbers intervals are drawn: from zero on, where it is near."""
    shown = answer.cells[:_MOST_SHOWN]
    low, high = min(one.estimate.low for one in shown), max(one.estimate.high for one in shown)
    if not math.isfinite(high - low) or high <= low:
        return low, low + 1.0
    return (0.0, high) if 0.0 <= low <= high - low and not KIND[answer.query.kind].is_rank else (low, high)


def _bar(cell: Cell, low: float, high: float) -> str:
    """An interval and the value in it."""

    def at(number: float) -> float:
        return round(_WIDE * min(1.0, max(0.0, (number - low) / (high - low))), 1)

    first, last, middle = at(cell.estimate.low), at(cell.estimate.high), at(cell.estimate.value)
    return (
        f"<svg width='{_WIDE}' height='{_HIGH}' role='img' aria-label='interval'>"
        f"<rect x='{first}' y='3' width='{max(1.0, last - first)}' height='6' fill='#7aa6da'/>"
        f"<rect x='{middle - 1}' y='0' width='2' height='{_HIGH}' fill='#1f4e79'/></svg>"
    )


def _confidence(answer: Answer) -> str:
    return f"{100 * answer.confidence:.6g} % intervals"


def _cost(answer: Answer) -> str:
    budget = answer.spent + answer.remaining
    if not answer.cost:
        return f"free; {_share(answer.spent, budget)} of the budget is spent"
    return (
        f"cost {_share(answer.cost, budget)} of the budget (epsilon {up(answer.epsilon)} alone); "
        f"{_share(answer.spent, budget)} is spent"
    )


def _share(units: int, of: int) -> str:
    return f"{up(100 * units / of, 3)} %" if of else "all"
