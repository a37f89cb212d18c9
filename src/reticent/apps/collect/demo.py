"""`reticent demo collect`: simulated vehicles report over MQTT, and a page shows what the reports come to.

Everything is as in earnest: each vehicle has an enrolment, a ledger in a file and a secure stream; reports go
through a broker and the bridge to the collector of the service. Only the speeds are invented, so that the
truth can be shown beside the estimates.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from reticent.apps.collect.work import broker_address, table
from reticent.apps.query.demo import HOST, demo_keys, demo_listener
from reticent.arguments import whole
from reticent.cli import terminal
from reticent.collect.collector import Collector
from reticent.collect.design import designed
from reticent.collect.device import Device
from reticent.collect.estimates import estimates
from reticent.collect.local_broker import running
from reticent.collect.mqtt import Bridge
from reticent.collect.signing import signed
from reticent.collect.survey import Survey
from reticent.errors import ParameterError
from reticent.files import secluded
from reticent.fleet.enrolment import enrolled
from reticent.fleet.operator import LEDGER
from reticent.fleet.transport import publishing
from reticent.ledger.device.marks import Marks
from reticent.ledger.sql.ledger import SqlLedger
from reticent.mechanisms.record import Category, Number
from reticent.randomness import SECURE

PERIOD_S = 30
PERIODS = 5
KINDS = {"car": 0.7, "van": 0.15, "truck": 0.1, "bus": 0.05}
TOPIC = "reticent/reports"
PACE_S = 0.01  # between reports, so that they can be watched


def run(*, devices: int, broker: str | None, port: int | None, once: bool) -> None:
    """Serve, send vehicles out, and show what comes in; then stay.

    Args:
        devices: how many vehicles.
        broker: HOST:PORT of a running one; by default one is started.
        port: where the service listens; by default 8000, or any if that is taken.
        once: report one period without pauses, and end.
    """
    from reticent.apps.collect.collecting import Collecting
    from reticent.apps.service.serving import serving
    from reticent.service.serve import address
    from reticent.service.settings import Settings

    whole("devices", devices, low=10, high=100_000)
    screen = terminal.console()
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="reticent-")))
        listener = held.enter_context(demo_listener(port))
        keys = demo_keys(folder)
        settings = Settings(folder)
        ledger = held.enter_context(SqlLedger(folder / ".service" / LEDGER))
        collecting = Collecting(settings, lambda: ledger)
        held.callback(collecting.close)
        collector = collecting.collector
        survey = _survey(devices)
        file = signed(survey, collecting.signing_key)
        collector.collect(file, collecting.signer)
        url = address(*listener.getsockname())
        held.enter_context(serving(settings, listener))
        place = held.enter_context(_broker(broker))
        held.enter_context(_bridged(collector, *place))
        screen.print(f"{devices:,} vehicles report over MQTT ({place[0]}:{place[1]}). Watch them at")
        screen.print(f"  {url}/surveys/{survey.name}", soft_wrap=True)
        screen.print(f"  key  {keys['analyst']}", soft_wrap=True)
        screen.print("Ctrl-C ends it.\n")
        fleet = _Fleet(devices, collecting.master, file, collecting.signer, folder)
        try:
            for period in range(1 if once else PERIODS):
                sent = fleet.report(period, place, pace_s=0.0 if once else PACE_S)
                _until_counted(collector, survey, sent)
                collecting.learn(survey, collector.periods(survey))
                screen.print(table(survey, estimates(collector.tally(survey))))
                screen.print(f"The truth in this period: {fleet.truth()}.\n")
            if not once:
                screen.print(f"All periods are reported. The page stays at {url} until Ctrl-C.")
                while True:
                    time.sleep(0.5)
        except KeyboardInterrupt:
            screen.print("Ended.")


def _survey(devices: int) -> Survey:
    return designed(
        "traffic",
        [Number("speed", (0.0, 130.0)), Category("kind", list(KINDS))],
        epsilon=2.0,
        purpose="To plan roads, we ask how fast vehicles drive and what they are.",
        start=int(time.time()),
        period_s=PERIOD_S,
        periods=PERIODS,
        assigned=True,
        groups=16 if devices >= 1000 else 1,
    )


@contextlib.contextmanager
def _broker(given: str | None) -> Iterator[tuple[str, int]]:
    if given is None:
        with running() as port:
            yield HOST, port
        return
    yield broker_address(given)


@contextlib.contextmanager
def _bridged(collector: Collector, host: str, port: int) -> Iterator[None]:
    """The bridge in a thread, ready."""
    bridge = Bridge(collector, host, port, name="reticent-demo")
    thread = threading.Thread(target=bridge.run, name="bridge", daemon=True)
    thread.start()
    try:
        if not bridge.is_ready.wait(30.0):
            raise ParameterError(f"broker must answer, got {host}:{port}")
        yield
    finally:
        bridge.stop()
        thread.join(10.0)


class _Fleet:
    """Vehicles, each with its own enrolment, ledger and speed. A vehicle wakes up to report."""

    def __init__(self, devices: int, master: bytes, file: bytes, signer: bytes, folder: Path) -> None:
        self._file, self._signer, self._ledgers = file, signer, folder / "devices"
        secluded(self._ledgers)
        self._marks = Marks(folder / "marks")  # which ends with the demonstration
        self._enrolments = [enrolled(master) for _ in range(devices)]
        places = np.searchsorted(np.cumsum(list(KINDS.values())), _uniform(devices))
        self._kinds = np.array(list(KINDS))[np.minimum(places, len(KINDS) - 1)]
        self._speeds = np.zeros(devices)

    def report(self, period: int, place: tuple[str, int], *, pace_s: float) -> int:
        """Let all vehicles report; returns how many reports were sent in all periods."""
        devices = len(self._enrolments)
        spread = sum(_uniform(devices) for _ in range(6)) - 3.0  # nearly normal
        self._speeds = np.clip(50.0 + 5.0 * period + 20.0 * spread, 0.0, 130.0)
        with Progress(transient=True) as shown, publishing(*place, topic=TOPIC) as publish:
            for number in shown.track(range(devices), description=f"period {period + 1}"):
                publish(self._report(number, period))
                time.sleep(pace_s)
        return devices * (period + 1)

    def _report(self, number: int, period: int) -> bytes:
        values: dict[str, Any] = {"speed": self._speeds[number], "kind": self._kinds[number]}
        path, enrolment = self._ledgers / str(number), self._enrolments[number]
        with Device(path, enrolment, self._signer, lifetime=2.0 * PERIODS, marks=self._marks) as device:
            return device.report(device.take(self._file), values, period=period)

    def truth(self) -> str:
        """What an honest collector could never see."""
        shares = ", ".join(f"{kind} {np.mean(self._kinds == kind):.2f}" for kind in KINDS)
        return f"mean speed {self._speeds.mean():.1f}; {shares}"


def _uniform(count: int) -> Any:
    return SECURE.units(count) - 1.0


def _until_counted(collector: Collector, survey: Survey, expected: int) -> None:
    """Wait until the collector has what was sent."""
    end = time.monotonic() + 60.0
    while sum(collector.periods(survey).values()) < expected and time.monotonic() < end:
        time.sleep(0.1)
