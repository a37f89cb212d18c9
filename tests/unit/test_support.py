"""The tools of the tests: crash points are enumerated, and races are repeated, counted and left out."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from reticent.randomness import SECURE

from ..conftest import _DRAWS
from ..support.crash_points import FILE_CALLS, SQLITE_CALLS, enumerate_crashes, enumerate_pauses
from ..support.fault_repetition import COUNT_PROPERTY, RaceCounter

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
ROOT = Path(__file__).parents[2]


def write_atomically(path):
    beside = path.with_suffix(".new")
    beside.write_bytes(b"new")
    beside.replace(path)


def write_in_place(path):
    path.write_bytes(b"new")


def contents_after_crashes(write, path):
    """Return every content that a crash leaves in a file."""
    contents = set()
    path.write_bytes(b"old")
    for _ in enumerate_crashes(lambda: write(path), calls=FILE_CALLS):
        contents.add(path.read_bytes())
        path.write_bytes(b"old")
    return contents


def test_every_crash_of_an_atomic_write_leaves_a_whole_file(tmp_path):
    assert contents_after_crashes(write_atomically, tmp_path / "file") == {b"old", b"new"}


def test_planted_a_write_in_place_is_caught_at_a_crash_point(tmp_path):
    assert b"" in contents_after_crashes(write_in_place, tmp_path / "file")


def test_points_are_before_each_call_in_the_same_order(tmp_path):
    def write():
        descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        os.pwrite(descriptor, b"x", 0)
        os.fsync(descriptor)

    points = list(enumerate_crashes(write))
    assert [point.call for point in points] == ["posix.pwrite", "posix.fsync", "the end"]
    assert points == list(enumerate_crashes(write))


def count_committed(database):
    with sqlite3.connect(database) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM t").fetchone()
    connection.close()
    return rows


@pytest.mark.parametrize(("is_one_transaction", "counts"), [(True, {0, 2}), (False, {0, 1, 2})])
def test_statements_of_sqlite_are_crash_points(tmp_path, is_one_transaction, counts):
    """Planted: without a transaction, a crash leaves half of the rows."""
    database = tmp_path / "t.db"

    def insert():
        connection = sqlite3.connect(database, isolation_level=None)
        if is_one_transaction:
            connection.execute("BEGIN")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute("INSERT INTO t VALUES (2)")
        if is_one_transaction:
            connection.execute("COMMIT")

    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    seen = set()
    for _ in enumerate_crashes(insert, calls=SQLITE_CALLS):
        seen.add(count_committed(database))
        with sqlite3.connect(database) as connection:
            connection.execute("DELETE FROM t")
        connection.close()
    assert seen == counts


def test_python_functions_can_be_crash_points(tmp_path):
    points = list(enumerate_crashes(lambda: write_in_place(tmp_path / "f"), calls={"write_in_place"}))
    assert [str(point) for point in points] == [
        "crash 1, before write_in_place",
        "crash 2, after write_in_place",
        "crash 3, after the end",
    ]


def test_code_that_fails_or_never_ends_or_writes_nothing_is_refused(tmp_path):
    def endless():
        while True:
            (tmp_path / "file").write_bytes(b"x")

    with pytest.raises(AssertionError, match=r"(?s)failed by itself before crash 1:.*ZeroDivisionError"):
        list(enumerate_crashes(lambda: 1 / 0))
    with pytest.raises(AssertionError, match="more than 10 crash points"):
        list(enumerate_crashes(endless, max_points=10))
    with pytest.raises(AssertionError, match="called none of the primitives"):
        list(enumerate_crashes(lambda: None))


def add_one(path):
    """Read a number, and then write the next: two steps between which another may do the same."""
    number = int(path.read_text())
    draft = path.with_name(str(os.getpid()))
    draft.write_text(str(number + 1))
    draft.replace(path)


def test_a_process_is_paused_at_each_point_while_another_runs(tmp_path):
    """Planted: of two that add one, the second is lost if it comes between reading and writing."""
    path, sums = tmp_path / "number", []
    path.write_text("0")
    for point in enumerate_pauses(lambda: add_one(path), lambda: add_one(path)):
        sums.append((str(point), int(path.read_text())))
        path.write_text("0")
    assert {total for _, total in sums} == {1, 2}
    assert sums[-1] == (f"crash {len(sums)}, after the end", 2)


def draws_of(name, size=40):
    _DRAWS.start(name)
    return SECURE.words(size).tolist()


def test_secure_draws_follow_from_the_name_of_the_test():
    first = draws_of("one")
    assert draws_of("one") == first
    assert draws_of("another") != first
    assert draws_of(None) != draws_of(None)
    draws_of("one")
    assert SECURE.words(40).tolist() != first  # it goes on


def test_a_forked_process_draws_by_keys_of_its_own(tmp_path):
    first = draws_of("one")
    _DRAWS.start("one")
    list(
        enumerate_crashes(
            lambda: (tmp_path / "words").write_text(repr(SECURE.words(40).tolist())), max_points=9
        )
    )
    assert (tmp_path / "words").read_text() != repr(first)


def test_a_fault_is_repeated_until_it_is_caught_and_counted():
    counts = []
    counter = RaceCounter(lambda name, value: counts.append((name, value)))
    evidence = counter.repeat_until_caught(lambda number: number == 2 and "lost", max_attempts=5, name="loss")
    assert evidence == "lost"
    with pytest.raises(AssertionError, match="loss was not caught in 5 attempts"):
        counter.repeat_until_caught(lambda number: None, max_attempts=5, name="loss")
    assert counts == [
        (COUNT_PROPERTY, "loss: caught at attempt 3 of at most 5"),
        (COUNT_PROPERTY, "loss: MISSED in 5 attempts"),
    ]


def test_counts_are_shown_and_races_run_only_where_they_are_named(tmp_path):
    """A copy of the harness with one race in it, run as `make test-races` and as `make test` run it."""
    races, support = tmp_path / "tests" / "races", tmp_path / "tests" / "support"
    races.mkdir(parents=True)
    support.mkdir()
    for name in ("pyproject.toml", "tests/support/fault_repetition.py"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (races / "conftest.py").write_text(
        "from ..support.fault_repetition import pytest_terminal_summary, race_counter\n"
    )
    (races / "test_race.py").write_text(
        "def test_race(race_counter):\n"
        "    race_counter.repeat_until_caught(lambda number: number == 3, max_attempts=9)\n"
    )
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # it starts much sooner without

    def run(path, *options):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, path]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    named = run("tests/races", "-p", "xdist.plugin", "-n", "1")
    assert named.returncode == 0, named.stdout
    line = "tests/races/test_race.py::test_race: planted fault: caught at attempt 4 of at most 9"
    assert line in named.stdout.splitlines()
    assert run("tests").returncode == pytest.ExitCode.NO_TESTS_COLLECTED
