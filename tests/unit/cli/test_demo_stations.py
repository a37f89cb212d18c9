"""`reticent demo stations`: three programs and vehicles, and what became of their queries."""

import re

from reticent.apps.stations import demo as demo_stations


def test_vehicles_find_stations(command, monkeypatch):
    monkeypatch.setattr(demo_stations, "_REPETITIONS", 2)
    code, out, err = command("demo", "stations", "--vehicles", "25", "--once", "--port", "0")
    assert code == 0, err
    told = " ".join(out.split())
    assert re.search(r"provider http://127\.0\.0\.1:\d+/stations/town key rk_", told)
    assert re.search(r"25 queries in \d+ s: \d+% without a detour", told)
    assert (
        "Each paid 5 per km from its own ledger, and sent 882 bytes: 10 sealed points, one of them true."
        in told
    )
    assert "This ledger has spent 5 of 30 per km." in told
    points = int(re.search(r"([\d,]+) points in \d+ minutes, of about 26 queries", told)[1].replace(",", ""))
    assert points % 200 == 0, "batches of one size"
    assert points >= 26 * 10


def test_what_cannot_be_is_named(command):
    code, _, err = command("demo", "stations", "--vehicles", "0", "--once", "--port", "0")
    assert code == 2
    assert "vehicles must be >= 1" in err


def test_a_program_that_does_not_start_is_said(command, monkeypatch, is_one_error_line):
    """Planted: a program that ends at once."""
    monkeypatch.setattr(demo_stations, "_COMMAND", (demo_stations.sys.executable, "-c", "print('no')"))
    code, _, err = command("demo", "stations", "--once", "--port", "0")
    assert code != 0
    assert is_one_error_line(err)
    assert "a program must start, got no" in err
