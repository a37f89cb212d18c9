"""Crashes of a collector behind a bridge: no acknowledged report is lost, none is counted twice."""

import os
import time

import paho.mqtt.client as paho
import pytest

from reticent.collect.collector import Collector
from reticent.collect.counts.postgres import PostgresCounts
from reticent.collect.mqtt import Bridge

from ...support.crash_points import enumerate_crashes
from .many_devices import MASTER, PERIOD_S, Fleet, make_survey
from .side_by_side import remembered

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

DEVICES, PERIODS = 12, 900
PER_DELIVERY = 6


class AckFile:
    """A client that appends the numbers of acknowledged messages to a file."""

    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def ack(self, mid, qos):
        os.write(self._file, b"%d\n" % mid)


def open_collector(address):
    """Open a collector that takes reports of any period."""
    return Collector(address, MASTER, late_s=PERIODS * PERIOD_S)


def deliver(collector, reports, acks):
    """Bring reports to a collector as a bridge does, a message each, in two deliveries."""
    bridge = Bridge(collector, "127.0.0.1")
    bridge._client = AckFile(acks)
    for number, report in enumerate(reports):
        message = paho.MQTTMessage(mid=number, topic=b"reticent/reports")
        message.payload, message.qos = report, 1
        bridge._on_message(None, None, message)
        if (number + 1) % PER_DELIVERY == 0:
            bridge._deliver()


def faults_after_crashes(address, acks):
    """End a collector at each of its points, and bring what was not acknowledged to another.

    Each crash has a period of its own. Yields each point with what is wrong with all counts since the first.
    """
    fleet = Fleet(DEVICES, make_survey(start=int(time.time()) - (PERIODS - 1) * PERIOD_S))
    fleet.collector(address).close()
    reports = fleet.reports(0)
    crashes = enumerate_crashes(
        lambda collector: deliver(collector, reports, acks),
        prepare=lambda: open_collector(address),
    )
    for period, point in enumerate(crashes, start=1):
        done = {int(line) for line in acks.read_text().split()} if acks.exists() else set()
        with open_collector(address) as collector:
            collector.receive([report for number, report in enumerate(reports) if number not in done])
            yield point, fleet.faults(collector)
        acks.unlink(missing_ok=True)
        reports = fleet.reports(period)


def test_a_crash_at_any_point_loses_and_doubles_nothing(counts_at, tmp_path):
    calls = []
    for point, faults in faults_after_crashes(counts_at, tmp_path / "acks"):
        assert faults == [], str(point)
        calls.append(point.call)
    assert calls.count("Connection.execute") >= 4
    assert calls.count("posix.write") == DEVICES


def is_caught(counts_at, tmp_path, words):
    crashes = faults_after_crashes(counts_at, tmp_path / "acks")
    return any(words in fault for _, faults in crashes for fault in faults)


def test_planted_an_acknowledgement_before_the_commit_is_caught(counts_at, tmp_path, monkeypatch):
    def deliver_early(self):
        for message in self._messages:
            self._client.ack(message.mid, message.qos)
        self.outcomes.update(self._collector.receive(self._reports))
        self._forget()

    monkeypatch.setattr(Bridge, "_deliver", deliver_early)
    assert is_caught(counts_at, tmp_path, "lost")


def test_planted_counting_without_looking_who_was_seen_is_caught(counts_at, tmp_path, monkeypatch):
    monkeypatch.setattr(Collector, "_seen", lambda self, checked: None)
    assert is_caught(counts_at, tmp_path, "too many")


def test_planted_a_commit_between_who_came_and_the_count_is_caught(postgres, tmp_path, monkeypatch):
    add = PostgresCounts.add

    def add_later(self, cells):
        self._connection.execute("COMMIT")
        self._connection.execute("BEGIN")
        add(self, cells)

    monkeypatch.setattr(PostgresCounts, "add", add_later)
    assert is_caught(postgres(), tmp_path, "lost")


def test_planted_who_came_remembered_by_the_process_alone_is_caught(postgres, tmp_path, monkeypatch):
    address = postgres()
    monkeypatch.setattr(PostgresCounts, "see", lambda self, *given: remembered(set())(self, *given))
    assert is_caught(address, tmp_path, "too many")
