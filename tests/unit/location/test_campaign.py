"""A campaign in a folder: it begins, counts, ends each round once, and goes on after a kill."""

import contextlib
import itertools
import json
import multiprocessing
import stat
import threading
from dataclasses import replace

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.location import payload
from reticent.location.campaign import SETTINGS, STORE, Campaign, Settings
from reticent.location.payload import Outcome
from reticent.location.rounds import verified
from reticent.location.store import ReportStore

from .campaign import MASTER, SIGNER, SIGNING, enrolment

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
FORK = multiprocessing.get_context("fork")
PARIS = Settings("paris", "to test", 48.8286, 48.8798, 2.2855, 2.3909, 4, 5, 0.5, 3, closed=(7, 19))
ROUNDS = PARIS.rounds


def begun(folder, settings=PARIS):
    return Campaign.begin(folder, settings, MASTER, SIGNING)


def opened(folder):
    return Campaign(folder, MASTER, SIGNING)


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


# Kills


def work(folder, is_planted, told):
    """Count and end for ever, and tell what was acknowledged."""
    if is_planted:  # acknowledges what it has not written
        ReportStore.add = lambda self, given: [Outcome.COUNTED] * len(given)
    with opened(folder) as campaign:
        for number in itertools.count():
            asked = campaign.current
            if campaign.add(reports(asked, 1, first=number)) == [Outcome.COUNTED]:
                told.send(asked.number)
            if number % 5 == 4:
                campaign.end_round()


def lost_by_a_kill(folder, is_planted, lines=13):
    """Rounds of which fewer reports are counted after the kill than were acknowledged before it."""
    read, told = FORK.Pipe(duplex=False)
    process = FORK.Process(target=work, args=(folder, is_planted, told), daemon=True)
    process.start()
    told.close()
    acknowledged = [read.recv() for _ in range(lines)]
    process.kill()
    process.join()
    with contextlib.suppress(EOFError):
        while True:
            acknowledged.append(read.recv())
    with opened(folder) as campaign:
        rounds = campaign.store.rounds()
        found = [int(campaign.counts(one.number).sum()) for one in rounds]
        while campaign.end_round() is not None:  # it goes on
            pass
        assert len(campaign.store.rounds()) == ROUNDS
    wanted = [acknowledged.count(number) for number in range(len(rounds))]
    return [number for number in range(len(rounds)) if found[number] < wanted[number]]


@pytest.mark.parametrize("is_planted", [False, True])
def test_what_was_acknowledged_survives_a_kill(tmp_path, is_planted):
    begun(tmp_path / "c").close()
    assert bool(lost_by_a_kill(tmp_path / "c", is_planted)) == is_planted


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


def test_settings_survive_a_file(tmp_path):
    begun(tmp_path / "c").close()
    with opened(tmp_path / "c") as campaign:
        assert campaign.settings == PARIS
    changed = json.loads((tmp_path / "c" / SETTINGS).read_text()) | {"beta": -1}
    (tmp_path / "c" / SETTINGS).write_text(json.dumps(changed))
    with pytest.raises(ParameterError, match="beta must be"):
        opened(tmp_path / "c")
