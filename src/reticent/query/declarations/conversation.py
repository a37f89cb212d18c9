"""Declaring a data set question by question: the work of `reticent dataset new` in a terminal.

Nothing is read of the file but the names of its columns (and types, from Parquet), and nothing is proposed
that came from its rows: a bound that was guessed from them would be a leak. The owner types public
statements. All errors in a column are shown at once, and the column is asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from reticent.arguments import meant
from reticent.errors import ParameterError, ParameterTypeError, SeveralErrors
from reticent.query.declarations import dataset_file
from reticent.query.declarations.datasets import FORMATS, DataSet, check_rows, checked_label
from reticent.query.declarations.explanation import explain
from reticent.query.rows.columns import Kind

Found = TypeVar("Found")
Ask = Callable[[str], str]
Say = Callable[[str], None]

_MOST_NAMED = 20  # columns, at once
_YES, _NO = ("y", "yes"), ("n", "no", "")
_PARTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "number": (("low", "least value"), ("high", "largest value")),
    "integer": (("low", "least value"), ("high", "largest value")),
    "category": (("values", "all that may occur, with commas between"),),
    "boolean": (),
}


def _shown(name: str) -> str:
    """Return a name from somebody's file in printable form: it may hold signs that command a terminal."""
    short = name if len(name) <= 60 else f"{name[:57]}..."
    return short if short.isprintable() else ascii(short)


class Conversation:
    """A dialogue that asks an owner for the facts that only an owner knows.

    Args:
        ask: Function that shows a question and returns the typed answer.
        say: Function that shows a paragraph.
    """

    def __init__(self, ask: Ask, say: Say) -> None:
        self._ask, self._say = ask, say

    def declared(self, path: Path, source: str) -> DataSet | None:
        """Return the data set in a file as its owner declares it; None if the owner does not confirm it.

        Args:
            path: Path of the file with the rows.
            source: Name of that file in the declaration.

        Raises:
            ParameterError: The file cannot be a source, or no column may be asked about.
        """
        columns = dataset_file.header(path)
        listed = ", ".join(map(_shown, list(columns)[:_MOST_NAMED]))
        more = ", ..." if len(columns) > _MOST_NAMED else ""
        self._say(f"{_shown(path.name)} has {len(columns)} columns, by its names alone: {listed}{more}.")
        self._say(
            "What you answer here is public from now on, and is not protected. Say what a questionnaire or a "
            "law says, never what you saw in the rows. Ctrl-C ends this; nothing is written before the end."
        )
        if not self._yes("Are these names, and not a first row of data? [y/N] "):
            raise ParameterError(
                f"{path.name} must begin with a line of column names: add one, and try again"
            )
        given: dict[str, Any] = {
            "name": self._label("name", f"Name of the data set [{dataset_file.name_of(path)}]: ", path),
            "version": "1",
            "format": str(FORMATS[-1]),
            "source": source,
        }
        given |= self._protected(list(columns))
        given["budget"] = self._until(self._budget)
        given["columns"] = self._columns(columns, given["unit"])
        data = dataset_file.of_fields(given)
        self._say("This is what it promises:")
        for sentence in explain(data):
            self._say(f"- {sentence}")
        return data if self._yes("Is that so? [y/N] ") else None

    def _label(self, part: str, question: str, path: Path) -> str:
        def read() -> str:
            return checked_label(part, self._ask(question).strip() or dataset_file.name_of(path))

        return self._until(read)

    def _protected(self, names: list[str]) -> dict[str, Any]:
        """Ask for the fields that say who is protected, and whether their number is public."""
        person = self._until(lambda: self._person(names))
        unit: Any = "row"
        whose = "rows"
        if person:
            whose = "persons"
            most = self._until(lambda: self._contribution(person))
            unit = {"person": person, "rows": str(most)}
        if not self._yes(f"May everybody know how many {whose} there are? [y/N] "):
            return {"unit": unit, "relation": "add or remove one"}
        if person:
            return {"unit": unit, "relation": "replace one"}
        return {"unit": unit, "relation": "replace one", "rows": self._until(self._rows)}

    def _person(self, names: list[str]) -> str:
        typed = self._ask("Column that says whose row it is (nothing: each row is another person): ").strip()
        if typed and typed not in names:
            listed = ", ".join(map(_shown, names[:_MOST_NAMED]))
            raise ParameterError(f"column must be one of {listed}{meant(typed, names)}")
        return typed

    def _contribution(self, person: str) -> int:
        most = dataset_file.whole_number("rows", self._typed("Most rows of one person that count: "))
        check_rows(dataset_file.relation_of("add or remove one"), person, most, None)
        return most

    def _rows(self) -> str:
        typed = self._typed("How many rows are there? ")
        rows = dataset_file.whole_number("rows", typed)
        check_rows(dataset_file.relation_of("replace one"), None, 1, rows)
        return typed or ""

    def _budget(self) -> dict[str, str]:
        typed = {
            "epsilon": self._ask(
                "Epsilon of the budget, for all answers and for ever (1 is strong, 8 weak): "
            ).strip(),
            "delta": self._ask("Delta, far below one in the number of people [1e-6]: ").strip() or "1e-6",
        }
        dataset_file.budget_of(typed)
        return typed

    def _columns(self, columns: Mapping[str, Kind | None], unit: Any) -> dict[str, Any]:
        """Ask for the fields of each column that may be asked about."""
        self._say(
            "Now the columns. Those without a type are left out: nobody may ask about them. A cell that is "
            "empty or cannot be read counts as a value that you choose; nothing is dropped."
        )
        found: dict[str, Any] = {}
        person = unit["person"] if isinstance(unit, dict) else None
        for number, (name, kind) in enumerate(columns.items(), start=1):
            told = "; it tells persons apart" if name == person else ""
            self._say(f"{_shown(name)} ({number} of {len(columns)}{told})")
            if not name.isprintable():
                self._say("  left out: a name must be printable")
                continue
            fields = self._until(partial(self._column, name, kind))
            if fields is not None:
                found[name] = fields
        if not found:
            raise ParameterError("columns must be at least one: there would be nothing to ask")
        return found

    def _column(self, name: str, kind: Kind | None) -> dict[str, Any] | None:
        """Ask for the fields of a column; return None to leave the column out."""
        shown = f" [{kind.value}]" if kind is not None else ""
        hint = "" if kind is None else ", - to leave it out"
        typed = self._ask(f"  number, integer, category or boolean{hint}{shown}: ").strip().lower()
        if typed == "-" or (not typed and kind is None):
            return None
        typed = typed or (kind.value if kind is not None else "")
        if typed not in _PARTS:
            raise ParameterError(f"type must be one of {', '.join(_PARTS)}{meant(typed, _PARTS)}")
        fields: dict[str, Any] = {"type": typed}
        for part, question in _PARTS[typed]:
            said = self._ask(f"  {question}: ").strip()
            fields[part] = (
                [one.strip() for one in said.split(",") if one.strip()] if part == "values" else said
            )
        fields["missing"] = self._ask("  an empty or unreadable cell counts as: ").strip()
        dataset_file.column_of(name, fields, FORMATS[-1])
        return fields

    def _typed(self, question: str) -> str | None:
        return self._ask(question).strip() or None

    def _yes(self, question: str) -> bool:
        while True:
            typed = self._ask(question).strip().lower()
            if typed in (*_YES, *_NO):
                return typed in _YES
            self._say("y or n")

    def _until(self, read: Callable[[], Found]) -> Found:
        """Repeat a question until the answer is valid, and show every error in between."""
        while True:
            try:
                return read()
            except SeveralErrors as error:
                for one in error.each:
                    self._say(f"  ! {one}")
            except (ParameterError, ParameterTypeError) as error:
                self._say(f"  ! {error}")
