"""Reports of places are counted once, over duplicates, kills and nonsense."""

import contextlib
import multiprocessing
import os
import signal
import stat
import threading
from collections import Counter

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.location import ReportStore, payload, store
from reticent.location.payload import Outcome
from reticent.spaces import Grid
from reticent.sqlite import writing

from ..operating import operator
from . import campaign

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def kept(tmp_path):
    with ReportStore(tmp_path / "reports", operator(campaign.MASTER)) as one:
        one.publish(campaign.file_of(campaign.asked(0.5, 0)))
        yield one


def report(number, cell, asked=None):
    return payload.written(asked or campaign.asked(0.5, 0), campaign.enrolment(number), cell)


def test_reports_are_counted_once(kept):
    batch = [report(1, 3), report(2, 3), report(3, 18), report(1, 3), report(2, 4)]
    told = [Outcome.COUNTED] * 3 + [Outcome.DUPLICATE, Outcome.SECOND]
    assert kept.add(batch) == told
    assert kept.add(batch) == [Outcome.DUPLICATE] * 4 + [Outcome.SECOND]
    assert kept.counts(0)[[3, 4, 18]].tolist() == [2, 0, 1]
    assert kept.counts(0).sum() == 3
    assert kept.refusals() == {"duplicate": 5, "second": 2}


def read_while_another_takes_it_back(kept, patience_s):
    """What a thread is told of while another has written it and not committed, if it is told so soon."""
    seen = []
    reader = threading.Thread(target=lambda: seen.append((kept.counts(0).sum(), kept.refusals())))
    with contextlib.suppress(ZeroDivisionError), kept._guard, writing(kept._base) as base:
        base.execute("INSERT INTO reports VALUES (0, x'00', 3)")
        base.execute("INSERT INTO refusals VALUES ('tag', 1)")
        reader.start()
        reader.join(patience_s)
        raise ZeroDivisionError
    reader.join()
    return seen


def test_reads_wait_for_who_writes(kept):
    assert read_while_another_takes_it_back(kept, 0.2) == [(0, {})]


def test_planted_reads_that_do_not_wait_are_caught(kept):
    kept._guard = contextlib.nullcontext()
    assert read_while_another_takes_it_back(kept, 60.0) == [(1, {"tag": 1})]


def test_what_is_no_report_is_refused_and_counted(kept):
    good, other = report(1, 3), campaign.asked(0.5, 1)
    bad = {
        b"": Outcome.LENGTH,
        good + b"\0": Outcome.LENGTH,
        b"\1" + good[1:]: Outcome.VERSION,
        payload.written(other, campaign.enrolment(1), 3): Outcome.ROUND,
        good[:-1] + bytes([good[-1] ^ 1]): Outcome.TAG,
        good[:9] + campaign.enrolment(2).id + good[17:]: Outcome.TAG,
        report(1, 7): Outcome.CELL,  # closed
        report(1, 20): Outcome.CELL,
        report(1, 255): Outcome.CELL,
    }
    assert kept.add(list(bad)) == list(bad.values())
    assert kept.add([None, 5, "text"]) == [Outcome.LENGTH] * 3
    assert kept.counts(0).sum() == 0
    assert kept.refusals() == {"cell": 3, "length": 5, "round": 1, "tag": 2, "version": 1}


def test_rounds_come_one_after_the_other(kept, tmp_path):
    first, second = (campaign.asked(0.5, number) for number in (0, 1))
    assert kept.publish(campaign.file_of(first)) == first  # again
    for wrong, message in (
        (campaign.asked(0.5, 2), "number must be 1, the next round, got 2"),
        (campaign.asked(0.6, 0), "number must be 1, the next round, got 0"),
        (campaign.asked(0.5, 1, name="lyon"), "round must be one of paris on its grid, got lyon"),
        (
            campaign.asked(0.5, 1, grid=Grid.over(campaign.PARIS, 3, 3)),
            "round must be one of paris on its grid",
        ),
    ):
        with pytest.raises(ParameterError, match=message):
            kept.publish(campaign.file_of(wrong))
    kept.add([report(1, 3)])
    kept.publish(campaign.file_of(second))
    assert kept.add([report(2, 3), report(1, 5, second)]) == [Outcome.ROUND, Outcome.COUNTED]
    assert [kept.counts(number).sum() for number in (0, 1)] == [1, 1]
    assert kept.file(1) == campaign.file_of(second)
    assert kept.file(2) is None
    with ReportStore(tmp_path / "reports", operator(campaign.MASTER)) as again:
        assert again.rounds() == [first, second]
        assert again.counts(1)[5] == 1


def test_before_the_first_round(tmp_path):
    with ReportStore(tmp_path / "reports", operator(campaign.MASTER)) as empty:
        assert empty.add([b"", report(1, 3)]) == [Outcome.ROUND] * 2
        assert empty.rounds() == []


def test_nobody_else_may_read_it(kept, tmp_path):
    kept.add([report(1, 3)])
    files = sorted(tmp_path.glob("reports*"))
    assert len(files) >= 2  # the write-ahead log too
    assert {stat.S_IMODE(one.stat().st_mode) for one in files} == {0o600}


def test_several_threads_count_each_once(kept):
    batches = [[report(number, number % 7) for number in range(60)]] * 4
    told = Counter()
    guard = threading.Lock()

    def add(batch):
        for start in range(0, 60, 5):
            found = kept.add(batch[start : start + 5])
            with guard:
                told.update(found)

    threads = [threading.Thread(target=add, args=(batch,)) for batch in batches]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert told == {Outcome.COUNTED: 60, Outcome.DUPLICATE: 180}
    assert kept.counts(0).sum() == 60


# Kills


def serve(path, pipe):
    """Count the batches that come and acknowledge each."""
    with ReportStore(path, operator(campaign.MASTER)) as one:
        one.publish(campaign.file_of(campaign.asked(0.5, 0)))
        pipe.send(None)
        while True:
            number, batch = pipe.recv()
            one.add(batch)
            pipe.send(number)


def after_kills(path, kills, batches=12, size=20):
    """Send batches to stores that are killed in the middle, until each is acknowledged: (counted, people)."""
    rng = np.random.default_rng(0)
    left = {one: [report(one * size + each, each % 7) for each in range(size)] for one in range(batches)}
    while left:
        here, there = FORK.Pipe()
        child = FORK.Process(target=serve, args=(path, there))
        child.start()
        there.close()
        here.recv()
        for number in list(left):
            here.send((number, left[number]))
            if kills and rng.random() < 0.5:
                here.poll(float(rng.uniform(0.0, 0.01)))
                break
            del left[here.recv()]
        kills = max(0, kills - 1)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        here.close()
    with ReportStore(path, operator(campaign.MASTER)) as one:
        return int(one.counts(0).sum()), batches * size


def test_kills_lose_and_repeat_nothing(tmp_path):
    counted, people = after_kills(tmp_path / "reports", kills=6)
    assert counted == people


@pytest.mark.slow
def test_many_kills_lose_and_repeat_nothing(tmp_path):
    counted, people = after_kills(tmp_path / "reports", kills=200, batches=60)
    assert counted == people


def killed_at(path, batch, when):
    """A process that is killed just before, or just after, its transaction ends."""
    child = os.fork()
    if child == 0:
        try:
            with ReportStore(path, operator(campaign.MASTER)) as one:

                class Base:
                    def __getattr__(self, name):
                        return getattr(base, name)

                    def execute(self, text, *rest):
                        if text == "COMMIT" and when == "before":
                            os.kill(os.getpid(), signal.SIGKILL)
                        found = base.execute(text, *rest)
                        if text == "COMMIT":
                            os.kill(os.getpid(), signal.SIGKILL)
                        return found

                base, one._base = one._base, Base()
                one.add(batch)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


@pytest.mark.parametrize(("when", "told"), [("before", Outcome.COUNTED), ("after", Outcome.DUPLICATE)])
def test_a_kill_around_the_commit(kept, tmp_path, when, told):
    """Nobody was told; the batch comes again, and is counted once either way."""
    batch = [report(number, 3) for number in range(5)]
    killed_at(tmp_path / "reports", batch, when)
    assert kept.add(batch) == [told] * 5
    assert kept.counts(0).sum() == 5


def test_planted_an_early_acknowledgement_is_found(tmp_path):
    """Told before it is counted: a kill in between loses it."""
    path, batch = tmp_path / "reports", [report(number, 3) for number in range(5)]
    with ReportStore(path, operator(campaign.MASTER)) as one:
        one.publish(campaign.file_of(campaign.asked(0.5, 0)))
    killed_at(path, batch, "before")  # it had said "counted" already
    with ReportStore(path, operator(campaign.MASTER)) as one:
        assert one.counts(0).sum() != 5


def test_planted_a_store_without_its_key_is_found(tmp_path, monkeypatch):
    planted = store._SCHEMA.replace(", PRIMARY KEY (round, reporter)\n) WITHOUT ROWID", ")")
    assert planted != store._SCHEMA
    monkeypatch.setattr(store, "_SCHEMA", planted)
    with ReportStore(tmp_path / "reports", operator(campaign.MASTER)) as one:
        one.publish(campaign.file_of(campaign.asked(0.5, 0)))
        for _ in range(2):
            one.add([report(1, 3)])
        assert one.counts(0).sum() == 2


# Nonsense


def nonsense(rng, count):
    """Reports with bits flipped, cut, lengthened, spliced, or made of nothing."""
    good = [report(number, number % 7) for number in range(20)]
    for kind in rng.integers(0, 6, count):
        one = bytearray(good[rng.integers(20)])
        if kind == 0:
            one[rng.integers(len(one))] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del one[rng.integers(len(one)) :]
        elif kind == 2:
            one += rng.bytes(int(rng.integers(1, 9)))
        elif kind == 3:
            cut = int(rng.integers(1, len(one)))
            other = good[rng.integers(20)]
            one = bytearray(one[:cut] + other[cut:])
        elif kind == 4:
            one = bytearray(rng.bytes(len(one)))
        else:
            one[17] = int(rng.integers(256))
        yield bytes(one), bytes(one) in good


def fuzzed(kept, count, seed=0, step=500):
    """How many of so many changed reports are taken for what they are not."""
    wrong, asked, pieces = 0, kept.rounds()[0], list(nonsense(np.random.default_rng(seed), count))
    for start in range(0, count, step):
        batch = pieces[start : start + step]
        for (data, is_good), told in zip(batch, kept.add([data for data, _ in batch]), strict=True):
            wrong += (told in (Outcome.COUNTED, Outcome.DUPLICATE)) != is_good
            wrong += (campaign.read(asked, data, campaign.MASTER)[0] is Outcome.COUNTED) != is_good
    return wrong


def test_nonsense_is_never_counted(kept):
    assert fuzzed(kept, 5000) == 0
    assert kept.counts(0).sum() <= 20


@pytest.mark.slow
def test_a_million_pieces_of_nonsense_are_never_counted(kept):
    for seed in range(1, 21):
        assert fuzzed(kept, 50_000, seed) == 0


def test_planted_a_store_that_checks_no_tags_is_found(kept, monkeypatch):
    monkeypatch.setattr("reticent.fleet.tags._are_equal", lambda _, sent: np.ones(len(sent), dtype=bool))
    assert fuzzed(kept, 1000) > 0
