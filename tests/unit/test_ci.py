"""`.ci/run` fails with any test that fails, runs both suites, and says last how each of them ended."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / ".ci" / "run"
MAKEFILE = """
lint:
\t@{lint}
test:
\t@$(VENV)/bin/python -m pytest $(ARGS) tests/quick
test-more:
\t@$(VENV)/bin/python -m pytest $(ARGS) tests/more
"""
TEST = """
import pathlib
import pytest
COUNT = pathlib.Path(__file__).with_suffix(".count")
@pytest.mark.parametrize("passes", {passes})
def test(passes):
    COUNT.write_text(COUNT.read_text() + "x" if COUNT.exists() else "x")
    assert passes
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

    def run(quick, more=(True,), *, lint="true", first=""):
        (tmp_path / "Makefile").write_text(MAKEFILE.format(lint=lint))
        for suite, passes in (("quick", quick), ("more", more)):
            folder = tmp_path / "tests" / suite
            folder.mkdir(parents=True)
            (folder / f"test_{suite}.py").write_text(first + TEST.format(passes=list(passes)))
        done = subprocess.run(
            [tmp_path / ".ci" / "run"], capture_output=True, text=True, check=False, timeout=300
        )
        counts = [len(path.read_text()) for path in sorted((tmp_path / "tests").rglob("*.count"))]
        return done.returncode, done.stdout, counts  # the counts of test-more come first

    return run


def closing_lines(out):
    """Return the last two lines, which are pytest's, without their frame and time."""
    return [line.strip("= ").rsplit(" in ", 1)[0] for line in out.splitlines()[-2:]]


def test_suites_that_pass_are_run_once(project):
    code, out, counts = project([True, True])
    assert (code, counts) == (0, [1, 2])
    assert closing_lines(out) == ["2 passed", "1 passed"]


def test_one_test_that_fails_fails_the_run_and_is_not_run_again(project):
    code, out, counts = project([True, False])
    assert (code, counts) == (1, [1, 2])
    assert closing_lines(out) == ["1 failed, 1 passed", "1 passed"]


def test_one_test_of_the_longer_suite_that_fails_fails_the_run(project):
    code, out, counts = project([True], [False, True])
    assert (code, counts) == (1, [2, 1])
    assert closing_lines(out) == ["1 passed", "1 failed, 1 passed"]


def test_tests_that_were_not_run_do_not_pass(project):
    code, _out, counts = project([True], first="raise ImportError\n")
    assert (code, counts) == (1, [])


def test_lint_that_fails_ends_the_run(project):
    code, out, counts = project([True], lint="false")
    assert (code, counts) == (2, [])
    assert "passed" not in out
