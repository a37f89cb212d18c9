"""`reticent location stations provider|edge|ask`: what they say, and what they refuse in one line."""

import contextlib
import json
import re
import sys

import pytest

from reticent.apps import main
from reticent.fleet.enrolment import enrolled
from reticent.fleet.secret_file import kept_secret
from reticent.location.stations.provider import Provider
from reticent.service.serve import listen

from ..unit.location.stations.asking_town import SOUTH, WEST
from .station_programs import EdgeProcess

SIDE = 8


@pytest.fixture
def command(monkeypatch, capsys):
    """Run `reticent location stations ARGS` in this process; return exit code and what was said."""

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["reticent", "location", "stations", *map(str, args)])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, "".join(capsys.readouterr())

    return run


@pytest.fixture
def files(tmp_path):
    """A map and stations in CSV."""
    spots = {(r, c): r * SIDE + c for r in range(SIDE) for c in range(SIDE)}
    nodes = [f"{number},{SOUTH + 0.002 * r},{WEST + 0.0025 * c}" for (r, c), number in spots.items()]
    edges = [
        f"{number},{spots[to]},222"
        for (r, c), number in spots.items()
        for to in ((r + 1, c), (r, c + 1))
        if to in spots
    ]
    (tmp_path / "town_nodes.csv").write_text("\n".join(["node,lat,lon", *nodes]))
    (tmp_path / "town_edges.csv").write_text("\n".join(["u,v,length_m", *edges]))
    rows = [f"S{at},Stop {at},{SOUTH + 0.0017 * at},{WEST + 0.002 * (at * 5 % 8)},2" for at in range(8)]
    (tmp_path / "stations.csv").write_text("\n".join(["id,name,lat,lon,connectors", *rows]))
    return {"--map": tmp_path / "town_edges.csv", "--stations": tmp_path / "stations.csv"}


def flat(options):
    return [one for pair in options.items() for one in pair]


@pytest.fixture
def made(command, files, folder):
    """A provider that the command made: its folder."""
    place = folder / "stations" / "town"
    options = {**files, "--level": 5, "--horizon": 2, "--m": 4, "--k": 2, "--journeys": 20, "--period": 86400}
    code, said = command("provider", place, *flat(options))
    assert code == 0, said
    return place


def test_a_provider_is_made_and_shown(made, command, files):
    code, said = command("provider", made)
    assert code == 0
    assert "5 per km of street, against edge and provider together" in said
    assert "epsilon 10 between any two places, at most" in said
    with contextlib.closing(Provider(made)) as held:
        assert held.signer.hex() in said
        assert held.library_file is not None
        assert len(held.stations) == 8
    code, said = command("provider", made, *flat(files))
    assert (code, "there is a provider of stations at" in said) == (2, True)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"--map": "none_edges.csv"}, "none_edges.csv must be a file that can be read"),
        ({"--stations": "none.csv"}, "none.csv must be a file that can be read"),
        ({"--level": 0}, "level must be > 0, got 0"),
        ({"--horizon": 0.01}, "horizon_km must be"),
        ({"--k": 17}, "k must be <= 16"),
        ({"--m": 0}, "m must be >= 1"),
        ({"--period": 0}, "period_s must be >= 1"),
        ({"--segment": 0.5}, "segment_m must be"),
    ],
)
def test_bad_options_leave_nothing(command, files, tmp_path, changed, told):
    code, said = command("provider", tmp_path / "new", *flat({**files, "--journeys": 5, **changed}))
    assert code == 2
    assert told in said
    assert said.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_map_and_stations_are_needed(command, tmp_path):
    code, said = command("provider", tmp_path / "new")
    assert (code, said) == (2, "error: map and stations must be given for a new provider\n")


@pytest.fixture
def edge(made, listening, tmp_path):
    """An edge before a service, both listening: its URL and what vehicles need."""
    _, url = listening()
    with contextlib.closing(Provider(made)) as held:
        process = EdgeProcess(tmp_path, url, held)
        who = tmp_path / "enrolment.json"
        who.write_text(enrolled(kept_secret(tmp_path / "edge.key")).to_json())
        options = {"--edge": process.url, "--ledger": tmp_path / "car", "--signer": held.signer.hex()}
        try:
            yield {**options, "--at": f"{SOUTH + 0.007},{WEST + 0.008}", "--enrolment": who}
        finally:
            process.end()


def test_ask_pays_once_books_and_says_what_is_cheaper(edge, command):
    code, first = command("ask", *flat(edge), "--lifetime", 8)
    assert code == 0, first
    assert re.search(r"^ +\d\.\d\d km  Stop \d \(S\d\)$", first, re.MULTILINE)
    assert "This ledger has spent 5 of 8 per km." in first
    assert "Asking took 520 bytes, which stations are free takes 73: --whole-map is cheaper" in first
    code, again = command("ask", *flat(edge), "--lifetime", 8, "--book")
    assert code == 0
    assert again.startswith(first)  # free, and the same stations
    assert "is booked. The provider knows that somebody goes there." in again
    moved = {**edge, "--at": f"{SOUTH},{WEST}"}
    code, there = command("ask", *flat(moved), "--lifetime", 8)
    assert code == 0
    assert "spent 5 of 8" in there


def test_a_spent_ledger_sends_nothing_and_the_whole_map_needs_none(edge, command, monkeypatch):
    from reticent.fleet.transport import Http

    sent = []
    send = Http.send
    monkeypatch.setattr(Http, "send", lambda *given, **more: sent.append(given) or send(*given, **more))
    code, said = command("ask", *flat(edge), "--lifetime", 4)
    assert code == 2
    assert "The ledger is spent: nothing was sent. With --whole-map you need none." in said
    assert sent == []
    code, said = command("ask", *flat(edge), "--lifetime", 4, "--whole-map")
    assert code == 0
    assert "Nothing was told, so nothing is charged" in said
    assert said.count(" km  Stop") == 5
    assert sent == []


def test_bad_ways_to_ask_are_refused_in_one_line(edge, command):
    for changed, told in (
        ({"--at": "north"}, "at must be LAT,LON in degrees"),
        ({"--at": "1,2,3"}, "at must be LAT,LON in degrees"),
        ({"--signer": "00"}, "signer must be 64 hexadecimal digits"),
        ({"--signer": "00" * 32}, "signed by somebody else"),
        ({"--enrolment": "none"}, "enrolment must be a file"),
        ({"--most": 4}, "the service asks for 5 per km, this vehicle allows 4"),
        ({"--most-horizon": 1}, "a horizon of 2 km, this vehicle allows 1"),
        ({"--edge": "ftp://edge"}, "url must be https"),
    ):
        code, said = command("ask", *flat({**edge, **changed}))
        assert code == 2
        assert told in said
        assert said.count("\n") == 1
        assert "37.70" not in said  # where somebody is


def test_bad_ways_to_run_an_edge(command, tmp_path, made):
    with contextlib.closing(Provider(made)) as held:
        options = {"--signer": held.signer.hex(), "--name": "town", "--master": tmp_path / "edge.key"}
    with listen("127.0.0.1", 0) as place:
        gone = f"http://127.0.0.1:{place.getsockname()[1]}"
    for changed, told in (
        ({"--provider": "x"}, "url must be https"),
        ({"--provider": gone, "--name": "a/b"}, "name must be 1 to 80 letters"),
        ({"--provider": gone, "--signer": "x"}, "signer must be 64"),
        ({"--provider": gone, "--batch": 0}, "batch must be >= 1"),
        ({"--provider": gone, "--window": 99}, "window must be"),
    ):
        code, said = command("edge", *flat({**options, **changed}))
        assert code == 2
        assert told in said
        assert said.count("\n") == 1


def test_enrolments_are_secret_and_json(edge):
    assert set(json.loads(edge["--enrolment"].read_text())) == {"id", "key"}
