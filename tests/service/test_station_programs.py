"""Provider and edge as processes: what they hold in memory, and what is left when they are killed."""

import random
import sqlite3
import threading
import time

import pytest

from reticent.fleet.enrolment import enrolled
from reticent.fleet.secret_file import kept_secret
from reticent.fleet.transport import Http
from reticent.location.stations import wire
from reticent.location.stations.sealing import Kind, Point, opened

from ..unit.location.stations.asking_town import START, library, point, provider, stations, vehicle
from .running import Process, until
from .station_programs import EdgeProcess, memory_of

DAY = 86_400


@pytest.fixture
def held(folder, keys):
    return provider(
        folder / "stations" / "town", journeys=library(), listed=stations(connectors=1000), clock=time.time
    )


@pytest.fixture
def programs(folder, held, tmp_path):
    """A function that starts a service and an edge."""
    begun = []

    def start(**settings):
        service = Process(folder, **settings)
        begun.append(lambda: service.end(9))
        edge = EdgeProcess(tmp_path, service.url, held)
        begun.append(edge.end)
        return service, edge

    yield start
    for end in reversed(begun):
        end()


def car(held, tmp_path, name, **options):
    """A vehicle that is enrolled at the edge."""
    who = enrolled(kept_secret(tmp_path / "edge.key"))
    return vehicle(tmp_path / name, held, enrolment=who, lifetime=10_000.0, **options)


class Boasting:
    """Planted: a booking whose token is the id of whoever books."""

    def __init__(self, enrolment):
        self.token = enrolment.id * 2

    def sealed(self, held, number):
        made = Point(Kind.BOOKING, number, self.token, bytes(16))
        return made.sealed(held.service.id, held.service.key)


def test_no_identity_at_the_provider_and_no_place_at_the_edge(programs, held, tmp_path):
    service, edge = programs()
    line, cars = Http(edge.url), [car(held, tmp_path, f"ledger-{at}") for at in range(4)]
    try:
        at_edge, at_provider = memory_of(edge.child()), memory_of(service.process.pid)
    except PermissionError as error:
        pytest.skip(f"this system shows nobody the memory of another process: {error}")
    clear, sealed = [], []
    for at, (made, area) in enumerate(cars):
        request = made.query(area, *point(area, 40 * at), now=START + DAY)
        assert made.told(area, line.send("ask", request))
        assert made.is_booked(area, line.send("ask", made.booking(area, at)))
        sealed += wire.points_of(request)
        clear += [opened(one, held.service.id, held._sealing_key) for one in wire.points_of(request)]
    at_edge, at_provider = memory_of(edge.child()), memory_of(service.process.pid)
    assert any(one in at_edge for one in sealed)  # what it carried is there, so the look is a look
    for made, _ in cars:
        assert made._enrolment.id in at_edge
        assert made._enrolment.id not in at_provider
        assert made._enrolment.key not in at_provider
    for one in clear:
        assert one.key not in at_edge
        assert one.token not in at_edge
    assert held._sealing_key.private_bytes_raw() not in at_edge
    boasting = Boasting(cars[0][0]._enrolment)
    Http(service.url).send("api/v1/stations/town/points", boasting.sealed(held, 5))
    until(lambda: boasting.token in memory_of(service.process.pid))  # planted, and caught
    for made, _ in cars:
        made.close()


def killed(programs, held, folder, tmp_path, kills, whom):
    """A vehicle that asks and books while a program is killed again and again: what it found."""
    service, edge = programs(workers=2, forked=True)
    rng = random.Random(4)
    made, area = car(held, tmp_path, "ledger")
    line = Http(edge.url, tries=400, timeout_s=20.0, pause=lambda _: time.sleep(0.03))
    strikes = {"edge": edge.kill, "provider": lambda: strike_worker(service, rng)}
    booked = 0
    with made:
        for turn in range(kills):
            now = START + DAY + 300 * turn
            request = made.query(area, *point(area, turn % area.roads.size), now=now)
            blow = threading.Timer(rng.random() * 0.12, strikes[whom])
            blow.start()
            replies = line.send("ask", request)
            assert made.query(area, *point(area, 0), now=now) == request
            assert made.told(area, replies)
            booking = made.booking(area, turn % 6)
            booked += made.is_booked(area, line.send("ask", booking))
            blow.join()
        paid = made.ledger.balance("places").spent
    with sqlite3.connect(folder / "stations" / "town" / "free.sqlite") as base:
        rows = base.execute("SELECT COUNT(*) FROM booked").fetchone()[0]
    base.close()
    return paid == kills * area.units, booked == kills == rows


def strike_worker(service, rng):
    import os
    import signal

    if found := service.workers():
        os.kill(rng.choice(found), signal.SIGKILL)


@pytest.mark.parametrize("whom", ["edge", "provider"])
def test_killed_programs_charge_once_and_book_once(programs, held, folder, tmp_path, whom):
    assert killed(programs, held, folder, tmp_path, 4, whom) == (True, True)


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["edge", "provider"])
def test_two_hundred_kills(programs, held, folder, tmp_path, whom):
    assert killed(programs, held, folder, tmp_path, 200, whom) == (True, True)
