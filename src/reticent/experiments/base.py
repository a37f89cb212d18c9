"""What every experiment is: a function from `Options` to an `Outcome` of rows, a plot and a caption.

How the family may evolve: a new figure is a new module with a `run` and one line in `registry`. The
columns of a CSV keep their names, since people compare runs of different releases.
"""

from __future__ import annotations

import csv
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reticent.arguments import whole
from reticent.errors import MissingExtra

FULL_REPETITIONS, QUICK_REPETITIONS = 100, 5

Row = Mapping[str, Any]


def _silent(done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Options:
    """How to run an experiment.

    Attributes:
        out: the directory for NAME.csv, NAME.png and NAME.txt.
        quick: fewer points, fewer people, one process: to see that it runs, not to quote.
        repetitions: of each simulation; None for 100, or 5 if quick.
        seed: of the simulation; the same seed gives the same files.
        data: the directory of the data sets; None to look in the usual places.
        workers: processes for the repetitions.
        progress: called with (steps done, steps in all).
    """

    out: Path
    quick: bool = False
    repetitions: int | None = None
    seed: int = 2026
    data: Path | None = None
    workers: int = 2
    progress: Callable[[int, int], None] = field(default=_silent, compare=False)

    def __post_init__(self) -> None:
        if self.repetitions is not None:
            whole("repetitions", self.repetitions, low=2, high=1_000_000)
        whole("seed", self.seed, low=0)
        whole("workers", self.workers, low=1)

    @property
    def times(self) -> int:
        """How often each simulation is repeated."""
        return self.repetitions or (QUICK_REPETITIONS if self.quick else FULL_REPETITIONS)


@dataclass(frozen=True)
class Outcome:
    """What an experiment found, before anything is written.

    Attributes:
        rows: the numbers, one mapping per line of the CSV, all with the same keys.
        caption: what was printed in the document and what we got.
        draw: makes the matplotlib figure.
    """

    rows: Sequence[Row]
    caption: str
    draw: Callable[[], Any]


@dataclass(frozen=True)
class Written:
    """The files of one experiment."""

    csv: Path
    png: Path
    caption: Path


def wrapped(*paragraphs: str) -> str:
    """The paragraphs of a caption."""
    return "\n".join(textwrap.fill(text, 100, subsequent_indent="  ") for text in paragraphs)


def require_plotting() -> None:
    """Raise `MissingExtra` before hours of work rather than after."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtra("the plot", "plot") from error
    mpl.use("Agg")


def write(name: str, outcome: Outcome, out: Path) -> Written:
    """Write the CSV, the plot and the caption."""
    import matplotlib.pyplot as plt

    out.mkdir(parents=True, exist_ok=True)
    files = Written(out / f"{name}.csv", out / f"{name}.png", out / f"{name}.txt")
    with files.csv.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, fieldnames=list(outcome.rows[0]))
        writer.writeheader()
        for row in outcome.rows:
            writer.writerow({key: _shown(cell) for key, cell in row.items()})
    files.caption.write_text(outcome.caption + "\n", encoding="utf-8")
    figure = outcome.draw()
    figure.savefig(files.png, dpi=120)
    plt.close(figure)
    return files


def _shown(cell: Any) -> Any:
    return f"{cell:.10g}" if isinstance(cell, float) else cell
