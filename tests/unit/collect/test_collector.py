"""T17: every report is counted once, or refused with a reason, or not acknowledged."""

import contextlib
import multiprocessing
import os
import sqlite3
import stat
import threading
from collections import Counter

import numpy as np
import pytest

from reticent.collect.collector import Collector
from reticent.collect.counts import sqlite as counts_in_sqlite
from reticent.collect.wire import Outcome
from reticent.errors import GuaranteeError, LedgerDamaged, LedgerError, ParameterError

from .many_devices import MASTER, PERIOD_S, SIGNER, Fleet, make_survey

FORK = multiprocessing.get_context("fork")
COUNTED, DUPLICATE, SECOND = Outcome.COUNTED, Outcome.DUPLICATE, Outcome.SECOND


@pytest.fixture
def fleet():
    return Fleet(60)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "collected.sqlite"


@pytest.fixture
def collector(fleet, path):
    with fleet.collector(path) as made:
        yield made


class Clock:
    """The time of a survey, in its periods."""

    def __init__(self, survey, periods):
        self._survey, self.periods = survey, periods

    def __call__(self):
        return self._survey.start + self.periods * PERIOD_S


# Once


def test_each_report_is_counted_once(fleet, collector):
    reports = fleet.reports()
    assert collector.receive(reports) == [COUNTED] * 60
    assert collector.receive(reports) == [DUPLICATE] * 60
    assert collector.receive([]) == []
    assert fleet.faults(collector) == []
    assert collector.periods(fleet.survey) == {0: 60}
    assert collector.rejected() == {}


def test_duplicates_in_one_batch(fleet, collector):
    reports = fleet.reports()
    told = collector.receive([*reports, *reports[:30], *reports[:10]])
    assert told == [COUNTED] * 60 + [DUPLICATE] * 40
    assert fleet.faults(collector) == []


def test_a_reporter_has_one_report_in_a_period(fleet, collector):
    mine, others = fleet.reports(), Fleet(60, fleet.survey, seed=2)
    others.devices, others.ids = fleet.devices, fleet.ids
    second = others.reports()
    told = collector.receive([*mine[:30], *second[:30], *second[30:]])
    assert told == [COUNTED] * 30 + [SECOND] * 30 + [COUNTED] * 30
    assert collector.receive([mine[40], second[40]]) == [SECOND, DUPLICATE]
    assert collector.periods(fleet.survey) == {0: 60}
    assert collector.rejected() == {"second": 31}


def test_a_part_of_a_batch_may_be_new(fleet, collector):
    reports = fleet.reports()
    collector.receive(reports[::3])
    told = collector.receive(reports)
    assert Counter(told) == {COUNTED: 40, DUPLICATE: 20}
    assert {told[place] for place in range(0, 60, 3)} == {DUPLICATE}
    assert fleet.faults(collector) == []


def test_periods_and_surveys_are_counted_apart(fleet, collector, path):
    other = Fleet(20, make_survey(name="other", sample_size=2, groups=1))
    collector.collect(other.file, SIGNER)
    clock = Clock(fleet.survey, 1.5)
    with Collector(path, MASTER, clock=clock) as later:
        mixed = [*fleet.reports(0), *other.reports(0), *fleet.reports(1)]
        rng = np.random.default_rng(3)
        order = rng.permutation(len(mixed))
        assert set(later.receive([mixed[place] for place in order])) == {COUNTED}
    assert fleet.faults(collector) == other.faults(collector) == []
    assert collector.periods(fleet.survey) == {0: 60, 1: 60}
    assert collector.periods(other.survey) == {0: 20}
    one = collector.tally(fleet.survey, [1])
    both = collector.tally(fleet.survey, [0])
    both.merge(one)
    whole = collector.tally(fleet.survey)
    assert all(np.array_equal(*pair) for pair in zip(both.counts, whole.counts, strict=True))
    assert sum(int(one.sum()) for one in one.reports) == 60


def test_it_goes_on_where_it_stopped(fleet, path):
    reports = fleet.reports()
    for start in range(0, 60, 20):
        with fleet.collector(path) as collector:
            collector.receive([b"\x01 something else"])
            assert set(collector.receive(reports[start : start + 20])) == {COUNTED}
    with Collector(path, MASTER) as collector:
        assert collector.receive(reports) == [DUPLICATE] * 60
        assert fleet.faults(collector) == []
        assert collector.rejected() == {"version": 3}
        assert [one.id for one in collector.surveys()] == [fleet.survey.id]


def test_planted_counting_without_looking_who_was_seen_is_caught(fleet, collector, monkeypatch):
    monkeypatch.setattr(Collector, "_seen", lambda self, checked: None)
    reports = fleet.reports()
    collector.receive([*reports, *reports[:7]])
    assert any("too many" in one for one in fleet.faults(collector))


# Several at once


def test_callers_share_commits(fleet, collector):
    """While one writes, the others come together: 24 callers, fewer commits."""
    commits, reports = [], fleet.reports()
    others = threading.Semaphore(0)

    def traced(sql):
        if sql == "COMMIT":
            commits.append(sql)
            if len(commits) == 1:  # the first waits until the others have brought theirs
                for _ in range(23):
                    others.acquire(timeout=120)

    collector._counts.connection.set_trace_callback(traced)
    true, told = collector._examined, {}

    def examined(reports):
        found = true(reports)
        if commits:
            others.release()
        return found

    collector._examined = examined

    def call(number):
        told[number] = collector.receive(reports[number : number + 1])

    threads = [threading.Thread(target=call, args=(number,)) for number in range(24)]
    threads[0].start()
    while not commits:
        threads[0].join(0.001)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(commits) < 24
    assert all(one == [COUNTED] for one in told.values())
    assert set(collector.receive(reports[:24])) == {DUPLICATE}
    assert set(collector.receive(reports[24:])) == {COUNTED}
    assert fleet.faults(collector) == []


def test_threads_with_the_same_reports(fleet, collector):
    reports, told = fleet.reports(), []
    barrier = threading.Barrier(4)

    def call(seed):
        order = np.random.default_rng(seed).permutation(60)
        barrier.wait()
        for start in range(0, 60, 6):
            told.extend(collector.receive([reports[place] for place in order[start : start + 6]]))

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(told) == {COUNTED: 60, DUPLICATE: 180}
    assert fleet.faults(collector) == []


def _open_and_send(path, fleet, reports, begin):
    begin.wait()
    with fleet.collector(path) as collector:
        for start in range(0, len(reports), 10):
            assert {COUNTED, DUPLICATE} >= set(collector.receive(reports[start : start + 10]))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_processes_make_and_fill_one_file(fleet, tmp_path):
    reports = fleet.reports()
    for number in range(3):  # all of them open a file that is not there yet
        path, begin = tmp_path / f"{number}.sqlite", FORK.Barrier(4)
        children = [
            FORK.Process(target=_open_and_send, args=(path, fleet, reports[15 * i :] + reports, begin))
            for i in range(4)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0] * 4
        with Collector(path, MASTER) as collector:
            assert fleet.faults(collector) == []


def test_what_another_process_decides_is_noticed(fleet, collector, path):
    reports = fleet.reports()
    collector.receive(reports[:20])
    other = Fleet(5, make_survey(name="other"))
    with Collector(path, MASTER) as second:
        assert collector.receive(other.reports()) == [Outcome.SURVEY] * 5
        second.collect(other.file, SIGNER)
        second.revoke(fleet.devices[30].id)
        second.receive(reports[20:25])
        assert set(collector.receive(other.reports())) == {COUNTED}
        assert collector.receive(reports[29:32]) == [COUNTED, Outcome.REVOKED, COUNTED]
        collector.revoke(fleet.devices[31].id)
        second.revoke(fleet.devices[31].id)
        assert second.receive(reports[31:33]) == [Outcome.REVOKED, COUNTED]
    assert [one.name for one in collector.surveys()] == ["fleet", "other"]
    assert collector.file(other.survey) == other.file


def test_planted_a_process_that_never_looks_again_is_caught(fleet, collector, path, monkeypatch):
    monkeypatch.setattr(collector.revocations, "look", frozenset)
    with Collector(path, MASTER) as second:
        second.revoke(fleet.devices[0].id)
    assert collector.receive(fleet.reports()[:1]) == [COUNTED]  # and not REVOKED


def test_looking_waits_for_nobody_who_counts(fleet, collector):
    reports = fleet.reports()
    collector.receive(reports[:10])
    with collector._guard:  # somebody writes
        assert collector.periods(fleet.survey) == {0: 10}
        assert int(sum(one.sum() for one in collector.tally(fleet.survey).reports)) == 10


# When


@pytest.mark.parametrize(
    ("period", "now", "is_open"),
    [
        (5, 5.0, True),
        (5, 5.999, True),
        (6, 5.5, False),
        (6, 5.9 - 1e-4, False),
        (6, 5.9, True),  # a tenth of a period early
        (5, 7.99, True),  # two periods late
        (5, 8.0, False),
        (4, 7.0, False),
        (0, -0.1, True),
        (0, -0.2, False),
        (999, 999.5, True),
        (1000, 1000.0, False),  # after the last
    ],
)
def test_when_a_period_takes_reports(fleet, path, period, now, is_open):
    clock = Clock(fleet.survey, now)
    with fleet.collector(path, late_s=2 * PERIOD_S, early_s=PERIOD_S / 10, clock=clock) as collector:
        told = set(collector.receive(fleet.reports(period)))
    assert told == {COUNTED if is_open else Outcome.PERIOD}


def doubled_after(fleet, path, *, forgetful_s):
    """Send reports, have them forgotten, then send them again where they would be taken; what is wrong."""
    clock, reports = Clock(fleet.survey, 0.5), fleet.reports()
    with fleet.collector(path, clock=clock) as collector:
        collector.receive(reports)
        with Collector(path, MASTER, late_s=forgetful_s, clock=Clock(fleet.survey, 1.5)) as other:
            assert other.forget() == 60
        told = collector.receive(reports)
        return told, fleet.faults(collector)


def test_forgetting_keeps_counts_and_closes_for_ever(fleet, path):
    """Also where the clock goes back, or another process would have taken late reports for longer."""
    told, faults = doubled_after(fleet, path, forgetful_s=0.0)
    assert told == [Outcome.PERIOD] * 60
    assert faults == []


def test_planted_periods_that_open_again_are_caught(fleet, path, monkeypatch):
    with fleet.collector(path) as collector:
        collector._counts.connection.execute("CREATE TRIGGER t AFTER UPDATE OF closed ON survey BEGIN "
                                      "UPDATE survey SET closed = 0; END")  # fmt: skip
    told, faults = doubled_after(fleet, path, forgetful_s=0.0)
    assert told == [COUNTED] * 60
    assert any("too many" in one for one in faults)


def test_only_closed_periods_are_forgotten(fleet, path):
    clock = Clock(fleet.survey, 1.5)
    with fleet.collector(path, late_s=PERIOD_S, clock=clock) as collector:
        old, new = fleet.reports(0), fleet.reports(1)
        collector.receive([*old, *new])
        assert collector.forget() == 0
        clock.periods = 2.0
        assert collector.forget() == 60
        assert collector.forget() == 0
        assert collector.receive([*old, *new]) == [Outcome.PERIOD] * 60 + [DUPLICATE] * 60
        assert fleet.faults(collector) == []


def test_a_period_that_closes_between_reading_and_counting(fleet, path):
    clock, reports = Clock(fleet.survey, 0.5), fleet.reports()
    with fleet.collector(path, late_s=0.0, clock=clock) as collector:
        collector.receive(reports[:30])
        true = collector._examined

        def slow(reports):
            found = true(reports)
            clock.periods = 1.5
            collector.forget()
            return found

        collector._examined = slow
        assert collector.receive(reports[:30]) == [Outcome.PERIOD] * 30
        assert collector.periods(fleet.survey) == {0: 30}


# Trouble


def test_reasons_are_counted(fleet, collector):
    reports = fleet.reports()
    collector.revoke(fleet.devices[0].id)
    forged = reports[1][:-1] + bytes([reports[1][-1] ^ 1])
    bad = [reports[0], forged, b"", b"\x07", reports[2][:9], reports[3][:1] + b"x" * 60]
    assert [one.value for one in collector.receive(bad)] == [
        "revoked", "tag", "length", "version", "length", "survey"
    ]  # fmt: skip
    collector.receive(bad[:2])
    collector.reject([Outcome.LENGTH])
    expected = {"revoked": 2, "tag": 2, "length": 3, "version": 1, "survey": 1}
    assert collector.rejected() == expected
    collector.receive(reports[10:20])  # writes them down
    assert collector.rejected() == expected
    assert collector._rejected == Counter()
    with pytest.raises(ParameterError, match="an enrolment's id must be 8 bytes"):
        collector.revoke(b"somebody else")


def test_a_full_disk_leaves_nothing_half_done(path):
    fleet = Fleet(2000)
    reports = fleet.reports()
    with fleet.collector(path) as collector:
        collector.receive([*reports[:10], b"junk"])
        pages = collector._counts.connection.execute("PRAGMA page_count").fetchone()[0]
        collector._counts.connection.execute(f"PRAGMA max_page_count={pages}")
        collector.receive([b"more junk"])
        with pytest.raises(LedgerError, match=r"send again what was not acknowledged \(the disk is full\)"):
            collector.receive(reports)
        assert collector.periods(fleet.survey) == {0: 10}
        assert collector.rejected() == {"version": 2}
        collector._counts.connection.execute("PRAGMA max_page_count=1000000")
        told = collector.receive(reports)
        assert Counter(told) == {COUNTED: 1990, DUPLICATE: 10}
        assert fleet.faults(collector) == []
        assert collector.rejected() == {"version": 2}


def test_a_locked_file_is_waited_for_and_then_refused(fleet, path, monkeypatch):
    monkeypatch.setattr(counts_in_sqlite, "PATIENCE_S", 0.05)
    reports = fleet.reports()
    with fleet.collector(path) as collector:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for call in (
                lambda: collector.receive(reports),
                lambda: collector.collect(fleet.file, SIGNER),
                collector.forget,
            ):
                with pytest.raises(LedgerError, match="SQLITE_BUSY"):
                    call()
            other.execute("ROLLBACK")
        assert collector.receive(reports) == [COUNTED] * 60
        assert fleet.faults(collector) == []


def test_a_fault_of_ours_is_told_to_all_who_shared_the_commit(fleet, collector, monkeypatch):
    reports, errors = fleet.reports(), []
    true = Collector._count

    def broken(self, checked, is_new, cells):
        true(self, checked, is_new, cells)
        raise RuntimeError("planted")

    def call(number):
        try:
            collector.receive(reports[number : number + 1])
        except Exception as error:
            errors.append(error)

    monkeypatch.setattr(Collector, "_count", broken)
    with collector._guard:
        threads = [threading.Thread(target=call, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        while len(collector._waiting) < 5:
            threads[0].join(0.001)
    for thread in threads:
        thread.join()
    assert sorted(type(one).__name__ for one in errors) == ["LedgerError"] * 4 + ["RuntimeError"]
    monkeypatch.setattr(Collector, "_count", true)
    assert collector.receive(reports) == [COUNTED] * 60
    assert fleet.faults(collector) == []


def test_a_closed_collector_refuses(fleet, path):
    collector = fleet.collector(path)
    collector.close()
    with pytest.raises(LedgerError, match="cannot be used now"):
        collector.receive(fleet.reports())


# The file


def test_the_file_is_for_its_owner_and_holds_no_symbols_by_reporter(fleet, collector, path):
    collector.receive(fleet.reports())
    for one in path.parent.iterdir():
        assert stat.S_IMODE(one.stat().st_mode) == 0o600
        assert MASTER not in one.read_bytes()
    names = [row[1] for row in collector._counts.reader.execute("PRAGMA table_info(seen)")]
    assert names == ["survey", "period", "reporter", "nonce"]


def changed(path, sql, *values):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql, values)


def test_a_changed_survey_is_found(fleet, path):
    fleet.collector(path).close()
    other = make_survey(name="other")
    for text in (other.text, b"{}", fleet.survey.text.replace(b"traffic", b"TRAFFIC")):
        changed(path, "UPDATE survey SET text = ?", text)
        with pytest.raises(LedgerDamaged, match="holds a survey that was changed"):
            Collector(path, MASTER)
    changed(path, "UPDATE survey SET text = ?", fleet.survey.text)
    Collector(path, MASTER).close()


def test_a_newer_file_and_another_kind_of_file_are_refused(fleet, path, tmp_path):
    fleet.collector(path).close()
    changed(path, "PRAGMA user_version = 2")
    with pytest.raises(LedgerError, match="written by a newer Reticent"):
        Collector(path, MASTER)
    text = tmp_path / "text"
    text.write_bytes(b"no database at all" * 100)
    with pytest.raises(LedgerDamaged, match="the collection's file is damaged"):
        Collector(text, MASTER)
    assert text.read_bytes() == b"no database at all" * 100
    with pytest.raises(LedgerError, match="cannot be used now"):
        Collector(tmp_path / "nowhere" / "file", MASTER)
    with pytest.raises(ParameterError, match="master must be 32 bytes"):
        Collector(path, b"short")


def test_a_survey_of_somebody_else_is_not_collected(fleet, collector):
    with pytest.raises(GuaranteeError, match="signed by somebody else"):
        collector.collect(fleet.file, os.urandom(32))
    with pytest.raises(ParameterError, match="other is not collected here"):
        collector.tally(make_survey(name="other"))


def forgets_after_the_clock_was_set_right(fleet, path):
    """Start a collector with a clock that is ahead, set it right, close a period: is who came forgotten?"""
    clock = Clock(fleet.survey, 50.0)
    with fleet.collector(path, late_s=0.0, clock=clock) as collector:
        clock.periods = 0.5
        collector.receive(fleet.reports())
        clock.periods = 1.5
        collector.receive(fleet.reports(1))
        seen = collector._counts.reader.execute("SELECT DISTINCT period FROM seen").fetchall()
    return seen == [(1,)]


def test_who_reported_is_forgotten_although_the_clock_was_ahead_once(fleet, path):
    """It was not before the clock had come to where it was at the start."""
    assert forgets_after_the_clock_was_set_right(fleet, path)


def test_planted_forgetting_at_a_time_that_is_far_ahead_is_caught(fleet, path, monkeypatch):
    monkeypatch.setattr("reticent.collect.collector._FORGET_S", 1e9)
    assert not forgets_after_the_clock_was_set_right(fleet, path)
