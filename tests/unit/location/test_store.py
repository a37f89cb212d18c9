"""Reports of places are counted once, over duplicates, kills and nonsense."""

import contextlib
import os
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

from ...support.crash_points import enumerate_crashes
from ..operating import operator
from . import campaign

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


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


# Crashes


def add_and_acknowledge(path, batches, acks, *, is_early=False):
    """Count batches, and append to a file the number of each that is acknowledged. `is_early` is planted."""
    file = os.open(acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with ReportStore(path, operator(campaign.MASTER)) as one:
        for number, batch in enumerate(batches):
            if is_early:
                os.write(file, b"%d\n" % number)
            one.add(batch)
            if not is_early:
                os.write(file, b"%d\n" % number)


def counts_after_crashes(folder, **planted):
    """End a process at each of its points, and send again what was not acknowledged; yield the counts."""
    batches = [[report(each * 5 + number, each) for number in range(5)] for each in range(2)]
    acks = folder / "acks"
    path = folder / "0"
    crashes = enumerate_crashes(lambda: add_and_acknowledge(path, batches, acks, **planted))
    publish(path)
    for number, point in enumerate(crashes, start=1):
        done = {int(line) for line in acks.read_text().split()} if acks.exists() else set()
        with ReportStore(path, operator(campaign.MASTER)) as one:
            for place, batch in enumerate(batches):
                if place not in done:
                    assert set(one.add(batch)) in ({Outcome.COUNTED}, {Outcome.DUPLICATE})
            yield point, int(one.counts(0).sum())
        acks.unlink(missing_ok=True)
        path = folder / str(number)
        publish(path)


def publish(path):
    with ReportStore(path, operator(campaign.MASTER)) as one:
        one.publish(campaign.file_of(campaign.asked(0.5, 0)))


def test_no_crash_loses_or_repeats_a_report(tmp_path):
    calls = []
    for point, counted in counts_after_crashes(tmp_path):
        assert counted == 10, str(point)
        calls.append(point.call)
    assert len(calls) > 10


def test_planted_an_early_acknowledgement_is_found(tmp_path):
    """Told before it is counted: a crash in between loses it."""
    assert any(counted < 10 for _, counted in counts_after_crashes(tmp_path, is_early=True))


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
