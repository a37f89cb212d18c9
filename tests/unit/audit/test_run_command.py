"""`reticent audit run`: one training, of one's own function or of a task; exit codes for CI."""

import importlib
import sys

import pytest

from reticent.federated import task_file

MINE = """
import numpy as np
from reticent.randomness import SECURE

def right(included):
    return np.where((SECURE.units(included.size) - 1.0 < 0.73) == included, 1, -1)

def wrong(included):
    return included + 0.1 * SECURE.units(included.size)

def short(included):
    return [0.0]
"""


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    (tmp_path / "mine_trained.py").write_text(MINE)
    (tmp_path / "task.yaml").write_text(task_file.template())
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("mine_trained", None)


def test_a_training_that_holds(command):
    code, out, err = command("audit", "run", "mine_trained:right", "--epsilon", "1")
    assert (code, err) == (0, "")
    assert "ok    run: epsilon is at least" in out
    assert "(at 95 %: " in out
    assert "1 audited: nothing found" in out


def test_a_training_that_does_not_with_a_page(command, tmp_path):
    page = tmp_path / "run.html"
    args = ["--epsilon", "1", "--delta", "1e-9", "--canaries", "500", "--guesses", "500,100"]
    code, out, _ = command("audit", "run", "mine_trained:wrong", *args, "--report", str(page))
    assert code == 1
    assert "FAULT run: epsilon at delta 1e-09 is at least" in out
    assert "guesses on 500 canaries are right" in page.read_text()


def test_a_task_is_trained_on_canary_clients_alone(command, tmp_path):
    code, out, _ = command("audit", "run", "task.yaml", "--canaries", "200")
    assert code == 0
    assert "training " in out
    assert "canaries are right" in out


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["mine_trained:right"], "give --epsilon"),
        (["mine_trained:short", "--epsilon", "1"], "scores must be one number for each"),
        (["mine_trained:right", "--epsilon", "1", "--canaries", "2"], "canaries must be"),
        (["mine_trained:right", "--epsilon", "1", "--guesses", "all"], "guesses must be whole numbers"),
        (["nowhere:f", "--epsilon", "1"], "no module 'nowhere'"),
        (["task.yaml", "--epsilon", "1"], "are for a function"),
        (["other.yaml"], "there is no other.yaml"),
        (["other.json"], "there is no other.json"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_two(command, args, part):
    code, out, err = command("audit", "run", *args)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert part in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "def f(included):\n    raise SystemExit(0)\n",
            "hostile_trained:f ends the process, with exit code 0",
        ),
        ("import sys\nsys.exit()\n", "module 'hostile_trained' ends the process, with exit code None"),
        ("def f(included):\n    raise RuntimeError('one\\ntwo')\n", "raises RuntimeError: one two"),
        ("def f(included):\n    return included * 1j\n", "scores must be one number for each"),
        ("import not_there_at_all\n", "raises ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("def (\n", "raises SyntaxError"),
    ],
)
def test_code_that_fails_or_ends_the_process_is_neither_accused_nor_acquitted(
    command, tmp_path, monkeypatch, text, said
):
    """Exit codes 0 and 1 are verdicts; planted: what a function raised went on to the process itself."""
    (tmp_path / "hostile_trained.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "hostile_trained", raising=False)
    importlib.invalidate_caches()
    code, out, err = command("audit", "run", "hostile_trained:f", "--epsilon", "1", "--canaries", "100")
    sys.modules.pop("hostile_trained", None)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
