"""Bridges that share the messages of one broker."""

import threading
import time

import pytest

from reticent.collect.collector import Collector
from reticent.collect.mqtt import Bridge
from reticent.collect.wire import Outcome
from reticent.errors import ParameterError

from . import mosquitto
from .many_devices import MASTER, PERIOD_S, Fleet, make_survey
from .side_by_side import publish, until


@pytest.fixture(scope="module")
def shared_port(tmp_path_factory):
    with mosquitto.running(tmp_path_factory.mktemp("mosquitto")) as port:
        yield port


@pytest.fixture
def address(postgres):
    return postgres()


def grouped(port, topic, **options):
    """Two members of a group at mosquitto, and the topics to which devices send."""
    names = (f"{topic}-one", f"{topic}-two")
    return [{"port": port, "name": name, "topic": topic, "group": "all", **options} for name in names], [
        f"{topic}/reports"
    ]


def fleet_of(devices, rounds):
    return Fleet(devices, make_survey(start=int(time.time()) - (rounds + 1) * PERIOD_S))


class Slow(Collector):
    """A collector whose disk stands still until it is let on."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.brought, self.go = [], threading.Event()

    def receive(self, reports):
        self.brought += reports
        assert self.go.wait(300)
        return super().receive(reports)


def test_a_broker_sends_no_more_than_may_be_ahead(shared_port, address):
    """While the first commit is written the others stay with the broker, not in memory."""
    fleet = fleet_of(500, 0)
    fleet.collector(address).close()
    (member, _), topics = grouped(shared_port, "bounded", ahead=40, most=10_000, wait_s=0.2)
    with Slow(address, MASTER) as collector:
        bridge = Bridge(collector, "127.0.0.1", **member)
        thread = threading.Thread(target=bridge.run)
        thread.start()
        try:
            until(bridge.is_ready.is_set)
            publish(shared_port, topics, fleet.reports())
            until(lambda: collector.brought)
            assert len(collector.brought) <= 40
            collector.go.set()
            until(lambda: bridge.outcomes.total() == 500)
            assert bridge.outcomes == {Outcome.COUNTED: 500}
        finally:
            collector.go.set()
            bridge.stop()
            thread.join()


@pytest.mark.parametrize("group", ["", "a/b", "a+", "#"])
def test_groups_have_names_that_topics_can_hold(group):
    with pytest.raises(ParameterError, match="group must not be empty"):
        Bridge(None, "127.0.0.1", group=group)
