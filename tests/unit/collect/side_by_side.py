"""Collectors side by side: bridges as processes that are killed, on one broker and one database.

They come from a server that has imported everything, so that one is back in a moment.
"""

import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
import time

import paho.mqtt.client as paho

from reticent.collect.collector import Collector
from reticent.collect.counts.postgres import PostgresCounts
from reticent.collect.mqtt import Bridge
from reticent.collect.wire import Outcome

from .many_devices import MASTER

PATIENCE_S = 600.0  # of a test that would otherwise hang
WINDOW = 5000  # messages that the broker has not acknowledged to a publisher
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tests.unit.collect.side_by_side", "psycopg"])


def early(self):
    """Planted: acknowledge, then count."""
    for message in self._messages:
        self._client.ack(message.mid, message.qos)
    time.sleep(0.3)  # a slow disk, in which it is killed
    self.outcomes.update(self._collector.receive(self._reports))
    self._forget()


def remembered(seen):
    """Planted: who came is remembered by the process alone."""

    def see(self, number, periods, who):
        found = [Outcome.DUPLICATE if row.tobytes() in seen else Outcome.COUNTED for row in who]
        seen.update(row.tobytes() for row in who)
        return found

    return see


def apart(self, cells):
    """Planted: who came is committed before the count is."""
    self._connection.execute("COMMIT")
    time.sleep(0.3)  # in which it is killed
    self._connection.execute("BEGIN")
    add(self, cells)


add = PostgresCounts.add


def serve(address, options, planted, ready):
    """A collector that takes what a broker has, until it is killed."""
    if planted == "early":
        Bridge._deliver = early
    if planted == "remembered":
        PostgresCounts.see = remembered(set())
    if planted == "apart":
        PostgresCounts.add = apart
    with Collector(address, MASTER) as collector:
        bridge = Bridge(collector, "127.0.0.1", **options)
        bridge.is_ready = ready
        bridge.run()


class Crew:
    """Processes that are started, killed and started anew.

    Args:
        address: of the database.
        members: the options of each one's bridge.
        planted: what is wrong with them.
    """

    def __init__(self, address, members, planted=None):
        self._address, self._members, self._planted = address, members, planted
        self._running, self._ready, self.kills = {}, {}, 0

    def start(self, number):
        """Start one; it is waited for until the broker knows it."""
        ready = self._ready[number] = SERVER.Event()  # which must be there when it begins
        given = (self._address, self._members[number], self._planted, ready)
        process = SERVER.Process(target=serve, args=given, daemon=True)
        process.start()
        self._running[number] = process
        return ready

    def kill(self, number):
        """Kill -9."""
        process = self._running.pop(number)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        self.kills += 1

    def __enter__(self):
        for ready in [self.start(number) for number in range(len(self._members))]:
            assert ready.wait(PATIENCE_S)
        return self

    def __exit__(self, *_):
        for number in list(self._running):
            self.kill(number)


def publish(port, topics, reports):
    """Publish reports at QoS 1, a message each, to topics in turn; the broker has them when it returns."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(WINDOW)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        turns = itertools.cycle(topics)
        for start in range(0, len(reports), WINDOW):
            sent = [client.publish(next(turns), one, qos=1) for one in reports[start : start + WINDOW]]
            for one in sent:
                one.wait_for_publish(PATIENCE_S)
                assert one.is_published()
    finally:
        client.disconnect()
        client.loop_stop()


def until(look, seconds=PATIENCE_S):
    """Wait for something."""
    end = time.monotonic() + seconds
    while not look():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing after {seconds} s")
        time.sleep(0.05)


def survived(fleet, rounds, address, port, members, topics, *, kills, every_s=None, planted=None):
    """What is wrong after all devices reported in all rounds while collectors were killed in turn.

    Args:
        fleet: of devices.
        rounds: periods in which each of them reports; one more is sent after the last kill.
        address: of the database.
        port: of the broker.
        members: the options of each collector's bridge.
        topics: to which reports are sent in turn.
        kills: how many at least.
        every_s: how often one is killed; None for as often as the counts have grown by a part of them.
        planted: what is wrong with the collectors. They are not waited for to the end.
    """
    fleet.collector(address).close()
    reports = [one for period in range(rounds) for one in fleet.reports(period)]
    last = fleet.reports(rounds)
    with Crew(address, members, planted) as crew, Collector(address, MASTER) as collector:
        counted = lambda: sum(collector.periods(fleet.survey).values())  # noqa: E731
        sending = threading.Thread(target=publish, args=(port, topics, reports))
        sending.start()
        for number in itertools.count():
            if every_s is None:
                if number >= kills:
                    break
                due = (number + 1) * len(reports) // (kills + 2)
                with contextlib.suppress(TimeoutError):  # planted ones may never come so far
                    until(lambda due=due: counted() >= due, PATIENCE_S if planted is None else 2.0)
            else:
                time.sleep(every_s)
                if number >= kills and counted() >= len(reports):
                    break
            crew.kill(number % len(members))
            crew.start(number % len(members))
        sending.join()
        if planted is None:
            until(lambda: counted() >= len(reports))
        publish(port, topics, last)
        with contextlib.suppress(TimeoutError):
            # every queue is in order: what came before the last ones came before
            everything = len(reports) + len(last)
            until(lambda: collector.periods(fleet.survey).get(rounds, 0) >= len(last) and
                  counted() >= everything, PATIENCE_S if planted is None else 3.0)  # fmt: skip
        return fleet.faults(collector), crew.kills
