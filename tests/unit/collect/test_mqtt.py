"""Reports over a real MQTT broker: all are counted once, whenever the bridge dies."""

import contextlib
import datetime
import gc
import ipaddress
import signal
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter

import paho.mqtt.client as paho
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from reticent.collect import mqtt
from reticent.collect.collector import Collector
from reticent.collect.counts import sqlite as counts_in_sqlite
from reticent.collect.mqtt import Bridge
from reticent.collect.wire import Outcome, batch
from reticent.errors import ParameterError

from . import broker
from .many_devices import MASTER, PERIOD_S, Fleet, make_survey

PATIENCE_S = 300.0  # of a test that would otherwise hang
LOGIN = {"username": broker.USER, "password": broker.PASSWORD}


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    with broker.running(tmp_path_factory.mktemp("broker")) as found:
        yield found


@pytest.fixture
def fleet():
    return Fleet(200)


@pytest.fixture
def name(request):
    """Of the bridge, and of its topic: each test has its own session."""
    return "".join(filter(str.isalnum, request.node.name))


def until(look, seconds=PATIENCE_S):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if look():
            return
        time.sleep(0.01)
    raise AssertionError(f"nothing after {seconds} s")


@contextlib.contextmanager
def bridging(collector, port, name, **options):
    """A bridge in a thread."""
    bridge = Bridge(collector, "127.0.0.1", port, name=name, topic=name, **{**LOGIN, **options})
    thread = threading.Thread(target=bridge.run)
    thread.start()
    try:
        until(bridge.is_ready.is_set)
        yield bridge
    finally:
        bridge.stop()
        thread.join()


@contextlib.contextmanager
def publishing(port, topic, tls=None):
    """A function that publishes many messages at QoS 1 and waits until the broker has them."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    if tls is not None:
        client.tls_set_context(tls)
    client.connect("127.0.0.1", port)
    client.loop_start()

    def publish(payloads, below="reports", pause_s=0.0):
        sent = []
        for payload in payloads:
            sent.append(client.publish(f"{topic}/{below}", payload, qos=1))
            time.sleep(pause_s)
        for one in sent:
            one.wait_for_publish(PATIENCE_S)
            assert one.is_published()

    try:
        yield publish
    finally:
        client.disconnect()
        client.loop_stop()


def subscribed(path, port, name):
    """Let the broker know the bridge, which then goes away."""
    with Collector(path, MASTER) as collector, bridging(collector, port, name):
        pass


# All are counted


def test_single_reports_and_batches(fleet, port, name, tmp_path):
    reports = fleet.reports()
    with fleet.collector(tmp_path / "c") as collector, bridging(collector, port, name) as bridge:
        with publishing(port, name) as publish:
            publish(reports[:20])
            publish(reports[20:30], "reports/berlin/17")
            publish([batch(reports[30:190]), batch(reports[190:]), batch(reports[:5])], "batches/berlin")
        until(lambda: bridge.outcomes.total() == 205)
        assert bridge.outcomes == {Outcome.COUNTED: 200, Outcome.DUPLICATE: 5}
        assert fleet.faults(collector) == []


def flood(fleet, port, topic, connections, rounds, seconds):
    """Each device reports once in every round, over a few connections, spread over the time."""
    sizes = [fleet.reports(period) for period in range(rounds)]
    pause_s = seconds / (rounds * len(fleet.devices) / connections)
    failed = []

    def send(number):
        try:
            with publishing(port, topic) as publish:
                for reports in sizes:
                    publish(reports[number::connections], f"reports/{number}", pause_s)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    return rounds * len(fleet.devices)


def all_are_counted(port, name, path, *, identities, connections, rounds, seconds):
    survey = make_survey(start=int(time.time()) - rounds * PERIOD_S)
    fleet = Fleet(identities, survey)
    with fleet.collector(path) as collector, bridging(collector, port, name) as bridge:
        sent = flood(fleet, port, name, connections, rounds, seconds)
        until(lambda: bridge.outcomes.total() >= sent)
        assert fleet.faults(collector) == []
        assert bridge.outcomes[Outcome.COUNTED] == sent


def test_a_fleet_over_a_few_connections(port, name, tmp_path):
    all_are_counted(port, name, tmp_path / "c", identities=200, connections=4, rounds=2, seconds=1.0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_fleet_over_fifty_connections_in_full(port, name, tmp_path):
    all_are_counted(port, name, tmp_path / "c", identities=20_000, connections=50, rounds=5, seconds=600.0)


# Whatever happens

STRIKES = {
    "none": "",
    "before the commit": "def receive(self, reports): strike(); return true(self, reports)",
    "after the commit": "def receive(self, reports): told = true(self, reports); strike(); return told",
}
PROGRAM = """
import os, signal, sys, time
from reticent.collect.collector import Collector
from reticent.collect.mqtt import Bridge
path, master, port, name, username, password, left, planted = sys.argv[1:]
left, true, receive = int(left), Collector.receive, Collector.receive
def strike():
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
exec(planted)
Collector.receive = receive
collector = Collector(path, bytes.fromhex(master))
Bridge(collector, "127.0.0.1", int(port), name=name, topic=name, username=username, password=password).run()
"""


def bridge_process(path, port, name, strike, deliveries):
    """A bridge that kills itself at a moment of a delivery."""
    told = [path, MASTER.hex(), port, name, *LOGIN.values(), deliveries, STRIKES.get(strike, strike)]
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *map(str, told)])


def killed(fleet, port, name, path, strikes):
    """Publish while bridges die one after the other; what is wrong after a last one, and its outcomes."""
    fleet.collector(path).close()
    subscribed(path, port, name)
    reports = fleet.reports()
    ends = threading.Event()

    def publish():
        with publishing(port, name) as send:
            send(reports, pause_s=0.005)
        ends.set()

    thread = threading.Thread(target=publish)
    thread.start()
    for number, strike in enumerate(strikes):
        process = bridge_process(path, port, name, strike, number % 3 + 1)
        try:
            process.wait(1.5 if strike == "none" else PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
        assert process.wait() == -signal.SIGKILL
    thread.join()
    assert ends.is_set()
    with Collector(path, MASTER) as collector, bridging(collector, port, name) as bridge:
        is_complete = lambda: sum(collector.periods(fleet.survey).values()) >= len(reports)  # noqa: E731
        with contextlib.suppress(AssertionError):
            until(is_complete, PATIENCE_S if strikes[0] in STRIKES else 2.0)  # another one is planted
        return fleet.faults(collector), bridge.outcomes


def test_a_killed_bridge_loses_and_doubles_nothing(port, name, tmp_path):
    faults, told = killed(Fleet(300), port, name, tmp_path / "c", ["before the commit", "after the commit"])
    assert faults == []
    assert set(told) <= {Outcome.COUNTED, Outcome.DUPLICATE}


def test_what_was_counted_and_not_acknowledged_comes_again_as_a_duplicate(fleet, port, name, tmp_path):
    fleet.collector(tmp_path / "c").close()
    subscribed(tmp_path / "c", port, name)
    with publishing(port, name) as publish:
        publish([batch(fleet.reports())], "batches")
    assert bridge_process(tmp_path / "c", port, name, "after the commit", 1).wait(PATIENCE_S) == -9
    with Collector(tmp_path / "c", MASTER) as collector, bridging(collector, port, name) as bridge:
        until(lambda: bridge.outcomes.total() == 200)
        assert bridge.outcomes == {Outcome.DUPLICATE: 200}
        assert fleet.faults(collector) == []


def test_the_broker_keeps_what_comes_while_the_bridge_is_away(fleet, port, name, tmp_path):
    fleet.collector(tmp_path / "c").close()
    subscribed(tmp_path / "c", port, name)
    with publishing(port, name) as publish:
        publish(fleet.reports())
    with Collector(tmp_path / "c", MASTER) as collector, bridging(collector, port, name) as bridge:
        until(lambda: bridge.outcomes.total() == 200)
        assert fleet.faults(collector) == []


def test_what_is_no_report_is_refused_once(fleet, port, name, tmp_path):
    reports = fleet.reports()
    forged = reports[0][:-1] + bytes([reports[0][-1] ^ 1])
    with fleet.collector(tmp_path / "c") as collector:
        with bridging(collector, port, name) as bridge, publishing(port, name) as publish:
            publish([b"", b"\x09", forged, bytes(100), reports[1]])
            publish([batch(reports[2:5])[:-1], b"\x00", bytes(mqtt.LARGEST + 1)], "batches")
            publish([b"", batch([b"", reports[5]])], "batches")
            until(lambda: bridge.outcomes.total() == 10)
            told = {one.value: n for one, n in bridge.outcomes.items()}
        assert told == {"counted": 2, "length": 5, "version": 2, "tag": 1}
        assert collector.rejected() == {"length": 5, "version": 2, "tag": 1}
        with bridging(collector, port, name) as bridge, publishing(port, name) as publish:
            publish(reports[6:7])  # nothing else comes again
            until(lambda: bridge.outcomes.total() >= 1)
            assert bridge.outcomes == {Outcome.COUNTED: 1}


def test_a_collector_that_cannot_write_leaves_everything_to_the_broker(
    fleet, port, name, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(counts_in_sqlite, "PATIENCE_S", 0.05)
    with fleet.collector(tmp_path / "c") as collector, bridging(collector, port, name) as bridge:
        with contextlib.closing(sqlite3.connect(tmp_path / "c", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with publishing(port, name) as publish:
                publish(fleet.reports())
            until(lambda: caplog.text.count("StorageUnavailable") >= 2)
            assert bridge.outcomes == Counter()
            other.execute("ROLLBACK")
        until(lambda: bridge.outcomes.total() >= 200)
        assert fleet.faults(collector) == []


def test_a_broker_that_comes_back_finds_the_bridge(fleet, name, tmp_path):
    reports = fleet.reports()
    with fleet.collector(tmp_path / "c") as collector, contextlib.ExitStack() as held:
        with broker.running(tmp_path) as port:
            bridge = held.enter_context(bridging(collector, port, name))
            with publishing(port, name) as publish:
                publish(reports[:100])
            until(lambda: bridge.outcomes.total() == 100)
        until(lambda: not bridge.is_ready.is_set())
        with broker.running(tmp_path, port=port):
            until(bridge.is_ready.is_set)
            with publishing(port, name) as publish:
                publish(reports[100:])
            until(lambda: bridge.outcomes.total() == 200)
        assert fleet.faults(collector) == []


def test_a_broker_that_refuses(fleet, port, tmp_path):
    with fleet.collector(tmp_path / "c") as collector:
        bridge = Bridge(collector, "127.0.0.1", port, username=broker.USER, password="another")
        with pytest.raises(ParameterError, match="the broker refused the bridge"):
            bridge.run()


@pytest.fixture
def certificate(tmp_path):
    """The file of a key, and of a certificate for 127.0.0.1 that it signed itself."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now, place = datetime.datetime.now(datetime.UTC), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([place]), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = tmp_path / "certificate.pem"
    path.write_bytes(key.private_bytes(*form) + made.public_bytes(Encoding.PEM))
    return str(path)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho leaves a socket open
def test_tls(fleet, name, tmp_path, certificate, caplog):
    trusted = ssl.create_default_context(cafile=certificate)
    with (
        fleet.collector(tmp_path / "c") as collector,
        broker.running(tmp_path, certificate=certificate) as port,
    ):
        with bridging(collector, port, name, tls=trusted) as bridge:
            with publishing(port, name, tls=trusted) as publish:
                publish(fleet.reports())
            until(lambda: bridge.outcomes.total() == 200)
            assert fleet.faults(collector) == []
        bridge = Bridge(collector, "127.0.0.1", port, tls=ssl.create_default_context(), **LOGIN)
        thread = threading.Thread(target=bridge.run)
        thread.start()
        until(lambda: "SSLCertVerificationError" in caplog.text)
        bridge.stop()
        thread.join()
    bridge = thread = None
    gc.collect()  # here, and not in the time of another test


@pytest.mark.parametrize(
    "options", [{"name": ""}, {"topic": ""}, {"topic": "a/#"}, {"topic": "+"}, {"most": 0}]
)
def test_bad_options(options):
    with pytest.raises(ParameterError):
        Bridge(None, "127.0.0.1", **options)
