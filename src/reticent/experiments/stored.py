"""Runs that were kept: what a run found, as JSON, and how another run compares with it.

A kept run has the seed, the repetitions, the versions, the caption and the rows of an experiment. Numbers are
kept to ten digits, as in the CSV. Rows of large runs are not kept one by one but column by column: mean,
least and most; so are rows that hold what a data set holds, which is not ours to keep. Two runs agree when
the words of their captions are equal and all numbers are within a millionth (of gas, which depends on the
bytes of keys and signatures, two thousandths): sums of doubles may differ in their last digits between
machines. Other versions are no difference, but said where there is one.

Experiments that measure time are not kept: their numbers are a machine's, on a day.
"""

from __future__ import annotations

import json
import math
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from reticent.errors import ParameterError
from reticent.experiments.base import Options, Outcome

MOST_CELLS = 4_000  # rows times columns that are kept one by one
TOLERANCE = 1e-6
MOST_SAID = 10  # differences that are named
PACKAGES = ("reticent", "numpy", "scipy")  # whose versions may matter
NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")

Cell = str | float
Table = dict[str, list[Cell]]


@dataclass(frozen=True)
class Stored:
    """One run.

    Attributes:
        name: of the experiment.
        seed: of its simulation.
        repetitions: as they were asked for; None for the default.
        versions: of Python and of the packages that may matter.
        caption: what it said.
        count: of its rows.
        columns: all cells by column, or a summary of each column (see `is_summary`).
        is_summary: whether the columns hold mean, least and most instead of the cells.
    """

    name: str
    seed: int
    repetitions: int | None
    versions: dict[str, str]
    caption: str
    count: int
    columns: Table
    is_summary: bool

    @classmethod
    def of(cls, name: str, options: Options, outcome: Outcome, *, summary: bool = False) -> Stored:
        """The run that gave an outcome; by column if it is large, or if a summary is asked for."""
        columns = {key: [_cell(row[key]) for row in outcome.rows] for key in outcome.rows[0]}
        summary = summary or len(outcome.rows) * len(columns) > MOST_CELLS
        if summary:
            columns = {key: _summary(cells) for key, cells in columns.items()}
        return cls(
            name,
            options.seed,
            options.repetitions,
            versions(),
            outcome.caption,
            len(outcome.rows),
            columns,
            summary,
        )

    def text(self) -> str:
        """The file: a line for each column, so that changes can be read."""
        fields = [f' "{key}": {json.dumps(getattr(self, key))}' for key in _FIELDS if key != "columns"]
        columns = ",\n".join(
            f"  {json.dumps(key)}: {json.dumps(cells)}" for key, cells in self.columns.items()
        )
        return "{\n" + ",\n".join([*fields, f' "columns": {{\n{columns}\n }}']) + "\n}\n"

    def differences(self, other: Stored, tolerance: float = TOLERANCE) -> list[str]:
        """What another run has otherwise, in words; nothing if the two agree."""
        mine, theirs = self.caption.splitlines(), other.caption.splitlines()
        found = [
            f"the caption, line {at + 1}: {_line(mine, at)!r}, now {_line(theirs, at)!r}"
            for at in range(max(len(mine), len(theirs)))
            if not _same_text(_line(mine, at), _line(theirs, at), tolerance)
        ]
        if self.count != other.count:
            found.append(f"{self.count} rows, now {other.count}")
        if list(self.columns) != list(other.columns):
            found.append(f"the columns {', '.join(self.columns)}, now {', '.join(other.columns)}")
        elif self.is_summary == other.is_summary:
            found += [
                f"{key}, row {row + 1}: {_line(kept, row)!r}, now {_line(now, row)!r}"
                for key, kept, now in ((key, self.columns[key], other.columns[key]) for key in self.columns)
                for row in range(max(len(kept), len(now)))
                if not _agree(_line(kept, row), _line(now, row), tolerance)
            ]
        return found


_FIELDS = ("name", "seed", "repetitions", "versions", "caption", "count", "is_summary", "columns")


def versions() -> dict[str, str]:
    """Of Python and of the packages that may matter."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # run from a checkout, or without an optional part
            continue
    return found


def path_of(directory: Path, name: str) -> Path:
    """Where a run is kept."""
    return directory / f"{name}.json"


def kept(directory: Path, name: str) -> Stored:
    """The run that was kept of an experiment.

    Raises:
        ParameterError: there is none, or it cannot be read.
    """
    path = path_of(directory, name)
    if not path.is_file():
        raise ParameterError(f"no run of {name} is kept in {directory}")
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        return Stored(**{key: given[key] for key in _FIELDS})
    except (ValueError, KeyError, TypeError) as error:
        raise ParameterError(f"{path} holds no kept run") from error


def _cell(cell: Any) -> Cell:
    """As it reads in the CSV: ten digits of a number, the text of anything else."""
    text = f"{cell:.10g}" if isinstance(cell, float) else "" if cell is None else str(cell)
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _summary(cells: Sequence[Cell]) -> list[Cell]:
    numbers = [cell for cell in cells if isinstance(cell, float)]
    if len(numbers) < len(cells):
        return [f"{len({str(cell) for cell in cells})} different texts"]
    return [_cell(math.fsum(numbers) / len(numbers)), min(numbers), max(numbers)]


def _agree(kept: Cell, now: Cell, tolerance: float) -> bool:
    if not isinstance(kept, str) and not isinstance(now, str):
        return math.isclose(kept, now, rel_tol=tolerance, abs_tol=1e-12)
    return kept == now


def numbers(text: str) -> list[str]:
    """The numbers of a text as they are written, without the commas of thousands."""
    return [token.replace(",", "") for token in NUMBER.findall(text)]


def _same_text(kept: str, now: str, tolerance: float) -> bool:
    """The same words, and numbers that agree."""
    if kept == now:
        return True
    words, others = (" ".join(NUMBER.sub("0", text).split()) for text in (kept, now))
    mine, theirs = numbers(kept), numbers(now)
    return words == others and all(
        _agree(float(a), float(b), tolerance) for a, b in zip(mine, theirs, strict=True)
    )


def _line(lines: Sequence[Any], at: int) -> Any:
    return lines[at] if at < len(lines) else ""
