"""Parsing and planning of questions, with caches of recent texts and plans.

Cached values can be computed again by any thread, so two threads that compute the same value do no harm.
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

_MOST_PLANS = 1000  # in the cache
_MOST_TEXTS = 500  # of SQL in the cache, with the queries parsed from them
Asked = Query | Mapping[str, Any] | str
Name = TypeVar("Name")
Value = TypeVar("Value")


class Kept(Generic[Name, Value]):
    """A bounded cache of recent values that threads may share; the oldest entries are dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[Name, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def copied(self) -> Kept[Name, Value]:
        """Return an independent copy with the same values."""
        other: Kept[Name, Value] = Kept(self._most)
        other._held = self._held.copy()
        return other

    def get(self, name: Name) -> Value | None:
        """Return the value cached under a name; None if there is none."""
        return self._held.get(name)

    def keep(self, name: Name, found: Value) -> None:
        """Cache a value under a name, and drop the oldest values beyond the limit."""
        self._held[name] = found
        while len(self._held) > self._most:
            with contextlib.suppress(KeyError):
                self._held.popitem(last=False)


class Plans:
    """The measurement plans of the questions about one data set.

    Args:
        data: Declaration of the data set.
        ledger: Ledger to which every question is declared before anything is requested.
    """

    def __init__(self, data: DataSet, ledger: Ledger) -> None:
        self._data, self._ledger = data, ledger
        self._plans: Kept[Query, Plan] = Kept(_MOST_PLANS)
        self._texts: Kept[str, Query] = Kept(_MOST_TEXTS)

    def __len__(self) -> int:
        return len(self._plans)

    def read(self, given: Asked) -> Query:
        """Parse a query from a `Query`, its JSON, or SQL text."""
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
        """Return the measurement plan of a query, from the cache if possible."""
        found = self._plans.get(query)
        if found is None:
            found = self.planned(resolve(query, self._data))
            self._plans.keep(query, found)
        return found

    def ready(self, given: Asked) -> tuple[Query, Plan] | None:
        """Return a query and its plan if both are cached, else None; SQL text is not parsed again."""
        asked = self._texts.get(given) if isinstance(given, str) else self.read(given)
        prepared = self._plans.get(asked) if asked is not None else None
        return None if asked is None or prepared is None else (asked, prepared)

    def planned(self, question: Question) -> Plan:
        """Plan a question and declare it to the ledger, which must precede any request."""
        made = plan(question)
        if self._ledger.measured_by_oracle:
            parse(question.text, self._data)  # as the oracle will: nothing it would refuse is paid for
        self._ledger.declare(
            self._data.account,
            question.key,
            question=question.text,
            grid=made.shift,
            dimension=made.values,
        )
        return made
