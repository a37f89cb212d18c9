"""`reticent location`, as somebody types it."""

import csv
import json
import re
import stat
from collections import namedtuple

import numpy as np
import pytest

from reticent.fleet.counted import Counted
from reticent.fleet.enrolment import Enrolment, enrolled
from reticent.fleet.secret_file import kept_secret
from reticent.ledger import SqlLedger
from reticent.location import LocationDevice

Done = namedtuple("Done", "code out err")
BOX, GRID = "48.8286,48.8798,2.2855,2.3909", "4x5"
WHERE = ["--latitude", "48.8512345", "--longitude", "2.3312345"]
SECRETS = ("48.85", "2.33", "8512345", "3312345")


@pytest.fixture
def run(command):
    """Run `reticent location ARGS`, whatever the arguments are."""
    return lambda *args: Done(*command("location", *map(str, args)))


@pytest.fixture
def campaign(run, tmp_path):
    folder = tmp_path / "paris"
    made = run(
        "privic", "new", folder, "--box", BOX, "--grid", GRID,
        "--beta", 0.5, "--rounds", 2, "--purpose", "to test",
    )  # fmt: skip
    assert made.code == 0, made.err
    return folder


@pytest.fixture
def device(tmp_path, campaign):
    """The options of `report` for a device that is enrolled."""
    phone = enrolled(kept_secret(tmp_path / "enrolment.key"))
    (tmp_path / "phone.json").write_text(phone.to_json())
    file = json.loads((campaign / "round-0.json").read_bytes())
    return {
        "--ledger": tmp_path / "ledger",
        "--enrolment": tmp_path / "phone.json",
        "--signer": file["signer"],
        "--out": tmp_path / "report",
    }


def options(given):
    return [one for pair in given.items() for one in pair]


def rows(path):
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


@pytest.mark.parametrize(
    "given",
    [
        ["--beta", 0.5],
        ["--level", 1.0, "--kind", "exponential"],
        ["--level", 1.0, "--kind", "laplace"],
        ["--level", 1.0, "--kind", "lp"],
        ["--distortion", 1.5],
    ],
)
def test_channels(run, tmp_path, given):
    told = run("channel", "--box", BOX, "--grid", "3x4", *given, "--out", tmp_path / "c.csv")
    assert told.code == 0, told.err
    level = re.search(r"([\d.]+) per km, between the centres of any two cells", " ".join(told.out.split()))
    if "--distortion" in given:
        assert "1.5 km from the truth" in told.out
    else:
        assert 0.98 < float(level[1]) <= 1.0
    found = rows(tmp_path / "c.csv")
    assert len(found) == 12
    assert abs(sum(float(row["report"]) for row in found) - 1.0) < 1e-6


def test_a_channel_of_a_prior_and_its_plot(run, tmp_path):
    (tmp_path / "people.csv").write_text("row,column,people\n0,0,90\n2,3,10\n")
    told = run(
        "channel", "--box", BOX, "--grid", "3x4", "--beta", 2,
        "--prior", tmp_path / "people.csv", "--plot", tmp_path / "p.png", "--out", tmp_path / "c.csv",
    )  # fmt: skip
    assert told.code == 0, told.err
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert np.argmax([float(row["report"]) for row in rows(tmp_path / "c.csv")]) == 0


def test_a_campaign_from_its_beginning_to_its_end(run, campaign, device, tmp_path):
    shown = " ".join(run("privic", "show", campaign).out.split())
    assert "1 per km between the centres of any two cells, against everybody" in shown
    assert "2 per km for a person who answers in each" in shown
    assert device["--signer"] in shown
    for number in (0, 1):
        file = campaign / f"round-{number}.json"
        told = run("report", file, *WHERE, *options(device))
        assert told.code == 0, told.err
        assert f"has spent {number + 1} per km in all" in " ".join(told.out.split())
        assert not any(one in told.out + told.err for one in SECRETS)
        first = device["--out"].read_bytes()
        again = run("report", file, "--latitude", "0", "--longitude", "0", *options(device))
        assert again.code == 0
        assert device["--out"].read_bytes() == first, "one report a round, wherever the device is now"
        added = run("privic", "add", campaign, device["--out"], device["--out"])
        assert [line.rsplit(" ", 1)[1] for line in added.out.splitlines()] == ["counted", "duplicate"]
        ended = run("privic", "end", campaign)
        assert ended.code == 0
        assert ("This was the last round" in ended.out) == (number == 1)
    found = run("estimate", campaign, "--out", tmp_path / "e.csv", "--plot", tmp_path / "e.png")
    assert found.code == 0, found.err
    assert "2 reports in 2 rounds" in found.out
    with SqlLedger(tmp_path / "ledger.sqlite") as ledger:
        (told,), who = ledger.accounts(), Enrolment.from_json(device["--enrolment"].read_text())
        assert f"under the account {told.terms.name}" in " ".join(found.out.split())
        with LocationDevice(
            device["--ledger"], who, bytes.fromhex(device["--signer"]), lifetime_per_km=30.0
        ) as phone:
            assert told.spent == phone.ledger.balance("places").spent, "as the device paid, round by round"
    assert abs(sum(float(row["share"]) for row in rows(tmp_path / "e.csv")) - 1.0) < 1e-6
    assert (tmp_path / "e.png").read_bytes().startswith(b"\x89PNG")


def test_a_simulation(run, tmp_path):
    draws = np.random.default_rng(1).normal([48.85, 2.33], 0.005, size=(400, 2))
    lines = "".join(f"{north},{east}\n" for north, east in draws)
    (tmp_path / "people.csv").write_text("lat,lon\n" + lines)
    told = run(
        "privic", "simulate", tmp_path / "people.csv", "--box", BOX, "--grid", GRID,
        "--beta", 1, "--rounds", 3, "--liars", 0.1, "--out", tmp_path / "out",
    )  # fmt: skip
    assert told.code == 0, told.err
    assert "the truth to compare with: simulation only, not for release" in " ".join(told.out.split())
    place = tmp_path / "out-simulation-only-not-for-release"
    found = rows(place / "rounds.csv")
    assert [row["defence"] for row in found] == ["defended"] * 3 + ["undefended"] * 3
    assert not (tmp_path / "out").exists()
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in place.iterdir()}
    assert modes == {"rounds.csv": 0o600, "rounds.png": 0o600}, "distances from the truth, exactly"


@pytest.fixture
def half_outside(tmp_path):
    """A file with 30 check-ins inside of the box, 9 outside and one that is no number."""
    points = [(48.85, 2.33)] * 30 + [(48.0, 2.33)] * 9 + [("?", 2.33)]
    path = tmp_path / "people.csv"
    path.write_text("lat,lon\n" + "".join(f"{north},{east}\n" for north, east in points))
    return path


def simulate(run, path, *options):
    result = run(
        "privic", "simulate", path, "--box", BOX, "--grid", GRID, "--beta", 1, "--rounds", 1, *options,
        "--out", path.parent / "out",
    )  # fmt: skip
    assert result.code == 0, result.err
    return " ".join(result.out.split())


def test_simulation_says_how_many_checkins_are_outside_of_the_box(run, half_outside):
    counted = simulate(run, half_outside)
    assert "25.0% of the check-ins are outside of the box: they counted in the nearest cell" in counted
    assert "lying" not in counted
    assert "liars" not in counted
    assert "they were left out" in simulate(run, half_outside, "--inside")
    assert "the cell that the lying reports name" in simulate(run, half_outside, "--liars", 0.2)


def test_simulation_without_checkins_inside_of_the_box_is_refused(run, tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("lat,lon\n0,0\n")
    result = run("privic", "simulate", path, "--box", BOX, "--grid", GRID, "--beta", 1, "--inside")
    assert result.code == 2
    assert "people.csv must have check-ins inside of the box" in result.err


CHANNEL = ["channel", "--box", BOX, "--grid", GRID]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["channel", "--box", "1,2,3", "--grid", GRID, "--beta", 1], "box must be south,north,west,east"),
        (["channel", "--box", "1,2,3,x", "--grid", GRID, "--beta", 1], "box must be south,north,west,east"),
        (["channel", "--box", "2,1,3,4", "--grid", GRID, "--beta", 1], "south must be < north, got 2 and 1"),
        (["channel", "--box", BOX, "--grid", "4*5", "--beta", 1], "grid must read like 11x15, got '4*5'"),
        (["channel", "--box", BOX, "--grid", "0x5", "--beta", 1], "rows must be"),
        (CHANNEL, "one of beta, level and distortion must be given"),
        ([*CHANNEL, "--beta", 1, "--level", 2], "one of beta, level and distortion must be given"),
        ([*CHANNEL, "--beta", 0], "beta must be > 0"),
        ([*CHANNEL, "--level", "nan"], "level must be"),
        ([*CHANNEL, "--beta", 1, "--kind", "magic"], "kind must be one of ba, exponential, laplace, lp"),
        ([*CHANNEL, "--distortion", 1, "--kind", "lp"], "distortion must go with kind ba, got lp"),
        ([*CHANNEL, "--beta", 1, "--prior", "none.csv"], "there is no such file"),
        (["estimate", "none"], "there is no campaign at none"),
        (["privic", "show", "none"], "there is no campaign at none"),
        (["privic", "end", "none"], "there is no campaign at none"),
        (["privic", "add", "none", "r"], "there is no campaign at none"),
        (
            ["privic", "simulate", "none.csv", "--box", BOX, "--grid", GRID, "--beta", 1],
            "path must be a file, got none.csv",
        ),
    ],
)
def test_errors_name_the_field_and_the_rule(run, is_one_error_line, arguments, message):
    done = run(*arguments)
    assert (done.code, message in done.err) == (2, True), done.err
    assert is_one_error_line(done.err)


@pytest.mark.parametrize(
    ("text", "message"),
    [("x", "line 2"), ("9,0,1", "row must be"), ("0,0,-1", "people must be"), ("0,0,0", "must hold people")],
)
def test_a_bad_prior_is_told_by_its_line(run, tmp_path, text, message):
    (tmp_path / "people.csv").write_text(f"row,column,people\n{text}\n")
    done = run(*CHANNEL, "--beta", 1, "--prior", tmp_path / "people.csv")
    assert (done.code, message in done.err) == (2, True), done.err


def test_a_campaign_is_not_begun_twice(run, campaign, is_one_error_line):
    again = run(
        "privic", "new", campaign, "--box", BOX, "--grid", GRID, "--beta", 1, "--purpose", "to spy"
    )  # fmt: skip
    assert (again.code, is_one_error_line(again.err)) == (2, True)
    assert "folder must be new or empty" in again.err


def test_a_phone_that_forgot_a_round_is_told_that_it_was_counted(
    run, campaign, device, tmp_path, monkeypatch
):
    """Ledger and marks are gone; what `privic counted` says is given to `report`."""
    file, who = campaign / "round-0.json", Enrolment.from_json(device["--enrolment"].read_text())
    assert run("report", file, *WHERE, *options(device)).code == 0
    assert run("privic", "add", campaign, device["--out"]).code == 0
    said = run("privic", "counted", campaign, who.id.hex())
    assert (said.code, Counted.from_json(said.out).periods) == (0, (0,))
    (tmp_path / "word.json").write_text(said.out)
    device["--ledger"].unlink()
    refused = run("report", file, *WHERE, *options(device))
    assert (refused.code, "which was deleted, replaced" in " ".join(refused.err.split())) == (2, True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    told = run("report", file, *WHERE, *options(device | {"--counted": tmp_path / "word.json"}))
    assert (told.code, "counts no other report" in " ".join(told.err.split())) == (2, True)
    again = run("report", file, *WHERE, *options(device))
    assert again.code == 2, "it is written down"
    assert run("privic", "counted", campaign, "zz").code == 2


def leaks(run, campaign, device):
    """Whatever goes wrong with a report, a part of the position in what is printed."""
    file = campaign / "round-0.json"
    (campaign / "bad.json").write_text("{}")
    (campaign / "other.json").write_text(Enrolment(bytes(8), bytes(32)).to_json())
    small = {"--ledger": campaign / "small", "--enrolment": campaign / "other.json"}
    kinds = [
        ("signer must be", file, WHERE, {"--signer": "zz"}),
        ("signed by somebody else", file, WHERE, {"--signer": "0" * 64}),
        ("there is no such file", campaign / "none", WHERE, {}),
        ("round", campaign / "bad.json", WHERE, {}),
        ("there is no such file", file, WHERE, {"--enrolment": campaign / "none"}),
        ("enrol", file, WHERE, {"--enrolment": campaign / "bad.json"}),
        ("asked", file, WHERE, small | {"--lifetime": 0.5}),
        ("not the one that this enrolment", file, WHERE, {"--ledger": campaign / "another"}),
        ("lifetime_per_km must be", file, WHERE, {"--lifetime": -1, "--ledger": campaign / "l"}),
        ("latitude must be a number", file, ["--latitude", "48.8512345N", *WHERE[2:]], {}),
        ("longitude must be a number", file, [*WHERE[:2], "--longitude", "2,3312345"], {}),
    ]
    found = []
    for message, round_file, where, changes in kinds:
        done = run("report", round_file, *where, *options(device | changes))
        assert done.code == 2, message
        assert message in done.err.lower(), (message, done.err)
        found += [message for one in SECRETS if one in done.out + done.err]
    return found


def test_no_error_tells_a_position(run, campaign, device):
    assert leaks(run, campaign, device) == []


def test_planted_an_error_that_quotes_it(run, campaign, device, monkeypatch):
    from reticent.apps.location import work as location
    from reticent.errors import ParameterError

    def degrees(name, text):
        try:
            return float(text)
        except ValueError:
            raise ParameterError(f"{name} must be a number of degrees, got {text}") from None

    monkeypatch.setattr(location, "_degrees", degrees)
    assert leaks(run, campaign, device)


def test_streets_of_a_public_map_lie_under_a_campaign(run, campaign, tmp_path, is_one_error_line):
    nodes, edges = tmp_path / "nodes.csv", tmp_path / "edges.csv"
    edges.write_text("u,v,length_m\na,b,1200\nb,c,90000\n")
    for east, told in (
        (2.30, "2 streets are drawn"),
        (3.30, "a street within the box of the campaign, got none"),
    ):
        nodes.write_text(f"node,lat,lon\na,48.84,{east}\nb,48.85,{east}\nc,48.84,{east + 1}\n")
        done = run("privic", "streets", campaign, edges)
        assert told in done.out + done.err
        assert (done.code == 0) != is_one_error_line(done.err)
    drawn = json.loads((campaign / "streets.json").read_bytes())
    assert drawn == {"origin": [48.84, 2.3], "lines": [[0, 0, 1000, 0], [1000, 0, -1000, 100_000]]}
    assert "there is no campaign at none" in run("privic", "streets", "none", edges).err
