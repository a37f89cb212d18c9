"""Sold and paid reports over HTTP against the ledger's bare payments.

The service runs in a thread of this process, over a socket, and the client beside it. A round sends a batch
of reports for which money is held: they are judged, stored, paid and marked. The other side is `request_many`
of as many payments on a ledger of its own, in the same kind of file. Rounds take turns, and the time is that
of the CPU, for service and client together. Holds are asked for beforehand.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.measure import Figure, cpu_ratio
from reticent.apps.service.serving import create_app
from reticent.collect.wire import Layout, batch
from reticent.fleet.enrolment import enrolled
from reticent.fleet.transport import Http
from reticent.ledger import SqlLedger, Terms, Unit
from reticent.ledger.base import Order, money
from reticent.market.holds import ask
from reticent.market.offering import Wanted, menu_of
from reticent.mechanisms.record import Number
from reticent.privacy import MAX_UNITS, Neighbours
from reticent.service.serve import listen, running
from reticent.service.settings import Settings

BATCH, ROUNDS = 2000, 7
CENTS = 50
BASE = "api/v1/market"


class Sides:
    """A service with a funded bill, and a ledger for bare payments."""

    def __init__(self, folder: Path, app, line: Http) -> None:
        self.line, self.market = line, app.state.trading.market
        collecting = app.state.collecting
        wanted = Wanted(
            "bench",
            "to measure",
            (Number("speed", (0.0, 130.0)),),
            menu_of([(0.5, CENTS)]),
            10**12,
            int(time.time()) + 86_400,
            86_400,
        )
        bill, surveys = wanted.drawn_up(time.time())
        self.held = self.market.publish(
            bill, surveys, buyer="bench", deposit=wanted.deposit, hold_s=wanted.hold_s
        )
        self.market.fund(self.held)
        self.master, self.layout = collecting.master, Layout(surveys[0])
        self.ledger = SqlLedger(folder / "bare.sqlite")
        self.ledger.open(Terms("escrow:bench", Unit.MONEY, Neighbours.NONE, "bench", MAX_UNITS))
        self.numbers = 0

    def asks(self) -> tuple[list[bytes], list[bytes]]:
        """What new devices ask with, and their reports."""
        who = [enrolled(self.master) for _ in range(BATCH)]
        body = self.layout.body([0], [np.array([0])])
        reports = [self.layout.report(one, 0, os.urandom(8), body) for one in who]
        return [ask(one, self.held.bill, 0, time.time()) for one in who], reports

    def pay(self) -> None:
        """As many payments, alone."""
        self.numbers += 1
        orders = [
            Order("escrow:bench", f"sale:{self.numbers}-{one}-{secrets.token_hex(12)}", money(CENTS))
            for one in range(BATCH)
        ]
        self.ledger.request_many(orders)

    def sell(self, reports: list[bytes]) -> None:
        """Sell a batch over HTTP."""
        told = json.loads(self.line.send(f"{BASE}/sales", batch(reports)))
        assert told["counts"] == {"paid": BATCH}, told["counts"]


@contextlib.contextmanager
def sides() -> Iterator[Sides]:
    """Both, in a folder that is removed."""
    place = os.environ.get("RETICENT_BENCH_DIR")
    with tempfile.TemporaryDirectory(dir=place) as folder:
        app = create_app(Settings(Path(folder), rate=1e6, burst=10**6), warmed=gc.freeze)
        with listen("127.0.0.1", 0) as socket, running(app, socket):
            line = Http(f"http://127.0.0.1:{socket.getsockname()[1]}")
            found = Sides(Path(folder), app, line)
            yield found
            found.ledger.close()


def sold() -> float:
    """Reports sold and paid a second over HTTP / payments a second by `request_many` alone."""
    with sides() as both:
        ready = []
        for _ in range(ROUNDS + 1):
            asks, reports = both.asks()
            both.market.hold(asks)
            ready.append(reports)
        return cpu_ratio(both.pay, lambda: both.sell(ready.pop()), repetitions=ROUNDS)


FIGURES = [
    Figure("market, sold and paid over HTTP", "request_many alone", 0.4, sold),
]
