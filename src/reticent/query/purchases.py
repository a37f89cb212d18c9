"""What is recorded about a data set, by anybody, ready to be combined: kept up with the ledger.

Questions' texts come from the ledger and are believed only if their keys are named after them; one that is
not about this declaration, letter for letter, takes no part. What is recorded under each is read from the
ledger again when something was paid for under it, and until all of that is recorded. So what is known here is
at most what is recorded: whoever pays meanwhile makes an answer better, and none wrong.
"""

from __future__ import annotations

import threading
from typing import TypeAlias

from reticent.errors import ParameterError
from reticent.ledger import Ledger, Reading
from reticent.ledger.base import is_named_after
from reticent.query.declarations.datasets import DataSet
from reticent.query.language.questions import parse
from reticent.query.language.tree import Query
from reticent.query.measure import Plan
from reticent.query.plans import Plans
from reticent.query.span import Estimate, Joint, is_combined
from reticent.query.span.forms import MOST_VALUES

Looked: TypeAlias = tuple[Plan, tuple[int, ...]]
"""How a purchase was measured, and the numbers of its recorded measurements."""

_MOST_RECORDED = 1 << 14  # values that take part: more would take longer and cost no truth


class Purchases:
    """All purchases about one declaration. Threads may share it.

    Args:
        data: the declaration.
        ledger: where they are recorded.
        plans: how questions are measured; tells the ledger of each.
    """

    def __init__(self, data: DataSet, ledger: Ledger, plans: Plans) -> None:
        self._data, self._ledger, self._make = data, ledger, plans
        self._guard = threading.Lock()
        self._joint = Joint(data)
        self._plans: dict[str, Plan] = {}
        self._others: set[str] = set()  # keys that take no part
        self._waiting: set[str] = set()  # keys under which not all is recorded
        self._numbers: dict[str, tuple[int, ...]] = {}
        self._seen = 0

    def combines(self, query: Query, plan: Plan, own: Reading) -> bool:
        """Whether a question may be answered from others; if so, what is recorded is looked at.

        What is recorded under the question itself takes part in any case, whether its text is kept or not.
        """
        if not is_combined(query, plan):
            return False
        self._look()
        if own.information:
            with self._guard:
                self._plans.setdefault(own.key, plan)
                self._others.discard(own.key)
                self._joint.record(plan, own)
        return True

    def fresh(self, plan: Plan, wanted: int) -> tuple[int, int]:
        """The units that are recorded under a question, and those that must be beyond: see `Joint.fresh`."""
        with self._guard:
            return self._joint.recorded(plan.question.key), self._joint.fresh(plan, wanted)

    def estimates(self, plan: Plan) -> tuple[Estimate, ...] | None:
        """The best estimate of each coordinate; None if one is outside of the span."""
        return self._joint.estimates(plan)

    def supposable(self) -> Joint:
        """All of them, in a joint estimate of its own: what is supposed there stays there."""
        self._look()
        return self._joint.copied()

    def told(self, plan: Plan) -> tuple[tuple[Estimate, ...], dict[str, Looked]] | None:
        """The estimates, and of each purchase in them how it was measured and its recorded measurements.

        All as of one moment: what others record meanwhile is in all of it or in none.
        """
        with self._guard:
            found = self._joint.estimates(plan)
            if found is None:
                return None
            keys = dict.fromkeys(key for one in found for key in one.keys)
            return found, {key: (self._plans[key], self._numbers.get(key, ())) for key in keys}

    def _look(self) -> None:
        """Take in what was recorded since the last look."""
        account = self._data.account
        with self._guard:
            found = self._ledger.worded(account, self._seen)
            for key, text in found.texts.items():
                self._read(key, text)
            keys = [key for key in found.texts if key in self._plans]
            keys += [key for key in self._waiting if key not in found.texts]
            if keys:
                for reading, numbers in self._ledger.purchases(account, keys):
                    self._joint.record(self._plans[reading.key], reading)
                    self._numbers[reading.key] = numbers
                    (self._waiting.add if reading.pending else self._waiting.discard)(reading.key)
            self._seen = found.number

    def _read(self, key: str, text: str) -> None:
        """Plan a question that was paid for, once, if it is about this declaration."""
        if key in self._plans or key in self._others:
            return
        self._others.add(key)
        if not isinstance(text, str) or not is_named_after(key, text) or len(self._joint) > _MOST_RECORDED:
            return
        try:
            plan = self._make.planned(parse(text, self._data))
        except ParameterError:  # of another data set, version or declaration
            return
        if plan.question.key == key and plan.values <= MOST_VALUES:
            self._plans[key] = plan
            self._others.discard(key)
