"""A campaign in a folder: it begins, counts, ends each round once, and goes on after a crash."""

import contextlib
import json
import os
import shutil
import sqlite3
import stat
import threading
from dataclasses import replace

import numpy as np
import pytest

from reticent.errors import LedgerError, ParameterError
from reticent.estimation.locations import estimated
from reticent.ledger import MemoryLedger, Unit
from reticent.location import LocationDevice, payload
from reticent.location import campaign as campaigns
from reticent.location import privic as privics
from reticent.location.campaign import SETTINGS, STORE, Campaign, Settings
from reticent.location.payload import Outcome
from reticent.location.rounds import verified
from reticent.location.store import ReportStore
from reticent.privacy import Neighbours

from ...support.crash_points import enumerate_crashes
from ..operating import operator
from .campaign import MASTER, SIGNER, SIGNING, enrolment, sealed, written

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
PARIS = Settings("paris", "to test", 48.8286, 48.8798, 2.2855, 2.3909, 4, 5, 0.5, 3, closed=(7, 19))
ROUNDS = PARIS.rounds


def begun(folder, settings=PARIS):
    return Campaign.begin(folder, settings, operator(MASTER), SIGNING)


def opened(folder):
    return Campaign(folder, operator(MASTER), SIGNING)


def reports(asked, people, first=0, cell=3):
    return [payload.written(asked, enrolment(first + one), cell) for one in range(people)]


def test_from_the_first_round_to_the_last(tmp_path):
    with begun(tmp_path / "c") as campaign:
        assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700
        for number in range(ROUNDS):
            asked = verified(campaign.file(), SIGNER)
            assert (asked.number, asked.rounds, asked.grid) == (number, ROUNDS, PARIS.grid)
            assert campaign.add(reports(asked, 30)) == [Outcome.COUNTED] * 30
            following = campaign.end_round()
            assert (following is None) == (number == ROUNDS - 1)
        assert campaign.end_round() is None
        assert len(campaign.store.rounds()) == ROUNDS
        assert [int(campaign.counts(number).sum()) for number in range(ROUNDS)] == [30] * ROUNDS
        assert int(np.argmax(campaign.privic().estimate)) == 3
        assert not campaign.privic().estimate[[7, 19]].any(), "nobody is in a closed cell"
        assert verified(campaign.file(0), SIGNER).number == 0
        with pytest.raises(ParameterError, match="number must be of a published round, got 3"):
            campaign.file(3)


def rounds_after_a_retry(folder):
    """How many rounds there are after the end of the first was asked for twice."""
    with begun(folder) as campaign:
        assert campaign.end_round(0) in campaign.store.rounds()
        campaign.end_round(0)
        return len(campaign.store.rounds())


def test_a_round_ends_once(tmp_path, monkeypatch):
    """Planted: the end of whatever round is open."""
    assert rounds_after_a_retry(tmp_path / "c") == 2
    with opened(tmp_path / "c") as campaign, pytest.raises(ParameterError, match="number must be"):
        campaign.end_round(2)
    end = Campaign.end_round
    monkeypatch.setattr(Campaign, "end_round", lambda self, number: end(self))
    assert rounds_after_a_retry(tmp_path / "planted") == 3


def ended_at_once(folder, threads=6):
    """What each of many who end the first round at once was told; reports come in meanwhile."""
    held = [opened(folder) for _ in range(2)]
    start, told, failed = threading.Barrier(threads + 1), [], []

    def end(number):
        start.wait()
        try:
            told.append(held[number % 2].end_round(0).id)
        except Exception as error:
            failed.append(error)

    def send():
        asked = held[0].current
        start.wait()
        for one in reports(asked, 40):
            held[0].add([one])

    running = [threading.Thread(target=end, args=(one,)) for one in range(threads)]
    running.append(threading.Thread(target=send))
    for one in running:
        one.start()
    for one in running:
        one.join()
    rounds = len(held[0].store.rounds())
    for one in held:
        one.close()
    return told, failed, rounds


def test_ended_by_many_at_once(tmp_path):
    begun(tmp_path / "c").close()
    told, failed, rounds = ended_at_once(tmp_path / "c")
    assert (len(set(told)), len(told), failed, rounds) == (1, 6, [], 2)


# Crashes


def count_and_end(folder, acks, count=6):
    """Count reports and end rounds, and append to a file the rounds of those that were acknowledged."""
    file = os.open(acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with opened(folder) as campaign:
        for number in range(count):
            asked = campaign.current
            if campaign.add(reports(asked, 1, first=number)) == [Outcome.COUNTED]:
                os.write(file, b"%d\n" % asked.number)
            if number % 3 == 2:
                campaign.end_round()


def lost_by_crashes(base):
    """End a process at each of its points; yield the rounds that lack a report that was acknowledged."""
    start, live, acks = base / "start", base / "live", base / "acks"
    begun(start).close()
    shutil.copytree(start, live)
    for point in enumerate_crashes(lambda: count_and_end(live, acks)):
        acknowledged = [int(line) for line in acks.read_text().split()] if acks.exists() else []
        with opened(live) as campaign:
            rounds = campaign.store.rounds()
            counts = {one.number: int(campaign.counts(one.number).sum()) for one in rounds}
            while campaign.end_round() is not None:  # it goes on
                pass
            assert len(campaign.store.rounds()) == ROUNDS
        yield point, [number for number in set(acknowledged) if counts[number] < acknowledged.count(number)]
        acks.unlink(missing_ok=True)
        shutil.rmtree(live)
        shutil.copytree(start, live)


def test_what_was_acknowledged_survives_a_crash(tmp_path):
    points = 0
    for point, lost in lost_by_crashes(tmp_path):
        assert lost == [], str(point)
        points += 1
    assert points > 20


def test_planted_an_acknowledgement_of_what_was_not_written_is_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(ReportStore, "add", lambda self, given: [Outcome.COUNTED] * len(given))
    assert any(lost for _, lost in lost_by_crashes(tmp_path))


def test_killed_while_it_began(tmp_path):
    """Before the settings, and before the first round."""
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / f".{SETTINGS}.0123456789abcdef").write_text("{")
    begun(tmp_path / "c").close()
    (tmp_path / "c" / STORE).unlink()
    for rest in ("-wal", "-shm"):
        (tmp_path / "c" / (STORE + rest)).unlink(missing_ok=True)
    with opened(tmp_path / "c") as campaign:
        assert campaign.current.number == 0
    with pytest.raises(ParameterError, match="folder must be new or empty, got c"):
        begun(tmp_path / "c")


# Settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "../paris"}, "name must be 1 to 80 letters"),
        ({"purpose": ""}, "purpose must be a printable text"),
        ({"rounds": 0}, "rounds must be"),
        ({"beta": 0.0}, "beta must be > 0, got 0.0"),
        ({"beta": float("nan")}, "beta must be"),
        ({"south": 49.0}, "south must be < north, got 49 and 48.8798"),
        ({"rows": 1, "columns": 1, "closed": ()}, "rows x columns must be 2 to 1048576, got 1"),
        ({"rows": 2000, "columns": 2000}, "rows x columns must be 2 to 1048576, got 4000000"),
        ({"closed": (20,)}, "closed must be"),
        ({"closed": tuple(range(20))}, "closed must leave at least one cell open"),
    ],
)
def test_bad_settings_are_refused(tmp_path, changes, message):
    with pytest.raises(ParameterError, match=message):
        begun(tmp_path / "c", replace(PARIS, **changes))
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": 1}', "null", '{"closed": 5, "defence": {}}'])
def test_a_damaged_file_of_settings(tmp_path, text):
    begun(tmp_path / "c").close()
    (tmp_path / "c" / SETTINGS).write_text(text)
    with pytest.raises(ParameterError, match=r"campaign.json must be the settings of a campaign"):
        opened(tmp_path / "c")


def estimates(campaign):
    return [privic.estimate for _, _, privic in campaign.steps()]


def worked_out(folder, monkeypatch, same=np.array_equal):
    """How many estimates each look at a campaign takes, and whether they are those of who opens it afresh."""
    calls, right = [], []
    monkeypatch.setattr(campaigns.np, "array_equal", same)
    monkeypatch.setattr(
        privics, "estimated", lambda *args, **options: calls.append(1) or estimated(*args, **options)
    )
    looks = []
    with begun(folder) as campaign:
        for _ in range(ROUNDS - 1):
            campaign.add(reports(campaign.current, 20))
            campaign.end_round()
        for people in (0, 10, 10):
            if people:
                campaign.add(reports(campaign.current, people, first=people * len(looks), cell=9))
            calls.clear()
            found = estimates(campaign)
            looks.append(len(calls))
            with opened(folder) as afresh:
                right.append(all(map(true_equal, found, estimates(afresh))))
        calls.clear()
        estimates(campaign)
        looks.append(len(calls))
    return looks, all(right)


true_equal = np.array_equal


def test_only_rounds_with_new_reports_are_worked_out(tmp_path, monkeypatch):
    """Planted: a memory that does not look at the counts says what was."""
    looks, right = worked_out(tmp_path / "a", monkeypatch)
    assert looks == [1, 1, 1, 0]  # at first that of the open round, of which nothing was known
    assert right
    looks, right = worked_out(tmp_path / "b", monkeypatch, same=lambda a, b: True)
    assert not right


def test_what_a_look_is_given_is_its_own(tmp_path):
    with begun(tmp_path / "c") as campaign:
        campaign.add(reports(campaign.current, 20))
        first = campaign.privic()
        first.learn(first.channel(), np.arange(PARIS.grid.size) * PARIS.grid.open)
        assert len(campaign.privic().rounds) == 1
        with opened(tmp_path / "c") as afresh:
            assert np.array_equal(campaign.privic().estimate, afresh.privic().estimate)


def test_a_campaign_that_began_with_twenty_updates_keeps_them(tmp_path):
    """As all did before the number followed the reports: their estimates do not change under them."""
    with begun(tmp_path / "c", replace(PARIS, updates=20)):
        pass
    with opened(tmp_path / "c") as campaign:
        assert campaign.privic().updates == 20
    with begun(tmp_path / "d") as campaign:
        assert campaign.privic().updates is None


def test_settings_survive_a_file(tmp_path):
    begun(tmp_path / "c").close()
    with opened(tmp_path / "c") as campaign:
        assert campaign.settings == PARIS
    changed = json.loads((tmp_path / "c" / SETTINGS).read_text()) | {"beta": -1}
    (tmp_path / "c" / SETTINGS).write_text(json.dumps(changed))
    with pytest.raises(ParameterError, match="beta must be"):
        opened(tmp_path / "c")


# The ledger


def held(folder, ledger, settings=PARIS):
    return Campaign.begin(folder, settings, operator(MASTER, ledger), SIGNING)


LOOKS = {
    "an estimate": lambda campaign: campaign.privic(),
    "counts": lambda campaign: campaign.counts(0),
    "the next round": lambda campaign: campaign.end_round(0),
    "the maps": lambda campaign: list(campaign.steps()),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_is_learnt_is_in_the_ledger_first(tmp_path, look):
    """It failed: campaigns entered nothing."""
    ledger = MemoryLedger()
    with held(tmp_path / "c", ledger) as campaign:
        campaign.add(reports(campaign.current, 30))
        assert ledger.accounts() == [], "nobody looked yet"
        look(campaign)
        (found,) = ledger.accounts()
        assert found.terms.name == f"campaign:{campaign.store.rounds()[0].id.hex()}"
        assert (found.terms.unit, found.terms.neighbours) == (Unit.EPSILON_PER_KM, Neighbours.METRIC)
        assert found.spent == campaign.store.rounds()[0].units
        look(campaign)
        assert ledger.accounts() == [found], "once"


class Full(MemoryLedger):
    """A ledger that cannot be written."""

    def _request(self, *given):
        raise LedgerError("disk full")


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_without_a_ledger_nothing_is_told(tmp_path, look):
    """Planted: a campaign that looks before it enters."""
    with held(tmp_path / "c", Full()) as campaign:
        campaign.add(reports(campaign.current, 30))
        with pytest.raises(LedgerError, match="disk full"):
            look(campaign)
        assert len(campaign.store.rounds()) == 1, "and nothing is published that depends on it"
        campaign._record.learn = lambda *_: None
        look(campaign)


def test_all_rounds_add_up_to_what_a_device_paid(tmp_path):
    """To the unit, though levels of rounds differ in their last digits; the cap holds all of them."""
    ledger = MemoryLedger()
    with (
        held(tmp_path / "c", ledger) as campaign,
        LocationDevice(
            tmp_path / "phone", enrolment(0), SIGNER, lifetime_per_km=9.0, most_jump_km=5.0
        ) as phone,
    ):
        for _ in range(ROUNDS):
            campaign.add([phone.report(phone.take(campaign.file()), 48.85, 2.33)])
            campaign.end_round()
        campaign.privic()
        name = campaign.study.terms.name
        assert ledger.balance(name).spent == phone.ledger.balance("places").spent
        assert ledger.balance(name).remaining >= 0
        counted = [ledger.reading(name, f"round {number}").estimate() for number in range(ROUNDS)]
        assert counted == [(1,)] * (ROUNDS - 1) + [()], "the last one stays open"


def test_a_report_that_comes_between_is_not_shown(tmp_path, monkeypatch):
    """Between entering and reading: what is shown is what was entered. Planted: reading again."""
    ledger = MemoryLedger()
    with held(tmp_path / "c", ledger) as campaign:
        late = reports(campaign.current, 5)
        learn = campaign._record.learn
        monkeypatch.setattr(campaign._record, "learn", lambda *given: (campaign.add(late), learn(*given)))
        campaign.store.rounds()
        assert not campaign.counts(0).any()
        assert ledger.accounts() == []
        campaign.add(late[:1])
        assert campaign.counts(0).sum() == 1
        assert campaign.store.counts(0).sum() == 5


# Campaigns of before


def aged(folder):
    """As it would be of a version that had another map: its rounds do not name one."""
    begun(folder).close()
    base = sqlite3.connect(folder / STORE)
    with contextlib.closing(base), base:
        fields = json.loads(_text(folder))
        file = sealed(written({key: one for key, one in fields.items() if key != "geometry"}))
        base.execute("UPDATE rounds SET file = ?", (file,))


def _text(folder):
    with ReportStore(folder / STORE, operator(MASTER)) as store:
        return store.rounds()[0].text


def test_a_campaign_of_another_geometry_is_refused_by_name(tmp_path, monkeypatch):
    """And nothing of it stays open: a service looks again for each page."""
    aged(tmp_path / "c")
    closed = []
    close = ReportStore.close
    monkeypatch.setattr(ReportStore, "close", lambda self: closed.append(close(self)))
    for _ in range(3):
        with pytest.raises(
            ParameterError, match="geometry must be orthographic, got 'kilometres per degree'"
        ):
            opened(tmp_path / "c")
    assert len(closed) == 3
