"""Collectors side by side behind one broker, on one database: all is counted once, whichever is killed."""

import threading
import time

import pytest

from reticent.collect.collector import Collector
from reticent.collect.mqtt import Bridge
from reticent.collect.wire import Outcome
from reticent.errors import ParameterError

from . import broker, mosquitto
from .many_devices import MASTER, PERIOD_S, Fleet, make_survey
from .side_by_side import publish, survived, until


@pytest.fixture(scope="module")
def shared_port(tmp_path_factory):
    with mosquitto.running(tmp_path_factory.mktemp("mosquitto")) as port:
        yield port


@pytest.fixture(scope="module")
def plain_port(tmp_path_factory):
    with broker.running(tmp_path_factory.mktemp("broker")) as port:
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


def divided(port, topic):
    """Two bridges that divide the topics among them, for a broker that knows no groups."""
    login = {"username": broker.USER, "password": broker.PASSWORD}
    members = [{"port": port, "name": f"{topic}{n}", "topic": f"{topic}/{n}", **login} for n in (1, 2)]
    return members, [f"{topic}/{n}/reports" for n in (1, 2)]


def fleet_of(devices, rounds):
    return Fleet(devices, make_survey(start=int(time.time()) - (rounds + 1) * PERIOD_S))


def found(shape, port, address, name, *, devices=600, rounds=1, kills=4, **options):
    members, topics = shape(port, name)
    fleet = fleet_of(devices, rounds)
    faults, done = survived(fleet, rounds, address, port, members, topics, kills=kills, **options)
    assert done >= kills
    return faults


def test_two_of_which_one_is_killed_again_and_again(shared_port, address):
    assert found(grouped, shared_port, address, "quick", devices=2000, kills=5) == []


def test_two_that_divide_the_topics(plain_port, address):
    assert found(divided, plain_port, address, "divided", devices=300, kills=3) == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_million_reports_and_a_kill_every_second(shared_port, address):
    faults = found(
        grouped, shared_port, address, "million", devices=100_000, rounds=10, kills=60, every_s=1.0
    )
    assert faults == []


@pytest.mark.parametrize(
    ("planted", "wrong"), [("early", "lost"), ("remembered", "too many"), ("apart", "lost")]
)
def test_planted(shared_port, address, planted, wrong):
    """A kill may miss the moment: five times are enough."""
    for number in range(5):
        faults = found(
            grouped, shared_port, address, f"{planted}{number}", devices=200, kills=3, planted=planted
        )
        if any(wrong in one for one in faults):
            return
    raise AssertionError(faults)


class Slow(Collector):
    """A collector whose disk stands still until it is let on."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.brought, self.go = [], threading.Event()

    def receive(self, reports):
        self.brought += reports
        assert self.go.wait(60)
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
