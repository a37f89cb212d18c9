"""`reticent demo location`: people report over HTTP, and the truth of the simulation stands beside."""

import re

import pytest

from reticent.apps.location import demo as demo_location


@pytest.mark.parametrize("is_invented", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_people_report(command, monkeypatch, tmp_path, is_invented):
    if is_invented:
        monkeypatch.setenv("RETICENT_DATA", str(tmp_path))
    monkeypatch.setattr(demo_location, "DEVICES", 3)
    monkeypatch.setattr(demo_location, "ROUNDS", 2)
    code, out, err = command("demo", "location", "--people", "300", "--once", "--port", "0")
    assert code == 0, err
    told = " ".join(out.split())
    if is_invented:
        assert "300 people in each of 2 rounds, in an invented city" in told
    assert re.search(r"http://127\.0\.0\.1:\d+/places/paris", told)
    assert [int(n) for n in re.findall(r"round \d: (\d+) reports", told)] == [300, 300]
    assert (
        "Each report keeps 2 per km; all 2 together 4, which the ledgers of the 3 devices say too: 4" in told
    )


def test_what_cannot_be_is_named(command):
    code, _, err = command("demo", "location", "--people", "1", "--once", "--port", "0")
    assert code == 2
    assert "people must be >= 20" in err
