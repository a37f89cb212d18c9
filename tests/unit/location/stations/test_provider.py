"""The provider: the nearest free stations by road, bookings made once, and bits that are signed."""

import os
import sqlite3

import numpy as np
import pytest

from reticent.errors import GuaranteeError, ParameterError, StorageUnavailable
from reticent.location.stations.provider import BOOKED_S, Offered, Provider, free_stations
from reticent.location.stations.sealing import Kind, Point, State, opened, reply_bytes, told
from reticent.location.stations.sites import Station

from .asking_town import START, provider, stations, town


class Clock:
    """A time that tests set."""

    now = float(START)

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def held(tmp_path, clock):
    return provider(tmp_path / "provider", clock=clock, listed=stations(8, connectors=2))


def asked(held, kind, number, point=None):
    """One sealed point, and what its reply says."""
    point = point or Point.made(kind, number)
    sealed = point.sealed(held.service.id, held.service.key)
    (reply,) = held.answers([sealed])
    assert len(reply) == reply_bytes(held.service.k)
    return told(reply, sealed, point.key, held.service.k)


def by_hand(held, place):
    """The two nearest sites with a free station, each by its first free one."""
    roads, free = held.area.roads, held.free()
    far = roads.driving.distances(place)
    at = roads.cells([one.latitude for one in held.stations], [one.longitude for one in held.stations])
    found = []
    for number in sorted(np.flatnonzero(free).tolist(), key=lambda one: (far[at[one]], at[one], one)):
        if at[number] not in [at[one] for one in found] and np.isfinite(far[at[number]]):
            found.append(number)
    return found[: held.service.k]


@pytest.mark.parametrize("one_way", [False, True])
def test_the_nearest_free_stations_by_road(tmp_path, one_way):
    held = provider(tmp_path / "provider", roads=town(one_way=one_way), listed=stations(8))
    for free in ({}, {"S0": 0, "S6": 0}, {"S2": 0, "S1": 0}, {f"S{at}": 0 for at in (0, 1, 2, 3, 5, 6, 7)}):
        held.put(free)
        for place in range(0, held.area.roads.size, 9):
            assert asked(held, Kind.QUERY, place) == (State.TOLD, by_hand(held, place))
    held.put({f"S{at}": 0 for at in range(8)})
    assert asked(held, Kind.QUERY, 5) == (State.TOLD, [])


def test_far_sites_are_searched_for_where_the_near_ones_are_taken(tmp_path):
    roads = town()
    spots = roads.points[:: roads.size // 30][:30]
    many = tuple(Station(f"S{at}", "x", float(y), float(x)) for at, (y, x) in enumerate(spots))
    held = provider(tmp_path / "provider", listed=many)
    held.put({f"S{at}": 0 for at in range(29)})
    assert asked(held, Kind.QUERY, 0) == (State.TOLD, [29])


def test_what_no_vehicle_sealed_is_answered_alike(held):
    junk = [os.urandom(85), bytes(85), b"", b"x" * 200]
    assert {len(one) for one in held.answers(junk)} == {reply_bytes(2)}
    assert asked(held, Kind.QUERY, (1 << 32) - 1)[0] is State.TOLD  # no such place: the last one
    assert asked(held, Kind.NOTHING, 3) == (State.NOTHING, [])
    assert asked(held, Kind.BOOKING, 99) == (State.TAKEN, [])


def test_a_booking_counts_once_for_its_token_until_it_lapses(held, clock):
    first, second, third = (Point.made(Kind.BOOKING, 2) for _ in range(3))
    for _ in range(3):
        assert asked(held, Kind.BOOKING, 2, first) == (State.BOOKED, [])
    assert held.free()[2] == 1
    assert asked(held, Kind.BOOKING, 2, second)[0] is State.BOOKED
    assert asked(held, Kind.BOOKING, 2, third)[0] is State.TAKEN
    assert asked(held, Kind.BOOKING, 2, first)[0] is State.BOOKED
    clock.now += BOOKED_S + 1
    assert held.free()[2] == 2
    assert asked(held, Kind.BOOKING, 2, third)[0] is State.BOOKED


def test_a_booking_that_lapsed_is_made_anew_or_not_at_all(held, clock):
    late = Point.made(Kind.BOOKING, 2)
    assert asked(held, Kind.BOOKING, 2, late)[0] is State.BOOKED  # the reply is lost
    clock.now += 10 * BOOKED_S
    assert asked(held, Kind.BOOKING, 2, late)[0] is State.BOOKED
    assert held.free()[2] == 1
    clock.now += BOOKED_S + 1
    held.put({"S2": 0})
    assert asked(held, Kind.BOOKING, 2, late)[0] is State.TAKEN


def test_two_processes_book_one_connector_once(held, tmp_path, clock):
    other = Provider(tmp_path / "provider", clock=clock)
    held.put({"S3": 1})
    states = [asked(one, Kind.BOOKING, 3)[0] for one in (held, other, held)]
    assert states == [State.BOOKED, State.TAKEN, State.TAKEN]
    assert held.free() == other.free()
    other.close()


def test_what_is_remembered_is_no_query(held, tmp_path):
    """Whatever was asked, the folder holds bookings alone: station, token, until when."""
    before = {path.name: path.read_bytes() for path in (tmp_path / "provider").iterdir()}
    for place in range(30):
        asked(held, Kind.QUERY, place)
    assert {path.name: path.read_bytes() for path in (tmp_path / "provider").iterdir()} == before
    columns = [row[1] for row in held._base.execute("PRAGMA table_info(booked)")]
    assert columns == ["token", "station", "until"]


def test_bits_are_signed_and_of_one_list(held, tmp_path):
    held.put({"S1": 0, "S4": 0})
    bits = held.bits()
    assert free_stations(bits, held.listed, held.signer) == [at not in (1, 4) for at in range(8)]
    assert len(bits) == 8 + 1 + 64
    for broken in (bits[:-1], b"x" + bits[1:]):
        with pytest.raises(ParameterError, match="one bit for each station"):
            free_stations(broken, held.listed, held.signer)
    lied = bits[:8] + b"\xff" + bits[9:]
    with pytest.raises(GuaranteeError, match="signature"):
        free_stations(lied, held.listed, held.signer)
    with pytest.raises(GuaranteeError, match="signature"):
        free_stations(bits, held.listed, provider(tmp_path / "other").signer)


@pytest.mark.parametrize(
    ("free", "said"),
    [
        ({"S1": 0, "none": 1}, "must name stations of the list, got 'none'"),
        ({"S1": 0, "S2": 3}, "free of S2 must be <= 2, got 3"),
        ({"S1": 0, "S2": -1}, "free of S2 must be >= 0"),
        ({"S1": 0, "S2": 0.5}, "free of S2 must be a whole number"),
    ],
)
def test_bad_availability_changes_nothing(held, free, said):
    before = held.free()
    with pytest.raises((ParameterError, TypeError), match=said):
        held.put(free)
    assert held.free() == before


def test_a_provider_is_made_once_and_whole(tmp_path, held):
    offered = Offered("town", "Free stations.")
    with pytest.raises(ParameterError, match="there is a provider of stations at"):
        Provider.begin(tmp_path / "provider", town().within(2.0), stations(), offered, start=START)
    with pytest.raises(ParameterError, match="there is no provider of stations at"):
        Provider(tmp_path / "none")
    for wrong, said in (
        ({"level": 0.0}, "level must be > 0"),
        ({"k": 0}, "k must be >= 1"),
        ({"name": "a b"}, "name must be 1 to 80"),
        ({"purpose": ""}, "purpose must be"),
    ):
        given = {"name": "town", "purpose": "Free stations.", **wrong}
        with pytest.raises(ParameterError, match=said):
            Provider.begin(tmp_path / "bad", town().within(2.0), stations(), Offered(**given), start=START)
        assert not (tmp_path / "bad").exists()


def test_a_disk_that_fails_is_told(held):
    held._base.close()
    with pytest.raises(StorageUnavailable, match="what is free cannot be read or written"):
        held.free()
    with pytest.raises(StorageUnavailable):
        held.put({"S1": 0})
    assert issubclass(sqlite3.ProgrammingError, sqlite3.Error)


def test_secrets_are_for_the_owner_alone(held, tmp_path):
    for path in (tmp_path / "provider").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path.name
    sealed = Point.made(Kind.QUERY, 1).sealed(held.service.id, held.service.key)
    assert opened(sealed, held.service.id, held._sealing_key) is not None
