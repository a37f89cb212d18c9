"""T17 wherever counts are kept: one suite for every store, and what several collectors do to one of them."""

import contextlib
import threading
from collections import Counter

import psycopg
import pytest

from reticent.collect.collector import Collector
from reticent.collect.counts import postgres as in_postgres
from reticent.collect.counts.base import opened
from reticent.collect.counts.postgres import PostgresCounts
from reticent.collect.wire import Outcome
from reticent.errors import LedgerError, StorageUnavailable
from reticent.fleet.database import Database
from reticent.fleet.revocation import Revocations

from .many_devices import MASTER, PERIOD_S, SIGNER, Fleet, make_survey

COUNTED, DUPLICATE, SECOND = Outcome.COUNTED, Outcome.DUPLICATE, Outcome.SECOND


@pytest.fixture
def fleet():
    return Fleet(60)


@pytest.fixture
def address(postgres):
    return postgres()


def talking(address):
    """A connection that looks where collectors do."""
    with contextlib.closing(Database(address, what="a test")) as found:
        schema = found.schema
    connection = psycopg.connect(address, autocommit=True)
    connection.execute(f"SET search_path = {schema}")
    return connection


class Clock:
    def __init__(self, survey, periods):
        self._start, self.periods = survey.start, periods

    def __call__(self):
        return self._start + self.periods * PERIOD_S


# One suite for all


def test_each_report_is_counted_once_and_what_came_before_is_told(fleet, counts_at):
    first, kept = fleet.reports(), [list(one) for one in fleet._drawn]
    second, fleet._drawn = fleet.reports(), kept  # none of these is to be counted
    with fleet.collector(counts_at) as one, Collector(counts_at, MASTER) as other:
        assert one.receive(first[:20]) == [COUNTED] * 20
        assert other.receive(first[10:30]) == [DUPLICATE] * 10 + [COUNTED] * 10
        mixed = [second[0], first[30], second[30], first[30], first[31], second[1]]
        assert one.receive(mixed) == [SECOND, COUNTED, SECOND, DUPLICATE, COUNTED, SECOND]
        assert other.receive(first[32:]) == [COUNTED] * 28
        assert fleet.faults(one) == fleet.faults(other) == []
        assert one.periods(fleet.survey) == {0: 60}


def test_reopening_finds_everything(fleet, counts_at):
    reports = fleet.reports()
    with fleet.collector(counts_at) as collector:
        collector.receive([*reports, b"junk"])
        collector.collect(fleet.file, SIGNER)
        assert collector.rejected() == {"version": 1}
    with Collector(counts_at, MASTER) as collector:
        assert [one.id for one in collector.surveys()] == [fleet.survey.id]
        assert collector.file(fleet.survey) == fleet.file
        assert collector.receive(reports) == [DUPLICATE] * 60
        assert collector.rejected() == {"version": 1}
        assert collector.counted(fleet.survey, fleet.devices[0].id).periods == (0,)
        assert collector.counted(fleet.survey, bytes(8)).periods == ()
        assert sum(collector.tally(fleet.survey, [0]).reports).sum() == 60
        assert sum(collector.tally(fleet.survey, [1]).reports).sum() == 0


def test_surveys_and_revocations_of_one_are_known_to_the_others(fleet, counts_at):
    other = Fleet(5, make_survey(name="other"))
    with fleet.collector(counts_at) as one, Collector(counts_at, MASTER) as two:
        two.collect(other.file, SIGNER)
        assert one.receive([*other.reports(), *fleet.reports()]) == [COUNTED] * 65
        two.revoke(fleet.devices[0].id)
        assert one.receive(fleet.reports(1)[:2])[0] is Outcome.REVOKED
        assert Counter(one.rejected())["revoked"] == 1


def test_closed_periods_stay_closed(fleet, counts_at):
    clock = Clock(fleet.survey, 1.5)
    with fleet.collector(counts_at, late_s=PERIOD_S, clock=clock) as collector:
        old, new = fleet.reports(0), fleet.reports(1)
        assert collector.receive([*old, *new]) == [COUNTED] * 120
        assert collector.forget() == 0
        clock.periods = 2.0
        assert collector.forget() == 60
        clock.periods = 1.5  # whatever the clock says later
        assert collector.receive([*old, *new]) == [Outcome.PERIOD] * 60 + [DUPLICATE] * 60
        assert fleet.faults(collector) == []


def test_a_failure_before_the_commit_leaves_nothing(fleet, counts_at, monkeypatch):
    reports = fleet.reports()
    with fleet.collector(counts_at) as collector:
        with monkeypatch.context() as planted:
            planted.setattr(collector, "_write_rejects", lambda: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                collector.receive(reports)
        assert collector.periods(fleet.survey) == {}
        assert collector.receive(reports) == [COUNTED] * 60
        assert fleet.faults(collector) == []


def together(fleet, where, change=lambda collector: None):
    """Two collectors bring the same reports at once; what they were told, and what is wrong after."""
    fleet.collector(where).close()
    reports, start, told = fleet.reports(), threading.Barrier(2), []

    def bring():
        with Collector(where, MASTER) as collector:
            change(collector)
            start.wait(60)
            for at in range(0, len(reports), 50):
                told.extend(collector.receive(reports[at : at + 50]))

    crew = [threading.Thread(target=bring) for _ in range(2)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    with Collector(where, MASTER) as collector:
        return Counter(told), fleet.faults(collector)


def test_the_same_reports_in_two_collectors_at_once(counts_at):
    told, faults = together(Fleet(1000), counts_at)
    assert told == {COUNTED: 1000, DUPLICATE: 1000}
    assert faults == []


def remembering(collector):
    """Planted: who came is remembered by the process, not by the database."""
    seen = set()

    def see(number, periods, who):
        found = [DUPLICATE if row.tobytes() in seen else COUNTED for row in who]
        seen.update(row.tobytes() for row in who)
        return found

    collector._counts.see = see


def test_planted_memory_of_each_process_is_caught(address):
    _, faults = together(Fleet(100), address, remembering)
    assert any("too many" in one for one in faults)


def test_planted_a_count_outside_of_the_transaction_is_caught(fleet, address, monkeypatch):
    """Planted: who came is committed first; the process is gone before the count is."""

    def apart(self, cells):
        self._connection.execute("COMMIT")
        raise ZeroDivisionError

    reports = fleet.reports()
    with fleet.collector(address) as collector, monkeypatch.context() as planted:
        planted.setattr(PostgresCounts, "add", apart)
        with pytest.raises(ZeroDivisionError):
            collector.receive(reports)
    with Collector(address, MASTER) as collector:
        collector.receive(reports)
        assert any("lost" in one for one in fleet.faults(collector))


# PostgreSQL


def waiting(connection):
    sql = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND backend_type = 'client backend'"
    )
    return connection.execute(sql).fetchone()[0]


@contextlib.contextmanager
def seeing(collector, fleet, reports):
    """A collector in the middle of a transaction that has noted who reported."""
    batch = collector._examined(reports)
    with collector._counts.writing():
        for checked in batch.checked:
            assert collector._seen(checked) is None
        yield


def test_who_brings_the_same_waits_for_the_first_and_counts_if_that_gives_up(fleet, address):
    reports, told = fleet.reports(), []
    with fleet.collector(address) as one, Collector(address, MASTER) as two:
        thread = threading.Thread(target=lambda: told.extend(two.receive(reports)))
        with (
            contextlib.suppress(ZeroDivisionError),
            talking(address) as looking,
            seeing(one, fleet, reports),
        ):
            thread.start()
            while not waiting(looking):
                thread.join(0.01)
            assert told == []
            raise ZeroDivisionError
        thread.join()
        assert told == [COUNTED] * 60
        assert fleet.faults(one) == []


def forgetting_meanwhile(fleet, address):
    """Another forgets a period while a collector is about to compare reports with those that came before."""
    clock, reports = Clock(fleet.survey, 0.5), fleet.reports()
    late = Clock(fleet.survey, 1.5)
    with (
        fleet.collector(address, late_s=0.0, clock=clock) as one,
        Collector(address, MASTER, late_s=0.0, clock=late) as two,
        talking(address) as looking,
    ):
        one.receive(reports)
        thread, true = threading.Thread(target=two.forget), one._counts._see

        def slow(number, period, who):
            """It has read that the period is open."""
            thread.start()
            while thread.is_alive() and not waiting(looking):
                thread.join(0.01)
            return true(number, period, who)

        one._counts._see = slow
        told = one.receive(reports)
        thread.join()
        return Counter(told), fleet.faults(one)


def test_nobody_forgets_what_somebody_still_compares_with(fleet, address):
    assert forgetting_meanwhile(fleet, address) == ({DUPLICATE: 60}, [])


def test_planted_forgetting_without_waiting_is_caught(fleet, address, monkeypatch):
    monkeypatch.setattr(in_postgres, "_TOGETHER", "SELECT %s")
    told, faults = forgetting_meanwhile(fleet, address)
    assert told == {COUNTED: 60}
    assert any("too many" in one for one in faults)


def test_lanes_are_apart_and_are_free_again(fleet, address):
    reports = fleet.reports()
    with fleet.collector(address) as one, Collector(address, MASTER) as two:
        one.receive(reports[:20])
        two.receive(reports[20:40])
        with talking(address) as looking:
            sql = "SELECT DISTINCT lane FROM collected_tally ORDER BY lane"
            assert looking.execute(sql).fetchall() == [(0,), (1,)]
    with Collector(address, MASTER) as one:
        one.receive(reports[40:])
        assert one._counts._lane[1] in (0, 1)
        assert fleet.faults(one) == []


def test_more_collectors_than_lanes(fleet, address, monkeypatch):
    monkeypatch.setattr(in_postgres, "LANES", 1)
    reports = fleet.reports()
    with fleet.collector(address) as one, Collector(address, MASTER) as two:
        one.receive(reports[:30])
        two.receive(reports[30:])
        assert fleet.faults(one) == []


def test_deadlocks_are_done_again(address, monkeypatch):
    """Two surveys, seen by two collectors in another order: PostgreSQL ends one, and all is counted."""
    a, b = Fleet(20, make_survey(name="a")), Fleet(20, make_survey(name="b"))
    first, second = a.reports(), b.reports()
    with a.collector(address) as one, b.collector(address) as two:
        one.surveys()
        met = threading.Barrier(2, timeout=60)
        true, seen = Collector._seen, Counter()

        def ordered(collector, reverse):
            def seeing(checked):
                seen[collector] += 1
                if seen[collector] == 2:
                    with contextlib.suppress(threading.BrokenBarrierError):
                        met.wait()
                return true(collector, checked)

            collector._seen = seeing
            collector._examined = lambda reports: swapped(Collector._examined(collector, reports), reverse)

        def swapped(batch, reverse):
            if reverse:
                batch.checked.reverse()
            return batch

        monkeypatch.setattr(
            "reticent.collect.collector.sorted", lambda given, key: list(given), raising=False
        )
        ordered(one, False)
        ordered(two, True)
        told = []
        crew = [threading.Thread(target=lambda who=who: told.extend(who.receive([*first, *second])))
                for who in (one, two)]  # fmt: skip
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
        assert Counter(told) == {COUNTED: 40, DUPLICATE: 40}
        assert a.faults(one) == b.faults(one) == []
        assert sum(seen.values()) > 4  # one was done again


def test_a_connection_that_is_lost_is_made_anew(fleet, address):
    reports = fleet.reports()
    with fleet.collector(address) as collector:
        collector.receive(reports[:20])
        with talking(address) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
        told = []
        for _ in range(5):  # each connection may be missed once
            with contextlib.suppress(StorageUnavailable):
                told = collector.receive(reports)
                break
        assert Counter(told) == {COUNTED: 40, DUPLICATE: 20}
        assert fleet.faults(collector) == []


def test_what_is_said_of_a_server_names_neither_it_nor_a_row(fleet, address):
    with pytest.raises(StorageUnavailable, match=r"^the collection cannot be used now: connection refused$"):
        opened("postgresql://ann:secret@127.0.0.1:1/x", MASTER)
    with pytest.raises(LedgerError, match="must name one schema"):
        opened("postgresql://127.0.0.1:1/x?options=-csearch_path%3D1", MASTER)
    fleet.collector(address).close()
    with pytest.raises(LedgerError, match="for devices of another master key"):
        opened(address, bytes(32))
    with talking(address) as other:
        other.execute("UPDATE collected_version SET version = 2")
    with pytest.raises(LedgerError, match="written by a newer Reticent"):
        opened(address, MASTER)
    with talking(address) as other:
        other.execute("DROP TABLE collected_version")
    with pytest.raises(
        LedgerError, match=r"^the collection is damaged, or is something else \(DuplicateTable\)$"
    ):
        opened(address, MASTER)


def test_revocations_in_a_database_are_seen_by_all_in_order(address):
    ids = [bytes([number]) * 8 for number in range(3)]
    with contextlib.closing(Revocations(address)) as one, contextlib.closing(Revocations(address)) as two:
        assert [one.revoke(ids[0]), two.revoke(ids[1]), one.revoke(ids[1])] == [True, True, False]
        assert one.listed() == two.listed() == ids[:2]
        with talking(address) as slow, slow.transaction():  # another process takes one back, and is not done
            slow.execute("LOCK TABLE revoked IN EXCLUSIVE MODE")
            slow.execute("INSERT INTO revoked VALUES (3, %s)", (ids[2],))
            assert one.listed() == ids[:2]
        assert one.listed() == ids
