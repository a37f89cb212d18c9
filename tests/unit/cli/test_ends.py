"""Nothing runs on after a demonstration, however it ended. All of them, at any time: `make soak`."""

import signal
import subprocess

import pytest

from reticent.chain.anvil import find_anvil
from reticent.collect.local_broker import find_broker

from ... import soak

FOUND = {"collect": find_broker, "chain": find_anvil, "stations": lambda: True, "crowd": find_anvil}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "demo"


@pytest.mark.parametrize("how", soak.ENDS)
@pytest.mark.parametrize("name", ["collect", "chain", "stations"])
def test_what_a_demo_started_ends_with_it(name, how, folder):
    if FOUND[name]() is None:
        pytest.skip("the program that it starts is not on this machine")
    assert soak.ends(name, how, folder, lambda count: count >= 3)  # itself, what it started, and its guard


# How many processes each has at least once it has begun: itself, and what it starts, with a guard.
BEGUN = {"collect": 3, "chain": 3, "crowd": 3, "stations": 3}


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
@pytest.mark.parametrize("name", soak.DEMOS)
def test_every_demo_ends_with_all_that_it_started(name, how, folder):
    """Once what it says shows that it has begun, or everything that it starts runs."""
    if FOUND.get(name, lambda: True)() is None:
        pytest.skip("the program that it starts is not on this machine")
    least = BEGUN.get(name, 1)

    def has_begun(count):
        said = folder / "said.txt"
        return count >= least and said.is_file() and said.stat().st_size > 0

    assert soak.ends(name, how, folder, has_begun)


def test_planted_a_program_without_a_guard_is_found(folder, monkeypatch):
    program = (
        "import subprocess, time; subprocess.Popen(['sleep', '1000']); subprocess.Popen(['sleep', '1000']); "
        "time.sleep(1000)"
    )
    monkeypatch.setattr(soak, "COMMAND", [soak.sys.executable, "-c", program])
    monkeypatch.setattr(soak, "GONE_S", 1.0)
    assert not soak.ends("collect", signal.SIGTERM, folder, lambda count: count >= 3)


def test_planted_a_demo_that_fails_is_counted(folder, monkeypatch, capsys):
    monkeypatch.setattr(
        soak, "COMMAND", [soak.sys.executable, "-c", "import sys; sys.exit(len(sys.argv) - 2)"]
    )
    assert soak.counted("demo", 3, lambda place: soak.runs("fleet", place), folder) == 0
    assert soak.counted("more", 3, lambda place: soak.runs("collect", place), folder) == 3
    assert "more: 3 runs, 3 failures" in capsys.readouterr().out


def test_suites_are_run_in_a_clean_clone_and_shown_in_a_table(tmp_path, monkeypatch, capsys):
    """A repository whose `make test` passes the first time and fails the second."""
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "Makefile").write_text(
        "test:\n"
        "\t@if test -e ran; "
        "then echo 'FAILED tests/a.py::b'; echo '= 1 failed, 2 passed in 3.00s ='; exit 1; "
        "else touch ran; echo '==== 3 passed in 2.00s ===='; fi\n"
    )
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "c"],
    ):
        subprocess.run(["git", *command], cwd=repository, check=True)
    (repository / "ran").touch()  # not committed, so not in a clone
    monkeypatch.setattr(soak, "ROOT", repository)
    arguments = ["soak", "--runs", "0", "--hogs", "0", "--suite", "2", "--clone"]
    monkeypatch.setattr(soak.sys, "argv", arguments)
    monkeypatch.setattr(soak.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    with pytest.raises(SystemExit) as stopped:
        soak.main()
    assert stopped.value.code == 1
    table = (tmp_path / "suites.txt").read_text()
    assert table in capsys.readouterr().out
    first, second, test = (line.split() for line in table.splitlines()[2:5])
    assert (first[0], first[4], first[5:]) == ("1", "green", ["3", "passed", "in", "2.00s"])
    assert (second[0], second[4], second[5:]) == ("2", "RED", ["1", "failed,", "2", "passed", "in", "3.00s"])
    assert test == ["FAILED", "tests/a.py::b"]
    assert "1 of 2 green" in table


def test_help():
    done = subprocess.run([soak.sys.executable, soak.__file__, "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "--hogs" in done.stdout
