"""A phone: nothing unpaid leaves, nothing is silent, one report for each round of a campaign."""

import decimal
import math
import os
import shutil
import signal

import numpy as np
import pytest

from reticent.errors import AccountConflict, BudgetExceeded, GuaranteeError, LedgerError, ParameterError
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.marks import Marks
from reticent.location import LocationDevice, payload
from reticent.location.device import ACCOUNT
from reticent.location.payload import Outcome
from reticent.location.rounds import PlaceRound
from reticent.mechanisms.location import ElasticChannel
from reticent.randomness import SimulationStream
from reticent.spaces import Box, Grid

from . import campaign

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

PHONE = campaign.enrolment(7)
HERE = (48.85, 2.35)
AWAY = (40.0, -70.0)
JUMP = 5.0  # km, a little more than that of `campaign.GRID`, of which two cells are closed


@pytest.fixture
def phone(tmp_path):
    """Open the one phone of a test; again after it was closed."""
    opened = []

    def open_phone(kind=LocationDevice, *, lifetime=1000.0, most=4.0, rng=None):
        caps = {"lifetime_per_km": lifetime, "most_per_km": most, "most_jump_km": JUMP}
        made = kind(tmp_path / "ledger", PHONE, campaign.SIGNER, **caps, rng=rng)
        opened.append(made)
        return made

    yield open_phone
    for one in opened:
        one.close()


def taken(one, asked):
    return one.take(campaign.file_of(asked))


def cell_of(asked, report):
    outcome, reporter, cell = campaign.read(asked, report, campaign.MASTER)
    assert (outcome, reporter) == (Outcome.COUNTED, PHONE.id)
    return cell


# Totality, mathematics 4.1


class Raises:
    """Nothing can be made of it."""

    def _no(self, *_):
        raise RuntimeError("no")

    __float__ = __int__ = __index__ = __str__ = __repr__ = __hash__ = __eq__ = __bool__ = __iter__ = _no
    __len__ = __getitem__ = __array__ = __gt__ = __lt__ = __format__ = _no


ODD = [
    None,
    math.nan,
    math.inf,
    -math.inf,
    1e308,
    10**400,
    -(10**400),
    91.0,
    -500,
    "48.85",
    "north",
    b"\xff",
    [],
    [[]],
    [1.0, 2.0],
    np.zeros(0),
    np.zeros((2, 0)),
    np.ma.masked,
    np.array([np.datetime64("NaT")]),
    1j,
    {},
    object(),
    decimal.Decimal("sNaN"),
    True,
    Raises(),
]


def silent(one, asked_of, points):
    """Which points are told apart by whether, or how long, a report is; each is in a round of its own."""
    found = []
    for number, (latitude, longitude) in enumerate(points):
        asked = taken(one, asked_of(number))
        try:
            sent = one.report(asked, latitude, longitude)
        except Exception:
            sent = None
        if not isinstance(sent, bytes) or len(sent) != payload.size(asked):
            found.append(number)
    return found


def test_every_point_is_reported(phone):
    points = [(value, HERE[1]) for value in ODD] + [(HERE[0], value) for value in ODD]
    points += [HERE[::-1], AWAY, (value := Raises(), value)]
    assert silent(phone(), lambda number: campaign.asked(0.1, number), points) == []


class SilentOutside(LocationDevice):
    """Planted: nothing to say outside of the city."""

    def report(self, asked, latitude, longitude):
        box = asked.grid.box
        if not (box.south <= latitude <= box.north and box.west <= longitude <= box.east):
            return None
        return super().report(asked, latitude, longitude)


class RaisesOnOddPoints(LocationDevice):
    """Planted: an error where there is no finite point."""

    def _drawn(self, asked, latitude, longitude):
        cell = int((float(latitude) - 48.0) * 4)
        return super()._drawn(asked, latitude, longitude) + 0 * cell


@pytest.mark.parametrize("planted", [SilentOutside, RaisesOnOddPoints])
def test_planted_silence_is_found(phone, planted):
    points = [HERE, AWAY, (math.nan, math.nan), (math.inf, 2.0)]
    found = silent(phone(planted), lambda number: campaign.asked(0.1, number), points)
    assert found
    assert 0 not in found


def test_points_are_drawn_from_their_cells(phone, monkeypatch):
    """Outside: the nearest cell as seen from above; America is north-west of Paris, by the shortest way.
    Closed: the nearest open one. No number: the middle."""
    seen = []

    def spy(self, places, rng):
        seen.extend(np.asarray(places).tolist())
        return np.zeros(1, dtype=np.int64)

    one = phone()
    monkeypatch.setattr("reticent.mechanisms.location.elastic.ElasticChannel.sample", spy)
    points = [(48.0, 2.0), (48.829, 2.39), AWAY, (math.nan, math.nan), (48.879, 2.3905), (48.845, 2.335)]
    assert silent(one, lambda number: campaign.asked(0.1, number), points) == []
    grid = campaign.GRID
    assert seen[:4] == [0, 4, 15, 12]
    assert all(grid.open[cell] for cell in seen)
    assert seen[4] == 14  # cells are wider than high
    assert seen[5] in (2, 6, 8, 12)


def test_the_law_of_reports_is_the_channels(phone):
    """1,000 draws for one place. Each cell within 6 sigma: 20 false alarms in 10^9."""
    one, counts = phone(rng=SimulationStream(2)), np.zeros(20)
    asked = taken(one, campaign.asked(0.5))
    law = asked.channel.probabilities(int(asked.grid.cells([HERE[0]], [HERE[1]])[0]))
    for _ in range(1000):
        counts[one._drawn(asked, *HERE)] += 1
    assert (np.abs(counts - 1000 * law) <= 6.0 * np.sqrt(1000 * law) + 6.0).all()


# Memory, mathematics 4.2


def pairs(phone, kind):
    """The two reports of a round for the points (a, a) and (a, b), in many rounds."""
    found = []
    with phone(kind) as one:
        for number in range(20):
            asked = taken(one, campaign.asked(1.9, number))
            second = HERE if number % 2 else AWAY
            found.append((one.report(asked, *HERE), one.report(asked, *second)))
    return found


class ByValue(LocationDevice):
    """Planted: another place in the round is another report of it."""

    def report(self, asked, latitude, longitude):
        if latitude == HERE[0]:
            return super().report(asked, latitude, longitude)
        return payload.written(asked, PHONE, self._drawn(asked, latitude, longitude))


def is_memoised(found):
    return all(first == second for first, second in found)


def test_a_report_is_the_same_wherever_the_phone_goes(phone):
    assert is_memoised(pairs(phone, LocationDevice))


def test_planted_a_memory_by_value_is_found(phone):
    assert not is_memoised(pairs(phone, ByValue))


def test_a_report_is_the_same_after_a_restart(phone):
    asked = campaign.asked(0.5, 3)
    with phone() as one:
        first = one.report(taken(one, asked), *HERE)
    with phone() as one:
        with pytest.raises(ParameterError, match="round must be one that this device took, got paris 3"):
            one.report(asked, *HERE)
        assert one.report(taken(one, asked), *AWAY) == first
        assert one.spent_per_km == pytest.approx(asked.channel.level)


def test_another_text_for_the_same_round_gets_nothing(phone, monkeypatch):
    """No second draw: neither for a higher level, nor for another c, nor for another purpose."""
    one = phone()
    first = one.report(taken(one, campaign.asked(0.5)), *HERE)
    others = [campaign.asked(1.5), campaign.asked(0.5, seed=1), campaign.asked(0.5, purpose="to spy")]
    monkeypatch.setattr(LocationDevice, "_drawn", lambda *_: pytest.fail("drawn again"))
    for other in others:
        with pytest.raises(ParameterError, match="round 0 of paris was answered under another text"):
            one.report(taken(one, other), *AWAY)
    assert one.report(campaign.asked(0.5), *AWAY) == first
    assert one.spent_per_km == pytest.approx(1.0)


# Nothing unpaid


def unpaid(phone, kind, tmp_path):
    """What a power loss at the moment when bytes leave would show: whether they are not paid and kept."""
    one, paths = phone(kind), []
    for number in range(3):
        asked = taken(one, campaign.asked(0.5, number))
        report = one.report(asked, *HERE)
        paths.append((asked, report, shutil.copy(tmp_path / "ledger", tmp_path / f"copy-{number}")))
    found = 0
    for number, (asked, report, path) in enumerate(paths):
        elsewhere = Marks(tmp_path / f"marks-{number}", moved=True)
        with LocationDevice(
            path, PHONE, campaign.SIGNER, lifetime_per_km=1000.0, most_jump_km=JUMP, marks=elsewhere
        ) as copy:
            found += not math.isclose(copy.spent_per_km, number + 1.0, rel_tol=1e-6)
            found += copy.report(taken(copy, asked), *AWAY) != report
            found += not math.isclose(copy.spent_per_km, number + 1.0, rel_tol=1e-6)
    return found


def test_what_leaves_is_paid_and_kept(phone, tmp_path):
    assert unpaid(phone, LocationDevice, tmp_path) == 0


class SkipsTheLedger(LocationDevice):
    """Planted: draws at once."""

    def report(self, asked, latitude, longitude):
        return payload.written(asked, PHONE, self._drawn(asked, latitude, longitude))


class PaysOnce(SkipsTheLedger):
    """Planted: one charge for all rounds."""

    def report(self, asked, latitude, longitude):
        kind = SkipsTheLedger if self.spent_per_km else LocationDevice
        return kind.report(self, asked, latitude, longitude)


@pytest.mark.parametrize("planted", [SkipsTheLedger, PaysOnce])
def test_planted_a_skipped_ledger_is_found(phone, tmp_path, planted):
    assert unpaid(phone, planted, tmp_path) > 0


def test_the_charge_is_durable_before_the_draw(phone, tmp_path):
    states = []

    class Looks(LocationDevice):
        def _drawn(self, asked, latitude, longitude):
            with DeviceLedger(shutil.copy(tmp_path / "ledger", tmp_path / "copy")) as copy:
                states.append(copy.balance(ACCOUNT).spent)
            return super()._drawn(asked, latitude, longitude)

    one = phone(Looks)
    rounds = [taken(one, campaign.asked(0.5, number)) for number in range(2)]
    for asked in rounds:
        one.report(asked, *HERE)
    assert states == [rounds[0].units, 2 * rounds[0].units]


def killed_while_drawing(path, asked):
    child = os.fork()
    if child == 0:
        try:
            with LocationDevice(path, PHONE, campaign.SIGNER, lifetime_per_km=4.0, most_jump_km=JUMP) as one:
                taken(one, asked)
                one._drawn = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
                one.report(asked, *HERE)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def test_a_crash_between_charge_and_record_costs_once(tmp_path):
    """Killed while drawing, three times: one draw leaves, charged once."""
    asked, path = campaign.asked(0.5, 2), tmp_path / "ledger"
    for _ in range(3):
        killed_while_drawing(path, asked)
    with LocationDevice(path, PHONE, campaign.SIGNER, lifetime_per_km=4.0, most_jump_km=JUMP) as one:
        assert one.spent_per_km == pytest.approx(1.0)  # paid for before the first draw
        assert len(one.ledger.pending(ACCOUNT)) == 1
        first = one.report(taken(one, asked), *HERE)
        assert one.spent_per_km == pytest.approx(1.0)
        assert one.ledger.pending(ACCOUNT) == []
        assert one.report(asked, *AWAY) == first


@pytest.mark.parametrize("betas", [(0.5, 1.0), (1.0, 0.5)])
def test_another_text_after_a_crash_costs_the_higher_level(tmp_path, betas):
    first, second = (campaign.asked(beta) for beta in betas)
    killed_while_drawing(tmp_path / "ledger", first)
    with LocationDevice(
        tmp_path / "ledger", PHONE, campaign.SIGNER, lifetime_per_km=4.0, most_jump_km=JUMP
    ) as one:
        sent = one.report(taken(one, second), *HERE)
        assert one.spent_per_km == pytest.approx(2.0)
        assert one.report(second, *AWAY) == sent
        with pytest.raises(ParameterError, match="answered under another text"):
            one.report(taken(one, first), *HERE)
        assert one.spent_per_km == pytest.approx(2.0)


def test_a_report_leaves_only_when_it_is_recorded(phone, monkeypatch):
    """What cannot be recorded is not given out: two draws must not both be seen."""
    one = phone()
    asked = taken(one, campaign.asked(0.5))

    def full(*_):
        raise LedgerError("the disk is full")

    with monkeypatch.context() as planted:
        planted.setattr(one.ledger, "fulfil", full)
        with pytest.raises(LedgerError, match="full"):
            one.report(asked, *HERE)
    assert one.report(asked, *HERE) == one.report(asked, *AWAY)
    assert one.spent_per_km == pytest.approx(1.0)


# Limits of the owner


def test_a_lifetime_ends(phone):
    one = phone(lifetime=3.5)
    for number in range(3):
        one.report(taken(one, campaign.asked(0.5, number)), *HERE)
    with pytest.raises(BudgetExceeded, match="places"):
        one.report(taken(one, campaign.asked(0.5, 3)), *HERE)
    again = one.report(campaign.asked(0.5, 2), *AWAY)
    assert cell_of(campaign.asked(0.5, 2), again) >= 0  # what is paid for may be sent again
    assert one.spent_per_km == pytest.approx(3.0)


def test_a_spent_ledger_says_no_wherever_the_phone_is(phone):
    one = phone(lifetime=0.5)
    asked = taken(one, campaign.asked(0.5))
    said = set()
    for point in (HERE, AWAY, (None, None)):
        with pytest.raises(BudgetExceeded) as refused:
            one.report(asked, *point)
        said.add(str(refused.value))
    assert len(said) == 1


def test_another_campaign_is_another_charge(phone):
    one = phone()
    for name in ("paris", "lyon"):
        one.report(taken(one, campaign.asked(0.5, name=name)), *HERE)
    assert one.spent_per_km == pytest.approx(2.0)


def test_a_level_above_what_the_owner_allows(phone):
    with pytest.raises(GuaranteeError, match="the round asks for 2 per km, this device allows 1"):
        taken(phone(most=1.0), campaign.asked(1.0))


def test_the_lifetime_is_fixed_with_the_ledger(phone):
    phone(lifetime=10.0).close()
    with pytest.raises(AccountConflict):
        phone(lifetime=20.0)
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(ParameterError, match="lifetime_per_km must be"):
            phone(lifetime=wrong)


# Borders


def bisected(one, grid_about, rounds=25):
    """Where a server finds a device that it asks for the side of a line, again and again: degrees east."""
    low, high = -30.0, 30.0
    for number in range(rounds):
        middle = (low + high) / 2.0
        grid = grid_about(Box(48.85, 48.86, middle - 4.0, middle + 4.0))
        channel = ElasticChannel(grid, grid.open.astype(float), 25.0 / grid.diameter)
        asked = PlaceRound.made(channel, name=f"line-{number}", purpose="to spy", number=0, rounds=1)
        cell = cell_of(asked, one.report(taken(one, asked), *HERE))
        low, high = (middle, high) if cell else (low, middle)
    return (low + high) / 2.0


GRIDS = {
    "two large cells": lambda box: Grid.over(box, 1, 2),
    "two of many small ones are open": lambda box: Grid.over(box, 1, 300, tuple(range(1, 299))),
}


@pytest.mark.parametrize("grid_about", GRIDS.values(), ids=GRIDS)
def test_a_line_is_not_asked_for(phone, grid_about):
    """A level per km says nothing of points across a border, unless cells are small and few are closed."""
    one = phone()
    with pytest.raises(GuaranteeError, match="km farther apart, this device allows 5"):
        bisected(one, grid_about)
    assert one.spent_per_km == 0.0


@pytest.mark.parametrize("grid_about", GRIDS.values(), ids=GRIDS)
def test_planted_a_device_that_allows_any_cells_is_found(tmp_path, grid_about):
    """To a metre, for 5 per km; by which points a metre apart should look alike. Wrong bits: e^-25 each."""
    with LocationDevice(
        tmp_path / "ledger", PHONE, campaign.SIGNER, lifetime_per_km=5.0, most_jump_km=1e9
    ) as one:
        assert abs(bisected(one, grid_about) - HERE[1]) * 111_000 < 1.0
