"""What commands show with: a console, tables of facts, bars, plots; numbers as `numerals` rounds them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from reticent.errors import MissingExtra
from reticent.numerals import down as down
from reticent.numerals import error_text as error_text
from reticent.numerals import rounded as rounded
from reticent.numerals import up as up

# In the terminal


def console() -> Console:
    """Where tables go. Names of columns and categories are the owner's, never markup."""
    return Console(highlight=False, markup=False, emoji=False)


def facts(rows: Sequence[tuple[str, str]]) -> Table:
    """Names, and what is said of each."""
    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


class Bar:
    """A bar as long as there is room: full up to one share of it, light up to another."""

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
