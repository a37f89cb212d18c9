"""T21: clients that are slow or endless are cut off, and leave the others their answers."""

import contextlib
import http.client
import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from ..service.running import BASE, MEAN, make_keys

CROWD = Path(__file__).with_name("crowd.py")
KINDS = ("silent", "slow head", "slow body", "declared", "chunked")
FEW = {**dict(zip(KINDS, (60, 60, 60, 4, 4), strict=True)), "pause_s": 0.1, "bytes": 4 * 10**8}
MANY = {**dict(zip(KINDS, (300, 300, 400, 8, 8), strict=True)), "pause_s": 0.5, "bytes": 10**10}
IMPATIENT = "from reticent.service import protocol\nprotocol.HEAD_S = 3.0\n"
PATIENT = """
from reticent.service import guard, protocol
async def taken(self, scope, receive):
    return receive
guard.Guard._taken = taken
for name in ("_expect", "_wait"):
    setattr(protocol.BoundedProtocol, name, lambda self: None)
"""
MOST_GROWN_MB = 100


class Whole(http.client.HTTPConnection):
    """Sends head and body at once: who is held up between the two is a slow client too."""

    def _send_output(self, message_body=None, encode_chunked=False):
        whole = b"\r\n".join((*self._buffer, b"", message_body or b""))
        self._buffer.clear()
        self.send(whole)


class Healthy:
    """A client that asks what was asked before, on an old connection and on new ones in turn."""

    def __init__(self, service, key):
        self.port, self.head = service.port, {"Authorization": f"Bearer {key}"}
        self.old = self._connected()  # which opens again by itself
        self.times, self.refused = [], []

    def _connected(self):
        return Whole("127.0.0.1", self.port, timeout=120)

    def _call(self, connection, method, path, body=None):
        start = time.perf_counter()
        try:
            kind = {"Content-Type": "application/json"} if body else {}
            connection.request(method, path, body, self.head | kind)
            reply = connection.getresponse()
            told, status = reply.read(), reply.status
        except (OSError, http.client.HTTPException) as error:
            told, status = b"{}", type(error).__name__
            connection.close()
        self.times.append(time.perf_counter() - start)
        if status != 200:
            self.refused.append(status)
        return told

    def ask(self, connection=None):
        return json.loads(self._call(connection or self.old, "POST", f"{BASE}/ask", json.dumps(MEAN)))

    def spent(self):
        told = self._call(self.old, "GET", f"{BASE}/budget")
        return json.loads(told).get("spent", told)

    def ask_twice(self):
        self.ask()
        with contextlib.closing(self._connected()) as new:
            self.ask(new)
        time.sleep(0.002)

    def work(self, seconds, enough=None):
        """For so long, or until there is enough."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not (enough and enough.is_set()):
            self.ask_twice()

    def p99_ms(self):
        return float(np.quantile(self.times, 0.99)) * 1e3


@contextlib.contextmanager
def crowded(service, counts):
    """A crowd at the door; what it reports is in the list once it is gone. The event: all kinds were cut."""
    told, lines, cut = [], [], threading.Event()
    crowd = subprocess.Popen(
        [sys.executable, str(CROWD), str(service.port), json.dumps(counts)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def listen():
        for line in crowd.stdout:
            lines.append(line)
            cut.set()

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield told, cut
        crowd.stdin.close()
        crowd.wait(60)
        thread.join()
        told.append(json.loads(lines[-1]))
    finally:
        crowd.kill()
        crowd.wait()
        thread.join()
        crowd.stdin.close()
        crowd.stdout.close()


def megabytes(service, what):
    """VmRSS, or VmHWM: the most that it ever was."""
    lines = Path(f"/proc/{service.process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1]) / 1024


def harm(service, key, counts, seconds):
    """What a crowd does to a service."""
    healthy = Healthy(service, key)
    healthy.work(0.5)
    before, spent = megabytes(service, "VmHWM"), healthy.spent()
    with crowded(service, counts) as (told, cut):
        healthy.work(seconds, cut)
    done = []
    uncut = [kind for kind in KINDS if not told[0]["cut"].get(kind)]
    if healthy.refused:
        done.append(f"{len(healthy.refused)} healthy requests were refused: {set(healthy.refused)}")
    if uncut:
        done.append(f"never cut: {uncut}")
    grown = megabytes(service, "VmHWM") - before
    if grown > MOST_GROWN_MB:
        done.append(f"grown by {grown:.0f} MB")
    if healthy.spent() != spent:
        done.append("charged")
    healthy.old.close()
    print(told[0], f"{len(healthy.times)} healthy requests, {grown:.0f} MB more")
    return done


def test_a_crowd_harms_nobody(process, keys):
    """There are fewer places than slow bodies."""
    service = process(planted=IMPATIENT, body_s=3.0, most_at_once=32)
    assert harm(service, keys["alice"], FEW, 120.0) == []


def test_patience_with_a_crowd_is_caught(process, keys):
    service = process(planted=PATIENT)
    done = harm(service, keys["alice"], FEW, 4.0)
    assert f"never cut: {list(KINDS)}" in done  # how much it keeps of them is a matter of speed


@pytest.mark.slow
def test_the_slowest_hundredth_stays_below_twice(process, keys, made_census, tmp_path):
    """Beside a service that the crowd spares: other work of the machine, the crowd's own too, slows both.

    The middle one of several, since one pause of the machine in 100 requests is all that there is to see.
    """
    spared_folder = tmp_path / "spared"
    shutil.copytree(made_census, spared_folder)
    spared_keys = make_keys(spared_folder)
    crowded_one, spared_one = process(), process(folder=spared_folder)
    crowd, spared = Healthy(crowded_one, keys["alice"]), Healthy(spared_one, spared_keys["alice"])
    ratios = []
    for _ in range(5):
        for one in (crowd, spared):
            one.work(2.0)
            one.times = []
        with crowded(crowded_one, MANY) as (told, _):
            time.sleep(2.0)
            end = time.monotonic() + 12.0  # in which the slow ones are cut
            while time.monotonic() < end:
                crowd.ask_twice()
                spared.ask_twice()
        ratios.append(crowd.p99_ms() / spared.p99_ms())
        figures = f"{crowd.p99_ms():.1f} ms, spared {spared.p99_ms():.1f} ms"
        print(f"p99 of {len(crowd.times)} requests: {figures}; {told[0]}")
    for one in (crowd, spared):
        one.old.close()
        assert not one.refused
    assert np.median(ratios) < 2, ratios
