"""The experiments on the service, in quick mode: a real process is asked. No seconds are asserted."""

import sys
from dataclasses import replace

import pytest

from reticent.errors import SourceError
from reticent.experiments import find
from reticent.experiments.zhao_2022.chapter_4 import service_cpu, service_latency, services

from .test_registry import check_files


def test_latency_of_every_crowd(quick):
    outcome, files = find("service-latency").run(quick)
    check_files("service-latency", outcome, files)
    named = [(row["grid, s"], row["analysts"], row["queries"], row["way"]) for row in outcome.rows]
    assert named == [
        (grid, size, number, way)
        for grid in service_latency.QUICK_GRIDS_S
        for size in service_latency.QUICK_CROWDS
        for number in service_latency.QUICK_QUERIES
        for way in service_latency.WAYS
    ]
    assert all(0 < row["median, s"] <= row["95 %, s"] <= row["most, s"] for row in outcome.rows)
    for row in outcome.rows:
        assert row["charged"] == (row["queries"] if row["way"] == service_latency.FRESH else 0)
        assert row["most, s"] >= row["grid, s"]


def test_cpu_of_every_side(quick):
    outcome, files = find("service-cpu").run(replace(quick, repetitions=2))
    check_files("service-cpu", outcome, files)
    for side in service_cpu.SIDES:
        for way in service_cpu.WAYS:
            chosen = [row for row in outcome.rows if (row["side"], row["way"]) == (side, way)]
            assert [row["queries"] for row in chosen] == list(range(1, service_cpu.QUICK_QUERIES + 1))
            seconds = [row["CPU, s"] for row in chosen]
            assert seconds == sorted(seconds)
            assert seconds[0] >= 0


def test_questions_that_are_not_new_are_seen():
    """Planted: the series that is called fresh was asked before."""

    class Asked:
        def ask(self, query):
            return False

    class Worn:
        def questions(self, queries):
            return ["the same"] * queries

    with pytest.raises(AssertionError):
        service_latency._rows(Worn(), [Asked()], 2, 0.0)


def test_a_service_that_does_not_start_is_said(monkeypatch):
    program = "import sys; sys.exit('no ledger' if 'serve' in sys.argv else 0)"
    monkeypatch.setattr(services, "_COMMAND", (sys.executable, "-c", program))
    with pytest.raises(SourceError, match="the service does not start: no ledger"), services.serving(0.0, 1):
        pass
