"""`reticent demo chain`: the story it tells is the one on its chain, and it ends by itself."""

import re

import pytest

from reticent.apps.chain import demo as demo_chain


@pytest.mark.usefixtures("anvil")  # skipped where there is none
def test_the_story(command, monkeypatch):
    monkeypatch.setattr(demo_chain, "BLOCK_TIME_S", 0.2)
    monkeypatch.setenv("COLUMNS", "300")
    code, out, err = command("demo", "chain")
    assert (code, err) == (0, "")
    out = "\n".join(line.rstrip() for line in out.splitlines())
    answers = re.findall(r"^  ([\d,]+) ± ([\d,]+) \(truth [\d,]+\), case (\w+), cost (.*?); left", out, re.M)
    assert [case for _, _, case, _ in answers] == ["1", "2A", "2B"]
    assert [cost == "nothing" for *_, cost in answers] == [False, True, False]
    assert answers[0][:2] == answers[1][:2]
    gas = re.findall(r"^  (.* gas .*|no transaction.*)$", out, re.M)
    assert [re.sub(r"[\d,]+", "_", line) for line in gas] == [
        "owner gas _ + _",
        "owner gas _",
        "owner gas _",
        "owner gas _",
        "Anna gas _ + _; oracle gas _",
        "no transaction: to read a chain is free",
        "Bruno gas _; oracle gas _",
    ]
    assert re.search(r"^  error: census: asked for .* % of the budget.* free now: ", out, re.M)
    told = re.findall(r"^  block \d+: census: (.*)$", out, re.M)
    assert [re.sub(r"\d[\d.]*", "_", line) for line in told] == [
        "registered by owner, cap mu_ _, oracle oracle",
        "Anna may be charged mu_ _ in all",
        "Bruno may be charged mu_ _ in all",
        "Anna declares a question: sum of income",
        "measurement _, Anna is charged mu_ _; _ % of the cap is spent",
        "measurement _ is recorded, _ value",
        "measurement _, Bruno is charged mu_ _; _ % of the cap is spent",
        "measurement _ is recorded, _ value",
    ]
    assert re.search(r"^  verified: 2 measurements, [\d.]+ % of the budget is spent$", out, re.M)


def test_without_anvil_one_line_says_so(command, is_one_error_line, monkeypatch):
    monkeypatch.setattr("reticent.chain.anvil.find_anvil", lambda: None)
    code, out, err = command("demo", "chain")
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert "there is no anvil on this machine" in err
