"""Repetition of a race until its planted fault is caught, with counts at the end of the run.

Only `tests/races` uses it: whether one attempt hits the fault depends on the moment of a kill or on the
scheduler. Tests of `make test` enumerate crash points instead, see `crash_points.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

Evidence = TypeVar("Evidence")
RecordProperty = Callable[[str, object], None]

COUNT_PROPERTY = "race count"  # travels with the report of a test, also from a worker of pytest-xdist


class RaceCounter:
    """Counts of one race test, shown in the summary of the run."""

    def __init__(self, record_property: RecordProperty) -> None:
        self._record = record_property

    def report(self, text: str) -> None:
        """Show one line for this test in the summary, e.g. "40 kills, 1,234 requests"."""
        self._record(COUNT_PROPERTY, text)

    def repeat_until_caught(
        self, attempt: Callable[[int], Evidence], *, max_attempts: int, name: str = "planted fault"
    ) -> Evidence:
        """Repeat an attempt until it returns evidence of the planted fault, and report the count.

        Args:
            attempt: Function of the attempt's number, from 0; it returns what it caught (anything true).
            max_attempts: Number of attempts after which the fault counts as missed.
            name: Name of the fault, for the summary and the failure message.

        Returns:
            The evidence of the attempt that caught the fault.

        Raises:
            AssertionError: If no attempt caught the fault.
        """
        for number in range(max_attempts):
            if evidence := attempt(number):
                self.report(f"{name}: caught at attempt {number + 1} of at most {max_attempts}")
                return evidence
        self.report(f"{name}: MISSED in {max_attempts} attempts")
        raise AssertionError(f"{name} was not caught in {max_attempts} attempts; raise the count or the load")


@pytest.fixture
def race_counter(record_property: RecordProperty) -> RaceCounter:
    """Return the counter of the running test."""
    return RaceCounter(record_property)


def count_lines(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Return one line per recorded count, sorted by test."""
    return sorted(
        f"{report.nodeid}: {text}"
        for report in reports
        if report.when == "call"
        for name, text in report.user_properties
        if name == COUNT_PROPERTY
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the counts of all race tests at the end of the run."""
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if isinstance(report, pytest.TestReport)
    ]
    if lines := count_lines(reports):
        terminalreporter.section("counts of races")
        for line in lines:
            terminalreporter.write_line(line)
