"""Questions as they are given, read and planned; what was planned lately is kept ready.

What is kept are values that anybody may make again, so two threads who make the same do no harm.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from reticent.errors import ParameterTypeError
from reticent.ledger import Ledger
from reticent.query.declarations.datasets import DataSet
from reticent.query.language import tree
from reticent.query.language.questions import Question, parse, resolve
from reticent.query.language.tree import Query
from reticent.query.measure import Plan, plan

_MOST_PLANS = 1000  # kept ready
_MOST_TEXTS = 500  # of SQL, with the questions that were read from them
Asked = Query | Mapping[str, Any] | str
Name = TypeVar("Name")
Value = TypeVar("Value")


class Kept(Generic[Name, Value]):
    """What was found lately, and no more than so much of it. Threads may meet here."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[Name, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def copied(self) -> Kept[Name, Value]:
        """Return another with the same values, which grows on its own."""
        other: Kept[Name, Value] = Kept(self._most)
        other._held = self._held.copy()
        return other

    def get(self, name: Name) -> Value | None:
        """What is kept under a name."""
        return self._held.get(name)

    def keep(self, name: Name, found: Value) -> None:
        """Keep it, and let the oldest go."""
        self._held[name] = found
        while len(self._held) > self._most:
            with contextlib.suppress(KeyError):
                self._held.popitem(last=False)


class Plans:
    """How the questions about one data set are measured.

    Args:
        data: the declaration.
        ledger: is told of every question before anything is asked of it.
    """

    def __init__(self, data: DataSet, ledger: Ledger) -> None:
        self._data, self._ledger = data, ledger
        self._plans: Kept[Query, Plan] = Kept(_MOST_PLANS)
        self._texts: Kept[str, Query] = Kept(_MOST_TEXTS)

    def __len__(self) -> int:
        return len(self._plans)

    def read(self, given: Asked) -> Query:
        """The query that is given, as its JSON or as SQL too."""
        if isinstance(given, Query):
            return given
        if isinstance(given, str):
            found = self._texts.get(given)
            if found is None:
                from reticent.query.language.sql import read

                found = read(given, self._data.name)
                self._texts.keep(given, found)
            return found
        if isinstance(given, Mapping):
            return tree.from_json(given)
        raise ParameterTypeError(f"query must be a Query, JSON or SQL, got {type(given).__name__}")

    def of(self, query: Query) -> Plan:
        """The plan of a query."""
        found = self._plans.get(query)
        if found is None:
            found = self.planned(resolve(query, self._data))
            self._plans.keep(query, found)
        return found

    def ready(self, given: Asked) -> tuple[Query, Plan] | None:
        """What is given and its plan, if neither SQL must be read nor anything planned for it; None else."""
        asked = self._texts.get(given) if isinstance(given, str) else self.read(given)
        prepared = self._plans.get(asked) if asked is not None else None
        return None if asked is None or prepared is None else (asked, prepared)

    def planned(self, question: Question) -> Plan:
        """The plan of a question, which the ledger is told of before anything is asked of it."""
        made = plan(question)
        if self._ledger.measured_by_oracle:
            parse(question.text, self._data)  # as the oracle will: nobody pays for what it would refuse
        self._ledger.declare(
            self._data.account,
            question.key,
            question=question.text,
            grid=made.shift,
            dimension=made.values,
        )
        return made
