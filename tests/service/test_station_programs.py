"""Provider and edge as processes: what they hold in memory, and what is left when they are killed."""

import contextlib
import os
import sqlite3
import time
from dataclasses import replace

import pytest

from reticent.fleet.enrolment import enrolled
from reticent.fleet.secret_file import kept_secret
from reticent.fleet.transport import Http
from reticent.location.stations import wire
from reticent.location.stations.provider import Provider
from reticent.location.stations.sealing import Kind, Point, State, opened
from reticent.location.stations.sealing import told as read_reply

from ..support.crash_points import enumerate_crashes, run_to_end
from ..unit.location.stations.asking_town import START, library, point, provider, stations, vehicle
from .running import Process, until
from .station_programs import STRIKE_AFTER, EdgeProcess, memory_of

DAY = 86_400


@pytest.fixture
def held(folder, keys):
    made = provider(
        folder / "stations" / "town", journeys=library(), listed=stations(connectors=1000), clock=time.time
    )
    with contextlib.closing(made):
        yield made


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


# Programs that kill themselves


PROVIDER_STRIKE = f"""
import pathlib
from reticent.location.stations.provider import Provider

NOTE = pathlib.Path(__file__).with_name("strike")
{STRIKE_AFTER}
for verb in ("answers", "_booked"):
    strike_after(Provider, verb)
"""


@pytest.mark.parametrize(
    ("program", "points"), [("edge", ("replies", "_carried")), ("provider", ("answers", "_booked"))]
)
def test_killed_programs_charge_once_and_book_once(programs, held, folder, tmp_path, program, points):
    """A program kills itself before what it did is told, both while a vehicle asks and while it books."""
    planted = PROVIDER_STRIKE if program == "provider" else ""
    _, edge = programs(workers=2, forked=True, planted=planted)
    note = edge.note if program == "edge" else folder.with_name(f"{folder.name}-planted") / "strike"
    made, area = car(held, tmp_path, "ledger")
    line = Http(edge.url, tries=1000, timeout_s=60.0, pause=lambda _: time.sleep(0.2))
    bookings = 0
    with made:
        for turn, point_name in enumerate(points):
            now = START + DAY + 300 * turn
            request = made.query(area, *point(area, turn), now=now)
            if point_name != "_booked":
                note.write_text(point_name)
            replies = line.send("ask", request)
            assert not note.exists(), f"nobody passed {point_name}"
            assert made.query(area, *point(area, 0), now=now) == request
            assert made.told(area, replies)
            note.write_text(point_name)
            bookings += made.is_booked(area, line.send("ask", made.booking(area, turn)))
            assert not note.exists(), f"nobody passed {point_name}"
        assert made.ledger.balance("places").spent == len(points) * area.units
    assert bookings == len(points) == count_bookings(folder / "stations" / "town")


def count_bookings(folder):
    with contextlib.closing(sqlite3.connect(folder / "free.sqlite")) as base:
        return base.execute("SELECT COUNT(*) FROM booked").fetchone()[0]


def crash_in_booking(folder):
    """End a provider at every commit of a booking, and book again; return the bookings kept and made."""
    points = [Point.made(Kind.BOOKING, 2) for _ in range(50)]
    made = 0

    def book():
        with contextlib.closing(Provider(folder)) as provider:
            sealed = points[made].sealed(provider.service.id, provider.service.key)
            (reply,) = provider.answers([sealed])
            assert read_reply(reply, sealed, points[made].key, provider.service.k)[0] is State.BOOKED

    for _ in enumerate_crashes(book, calls={"writing"}):
        run_to_end(book)
        made += 1
    return count_bookings(folder), made


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_crash_at_any_commit_books_once(held, folder):
    held.close()
    kept, bookings = crash_in_booking(folder / "stations" / "town")
    assert kept == bookings >= 5


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_planted_a_booking_for_each_try_is_caught(held, folder, monkeypatch):
    true = Provider._booked
    monkeypatch.setattr(Provider, "_booked", lambda self, it: true(self, replace(it, token=os.urandom(16))))
    held.close()
    kept, bookings = crash_in_booking(folder / "stations" / "town")
    assert kept > bookings
