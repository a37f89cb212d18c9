"""`--reuse`, what is printed of a combined answer, and `reticent ledger verify --answer`."""

import json

import pytest

from reticent.query import census

HISTOGRAM = '{"kind": "histogram", "by": [{"column": "age", "edges": [20, 40, 60, 80]}]}'
GROWN = "SELECT COUNT(*) FROM census WHERE age >= 20 AND age < 60"


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")


def test_a_combined_answer_says_what_it_is_made_of_and_is_redone(command, tmp_path):
    declared = census.write(tmp_path, rows=500)

    def done(*given):
        code, out, err = command(*map(str, given))
        assert (code, err) == (0, "")
        return out

    done("ask", declared, HISTOGRAM, "--error", 30)
    out = done("ask", declared, GROWN, "--error", 30)
    for said in (
        "combined from 2 purchases",
        "count by age in 5 bins",
        "if chosen by looking",
        "--reuse none",
    ):
        assert said in out
    saved, altered, log = tmp_path / "answer.json", tmp_path / "altered.json", tmp_path / "log.jsonl"
    saved.write_text(done("ask", declared, GROWN, "--error", 30, "--format", "json"))
    held = "redone: identity, variance, value and intervals hold"
    about = ("--answer", saved, "--declaration", declared)
    assert held in done("ledger", "verify", declared, *about)
    done("ledger", "export", declared, log, "--with-openings")
    assert held in done("ledger", "verify", "--export", log, *about)
    told = json.loads(saved.read_text())
    told["combined"]["certificate"]["coordinates"][0]["weights"][0][2] = "1/2"
    altered.write_text(json.dumps(told))
    code, _, err = command(
        "ledger", "verify", str(declared), "--answer", str(altered), "--declaration", str(declared)
    )
    assert code == 1
    assert "does not verify: certificate.coordinates.weights must make the question, and do not" in err
    fresh = json.loads(done("ask", declared, GROWN, "--error", 30, "--reuse", "none", "--format", "json"))
    assert (fresh["cost"], fresh["combined"]) == (told["combined"]["fresh_cost"], None)
