"""One lifetime over surveys, trainings and places in one device's ledger, killed or restored."""

import contextlib
import itertools
import math
import multiprocessing
import shutil
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.errors import AccountConflict, BudgetExceeded, LedgerError, MixedGuarantees, RolledBack
from reticent.federated.on_device import Home
from reticent.ledger.base import Unit
from reticent.ledger.device import lifetime
from reticent.ledger.device.budgeted import Budgeted
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.lifetime import Lifetime, cost
from reticent.privacy import UNITS_PER_ONE, Budget, PureDP, mu2_cost

from .location import campaign
from .location.stations.asking_town import START, point, provider, vehicle
from .restored import folder, no_waiting, restored
from .rooms import MOST, ROOMS

__all__ = ["folder", "no_waiting"]  # fixtures

FORK = multiprocessing.get_context("fork")
NAMES = ("collect", "federated", "location")
TOTAL = Lifetime(7.5, distance_km=2.0)


@pytest.fixture
def rooms():
    return {name: made() for name, made in ROOMS.items()}


def price(name):
    """What a report of a room costs, worked out apart: epsilon."""
    if name != "location":
        return Fraction(1)
    asked = campaign.asked(0.01, 0, rounds=MOST)
    return Fraction(asked.units, UNITS_PER_ONE) * (2 + Fraction(asked.grid.jump))


def spent(path):
    with DeviceLedger(path) as ledger:
        return Fraction(ledger.balance(lifetime.ACCOUNT).spent, UNITS_PER_ONE)


def until_refused(rooms, path, names=NAMES, most=40, **options):
    """How often each room reports, in turn, before every one of them is refused."""
    done, refused, numbers = dict.fromkeys(names, 0), set(), itertools.count()
    for number in itertools.islice(numbers, most):
        for name in names:
            try:
                with rooms[name].open(path, **options) as device:
                    rooms[name].report(device, number)
                done[name] += 1
            except BudgetExceeded as refusal:
                refused.add((name, refusal.account))
        if refused == {(name, lifetime.ACCOUNT) for name in names}:
            break
    return done


def check_one_lifetime(rooms, path):
    done = until_refused(rooms, path, total=TOTAL)
    told = sum(times * price(name) for name, times in done.items())
    assert told <= Fraction(TOTAL.epsilon)
    assert min(done.values()) > 0
    assert told + 3 * Fraction(1, 10**11) > spent(path) >= told
    assert Fraction(TOTAL.epsilon) - told < max(map(price, NAMES))


def test_a_survey_a_training_and_a_campaign_stop_at_one_lifetime(rooms, folder):
    check_one_lifetime(rooms, folder / "ledger")


def test_the_check_finds_rooms_with_a_lifetime_each(rooms, folder, monkeypatch):
    """Planted: what a report costs is paid by its own account alone, as before."""
    monkeypatch.setattr(Budgeted, "_pay_above", lambda *_: None)
    monkeypatch.setattr(lifetime, "_missing", lambda *_, **__: 0)
    with pytest.raises(AssertionError):
        check_one_lifetime(rooms, folder / "ledger")


def test_the_check_finds_places_that_cost_nothing(rooms, folder, monkeypatch):
    """Planted: a level per km is taken for an epsilon, whatever the distance."""
    real = lifetime.cost
    monkeypatch.setattr(
        lifetime, "cost", lambda terms, unit, units, jump: real(terms, Unit.EPSILON, units, jump)
    )
    with pytest.raises(AssertionError):
        check_one_lifetime(rooms, folder / "ledger")


def test_whoever_does_not_name_it_pays_it(rooms, folder):
    path = folder / "ledger"
    with rooms["collect"].open(path, total=TOTAL):
        pass
    done = until_refused(rooms, path)
    assert sum(times * price(name) for name, times in done.items()) <= Fraction(TOTAL.epsilon)


def test_a_room_keeps_its_own_cap_below(rooms, folder):
    path = folder / "ledger"
    with rooms["collect"].open(path, total=TOTAL, lifetime=2.0) as device:
        for period in range(2):
            rooms["collect"].report(device, period)
        with pytest.raises(BudgetExceeded) as refusal:
            rooms["collect"].report(device, 2)
        assert refusal.value.account == "reports"
    assert spent(path) == 2  # and the lifetime was not charged for what was refused


def test_a_report_is_paid_once(rooms, folder):
    path = folder / "ledger"
    for _ in range(3):
        with rooms["collect"].open(path, total=TOTAL) as device:
            first = rooms["collect"].report(device, 0)
            assert rooms["collect"].report(device, 0, 1) == first
    assert spent(path) == 1


class TestCrashes:
    @pytest.mark.parametrize("name", NAMES)
    def test_cut_off_at_any_record(self, rooms, folder, name, monkeypatch):
        """A report that was cut off anywhere is finished by the next try, and costs the lifetime once."""
        append = DeviceLedger._append
        for records in range(12):
            path, left = folder / f"ledger{records}", [records]

            def cut(ledger, record, left=left):
                if not left[0]:
                    raise KeyboardInterrupt
                left[0] -= 1
                append(ledger, record)

            with rooms[name].open(path, number=100 + records, total=TOTAL) as device:
                monkeypatch.setattr(DeviceLedger, "_append", cut)
                try:
                    rooms[name].report(device, 0)
                    is_cut = False
                except KeyboardInterrupt:
                    is_cut = True
                finally:
                    monkeypatch.setattr(DeviceLedger, "_append", append)
            with rooms[name].open(path, number=100 + records) as device:
                rooms[name].report(device, 0)
            assert abs(spent(path) - price(name)) < Fraction(1, 10**11)
            if not is_cut:
                return
        raise AssertionError("a report has fewer records")


class TestRestored:
    def test_a_restored_ledger_draws_nothing(self, rooms, folder):
        path, before = folder / "ledger", folder.with_name("backup")
        with rooms["collect"].open(path, total=TOTAL) as device:
            rooms["collect"].report(device, 0)
        shutil.copytree(folder, before)
        with rooms["federated"].open(path) as client:
            rooms["federated"].report(client, 0)
        restored(folder, before)
        for name in NAMES:
            with pytest.raises(RolledBack):
                rooms[name].open(path)

    def test_the_word_of_a_collector_costs_the_lifetime(self, rooms, folder):
        path = folder / "ledger"
        with rooms["collect"].open(path, total=TOTAL) as device:
            assert rooms["collect"].heed(device, [0, 1]) == [0, 1]
        with rooms["location"].open(path) as device:
            assert rooms["location"].heed(device, [3]) == [3]
        assert abs(spent(path) - 2 - price("location")) < Fraction(1, 10**11)

    def test_a_word_beyond_the_lifetime_leaves_nothing(self, rooms, folder):
        path = folder / "ledger"
        with rooms["collect"].open(path, total=Lifetime(1.5)) as device:
            rooms["collect"].heed(device, range(5))
            with pytest.raises(BudgetExceeded):
                rooms["collect"].report(device, 7)
        assert spent(path) == Fraction(3, 2)


class TestOldLedgers:
    def test_without_a_lifetime_nothing_changes(self, rooms, folder):
        path = folder / "ledger"
        for name in ROOMS:
            with rooms[name].open(path) as device:
                for number in range(9):
                    rooms[name].report(device, number)
        with DeviceLedger(path) as ledger:
            assert lifetime.ACCOUNT not in [one.terms.name for one in ledger.accounts()]

    def test_what_was_spent_before_counts(self, rooms, folder):
        path = folder / "ledger"
        for name in ("collect", "federated"):
            with rooms[name].open(path) as device:
                for number in range(3):
                    rooms[name].report(device, number)
        with rooms["collect"].open(path, total=TOTAL) as device:
            assert spent_now(device) == 6
            rooms["collect"].report(device, 3)
            with pytest.raises(BudgetExceeded):
                rooms["collect"].report(device, 4)

    def test_more_than_it_holds_leaves_nothing(self, rooms, folder):
        path = folder / "ledger"
        with rooms["collect"].open(path) as device:
            for number in range(9):
                rooms["collect"].report(device, number)
        with rooms["federated"].open(path, total=TOTAL) as client, pytest.raises(BudgetExceeded):
            rooms["federated"].report(client, 0)
        assert spent(path) == Fraction(15, 2)

    def test_what_an_earlier_release_spends_counts_when_it_is_opened_next(self, rooms, folder, monkeypatch):
        path = folder / "ledger"
        with rooms["collect"].open(path, total=TOTAL) as device:
            rooms["collect"].report(device, 0)
        with monkeypatch.context() as patch:
            patch.setattr(lifetime, "opened", lambda *_: None)
            with rooms["federated"].open(path) as client:
                for number in range(4):
                    rooms["federated"].report(client, number)
        assert spent(path) == 1
        with rooms["collect"].open(path) as device:
            assert spent_now(device) == 5

    def test_places_of_before_have_no_price(self, rooms, folder):
        path = folder / "ledger"
        with rooms["location"].open(path) as device:
            rooms["location"].report(device, 0)
        stored = path.read_bytes()
        for name in ("location", "collect"):
            with pytest.raises(MixedGuarantees, match="how far the cells of its reports reach"):
                rooms[name].open(path, total=TOTAL)
        assert path.read_bytes() == stored
        with rooms["location"].open(path) as device:
            rooms["location"].report(device, 1)

    def test_cut_off_while_it_begins(self, rooms, folder, monkeypatch):
        path = folder / "ledger"
        with rooms["collect"].open(path) as device:
            for number in range(5):
                rooms["collect"].report(device, number)
        with monkeypatch.context() as patch:
            patch.setattr(lifetime, "pay_what_is_left", _crash)
            with pytest.raises(KeyboardInterrupt):
                rooms["collect"].open(path, total=TOTAL)
        with rooms["federated"].open(path) as client:
            assert spent_now(client) == 5


def _crash(*_):
    raise KeyboardInterrupt


def spent_now(device):
    return device.ledger.balance(lifetime.ACCOUNT).spent / UNITS_PER_ONE


class TestTerms:
    def test_it_is_fixed(self, rooms, folder):
        path = folder / "ledger"
        rooms["collect"].open(path, total=TOTAL).close()
        for other in (Lifetime(8.0, distance_km=2.0), Lifetime(7.5), Lifetime(7.5, 1e-6, 2.0)):
            with pytest.raises(AccountConflict, match=r"is fixed: epsilon 7\.5, places at 2 km; got epsilon"):
                rooms["collect"].open(path, total=other)

    def test_gaussian_reports_need_a_delta(self, rooms, folder):
        with pytest.raises(MixedGuarantees, match="this lifetime is without delta"):
            rooms["personal"].open(folder / "ledger", total=TOTAL)
        path = folder / "other"
        with rooms["personal"].open(path, number=9, total=Lifetime(50.0, 1e-6)) as client:
            rooms["personal"].report(client, 0)
            own = client.ledger.balance(client.account).spent
        with rooms["collect"].open(path, number=9) as device:
            rooms["collect"].report(device, 0)
            assert device.ledger.balance(lifetime.ACCOUNT).spent == own + mu2_cost(PureDP(1.0))

    def test_one_record_of_many_has_no_price_for_the_person(self, rooms, folder):
        """A home that learns hides one record: it neither spends beside a lifetime nor is put under one."""
        path, total = folder / "ledger", Lifetime(50.0, 1e-6)
        rooms["collect"].open(path, total=total).close()
        with pytest.raises(MixedGuarantees, match="protects one record of a home, and a lifetime the person"):
            Home(path, folder / "updates", bytes(32), lifetime=1000.0).close()
        other = folder / "other"
        Home(other, folder / "updates", bytes([1]) * 32, lifetime=1000.0).close()
        with pytest.raises(MixedGuarantees, match="account home-training protects one record"):
            rooms["collect"].open(other, number=9, total=total).close()
        with DeviceLedger(other) as ledger:
            assert [one.terms.name for one in ledger.accounts()] == ["home-training"]

    def test_the_check_finds_records_beside_a_lifetime(self, rooms, folder, monkeypatch):
        """Planted: whom an account protects is not looked at."""
        monkeypatch.setattr(lifetime, "_check_person", lambda _: None)
        with pytest.raises(pytest.fail.Exception):
            self.test_one_record_of_many_has_no_price_for_the_person(rooms, folder)

    def test_places_need_a_distance(self, rooms, folder):
        with pytest.raises(MixedGuarantees, match="this lifetime states none"):
            rooms["location"].open(folder / "ledger", total=Lifetime(7.5))

    @given(st.integers(1, 10**14), st.floats(0.001, 1000), st.floats(0, 100))
    def test_a_place_costs_its_level_at_the_distance(self, units, distance, jump):
        terms = Lifetime(1.0, distance_km=distance).terms
        due = cost(terms, Unit.EPSILON_PER_KM, units, lambda given: given + jump)
        exact = units * Fraction(distance + jump)
        assert exact <= due < exact + 1

    @given(st.integers(1, 10**13))
    def test_a_pure_report_in_mu2(self, units):
        terms = Lifetime(1.0, 1e-6).terms
        assert terms.cap == Budget(1.0, 1e-6).mu2_cap
        mu = math.sqrt(cost(terms, Unit.EPSILON, units, None) / UNITS_PER_ONE)
        assert math.erf(mu / math.sqrt(8)) >= math.tanh(units / UNITS_PER_ONE / 2) * (1 - 1e-9)

    @pytest.mark.parametrize(
        "options", [{"epsilon": 0}, {"epsilon": 1, "delta": 2}, {"epsilon": 1, "distance_km": 0}]
    )
    def test_bad_ones(self, options):
        with pytest.raises(ValueError, match="must be"):
            Lifetime(**options)


def test_two_rooms_are_not_open_at_once(rooms, folder):
    """One program at a time has a ledger; so no two can pay from it at once."""
    path = folder / "ledger"
    with rooms["collect"].open(path, total=TOTAL), pytest.raises(LedgerError, match="is in use"):
        rooms["federated"].open(path)


def test_a_vehicle_pays_the_horizon_however_near_two_places_are(folder):
    """Two points 10 m apart may be as far apart by street as anything counts."""
    with contextlib.closing(provider(folder.with_name("provider"))) as held:
        made, area = vehicle(folder / "ledger", held, total=Lifetime(25.0, distance_km=0.01))
        with made as one:
            for period in range(2):
                one.query(area, *point(area, 3), now=START + period * area.service.period_s)
            own = one.ledger.balance("places").spent
            with pytest.raises(BudgetExceeded, match="lifetime"):
                one.query(area, *point(area, 3), now=START + 2 * area.service.period_s)
    assert spent(folder / "ledger") == Fraction(own, UNITS_PER_ONE) * Fraction(area.service.horizon_km)


@pytest.mark.parametrize("total", [Lifetime(3.0), Lifetime(3.0, 1e-6)])
def test_what_is_left_is_what_a_report_may_cost(rooms, folder, total):
    """A seller chooses by it (`market.seller`), so it must be below the lifetime, too."""
    with rooms["collect"].open(folder / "ledger", total=total) as device:
        remaining = device.ledger.balance(lifetime.ACCOUNT).remaining
        assert cost(total.terms, Unit.EPSILON, device.left, None) <= remaining
        assert cost(total.terms, Unit.EPSILON, device.left + 10**4, None) > remaining
