"""Clocks that jump: no visit lasts longer for it, and nothing that was answered stays hidden."""

import contextlib
import os
import time
from concurrent.futures import Future

import pytest

from reticent import files
from reticent.apps.query.desk import Desk
from reticent.apps.query.jobs import Jobs
from reticent.service.settings import Settings
from reticent.service.state import people
from reticent.service.state.jobs import JobList

from .test_jobs import orphan

HOUR, YEAR = 3600.0, 365 * 86_400.0


@pytest.fixture
def clock(monkeypatch):
    """Stop the time of day; return the seconds to add to it, in a list of one."""
    offset, start = [0.0], time.time()
    monkeypatch.setattr(time, "time", lambda: start + offset[0])
    return offset


# Declarations


def read_again(desk, folder):
    """Change a declaration without changing its length, or the time of its content; what is read then."""
    path = folder / "census.yaml"
    before = path.stat()
    assert {one.name for one in desk.data("census").columns} >= {"hours"}
    path.write_text(path.read_text().replace("  hours:", "  hoars:"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    return {one.name for one in desk.data("census").columns}


def test_a_declaration_that_changed_is_read_again_whatever_its_time(desk, folder):
    """It was not: a clock that is set back, or an image in which all times are one, gives the same one."""
    assert "hoars" in read_again(desk, folder)


def test_planted_a_stamp_of_the_time_of_the_content_is_caught(desk, folder, monkeypatch):
    monkeypatch.setattr(files, "stamp", lambda path: (path.stat().st_mtime_ns, path.stat().st_size))
    assert "hoars" not in read_again(desk, folder)


# Visits


def is_signed_in_for_ever(desk, keys, clock):
    """Sign in while the clock is a year ahead; whether that still holds days after it was set right."""
    clock[0] = YEAR
    cookie, _ = desk.state.enter(keys["alice"])
    assert desk.state.visit(cookie) is not None
    clock[0] = 3 * 24 * HOUR
    return desk.state.visit(cookie) is not None


def test_a_visit_that_began_in_the_future_has_ended(desk, keys, clock):
    """It lasted for a year."""
    assert not is_signed_in_for_ever(desk, keys, clock)


def test_planted_visits_without_a_longest_time_are_caught(desk, keys, clock, monkeypatch):
    monkeypatch.setattr(people, "_SET_BACK_S", 10 * YEAR)
    assert is_signed_in_for_ever(desk, keys, clock)


def test_a_clock_that_is_corrected_a_little_ends_no_visit(desk, keys, clock):
    cookie, _ = desk.state.enter(keys["alice"])
    for clock[0] in (-HOUR / 12, HOUR / 12, 11 * HOUR):
        assert desk.state.visit(cookie) is not None
    clock[0] = 13 * HOUR
    assert desk.state.visit(cookie) is None


# Jobs


def told_after(folder, clock, running, later):
    """What is told of a job that ends while the clock is `running` ahead, at once and when it is `later`."""
    with contextlib.closing(Desk(Settings(folder, grid_s=0.5))) as desk:
        jobs, alice = Jobs(desk), desk.state.named("alice")
        jobs.close()  # nothing but this works on the job
        job, done = orphan(desk, alice), Future()
        clock[0] = running
        done.set_result(b"{}")
        jobs._end(job, done)
        at_once = jobs.told(desk.state.job(job.id, alice))["state"]
        clock[0] = later
        return at_once, jobs.told(desk.state.job(job.id, alice))["state"]


@pytest.mark.parametrize(("running", "later"), [(YEAR, 0.0), (0.0, -YEAR), (-YEAR, -YEAR)])
def test_a_result_is_not_hidden_until_a_clock_that_was_set_back_catches_up(
    folder, keys, clock, running, later
):
    """It was: for a year."""
    assert told_after(folder, clock, running, later)[1] == "done"


@pytest.mark.usefixtures("keys")
def test_a_result_waits_for_the_grid_all_the_same(folder, clock):
    clock[0] = 0.0
    assert told_after(folder, clock, 0.0, 10.0) == ("running", "done")


@pytest.mark.parametrize("ahead", [YEAR, -YEAR])
def test_a_job_of_a_dead_process_is_taken_up_whatever_the_clock(desk, clock, ahead):
    """It waited until the clock was back where the process died."""
    assert is_claimed(desk, clock, ahead)


def is_claimed(desk, clock, ahead):
    job = orphan(desk, desk.state.named("alice"))
    desk.state.beat([job.id])
    clock[0] = ahead
    found = desk.state.claim(60.0)
    return found is not None and found.id == job.id


def test_planted_beats_in_the_future_are_caught(desk, clock, monkeypatch):
    query = "SELECT number FROM job WHERE state = 'queued' OR (state = 'running' AND beat < ? - ?) LIMIT 1"
    monkeypatch.setattr("reticent.service.state.jobs._NEXT_JOB", query)
    assert is_claimed(desk, clock, YEAR)
    assert not is_claimed(desk, clock, -YEAR)
    assert isinstance(desk.state, JobList)
