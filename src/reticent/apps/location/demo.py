"""`reticent demo location`: people of a city report where they are, privately, and a page shows the maps.

Everything goes over HTTP as in earnest: people fetch the signed round, check it, draw a cell and send a
report with their tag; the owner ends the rounds. Some of them are whole devices with a ledger each; for the
others only the draw and the report are made. The city is a simulation: its truth stands beside the estimate.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.apps.query.demo import demo_keys, demo_listener
from reticent.arguments import whole
from reticent.cli import terminal
from reticent.collect.wire import batch
from reticent.estimation.transport import earth_movers_distance
from reticent.experiments.data import directory
from reticent.files import secluded
from reticent.fleet.enrolment import enrolled
from reticent.fleet.operator import LEDGER, Operator
from reticent.fleet.transport import Http
from reticent.ledger.device.marks import Marks
from reticent.ledger.sql.ledger import SqlLedger
from reticent.location import LocationDevice, checkins, payload
from reticent.location.campaign import Campaign, Settings
from reticent.location.rounds import PlaceRound, verified
from reticent.mechanisms.base import Floats
from reticent.randomness import SECURE
from reticent.spaces import Grid

ROUNDS, BETA = 5, 1.0
DEVICES = 20  # people with a whole device
_BATCH = 1000
_PACE_S = 4.0  # between rounds, so that they can be watched
_CHECKINS = "gowalla_paris.csv.gz"
_PURPOSE = "To plan night buses, we ask in which part of Paris people are."


def run(*, people: int, port: int | None, once: bool) -> None:
    """Serve, let people report for some rounds, and show what comes in; then stay.

    Args:
        people: how many report in each round.
        port: where the service listens; by default 8000, or any if that is taken.
        once: no pauses, and end.
    """
    from reticent.apps.collect.collecting import Collecting
    from reticent.apps.location.pages import SIMULATED
    from reticent.apps.service.serving import serving
    from reticent.service.serve import address
    from reticent.service.settings import Settings as ServiceSettings

    whole("people", people, low=DEVICES, high=100_000)
    screen = terminal.console()
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="reticent-")))
        listener = held.enter_context(demo_listener(port))
        keys = demo_keys(folder)
        settings = ServiceSettings(folder)
        ledger = held.enter_context(SqlLedger(folder / ".service" / LEDGER))
        collecting = Collecting(settings, lambda: ledger)
        held.callback(collecting.close)
        campaign = held.enter_context(_begun(folder, collecting.operator, collecting.signing_key))
        grid = campaign.settings.grid
        truth, source = _truth(grid)
        (campaign.folder / SIMULATED).write_text(json.dumps(truth.tolist()))
        url = address(*listener.getsockname())
        held.enter_context(serving(settings, listener))
        screen.print(f"{people:,} people in each of {ROUNDS} rounds, {source}. Watch them at")
        screen.print(f"  {url}/places/paris", soft_wrap=True)
        screen.print(f"  key  {keys['analyst']}", soft_wrap=True)
        screen.print("Ctrl-C ends it.\n")
        places = f"{url}/api/v1/places/paris"
        owner = Http(places, key=keys["owner"])
        crowd = _Crowd(people, truth, collecting.master, collecting.signer, folder)
        try:
            for number in range(ROUNDS):
                asked, told = crowd.report(Http(places))
                away = earth_movers_distance(grid, campaign.privic().estimate, truth).value
                moved = asked.channel.distortion(truth)
                screen.print(
                    f"round {number + 1}: {told:,} reports, {moved:.2f} km away from the truth each; "
                    f"the estimate is {away:.3f} km away from it"
                )
                if number + 1 < ROUNDS:
                    time.sleep(0.0 if once else _PACE_S)
                    owner.send("end", json.dumps({"number": number}).encode(), kind="application/json")
            level = asked.channel.level
            screen.print(
                f"\nEach report keeps {level:.3g} per km; all {ROUNDS} together {ROUNDS * level:.3g}, "
                f"which the ledgers of the {DEVICES} devices say too: {crowd.spent_per_km:.3g} at most."
            )
            if not once:
                screen.print(f"The page stays at {url} until Ctrl-C.")
                while True:
                    time.sleep(0.5)
        except KeyboardInterrupt:
            screen.print("Ended.")


def _begun(folder: Path, operator: Operator, key: Ed25519PrivateKey) -> Campaign:
    settings = Settings("paris", _PURPOSE, 48.8286, 48.8798, 2.2855, 2.3909, 11, 15, BETA, ROUNDS)
    return Campaign.begin(folder / "places" / "paris", settings, operator, key)


def _truth(grid: Grid) -> tuple[Floats, str]:
    """Shares of people by cell, and where they are from."""
    path = directory() / _CHECKINS
    if path.is_file():
        counts = checkins.histogram(path, grid)
        return counts / counts.sum(), "where Gowalla's users were in Paris"
    centres = ((2.0, 4.0, 2.0), (5.0, 6.5, 1.0), (3.0, 2.0, 0.6))  # km east, km north, weight
    shares = 0.02 * np.ones(grid.size)
    for east, north, weight in centres:
        shares += weight * np.exp(-((grid.centres - (east, north)) ** 2).sum(axis=1))
    return shares / shares.sum(), "in an invented city"


class _Crowd:
    """People, each in a cell that stays: as the campaign goes on, only the channel changes."""

    def __init__(self, people: int, truth: Floats, master: bytes, signer: bytes, folder: Path) -> None:
        self._enrolments = [enrolled(master) for _ in range(people)]
        self._cells = np.searchsorted(np.cumsum(truth), _uniform(people)).clip(0, truth.size - 1)
        self._signer, self._ledgers = signer, folder / "devices"
        secluded(self._ledgers)
        self._marks = Marks(folder / "marks")  # which ends with the demonstration
        self.spent_per_km = 0.0

    def report(self, service: Http) -> tuple[PlaceRound, int]:
        """Let everybody fetch the open round and answer it: the round, and how many reports were counted."""
        file = service.fetch("round")
        asked = verified(file, self._signer)
        reports = [self._by_device(number, file, asked) for number in range(DEVICES)]
        drawn = asked.channel.sample(self._cells[DEVICES:]).tolist()
        reports += [
            payload.written(asked, who, cell)
            for who, cell in zip(self._enrolments[DEVICES:], drawn, strict=True)
        ]
        counted = 0
        for start in range(0, len(reports), _BATCH):
            told = json.loads(service.send("reports", batch(reports[start : start + _BATCH])))
            counted += told["counts"].get("counted", 0)
        return asked, counted

    def _by_device(self, number: int, file: bytes, asked: PlaceRound) -> bytes:
        """All that a phone does: check the round, pay, draw, remember."""
        row, column = divmod(int(self._cells[number]), asked.grid.columns)
        latitude, longitude = asked.grid.degrees(row + 0.5, column + 0.5).tolist()
        path, lifetime = self._ledgers / str(number), (ROUNDS + 1) * 2.0 * BETA
        enrolment, marks = self._enrolments[number], self._marks
        with LocationDevice(path, enrolment, self._signer, lifetime_per_km=lifetime, marks=marks) as device:
            report = device.report(device.take(file), latitude, longitude)
            self.spent_per_km = max(self.spent_per_km, device.spent_per_km)
        return report


def _uniform(count: int) -> Any:
    return SECURE.units(count) - 1.0
