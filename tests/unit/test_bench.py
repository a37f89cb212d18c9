"""`make bench` goes on past a figure that cannot be measured, says so, and fails at its end."""

import json

import pytest

pytest.importorskip("benchmarks.measure", reason="run from the folder of the project")

from benchmarks import __main__ as bench
from benchmarks.measure import Figure


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Measure three figures; what is printed, the exit code, and what is written."""
    monkeypatch.chdir(tmp_path)

    def measured(answers, wanted=()):
        figures = {name: Figure(name, "peer", 1.0, lambda: 0.0) for name in answers}
        monkeypatch.setattr(bench, "figures", lambda: figures)
        monkeypatch.setattr(bench, "measured", lambda name: answers[name]())
        code = bench.main([*wanted])
        return capsys.readouterr().out, code, json.loads((tmp_path / "out" / "bench.json").read_text())

    return measured


def refused():
    raise bench.Failed("NotConfirmed: in no block after 600 s")


def test_a_figure_that_fails_is_said_to_and_the_others_are_measured(run):
    out, code, rows = run({"first": lambda: 2.0, "broken": refused, "last": lambda: 0.5})
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["first", "broken", "last"]
    assert "failed: NotConfirmed: in no block after 600 s" in lines[2]
    assert lines[3].endswith("missed")
    assert lines[4].endswith("1 missed, 1 failed")
    assert code == 1
    assert [one.get("failed") for one in rows] == [None, "NotConfirmed: in no block after 600 s", None]


def test_nothing_fails(run):
    out, code, rows = run({"first": lambda: 2.0})
    assert out.splitlines()[-1].endswith("0 missed, 0 failed")
    assert (code, rows[0]["ratios"]) == (0, [2.0, 2.0, 2.0])


def test_a_name_of_two_words_chooses_what_holds_both(run):
    answers = dict.fromkeys(["4 servers, reused", "servers", "of 4"], lambda: 2.0)
    assert [one["figure"] for one in run(answers, ["4", "servers"])[2]] == ["4 servers, reused"]
