"""Planted bugs in the query engine: openers like `reticent.open` whose sessions are wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from reticent.audit.findings import Finding
from reticent.audit.paths.queries import Opener, audit_queries
from reticent.query.language.questions import Question
from reticent.query.language.tree import Comparison, Query
from reticent.query.measure import Plan
from reticent.query.opening import open as opened
from reticent.query.plans import Plans
from reticent.query.session import Session
from reticent.randomness import SimulationStream, Stream


class _HalfPlans(Plans):
    def planned(self, question: Question) -> Plan:
        made = super().planned(question)
        return replace(made, sensitivity=made.sensitivity // 2)


class HalfTheSensitivity:
    """A session that believes a row moves an answer half as far as it does."""

    def __call__(self, path: Path, **options: Any) -> Session:
        """Open the data set."""
        session = opened(path, **options)
        session._plans = _HalfPlans(session.data, session._ledger)
        return session


class _CheapPlan(Plan):
    def measure(self, exact: list[int], information: int, rng: Stream | None = None) -> list[int]:
        return super().measure(exact, 4 * information, rng)


class _CheapPlans(Plans):
    def planned(self, question: Question) -> Plan:
        made = super().planned(question)
        return _CheapPlan(made.question, made.shift, made.weight, made.sensitivity)


class CheapNoise:
    """A session that draws the noise of a question for four times of what was paid."""

    def __call__(self, path: Path, **options: Any) -> Session:
        """Open the data set."""
        session = opened(path, **options)
        session._plans = _CheapPlans(session.data, session._ledger)
        return session


class SeedOfTheSession:
    """A session whose noise begins with a fixed seed: equal tables get equal noise."""

    def __call__(self, path: Path, **options: Any) -> Session:
        """Open the data set."""
        session = opened(path, **options)
        session._rng = SimulationStream(7)
        return session


class _Forgetful(Session):
    """Asks another question each time, which has the same exact answer."""

    _asked = count()

    def ask(self, query: Any, *given: Any, **options: Any) -> Any:
        assert isinstance(query, Query)
        later = Comparison("k", "<=", 1000 + next(self._asked))
        return super().ask(replace(query, where=later), *given, **options)


class ForgetsQuestions:
    """A session that knows no question again: each time it is asked, noise is drawn anew."""

    def __call__(self, path: Path, **options: Any) -> Session:
        """Open the data set."""
        session = opened(path, **options)
        session.__class__ = _Forgetful
        return session


def audited(check: str, kind: str, relation: str) -> Callable[[Opener, bool], Finding]:
    """One check of an audit of queries."""

    def find(opener: Opener, quick: bool) -> Finding:
        report = audit_queries(kind, relation, quick=quick, opener=opener)
        return next(found for found in report.findings if found.check == check)

    return find
