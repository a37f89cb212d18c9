"""A vehicle: nothing unpaid leaves, one query a period wherever it is, and companions that know nothing."""

import math
import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.errors import BudgetExceeded, GuaranteeError, ParameterError
from reticent.fleet.enrolment import enrolled
from reticent.fleet.signing import signed
from reticent.ledger.base import Unit
from reticent.ledger.device.ledger import DeviceLedger
from reticent.location import LocationDevice
from reticent.location.stations import wire
from reticent.location.stations.sealing import POINT_BYTES, Kind, Point, opened
from reticent.location.stations.vehicle import Vehicle, nearest_first
from reticent.mechanisms.location import ElasticChannel
from reticent.randomness import SimulationStream

from .. import campaign
from .asking_town import MASTER, START, Anywhere, library, point, provider, town, vehicle

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """A provider of 4 points and 2 stations a reply, at 5 per km."""
    return provider(tmp_path_factory.mktemp("provider"))


def points_in(held, request):
    """What the provider finds in a request."""
    return [opened(one, held.service.id, held._sealing_key) for one in wire.points_of(request)]


def exchanged(held, request):
    return b"".join(held.answers(wire.points_of(request)))


# One query in a period


class ByPosition(Vehicle):
    """Planted: what was answered is remembered by where the vehicle was."""

    def query(self, area, latitude, longitude, *, now=None):
        kept = self.__dict__.setdefault("by_place", {})
        if (latitude, longitude) not in kept:
            number = area.service.period(now) * 1000 + len(kept)
            said = self._once(
                area.service, number, lambda: self._drawn(area, latitude, longitude, self._along(area, 3))
            )
            kept[latitude, longitude] = self._sent(
                area.service, "query-0", str(number), [Point.made(Kind.QUERY, one) for one in said]
            )
        return kept[latitude, longitude]


def tells_that_it_moved(kind, held, path):
    """Whether a vehicle that moved within a period sends, or spends, anything else than one that did not."""
    with vehicle(path, held, kind=kind)[0] as one:
        area = one.enter(held.file, held.map_file)
        requests = [one.query(area, *point(area, place), now=START + 10) for place in (3, 200, 3)]
        return len(set(requests)) > 1 or one.spent_per_km > 1.01 * area.service.level


def test_within_a_period_it_is_the_same_wherever_the_vehicle_is(held, tmp_path):
    assert not tells_that_it_moved(Vehicle, held, tmp_path / "ledger")


def test_planted_answers_remembered_by_position_are_caught(held, tmp_path):
    assert tells_that_it_moved(ByPosition, held, tmp_path / "ledger")


def test_it_is_paid_once_a_period_and_the_same_after_a_restart(held, tmp_path):
    who = enrolled(MASTER)
    with vehicle(tmp_path / "ledger", held, enrolment=who)[0] as one:
        area = one.enter(held.file, held.map_file)
        first = one.query(area, *point(area, 5), now=START)
        assert one.ledger.balance("places").spent == area.units
    with vehicle(tmp_path / "ledger", held, enrolment=who)[0] as one:
        area = one.enter(held.file, held.map_file)
        assert one.query(area, *point(area, 5), now=START + 299) == first
        assert one.ledger.balance("places").spent == area.units
        second = one.query(area, *point(area, 5), now=START + 300)
        assert one.ledger.balance("places").spent == 2 * area.units
        assert second != first
        assert len(second) == len(first) == wire.form(area.service).length


def test_a_spent_ledger_refuses_here_and_nothing_is_drawn(held, tmp_path):
    class Watched(Vehicle):
        drawn = 0

        def _drawn(self, *given):
            type(self).drawn += 1
            return super()._drawn(*given)

    made, area = vehicle(tmp_path / "ledger", held, kind=Watched, lifetime=12.0)
    with made:
        for period in range(2):
            made.query(area, *point(area, 9), now=START + 300 * period)
        before = made.ledger.balance("places")
        with pytest.raises(BudgetExceeded, match="account places"):
            made.query(area, *point(area, 9), now=START + 600)
        assert (Watched.drawn, made.ledger.balance("places")) == (2, before)
        assert made.query(area, *point(area, 9), now=START + 300)  # what is paid for is still there


def test_one_account_for_all_that_is_told_of_places(held, tmp_path):
    who = campaign.enrolment(11)
    caps = {"lifetime_per_km": 30.0, "most_jump_km": 5.0}
    with LocationDevice(tmp_path / "ledger", who, campaign.SIGNER, **caps) as phone:
        asked = phone.take(campaign.file_of(campaign.asked()))
        phone.report(asked, 48.85, 2.35)
        spent = phone.spent_per_km
    with vehicle(tmp_path / "ledger", held, enrolment=who, lifetime=30.0)[0] as one:
        area = one.enter(held.file, held.map_file)
        one.query(area, *point(area, 3), now=START)
        assert one.spent_per_km == pytest.approx(spent + area.service.level)
        assert one.ledger.balance("places").terms.unit is Unit.EPSILON_PER_KM


def test_a_hand_over_resets_nothing(held, tmp_path):
    """Two areas with edges and providers of their own, one ledger."""
    there = provider(tmp_path / "there", name="there", roads=town(6))
    with vehicle(tmp_path / "ledger", held, lifetime=12.0)[0] as one:
        area = one.enter(held.file, held.map_file)
        one.query(area, *point(area, 3), now=START)
    with vehicle(tmp_path / "ledger", there, lifetime=12.0)[0] as one:
        area = one.enter(there.file, there.map_file)
        one.query(area, *point(area, 3), now=START)
        assert one.spent_per_km == pytest.approx(10.0)
        with pytest.raises(BudgetExceeded):
            one.query(area, *point(area, 3), now=START + 300)


# What it takes


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"most_per_km": 4.9}, "asks for 5 per km, this vehicle allows 4.9"),
        ({"most_horizon_km": 1.9}, "a horizon of 2 km, this vehicle allows 1.9"),
    ],
)
def test_more_than_its_owner_allows_is_refused(held, tmp_path, options, told):
    with pytest.raises(GuaranteeError, match=told):
        vehicle(tmp_path / "ledger", held, **options)


def test_companions_must_be_there_and_on_the_map(held, tmp_path):
    with pytest.raises(ParameterError, match="companions must be given for 4 points"):
        vehicle(tmp_path / "ledger", held, companions=None)
    made, area = vehicle(tmp_path / "other", held, companions=Anywhere(10**6))
    with made, pytest.raises(ParameterError, match="companions must be journeys of 5 places of the map"):
        made.query(area, *point(area, 3), now=START)
    with DeviceLedger(tmp_path / "other") as ledger:
        assert ledger.balance("places").spent == 0


def test_companions_of_the_signed_library(tmp_path):
    held = provider(tmp_path / "provider", journeys=library(), period_s=30)
    made, _ = vehicle(tmp_path / "ledger", held)
    with made:
        made._given = None
        area = made.enter(held.file, held.map_file, held.library_file)
        assert len(points_in(held, made.query(area, *point(area, 3), now=START))) == 4
    other = provider(tmp_path / "elsewhere", journeys=library())
    with vehicle(tmp_path / "new", held)[0] as one:
        one._given = None
        with pytest.raises(GuaranteeError, match="signed by somebody else"):
            one.enter(held.file, held.map_file, other.library_file)


def test_an_area_must_be_entered(held, tmp_path):
    other = provider(tmp_path / "other", name="other")
    with (
        vehicle(tmp_path / "ledger", held)[0] as one,
        pytest.raises(ParameterError, match="must be one that"),
    ):
        one.query(other.area, 1.0, 2.0, now=START)


class Trusting(Vehicle):
    """Planted: draws from whatever area it is handed."""

    def _entered(self, area):
        super()._entered(area)
        return area


def is_drawn_from_what_is_handed(kind, held, path):
    """Whether a query is drawn by another channel than the one it pays for, of an area with the same id."""
    made, area = vehicle(path, held, kind=kind, rng=SimulationStream(3))
    with made:
        other = replace(area)
        other.__dict__["channel"] = ElasticChannel(area.roads, np.ones(area.roads.size), 400.0)  # no noise
        said = points_in(held, made.query(other, *point(area, 100), now=START))
    return 100 in [one.number for one in said]


def test_the_area_that_was_entered_is_drawn_from(held, tmp_path):
    """Two texts of one id can be found in 2^32 tries: what is paid for is what is drawn from."""
    assert not is_drawn_from_what_is_handed(Vehicle, held, tmp_path / "ledger")
    assert is_drawn_from_what_is_handed(Trusting, held, tmp_path / "planted")


def test_a_key_that_everybody_can_open_is_refused_before_anything_is_paid(held, tmp_path):
    order = bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")
    key = Ed25519PrivateKey.generate()
    signer = key.public_key().public_bytes_raw()
    caps = {"companions": Anywhere(held.area.roads.size), "lifetime_per_km": 30.0}
    with Vehicle(tmp_path / "ledger", enrolled(MASTER), signer, **caps) as one:
        for weak in (bytes(32), b"\1" + bytes(31), order):
            with pytest.raises(ParameterError, match="provider must be a public key"):
                one.enter(signed(replace(held.service, provider=weak), key), held.map_file)
        assert one.spent_per_km == 0.0


def test_a_campaign_with_the_name_of_a_service_is_refused_in_words(tmp_path):
    who, caps = campaign.enrolment(11), {"lifetime_per_km": 30.0, "most_jump_km": 5.0}
    asked = campaign.asked()
    held = provider(tmp_path / "provider", name=asked.name)
    with vehicle(tmp_path / "ledger", held, enrolment=who, lifetime=30.0)[0] as one:
        area = one.enter(held.file, held.map_file)
        one.query(area, *point(area, 3), now=START + 300 * asked.number)
    with LocationDevice(tmp_path / "ledger", who, campaign.SIGNER, **caps) as phone:
        before = phone.spent_per_km
        with pytest.raises(ParameterError, match="answered under another text"):
            phone.report(phone.take(campaign.file_of(asked)), 48.85, 2.35)
        assert phone.spent_per_km == before


ODD = [None, math.nan, math.inf, 1e308, 10**400, "x", b"\xff", [], [[]], {}, object(), 1j, True, -500]


def test_every_point_is_asked_from(held, tmp_path):
    made, area = vehicle(tmp_path / "ledger", held)
    with made:
        lengths = {
            len(made.query(area, *where, now=START + 300 * number))
            for number, where in enumerate([(one, 1.0) for one in ODD] + [(37.7, one) for one in ODD])
        }
    assert lengths == {wire.form(area.service).length}


# What it hears


def test_replies_name_the_nearest_free_stations_of_each_point(held, tmp_path):
    made, area = vehicle(tmp_path / "ledger", held)
    with made:
        request = made.query(area, *point(area, 100), now=START)
        numbers = made.told(area, exchanged(held, request))
        free = held.free()
        due = {one for point_ in points_in(held, request) for one in held.nearest(point_.number, free)}
        assert set(numbers) == due
        offers = nearest_first(area.roads, held.listed, numbers, *point(area, 100))
        assert [one.cost for one in offers] == sorted(one.cost for one in offers)
        for junk in (b"", exchanged(held, request)[:-1], os.urandom(len(exchanged(held, request)))):
            with pytest.raises(ParameterError):
                made.told(area, junk)


def test_a_booking_looks_like_a_query_and_is_made_once(tmp_path):
    held = provider(tmp_path / "provider")
    made, area = vehicle(tmp_path / "ledger", held)
    with made:
        query, booking = made.query(area, *point(area, 100), now=START), made.booking(area, 2)
        assert len(query) == len(booking)
        assert made.booking(area, 2) == booking
        for _ in range(3):
            replies = exchanged(held, booking)
            assert held.free()[2] == 0
        assert len(replies) == len(exchanged(held, query))
        assert made.is_booked(area, replies)
        again = made.booking(area, 2)
        assert again != booking
        assert not made.is_booked(area, exchanged(held, again))
        assert made.spent_per_km == pytest.approx(area.service.level)


# What leaves


class Around(Vehicle):
    """Planted: dummies around the true point."""

    def _drawn(self, area, latitude, longitude, along):
        near = np.argsort(area.roads.distances(int(area.roads.cells(latitude, longitude))))
        return area.channel.sample(near[: len(along) + 1], self._stream).tolist()


def others(kind, held, path, place):
    """The points of a query without noise that are not where the vehicle is, of one seed."""
    made, area = vehicle(path, held, kind=kind, rng=SimulationStream(8), most_per_km=1000.0)
    with made:
        said = [one.number for one in points_in(held, made.query(area, *point(area, place), now=START))]
    said.remove(place)
    return sorted(said)


def test_companions_do_not_know_where_the_vehicle_is(tmp_path):
    """With next to no noise: the same companions, byte for byte, from wherever."""
    held = provider(tmp_path / "provider", level=900.0)
    due = others(Vehicle, held, tmp_path / "first", 17)
    assert others(Vehicle, held, tmp_path / "second", 150) == due
    near = others(Around, held, tmp_path / "third", 17)
    assert others(Around, held, tmp_path / "fourth", 150) != near


def worst(channel, x, y, around):
    """The largest log ratio of what both see, exactly: two points in any order, from x and from y."""
    law = channel.matrix
    size = len(law)
    beside = law[[around(x), around(y)]] if around else np.full((2, size), 1.0) @ law / size
    seen = []
    for place, companion in zip((x, y), beside, strict=True):
        seen.append((np.outer(law[place], companion) + np.outer(companion, law[place])) / 2.0)
    return float(np.abs(np.log(seen[0]) - np.log(seen[1])).max())


def test_what_both_together_see_keeps_the_level(tmp_path):
    """Planted: dummies around the true point cost more than the level that is charged."""
    held = provider(tmp_path / "provider", roads=town(3, 110.0), m=2, level=4.0, horizon_km=1.0)
    area, pairs = held.area, []
    for x in range(area.roads.size):
        y = int(np.argsort(area.roads.distances(x))[1])
        pairs.append((x, y, area.service.level * float(area.roads.distances(x)[y])))
    nearest = {x: int(np.argsort(area.roads.distances(x))[1]) for x in range(area.roads.size)}
    assert all(worst(area.channel, x, y, None) <= most for x, y, most in pairs)
    assert any(worst(area.channel, x, y, nearest.__getitem__) > most for x, y, most in pairs)


class FirstIsTrue(Vehicle):
    """Planted: the true point is always sent first."""

    def _drawn(self, area, latitude, longitude, along):
        places = np.array([int(area.roads.cells(latitude, longitude)), *along])
        return area.channel.sample(places, self._stream).tolist()


def where_the_true_one_stands(kind, held, path, count=240):
    """How often the true point stands at each place of a request, with next to no noise."""
    made, area = vehicle(path, held, kind=kind, rng=SimulationStream(9), most_per_km=1000.0)
    found = np.zeros(4)
    with made:
        for _ in range(count):
            found[made._drawn(area, *point(area, 17), [100, 150, 200]).index(17)] += 1
    return found


def test_the_order_tells_nothing(tmp_path):
    """Chi-square with 3 degrees of freedom; above 21.1 once in 10,000 runs."""
    held = provider(tmp_path / "provider", level=900.0)
    expected = 240 / 4
    found = where_the_true_one_stands(Vehicle, held, tmp_path / "ledger")
    assert ((found - expected) ** 2 / expected).sum() < 21.1
    planted = where_the_true_one_stands(FirstIsTrue, held, tmp_path / "planted")
    assert ((planted - expected) ** 2 / expected).sum() > 21.1


# Crashes


def survived(held, path, marks_owner, *, after):
    """A vehicle that is killed after so many writes to its ledger; what it had given out by then."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        made, area = vehicle(path, held, enrolment=marks_owner)
        append, left = made.ledger._append, [after]

        def counted(record):
            append(record)
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        made.ledger._append = counted
        for period in range(3):
            os.write(write, made.query(area, *point(area, 50), now=START + 300 * period))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    size = wire.form(held.service).length
    return [content[at : at + size] for at in range(0, len(content), size)], os.WIFSIGNALED(status)


def crashes(held, tmp_path, places):
    """Of a vehicle killed after each of some writes: that it was, paid once, and sends the last again."""
    found = []
    for after in places:
        who, path = enrolled(MASTER), tmp_path / f"ledger-{after}"
        given, was_killed = survived(held, path, who, after=after)
        made, area = vehicle(path, held, enrolment=who)
        with made:
            again = [made.query(area, *point(area, 50), now=START + 300 * period) for period in range(3)]
            paid = made.ledger.balance("places").spent
        found.append((was_killed, paid == 3 * area.units, again[len(given) - 1 : len(given)] == given[-1:]))
    return found


def test_killed_at_any_write_nothing_is_paid_twice(held, tmp_path):
    assert crashes(held, tmp_path, range(1, 13, 3)) == [(True, True, True)] * 4


@pytest.mark.slow
def test_two_hundred_kills(held, tmp_path):
    for turn in range(17):
        (tmp_path / str(turn)).mkdir()
        assert crashes(held, tmp_path / str(turn), range(1, 13)) == [(True, True, True)] * 12


def test_requests_have_the_size_that_is_told(held):
    assert wire.form(held.service).length == 8 + 8 + 4 * POINT_BYTES + 16


WITHOUT = """
import pathlib, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("scipy", "numba", "pyarrow", "typer", "rich", "fastapi", "starlette"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in ("scipy", "numba") else found(name, *rest)
from reticent.fleet.enrolment import Enrolment
from reticent.location import Vehicle
folder = pathlib.Path(sys.argv[1])
who = Enrolment(bytes(8), bytes(32))
with Vehicle(folder / "ledger", who, bytes.fromhex(sys.argv[2]), lifetime_per_km=10.0) as one:
    area = one.enter(*((folder / name).read_bytes() for name in ("service.json", "map.bin", "library.json")))
    print(len(one.query(area, 37.705, -122.49, now=float(sys.argv[3]))), one.spent_per_km)
"""


def test_numpy_and_cryptography_are_enough(tmp_path):
    held = provider(tmp_path, journeys=library())
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path), held.signer.hex(), str(START)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [str(wire.form(held.service).length), "4.999999999962"], done.stderr
