"""What is recorded about a data set, by anybody, ready to be combined: kept up with the ledger.

Questions' texts come from the ledger and are believed only if their keys are named after them; one that is
not about this declaration, letter for letter, takes no part. What is recorded under each is read from the
ledger again when something was paid for under it, and until all of that is recorded. So what is known here is
at most what is recorded: whoever pays meanwhile makes an answer better, and none wrong.
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
"""How a purchase was measured, and the numbers of its recorded measurements."""

_MOST_RECORDED = 1 << 14  # values that take part: more would take longer and cost no truth


class Published(NamedTuple):
    """What was recorded as of one look. Nothing is recorded in it any more, so threads ask it without a lock.

    Attributes:
        joint: Estimates from all of it.
        plans: How each purchase was measured, by key.
        numbers: Numbers of the recorded measurements, by key.
    """

    joint: Joint
    plans: dict[str, Plan]
    numbers: dict[str, tuple[int, ...]]

    def successor(self) -> Published:
        """Return a copy to record more in."""
        return Published(self.joint.successor(), dict(self.plans), dict(self.numbers))


class Purchases:
    """All purchases about one declaration. Threads may share it.

    The lock is held while the ledger is read and what is new there is taken in, never while something is
    estimated: prices and answers are found in what was published last, and wait for no other.

    Args:
        data: the declaration.
        ledger: where they are recorded.
        plans: how questions are measured; tells the ledger of each.
    """

    def __init__(self, data: DataSet, ledger: Ledger, plans: Plans) -> None:
        self._data, self._ledger, self._make = data, ledger, plans
        self._guard = threading.Lock()
        self._published = Published(Joint(data), {}, {})
        self._others: set[str] = set()  # keys that take no part
        self._waiting: set[str] = set()  # keys under which not all is recorded
        self._seen = 0

    def __len__(self) -> int:
        """Return how many recorded values take part, as of the last look."""
        return len(self._published.joint)

    def combines(self, query: Query, plan: Plan, own: Reading) -> bool:
        """Whether a question may be answered from others; if so, what is recorded is looked at.

        What is recorded under the question itself takes part in any case, whether its text is kept or not.
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

        Both are as of one look: the charge is made of their sum.
        """
        joint = self._published.joint
        return joint.recorded(plan.question.key), joint.fresh(plan, wanted)

    def estimates(self, plan: Plan) -> tuple[Estimate, ...] | None:
        """The best estimate of each coordinate; None if one is outside of the span."""
        return self._published.joint.estimates(plan)

    def supposable(self) -> Joint:
        """All of them, in a joint estimate of its own: what is supposed there stays there."""
        self._look()
        return self._published.joint.copied()

    def told(self, plan: Plan) -> tuple[tuple[Estimate, ...], dict[str, Looked]] | None:
        """The estimates, and of each purchase in them how it was measured and its recorded measurements.

        All as of one look: what others record meanwhile is in all of it or in none.
        """
        now = self._published
        found = now.joint.estimates(plan)
        if found is None:
            return None
        keys = dict.fromkeys(key for one in found for key in one.keys)
        return found, {key: (now.plans[key], now.numbers.get(key, ())) for key in keys}

    def _look(self) -> None:
        """Take in what was recorded since the last look, and publish it."""
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

        They are counted one by one: what is found at once, as at the start, is bounded as what comes slowly.
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

        A text that the key is not named after says nothing about the key: the right one may still come.
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
        except ParameterError:  # of another data set, version or declaration
            return None
        if plan.question.key != key or plan.values > MOST_VALUES:
            return None
        self._others.discard(key)
        return plan


def _is_news(now: Published, reading: Reading, numbers: tuple[int, ...]) -> bool:
    """Return whether more is recorded under a key than is published."""
    key = reading.key
    return reading.information > now.joint.recorded(key) or now.numbers.get(key, ()) != numbers
