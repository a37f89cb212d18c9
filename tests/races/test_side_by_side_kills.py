"""Collectors side by side behind one broker, on one database: all is counted once, whichever is killed."""

import time

import pytest

from ..unit.collect import broker, mosquitto
from ..unit.collect.many_devices import PERIOD_S, Fleet, make_survey
from ..unit.collect.side_by_side import survived


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
def test_planted(shared_port, address, race_counter, planted, wrong):
    def attempt(number):
        faults = found(
            grouped, shared_port, address, f"{planted}{number}", devices=200, kills=3, planted=planted
        )
        return [fault for fault in faults if wrong in fault]

    race_counter.repeat_until_caught(attempt, max_attempts=20, name=planted)
