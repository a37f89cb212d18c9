"""Answers and prices as people see them: words, tables, bars in the terminal, a plot.

What is shown of a cost or an error is rounded up, what is shown of something left is rounded down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from reticent.errors import MissingExtra
from reticent.privacy import spent_epsilon
from reticent.query.answers import Answer, Case, Price, as_mu2
from reticent.query.declarations.datasets import DataSet
from reticent.query.kinds.intervals import Estimate, half_width_factor
from reticent.query.kinds.listed import KIND
from reticent.query.language.words import in_words

MOST_SHOWN = 60  # groups in a terminal
_MOST_NAMED = 40  # groups with a name in a plot

CASES = {
    Case.FRESH: "nothing was bought for this question before",
    Case.EQUAL: "bought before as exactly as this: free",
    Case.REFINED: "less was bought before: only the missing part is paid",
    Case.COARSER: "more was bought before: free",
    Case.PUBLIC: "the declaration says it: free",
}


# Words and numbers


def up(number: float, digits: int = 4) -> str:
    """With so many digits, rounded up."""
    return f"{Context(prec=digits, rounding=ROUND_CEILING).create_decimal(number).normalize():f}"


def down(number: float, digits: int = 4) -> str:
    """With so many digits, rounded down."""
    return f"{Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(number).normalize():f}"


def half(estimate: Estimate, confidence: float = 0.95) -> float:
    """What stands behind the ±: half the interval, as it is before it is cut to what is possible."""
    return max((estimate.high - estimate.low) / 2, half_width_factor(confidence) * estimate.standard_error)


def rounded(number: float, error: float) -> str:
    """A number with the digits that its error leaves it."""
    if not math.isfinite(number):
        return str(number)
    return f"{number:,.{_decimals(error)}f}" if error > 0 else f"{number:,.12g}"


def error_text(error: float) -> str:
    """An error with two digits at least, rounded up."""
    if not math.isfinite(error) or error <= 0:
        return f"{error:g}"
    places = _decimals(error)
    return f"{math.ceil(error * 10.0**places - 1e-6) / 10.0**places:,.{places}f}"


def _decimals(error: float) -> int:
    """Digits after the point that show two digits of an error; 0.0999999 counts as 0.1."""
    return 0 if not math.isfinite(error) else max(0, min(12, 1 - math.floor(math.log10(error) + 1e-9)))


def amount(units: int, delta: float) -> str:
    """Units as mu2, and as epsilon if they were spent alone."""
    if not units:
        return "nothing"
    return f"mu2 {up(as_mu2(units))}, epsilon {up(spent_epsilon(units, delta))} alone"


def left(units: int, data: DataSet) -> str:
    """What remains of the budget."""
    budget = data.budget
    if units in (0, budget.mu2_cap):
        return f"everything: epsilon {budget.epsilon:g}" if units else "nothing"
    share = f"{down(100 * units / budget.mu2_cap)} % of mu2"
    return f"{share}: for one answer, epsilon {down(spent_epsilon(units, budget.delta))}"


# In the terminal


def console() -> Console:
    """Where tables go. Names of columns and categories are the owner's, never markup."""
    return Console(highlight=False, markup=False, emoji=False)


def show_answer(answer: Answer, data: DataSet, *, rehearsed: bool = False) -> None:
    """Print an answer: the numbers, then what they cost."""
    screen = console()
    screen.print(in_words(answer.query), style="bold")
    if len(answer.cells) > 1 or answer.cells[0].labels:
        screen.print(groups(answer))
        if len(answer.cells) > MOST_SHOWN:
            screen.print(f"{len(answer.cells) - MOST_SHOWN:,} more: --format csv shows all.")
    rows = [*_single(answer), ("case", f"{answer.case.value}: {CASES[answer.case]}")]
    rows.append(("cost", amount(answer.cost, answer.delta)))
    if answer.without_reuse != answer.cost:
        rows.append(("without reuse", amount(answer.without_reuse, answer.delta)))
    if rehearsed:
        rows.append(("budget", "not touched: these are made-up rows"))
    else:
        spent = up(answer.epsilon_spent) if answer.spent else "0"
        rows.append(("spent in all", f"epsilon {spent} of {data.budget.epsilon:g} at delta {answer.delta:g}"))
        rows.append(("left", left(answer.remaining, data)))
    screen.print(_facts(rows))
    if not rehearsed:
        print(_receipt(answer))  # in one piece, whatever the width: it is there to be copied


def show_price(price: Price, data: DataSet, confidence: float) -> None:
    """Print a price, and whether it can be paid."""
    screen = console()
    screen.print(in_words(price.query), style="bold")
    missing = price.cost - price.remaining
    verdict = "yes" if price.affordable else f"no: mu2 {up(as_mu2(missing))} more than is left"
    error = "not known: guess the number of rows with --rows" if price.error is None else _about(price)
    rows = [
        ("cost", amount(price.cost, price.delta)),
        ("case", f"{price.case.value}: {CASES[price.case]}"),
        (f"± at {100 * confidence:.6g} %", error),
        ("bought before", amount(price.bought, price.delta)),
        *([] if price.free_error is None else [("free now", f"± {error_text(price.free_error)}")]),
        ("left", left(price.remaining, data)),
        ("affordable", verdict),
    ]
    screen.print(_facts(rows))


def _about(price: Price) -> str:
    assert price.error is not None
    unit = " of the rank" if KIND[price.query.kind].is_rank else ""
    return f"{error_text(price.error)}{unit}, expected"


def _single(answer: Answer) -> list[tuple[str, str]]:
    if len(answer.cells) > 1 or answer.cells[0].labels:
        return []
    estimate = answer.cells[0].estimate
    error = half(estimate, answer.confidence)
    interval = f"{rounded(estimate.low, error)} .. {rounded(estimate.high, error)}"
    return [
        ("answer", f"{rounded(estimate.value, error)} ± {error_text(error)}"),
        (f"{100 * answer.confidence:.6g} % interval", interval),
    ]


def _facts(rows: Sequence[tuple[str, str]]) -> Table:
    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _receipt(answer: Answer) -> str:
    receipt = answer.receipt
    if not receipt.measurements:
        return f"receipt: nothing was charged\nquestion {receipt.key}"
    numbers = ", ".join(map(str, receipt.measurements))
    log = "" if receipt.log_root is None else f"; log of {receipt.log_size} entries, root {receipt.log_root}"
    return f"receipt: account {receipt.account}, measurement {numbers}{log}\nquestion {receipt.key}"


def groups(answer: Answer) -> Table:
    """The groups of an answer with bars: full up to the lower end of the interval, light up to the upper."""
    quantiles = KIND[answer.query.kind].is_rank
    table = Table(expand=not quantiles)
    for name in ["quantile"] if quantiles else [by.column for by in answer.query.by]:
        table.add_column(name, overflow="fold")
    for heading in ("value", f"± at {100 * answer.confidence:.6g} %", "interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    most = max(cell.estimate.high for cell in answer.cells)
    bars = not quantiles and math.isfinite(most) and most > 0
    if bars:
        table.add_column("", ratio=1, min_width=8)
    for cell in answer.cells[:MOST_SHOWN]:
        estimate = cell.estimate
        error = half(estimate, answer.confidence)
        texts: list[Any] = [label_text(label) for label in cell.labels]
        texts += [rounded(estimate.value, error), error_text(error)]
        texts.append(f"{rounded(estimate.low, error)} .. {rounded(estimate.high, error)}")
        table.add_row(*texts, *([_Bar(estimate.low / most, estimate.high / most)] if bars else []))
    return table


def label_text(label: Any) -> str:
    """The name of a group."""
    return str(label).lower() if isinstance(label, bool) else str(label)


class _Bar:
    """A bar as long as there is room."""

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = max(0.0, low), max(0.0, high)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        solid = round(self._low * options.max_width)
        yield Text("█" * solid + "░" * (round(self._high * options.max_width) - solid), no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, options.max_width)


# As a plot


def need_plots() -> None:
    """Find out before anything is paid that plots can be drawn."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtra("the plot", "plot") from error
    mpl.use("Agg")


def draw(answer: Answer, path: Path) -> None:
    """Write a plot of an answer with its intervals."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
    bars(axes, answer)
    axes.set_title(in_words(answer.query), fontsize=10, wrap=True)
    axes.set_ylabel(f"answer, {100 * answer.confidence:.6g} % intervals")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def bars(axes: Any, answer: Answer) -> None:
    """Draw the groups of an answer: bars for counts, sums and means; points for quantiles and one number."""
    cells = answer.cells
    values = [cell.estimate.value for cell in cells]
    ends = [(cell.estimate.low, cell.estimate.high) for cell in cells]
    names = [" / ".join(map(label_text, cell.labels)) for cell in cells]
    places = range(len(cells))
    thin = len(cells) > _MOST_NAMED
    if KIND[answer.query.kind].is_rank or len(cells) == 1:
        axes.plot(places, values, "o", color="tab:blue")
        axes.set_xlim(-0.8, len(cells) - 0.2)
    else:
        axes.bar(places, values, width=1.0 if thin else 0.85, color="tab:blue", alpha=0.55)
    middles, reach = [(low + high) / 2 for low, high in ends], [(high - low) / 2 for low, high in ends]
    axes.errorbar(places, middles, yerr=reach, fmt="none", ecolor="black", capsize=0 if thin else 3)
    step = math.ceil(len(cells) / _MOST_NAMED)
    turned = max(map(len, names)) * len(names[::step]) > 80
    axes.set_xticks(places[::step], names[::step], rotation=90 if turned else 0, fontsize=8)
