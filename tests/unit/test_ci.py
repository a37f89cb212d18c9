"""What `.ci/run` makes of tests that fail: once, always, too many, in no order at all."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / ".ci" / "run"
HEADING = "unsteady: failed once, passed three times alone"
MAKEFILE = """
lint:
\t@{lint}
test:
\t@$(VENV)/bin/python -m pytest $(ARGS) tests/quick
test-more:
\t@$(VENV)/bin/python -m pytest $(ARGS) tests/more
"""
# A test passes (p), fails (f) or is skipped (s) by the next letter of its word on paper; the last one stays.
TEST = """
import pathlib
import pytest
PAPER = pathlib.Path(__file__).with_suffix(".paper")
@pytest.mark.parametrize("name", {names})
def test(name):
    papers = dict(line.split(" = ") for line in PAPER.read_text().splitlines())
    word = papers[name]
    papers[name] = word[1:] or word
    PAPER.write_text("\\n".join(" = ".join(one) for one in papers.items()))
    if word[0] == "s":
        pytest.skip("not here")
    assert word[0] == "p"
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A function that makes a small project whose tests are told how they fare, and runs it."""
    if not RUN.exists():
        pytest.skip("no .ci/run beside these tests")
    for name in [name for name in os.environ if name.startswith(("PYTEST", "MAKE", "VENV"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin,pytest_timeout")
    monkeypatch.setenv("VENV", "venv")
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '-ra'\n")
    (tmp_path / ".ci").mkdir()
    shutil.copy(RUN, tmp_path / ".ci" / "run")

    def run(quick, more=None, *, lint="true", first=""):
        (tmp_path / "Makefile").write_text(MAKEFILE.format(lint=lint))
        for suite, words in (("quick", quick), ("more", more or {"fine": "p"})):
            place = tmp_path / "tests" / suite
            place.mkdir(parents=True)
            lines = "\n".join(f"{name} = {word}" for name, word in words.items())
            (place / f"test_{suite}.paper").write_text(lines)
            (place / f"test_{suite}.py").write_text(first + TEST.format(names=list(words)))
        done = subprocess.run(
            [tmp_path / ".ci" / "run"], capture_output=True, text=True, check=False, timeout=300
        )
        return done.returncode, done.stdout

    return run


def closing(out):
    """How the lines of pytest end, which come last."""
    return [line.strip("= ").rsplit(" in ", 1)[0] for line in out.splitlines()[-2:]]


def test_what_passes_is_run_once(project):
    code, out = project({"a": "pf", "b": "pf"})
    assert (code, HEADING in out) == (0, False)
    assert closing(out) == ["2 passed", "1 passed"]


def test_up_to_three_that_fail_once_are_named_and_pass(project):
    code, out = project({"a": "p", "b [c] 'd' $e": "fp"}, {"f": "fppp", "g": "fp"})
    assert code == 0
    assert out.splitlines()[-6:-2] == [
        HEADING,
        "  tests/quick/test_quick.py::test[b [c] 'd' $e]",
        "  tests/more/test_more.py::test[f]",
        "  tests/more/test_more.py::test[g]",
    ]
    assert closing(out) == ["1 failed, 1 passed", "2 failed"]


@pytest.mark.parametrize("word", ["f", "ff", "fpf", "fppf", "fpps"])
def test_what_does_not_pass_every_time_fails_the_run(project, word):
    code, out = project({"a": "p", "b": word})
    assert (code, HEADING in out) == (1, False)
    assert "failed again: tests/quick/test_quick.py::test[b]" in out.splitlines()


def test_one_that_fails_again_beside_one_that_does_not(project):
    code, out = project({"a": "fp", "b": "f"})
    assert (code, HEADING in out) == (1, True)
    assert "failed again: tests/quick/test_quick.py::test[b]" in out.splitlines()
    assert "  tests/quick/test_quick.py::test[a]" in out.splitlines()


def test_four_that_fail_once_are_too_many(project):
    code, out = project({"a": "fp", "b": "fp"}, {"c": "fp", "d": "fp"})
    assert (code, HEADING in out) == (1, False)
    assert "failed: 4 tests, which are too many to be run again" in out.splitlines()


def test_tests_that_were_not_run_are_no_pass(project):
    """A file that cannot be imported at first stops all others, though each would pass alone."""
    first = "import pathlib\nplace = pathlib.Path(__file__).with_suffix('.seen')\n"
    first += "if not place.exists():\n    place.touch()\n    raise ImportError\n"
    code, out = project({"a": "p"}, first=first)
    assert (code, HEADING in out) == (1, False)
    assert "make test did not run all its tests" in out.splitlines()


def test_lint_that_fails_ends_it(project):
    code, out = project({"a": "p"}, lint="false")
    assert code != 0
    assert "passed" not in out
