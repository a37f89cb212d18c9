"""`reticent audit`: table, exit codes for CI, callables, plot and page."""

import sys

import pytest

MINE = """
import itertools
from reticent.randomness import SECURE

def right(value, size):
    keep = SECURE.units(size) - 1.0 < 0.73
    return [value if k else -value for k in keep]

def wrong(value):
    return value if SECURE.units(1)[0] - 1.0 < 0.9 else -value

def words(value, size):
    return [value] * size

number = 3
"""


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine_audited.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    yield "mine_audited"
    sys.modules.pop("mine_audited", None)


def test_one_mechanism_with_a_plot(command, tmp_path):
    plot = tmp_path / "out" / "audit.png"
    code, out, err = command("audit", "threeoutputs", "--epsilon", "1", "--quick", "--plot", str(plot))
    assert (code, err) == (0, "")
    assert "Three-Outputs" in out
    assert ">= 0.9" in out
    assert out.count("ok   ") == 6
    assert "nothing found against any claim" in out
    assert plot.exists()


def test_ones_own_function_that_holds(command, mine):
    code, out, _ = command("audit", "--callable", f"{mine}:right", "--epsilon", "1", "--samples", "20000")
    assert code == 0
    assert "mine_audited:right" in out
    assert "1 audited: nothing found" in out


def test_ones_own_function_that_does_not(command, mine):
    code, out, _ = command("audit", "--callable", f"{mine}:wrong", "--epsilon", "1", "--quick")
    assert code == 1
    assert "FAULT black box" in out
    assert "more than the claimed 1" in out


def test_inputs_may_be_words(command, mine, tmp_path):
    page = tmp_path / "audit.html"
    args = [
        "--callable",
        f"{mine}:words",
        "--epsilon",
        "1",
        "--quick",
        "--inputs",
        "red,blue",
        "--report",
        str(page),
    ]
    code, out, _ = command("audit", *args)
    assert code == 1
    assert "FAULT support" in out
    assert "fails" in page.read_text()


def test_all_with_a_page(command, tmp_path, monkeypatch):
    from reticent.audit import gate

    monkeypatch.setattr(gate, "CATALOGUE", {name: gate.CATALOGUE[name] for name in ("Duchi", "KRR")})
    monkeypatch.setattr(gate, "PATHS", {})
    page = tmp_path / "audit.html"
    code, out, _ = command("audit", "all", "--quick", "--report", str(page))
    assert code == 0
    assert "6 audited: nothing found" in out
    assert page.read_text().count('class="row"') == 6


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ([], "give a MECHANISM"),
        (["pm", "--callable", "a:b"], "give a MECHANISM"),
        (["pm"], "give --epsilon"),
        (["census.yaml", "--epsilon", "1"], "invents its own tables (audit all) and takes nobody's"),
        (["rows.CSV"], "takes nobody's"),
        (["nope", "--epsilon", "1"], "must be one of BlahutArimoto, Codebook, DiscreteGaussian"),
        (["pm", "--epsilon", "-1"], "epsilon must be"),
        (["pm", "--epsilon", "1", "--delta", "0.1"], "give --delta with --callable"),
        (["--callable", "nowhere", "--epsilon", "1"], "must be module:name"),
        (["--callable", "nowhere_at_all:f", "--epsilon", "1"], "no module 'nowhere_at_all'"),
        (["--callable", "math:nope", "--epsilon", "1"], "has no 'nope'"),
        (["--callable", "math:pi", "--epsilon", "1"], "cannot be called"),
        (["--callable", "math:sqrt", "--epsilon", "1", "--inputs", "1"], "at least two values"),
        (["--callable", "math:sqrt", "--epsilon", "1", "--samples", "3"], "samples must be"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_two(command, args, part):
    code, out, err = command("audit", *args)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert part in err
