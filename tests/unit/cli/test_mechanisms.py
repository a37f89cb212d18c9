"""`reticent mechanisms`: the table, its order, and its refusals."""

import re

import pytest

NAMES = {
    "Laplace", "Duchi", "PM", "HM", "ThreeOutputs", "PMOpt", "PMSub", "HMTP", "OneBit", "Window", "Optimal",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


def rows(out):
    """Name, outputs, bits, wire variance, ideal variance and ratio of every line of the table."""
    return [
        cells
        for line in out.splitlines()
        if len(cells := re.findall(r"[^\s│]+", line)) == 6 and cells[0] in NAMES
    ]


def test_table_lists_all_best_first(command):
    code, out, err = command("mechanisms", "--epsilon", "1")
    assert (code, err) == (0, "")
    table = rows(out)
    assert {row[0] for row in table} == NAMES
    variances = [float(row[3]) for row in table]
    assert variances == sorted(variances)
    assert float(table[0][5]) == 1.0
    assert {row[0]: row[4] for row in table}["HMTP"] == "4.41763"
    assert {row[0]: row[4] for row in table}["Duchi"] == "4.68269"


def test_bits_keep_what_fits(command):
    code, out, _ = command("mechanisms", "--epsilon", "1", "--bits", "2")
    assert code == 0
    assert {"Duchi", "OneBit", "ThreeOutputs"} <= {row[0] for row in rows(out)}
    assert all(int(row[2]) <= 2 for row in rows(out))
    assert "best(epsilon=1, bits=2): " in out


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["--epsilon", "-1"], "epsilon must be"),
        (["--epsilon", "0"], "epsilon must be"),
        (["--epsilon", "nan"], "epsilon must be finite"),
        (["--epsilon", "1e309"], "epsilon must be finite"),
        (["--epsilon", "1", "--bits", "0"], "bits must be >= 1, got 0"),
    ],
)
def test_refusals_are_one_line(command, is_one_error_line, args, part):
    code, out, err = command("mechanisms", *args)
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert part in err
