"""`reticent location stations forecast|simulate`, as somebody types them."""

import json
import os
import re

import pytest

from reticent.apps.stations import forecast_work, town
from reticent.location.stations.provider import Provider
from reticent.location.stations.tally import Tally


@pytest.fixture
def run(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *args: command("location", "stations", *map(str, args))


@pytest.fixture
def there(run, tmp_path):
    """The invented town's map and stations, and a provider of them."""
    edges, stations = town.write(tmp_path)
    folder = tmp_path / "provider"
    made = run("provider", folder, "--map", edges, "--stations", stations, "--m", 4, "--journeys", 20)
    assert made[0] == 0, made[2]
    return edges, stations, folder


def counted(folder, count, *, place=40):
    """Points that a provider opened: every fourth true, at one place, through the channel."""
    with_tally = Tally(folder)
    held = Provider(folder)
    companions = held.area.companions(held.library_file, held.signer)
    places = [
        *[place] * (count // 4),
        *companions.journeys(count - count // 4, 5).reshape(-1)[: count - count // 4],
    ]
    with_tally.add([(os.urandom(85), int(one)) for one in held.area.channel.sample(list(map(int, places)))])
    where = held.area.roads.points[place].tolist()
    held.close()
    with_tally.close()
    return where


def test_counting_must_be_asked_for(run, there, is_one_error_line):
    folder = there[2]
    code, out, err = run("forecast", folder)
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert "counts no reports yet: --count begins" in err
    code, out, _ = run("forecast", folder, "--count")
    assert code == 0
    assert "must be started again" in out
    code, _, err = run("forecast", folder)
    assert code == 2
    assert "at least 50 points to forecast from, got fewer" in err
    assert not (folder / forecast_work.FILE).exists()


def test_arrivals_are_told_and_kept_for_the_page(run, there):
    folder = there[2]
    counted(folder, 1600)
    code, out, err = run("forecast", folder, "--repetitions", 3, "--hours", 2, "--new", 2)
    assert code == 0, err
    assert re.search(r"1,600 points in \d+ minutes, of about 400 queries", out)
    told = json.loads((folder / forecast_work.FILE).read_bytes())
    assert oct((folder / forecast_work.FILE).stat().st_mode)[-3:] == "600"
    assert len(told["sites"]) == 16
    assert len(told["missing"]) == 2
    assert sum(one["arrivals"] for one in told["sites"]) == pytest.approx(400.0, rel=0.01)
    for one in told["sites"]:
        assert one["low"] <= one["arrivals"] + 1.0
        assert one["high"] >= one["arrivals"] - 1.0
        assert all(0.0 <= share <= 1.0 for share in one["free"])
    assert len(re.findall(r"would shorten ways by", out)) == 2
    code, out, err = run("forecast", folder, "--repetitions", 3, "--queries", 200)
    assert code == 0, err
    assert "of about 200 queries" in out, "the edge told that half of the rest is cover"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--hours", 0], "hours must be >= 1, got 0"),
        (["--stay", 0], "stay must be > 0, got 0"),
        (["--new", 11], "new must be <= 10, got 11"),
        (["--queries", 1000], "queries must be <= 25, got 1000"),
        (["--repetitions", 1], "repetitions must be >= 2, got 1"),
    ],
)
def test_options_that_cannot_be(run, there, is_one_error_line, given, told):
    counted(there[2], 100)
    code, out, err = run("forecast", there[2], *given)
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert told in err
    assert not (there[2] / forecast_work.FILE).exists()


def test_a_folder_without_a_provider(run, tmp_path, is_one_error_line):
    code, _, err = run("forecast", tmp_path)
    assert (code, is_one_error_line(err)) == (2, True)
    assert "there is no provider of stations at" in err


def test_simulations_come_near_the_theorems(run, there):
    """Share and detour by 600 queries: within 5 standard errors of the exact ones, a false alarm in 1e6."""
    code, out, err = run("simulate", *there[:2], "--vehicles", 200, "--m", 2, "--level", 8)
    assert code == 0, err
    share, exact = (float(one) for one in re.search(r"detour\s+│ ([\d.]+)%; exactly ([\d.]+)%", out).groups())
    assert abs(share - exact) < 5 * 100 * (0.25 / 600) ** 0.5
    assert "8 per km a query, 24 in all" in out
    helped = float(re.search(r"([\d.]+)% without", out)[1])
    assert helped >= share, "companions' replies only help"
    attacked = int(re.search(r"found\s+│ (\d+)% of times by who knows all laws; guessing 50%", out)[1])
    assert 30 < attacked < 100, "companions help, and not beyond guessing"
    assert "A simulation" in out
    assert run("simulate", *there[:2], "--vehicles", 200, "--m", 2, "--level", 8)[1] == out, "by its seed"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--level", 0], "level must be > 0 and <= 200, got 0"),
        (["--m", 65], "m must be <= 64, got 65"),
        (["--vehicles", 1], "vehicles must be >= 2, got 1"),
        (["--queries", 21], "queries must be <= 20, got 21"),
    ],
)
def test_simulations_that_cannot_be(run, there, is_one_error_line, given, told):
    code, out, err = run("simulate", *there[:2], *given)
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert told in err
