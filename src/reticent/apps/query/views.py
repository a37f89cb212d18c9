"""Answers and prices in the terminal: words, tables, bars, a plot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.table import Table

from reticent.cli.terminal import Bar, console, down, error_text, facts, rounded, up
from reticent.privacy import Budget, spent_epsilon
from reticent.query.answers import Answer, Assumed, Case, Price, as_mu2
from reticent.query.combined import Combined, weights
from reticent.query.declarations.datasets import Policy
from reticent.query.kinds.intervals import shown_half_width
from reticent.query.kinds.listed import KIND
from reticent.query.language.text_words import question_line
from reticent.query.language.words import in_words

MOST_SHOWN = 60  # groups in a terminal
_MOST_PARTS = 8  # purchases that an answer is combined from
_MOST_NAMED = 40  # groups with a name in a plot

CASES = {
    Case.FRESH: "nothing that was bought before is part of it",
    Case.EQUAL: "bought before as exactly as this: free",
    Case.REFINED: "less was bought before: only the missing part is paid",
    Case.COARSER: "more was bought before: free",
    Case.SPAN: "other purchases, or the public number of rows, say part of it or all: only the rest is paid",
    Case.PUBLIC: "the declaration says it: free",
}


class Described(Protocol):
    """The facts about a data set that are needed to show its answers."""

    @property
    def name(self) -> str:
        """The name of the data set."""

    @property
    def budget(self) -> Budget:
        """The budget of the data set, for ever."""

    @property
    def policy(self) -> Policy:
        """The policy on showing earlier purchases."""


@dataclass(frozen=True)
class Facts:
    """The facts about a data set that lies elsewhere."""

    name: str
    budget: Budget
    policy: Policy


def amount(units: int, data: Described, *, mu2: bool = False) -> str:
    """Return units as a share of the budget, and as epsilon if spent alone; as mu2 too, if wanted."""
    if not units:
        return "nothing"
    said = f"{part(units, data)}, epsilon {up(spent_epsilon(units, data.budget.delta))} alone"
    return f"{said}, mu2 {up(as_mu2(units))}" if mu2 else said


def part(units: int, data: Described) -> str:
    """Return units as a share of the budget, rounded up: shares add up, epsilons do not."""
    return f"{up(100 * units / data.budget.mu2_cap)} % of the budget"


def left(units: int, data: Described) -> str:
    """Return in words how much of the budget remains."""
    budget = data.budget
    if units in (0, budget.mu2_cap):
        return f"everything: epsilon {budget.epsilon:g}" if units else "nothing"
    share = f"{down(100 * units / budget.mu2_cap)} % of the budget"
    return f"{share}: for one answer, epsilon {down(spent_epsilon(units, budget.delta))}"


def show_answer(answer: Answer, data: Described, *, rehearsed: bool = False, mu2: bool = False) -> None:
    """Print an answer: the numbers, then their cost."""
    screen = console()
    screen.print(in_words(answer.query), style="bold")
    if len(answer.cells) > 1 or answer.cells[0].labels:
        screen.print(groups(answer))
        if len(answer.cells) > MOST_SHOWN:
            screen.print(f"{len(answer.cells) - MOST_SHOWN:,} more: --format csv shows all.")
    rows = [*_single(answer), *(("note", note) for note in answer.notes)]
    rows.append(("case", f"{answer.case.value}: {CASES[answer.case]}"))
    rows.append(("cost", amount(answer.cost, data, mu2=mu2)))
    if answer.without_reuse != answer.cost:
        rows.append(("without reuse", amount(answer.without_reuse, data, mu2=mu2)))
    if answer.combined is not None:
        rows += _combined(answer, answer.combined, data)
    if rehearsed:
        rows.append(("budget", "not touched: these are made-up rows"))
    else:
        spent = f"epsilon {up(answer.epsilon_spent)} of {data.budget.epsilon:g} at delta {answer.delta:g}"
        rows.append(("spent in all", f"{part(answer.spent, data)}, {spent}" if answer.spent else "nothing"))
        rows.append(("left", left(answer.remaining, data)))
    screen.print(facts(rows))
    if not rehearsed:
        print(_receipt(answer))  # in one piece, whatever the width: it is there to be copied


def _combined(answer: Answer, how: Combined, data: Described) -> list[tuple[str, str]]:
    """Return in words how an answer was combined, and how far it is to be trusted."""
    parts = [
        f"{question_line(part.question)} ({weights(part)}, {100 * part.noise:.3g} % of the noise)"
        for part in how.parts[:_MOST_PARTS]
    ]
    if len(how.parts) > _MOST_PARTS:
        parts.append(f"and {len(how.parts) - _MOST_PARTS} more")
    rows = [("made of", how.title if not how.reuses_others else "\n".join([how.title, *parts]))]
    if how.reuses_others:
        low, high = how.ends[0]
        width = (high - low) / 2
        any_choice = f"{rounded(low, width)} to {rounded(high, width)}" if len(how.ends) == 1 else (
            f"{how.factor:.3g} standard errors")  # fmt: skip
        rows.append(("if chosen by looking", any_choice))
        rows.append(("a fresh one", f"{amount(how.fresh_cost, data)}: --reuse none"))
    return rows


def show_price(price: Price, data: Described, confidence: float, *, mu2: bool = False) -> None:
    """Print a price, and whether it can be paid."""
    screen = console()
    screen.print(in_words(price.query), style="bold")
    missing = price.cost - price.remaining
    verdict = "yes" if price.affordable else f"no: {part(missing, data)} more than is left"
    error = "not known: guess the number of rows with --rows" if price.error is None else _about(price)
    rows = [
        ("cost", amount(price.cost, data, mu2=mu2)),
        ("case", f"{price.case.value}: {CASES[price.case]}"),
        (f"± at {100 * confidence:.6g} %", error),
        *([] if price.assumed is None else [("rests on", rests_on(price, price.assumed))]),
        ("bought before", amount(price.bought, data, mu2=mu2)),
        *([] if price.free_error is None else [("free now", f"± {error_text(price.free_error)}")]),
        ("left", left(price.remaining, data)),
        ("affordable", verdict),
    ]
    screen.print(facts(rows))


def _about(price: Price) -> str:
    assert price.error is not None
    unit = " of the rank" if KIND[price.query.kind].is_rank else ""
    useless = ": useless, since it holds all that is possible" if price.useless else ""
    return f"{error_text(price.error)}{unit}, expected{useless}"


def rests_on(price: Price, assumed: Assumed) -> str:
    """Return the rows that an error assumes, and the error with fewer rows, in words."""
    whose = " in each group" if price.query.by and not KIND[price.query.kind].bins_column else ""
    said = f"{assumed.rows:,.0f} rows{whose}" + (", as you guessed" if assumed.guessed else "")
    for rows, error in assumed.otherwise:
        said += f"; ± {error_text(error)} if {rows:,.0f}"
    if not assumed.guessed and (price.query.where is not None or price.query.by):
        said += ". Say how many match with --rows; a COUNT tells, and is cheap"
    return said


def _single(answer: Answer) -> list[tuple[str, str]]:
    if len(answer.cells) > 1 or answer.cells[0].labels:
        return []
    estimate = answer.cells[0].estimate
    error = shown_half_width(estimate, answer.confidence)
    interval = f"{rounded(estimate.low, error)} .. {rounded(estimate.high, error)}"
    return [
        ("answer", f"{rounded(estimate.value, error)} ± {error_text(error)}"),
        (f"{100 * answer.confidence:.6g} % interval", interval),
    ]


def _receipt(answer: Answer) -> str:
    receipt = answer.receipt
    if not receipt.measurements:
        return f"receipt: nothing was charged\nquestion {receipt.key}"
    numbers = ", ".join(map(str, receipt.measurements))
    log = "" if receipt.log_root is None else f"; log of {receipt.log_size} entries, root {receipt.log_root}"
    return f"receipt: account {receipt.account}, measurement {numbers}{log}\nquestion {receipt.key}"


def groups(answer: Answer) -> Table:
    """Return the groups of an answer as a table with bars.

    A bar is full up to the lower end of the interval, and light up to the upper.
    """
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
        error = shown_half_width(estimate, answer.confidence)
        texts: list[Any] = [label_text(label) for label in cell.labels]
        texts += [rounded(estimate.value, error), error_text(error)]
        texts.append(f"{rounded(estimate.low, error)} .. {rounded(estimate.high, error)}")
        table.add_row(*texts, *([Bar(estimate.low / most, estimate.high / most)] if bars else []))
    return table


def label_text(label: Any) -> str:
    """Return the name of a group."""
    return str(label).lower() if isinstance(label, bool) else str(label)


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
