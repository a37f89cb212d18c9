"""Provider and edge of the stations killed at random moments while a vehicle asks and books."""

import os
import random
import signal
import threading
import time

import pytest

from reticent.fleet.transport import Http

from ..service.test_station_programs import DAY, car, count_bookings, held, programs
from ..unit.location.stations.asking_town import START, point

__all__ = ["held", "programs"]  # fixtures


def survive_kills(programs, held, folder, tmp_path, kills, program):
    """Let a vehicle ask and book while a program is killed again and again; return paid, booked, kept."""
    service, edge = programs(workers=2, forked=True)
    rng = random.Random(4)
    made, area = car(held, tmp_path, "ledger")
    line = Http(edge.url, tries=1000, timeout_s=60.0, pause=lambda _: time.sleep(0.2))

    def kill_worker():
        if workers := service.workers():
            os.kill(rng.choice(workers), signal.SIGKILL)

    strike = {"edge": edge.kill, "provider": kill_worker}[program]
    booked = 0
    with made:
        for turn in range(kills):
            now = START + DAY + 300 * turn
            request = made.query(area, *point(area, turn % area.roads.size), now=now)
            timer = threading.Timer(rng.random() * 0.12, strike)
            timer.start()
            replies = line.send("ask", request)
            assert made.query(area, *point(area, 0), now=now) == request
            assert made.told(area, replies)
            booked += made.is_booked(area, line.send("ask", made.booking(area, turn % 6)))
            timer.join()
        paid = made.ledger.balance("places").spent // area.units
    return paid, booked, count_bookings(folder / "stations" / "town")


@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("program", ["edge", "provider"])
def test_killed_programs_charge_once_and_book_once(
    programs,
    held,
    folder,
    tmp_path,
    race_counter,
    program,
    kills,
):
    assert survive_kills(programs, held, folder, tmp_path, kills, program) == (kills, kills, kills)
    race_counter.report(f"{kills} kills of the {program}")
