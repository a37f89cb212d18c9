"""Kill -9 of a bridge between a real MQTT broker and a collector."""

import pytest

from ..unit.collect.many_devices import Fleet
from ..unit.collect.test_mqtt import killed, name, port

__all__ = ["name", "port"]  # fixtures

ACKNOWLEDGES_FIRST = """
def receive(self, reports): strike(); return true(self, reports)
def deliver(self):
    for message in self._messages:
        self._client.ack(message.mid, message.qos)
    time.sleep({pause_s})  # a slow disk: the broker reads them meanwhile
    self._collector.receive(self._reports)
    self._forget()
Bridge._deliver = deliver
"""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_a_killed_bridge_loses_and_doubles_nothing(port, name, tmp_path, race_counter, rounds):
    strikes = ["before the commit", "after the commit", "after the commit", "none"] * rounds
    faults, _ = killed(Fleet(800 * rounds), port, name, tmp_path / "c", strikes)
    race_counter.report(f"{len(strikes)} kills")
    assert faults == []


def test_planted_a_bridge_that_acknowledges_first_is_caught(port, name, tmp_path, race_counter):
    """A broker that is slow to read what was acknowledged is given more time."""

    def attempt(number):
        strikes = [ACKNOWLEDGES_FIRST.format(pause_s=0.5 * (1 + number))]
        faults, _ = killed(Fleet(100), port, f"{name}{number}", tmp_path / str(number), strikes)
        return [fault for fault in faults if "lost" in fault]

    race_counter.repeat_until_caught(attempt, max_attempts=20)
