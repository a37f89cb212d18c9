"""All recorded purchases about a data set, ready to be combined and kept up to date with the ledger.

Questions' texts come from the ledger and are believed only if their keys are derived from them; a question
that is not about this declaration, letter for letter, takes no part. The measurements of each question are
read from the ledger again after a payment for it, and until all of them are recorded. So this module knows at
most what is recorded: a concurrent payment makes an answer better, and none wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

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
"""The measurement plan of a purchase, and the numbers of its recorded measurements."""

_MOST_RECORDED = 1 << 14  # values that take part: more would take longer, fewer make nothing wrong


class Published(NamedTuple):
    """A snapshot of the recorded measurements. It never changes, so threads read it without a lock.

    Attributes:
        joint: Joint estimate from all measurements.
        plans: Measurement plan of each purchase, by key.
        numbers: Numbers of the recorded measurements, by key.
    """

    joint: Joint
    plans: dict[str, Plan]
    numbers: dict[str, tuple[int, ...]]

    def successor(self) -> Published:
        """Return a copy of the snapshot to which measurements can be added."""
        return Published(self.joint.successor(), dict(self.plans), dict(self.numbers))


class Purchases:
    """All purchases about one declaration, which threads may share.

    The lock is held while the ledger is read and new measurements are added, never during an estimation:
    prices and answers come from the last published snapshot, and wait for no other thread.

    Args:
        data: Declaration of the data set.
        ledger: Ledger that records the purchases.
        plans: Measurement plans of questions; declares each question to the ledger.
    """

    def __init__(self, data: DataSet, ledger: Ledger, plans: Plans) -> None:
        self._data, self._ledger, self._make = data, ledger, plans
        self._guard = threading.Lock()
        self._published = Published(Joint(data), {}, {})
        self._others: set[str] = set()  # keys that take no part
        self._waiting: set[str] = set()  # keys with measurements that are not recorded yet
        self._seen = 0

    def __len__(self) -> int:
        """Return the number of recorded values that take part, as of the last look."""
        return len(self._published.joint)

    def combines(self, query: Query, plan: Plan, own: Reading) -> bool:
        """Return True if purchases of other questions can answer a query; if so, update from the ledger.

        Measurements of the question itself take part in any case, whether its text is stored or not.
        """
        if not is_combined(query, plan):
            return False
        self._look()
        if own.information:
            with self._guard:
                self._others.discard(own.key)
                now = self._published
                if own.key not in now.plans or own.information > now.joint.recorded(own.key):
                    fresh = now.successor()
                    fresh.plans.setdefault(own.key, plan)
                    fresh.joint.record(plan, own)
                    self._published = fresh
        return True

    def fresh(self, plan: Plan, wanted: int) -> tuple[int, int]:
        """Return the units recorded under a question, and those needed beyond: see `Joint.fresh`.

        Both come from one snapshot: the charge is computed from their sum.
        """
        joint = self._published.joint
        return joint.recorded(plan.question.key), joint.fresh(plan, wanted)

    def estimates(self, plan: Plan) -> tuple[Estimate, ...] | None:
        """Return the best estimate of each coordinate; None if one is outside of the span."""
        return self._published.joint.estimates(plan)

    def supposable(self) -> Joint:
        """Return an independent joint estimate of all purchases, to which supposed ones can be added."""
        self._look()
        return self._published.joint.copied()

    def told(self, plan: Plan) -> tuple[tuple[Estimate, ...], dict[str, Looked]] | None:
        """Return the estimates, with the plan and the measurement numbers of each purchase in them.

        All come from one snapshot: a concurrent record is in all of them or in none.
        """
        now = self._published
        found = now.joint.estimates(plan)
        if found is None:
            return None
        keys = dict.fromkeys(key for one in found for key in one.keys)
        return found, {key: (now.plans[key], now.numbers.get(key, ())) for key in keys}

    def _look(self) -> None:
        """Read the measurements recorded since the last look, and publish a new snapshot."""
        account = self._data.account
        with self._guard:
            news = self._ledger.worded(account, self._seen)
            now = self._published
            planned = self._read_all(news.texts)
            keys = [key for key in news.texts if key in planned or key in now.plans]
            keys += [key for key in self._waiting if key not in news.texts]
            readings = self._ledger.purchases(account, keys) if keys else []
            if planned or any(_is_news(now, reading, numbers) for reading, numbers in readings):
                now = now.successor()
                now.plans.update(planned)
                for reading, numbers in readings:
                    now.joint.record(now.plans[reading.key], reading)
                    now.numbers[reading.key] = numbers
                self._published = now
            for reading, _ in readings:
                (self._waiting.add if reading.pending else self._waiting.discard)(reading.key)
            self._seen = news.number

    def _read_all(self, texts: Mapping[str, str]) -> dict[str, Plan]:
        """Return the plans of questions that were paid for, as long as few enough values take part.

        Values are counted question by question, so that many questions found at once, as at the start, are
        bounded like those that come slowly.
        """
        planned: dict[str, Plan] = {}
        values = len(self._published.joint)
        for key, text in texts.items():
            plan = self._read(key, text, is_full=values > _MOST_RECORDED)
            if plan is not None:
                planned[key] = plan
                values += plan.values
        return planned

    def _read(self, key: str, text: str, *, is_full: bool) -> Plan | None:
        """Return the plan of a question that was paid for, once, if it is about this declaration.

        A text from which the key is not derived says nothing about the key: the right text may still come.
        """
        now = self._published
        if key in now.plans or key in self._others:
            return None
        if not isinstance(text, str) or not is_named_after(key, text):
            return None
        self._others.add(key)
        if is_full:
            return None
        try:
            plan = self._make.planned(parse(text, self._data))
        except ParameterError:  # a text of another data set, version or declaration
            return None
        if plan.question.key != key or plan.values > MOST_VALUES:
            return None
        self._others.discard(key)
        return plan


def _is_news(now: Published, reading: Reading, numbers: tuple[int, ...]) -> bool:
    """Return True if more is recorded under a key than is published."""
    key = reading.key
    return reading.information > now.joint.recorded(key) or now.numbers.get(key, ()) != numbers
