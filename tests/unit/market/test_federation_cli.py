"""`reticent market federation`: a deal of two federations by commands alone, a free rider, an appeal."""

import json
import sys

import pytest

from reticent.apps import main
from reticent.ledger.checkpoint import load_key


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run a command in a folder of its own; what it printed. `fails` expects one line of an error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*args, fails=None):
        monkeypatch.setattr(sys, "argv", ["reticent", "market", "federation", *map(str, args)])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        if fails is None:
            assert (stopped.value.code, err) == (0, ""), err
            return out
        assert stopped.value.code == 2
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert fails in err
        return err

    return call


def public(name):
    return load_key(f"{name}.key").public_key().public_bytes_raw().hex()


def founded(run, name, *people, tolerated="60"):
    """A federation of (name, reports, threshold) each."""
    words = ("--name", name, "--purpose", "to sell together", "--tolerated", tolerated, "--period", 1)
    run("found", name, "--key", "founder.key", *words)
    for person, points, threshold in people:
        run("join", name, "--key", f"{person}.key", "--points", points, "--threshold", threshold)
        run("admit", name, public(person)[:12], "--key", "founder.key")


def wanted(run, budget=100_000):
    terms = ("--budget", budget, "-k", 4, "--k1", 0.1, "--k2", 0.0005)
    run(
        "want",
        "--out",
        "wanted.json",
        "--key",
        "buyer.key",
        "--name",
        "ages",
        "--purpose",
        "to count",
        *terms,
    )


def test_a_deal_by_commands(run, tmp_path):
    founded(run, "north", ("anna", 100, "1"), ("bruno", 50, "2"), ("cleo", 30, "0.5"))
    founded(run, "south", ("dora", 80, "1.5"))
    for voter in ("anna", "bruno"):
        out = run("vote", "north", public("bruno")[:8], "--key", f"{voter}.key")
    assert public("bruno")[:8] in out
    wanted(run)
    run("bid", "north", "wanted.json", "--key", "bruno.key")
    run("bid", "south", "wanted.json", "--key", "founder.key")
    out = run("award", "wanted.json", "north", "south", "--out", "award.json", "--key", "buyer.key")
    assert "Share 1 of" in out
    run("seal", "south", "award.json", "--key", "founder.key")
    before = len(list((tmp_path / "north").iterdir()))
    assert "Theorem 8.1 fails for" in run("seal", "north", "award.json", "--key", "bruno.key", "--look")
    assert len(list((tmp_path / "north").iterdir())) == before
    out = run("seal", "north", "award.json", "--key", "bruno.key")
    assert "accuracy level" in out
    assert "Theorem 8.1 fails for" in out
    run("ask", "north", "--key", "bruno.key")
    run(
        "give",
        "north",
        "--key",
        "anna.key",
        "--points",
        100,
        "--epsilon",
        "1.1",
        fails="within her threshold",
    )
    for name, points, epsilon in (("anna", 100, "1"), ("bruno", 50, "0.5"), ("cleo", 30, "0.5")):
        out = run("give", "north", "--key", f"{name}.key", "--points", points, "--epsilon", epsilon)
    assert "30 reports at epsilon 0.5: 15 of your own budget in all." in out
    run("deliver", "north", "--out", "delivery.json", "--key", "buyer.key")
    out = run("settle", "north", "delivery.json", "--key", "bruno.key")
    assert "kept: " in out or "void: " in out
    out = run("account", "north", public("bruno")[:10])
    assert "kept back epsilon 75 of the 100 that she was asked for, 75 over the last 1 deals" in out
    assert "she is excluded" in out
    assert "redone from the signed acts" in out
    head = run("verify", "north").split("Head: ")[1].strip()
    run("verify", "north", "--head", head)

    # Another federation reads the demerit.
    founded(run, "west", ("emil", 5, "1"))
    run("join", "west", "--key", "bruno.key", "--points", 5, "--threshold", "1")
    run("admit", "west", public("bruno"), "--key", "founder.key", "--read", "north", fails="as a free rider")
    run("admit", "west", public("bruno"), "--key", "founder.key")  # without looking
    run("verify", "west", "--read", "north")  # nobody said that she looked
    files = sorted(one.name for one in (tmp_path / "north").iterdir())
    (tmp_path / "north" / files[-1]).unlink()
    run("verify", "north", "--head", head, fails="the end of the chain is missing")


def test_a_changed_act_is_refused_by_number(run, tmp_path):
    founded(run, "north", ("anna", 100, "1"))
    file = tmp_path / "north" / "000001.json"
    held = json.loads(file.read_text())
    held["act"] = held["act"].replace('"points":100', '"points":101')
    file.write_text(json.dumps(held, sort_keys=True, separators=(",", ":")))
    run("show", "north", fails="act 1: the signature of the act does not hold")


def test_an_act_that_came_is_kept_if_it_is_right(run, tmp_path):
    founded(run, "north", ("anna", 100, "1"))
    run("receive", "north", "north/000001.json", fails="sign it again")
    run("receive", "north", "nothing.json", fails="no signed text")


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("show", "nowhere"), "folder must hold the acts"),
        (("join", "north", "--key", "x.key", "--points", 0, "--threshold", "1"), "points must be >= 1"),
        (("join", "north", "--key", "x.key", "--points", 1, "--threshold", "nan"), "nan"),
        (("join", "north", "--key", "x.key", "--points", 1, "--threshold", "1e309"), "1e309"),
        (("join", "north", "--key", "x.key", "--points", 1, "--threshold", "-1"), "-1"),
        (("admit", "north", "ff", "--key", "founder.key"), "member must be the start of one public key"),
        (("ask", "north", "--key", "founder.key"), "no bid or deal is open"),
        (("give", "north", "--key", "anna.key", "--points", 1, "--epsilon", "1"), "no bid or deal is open"),
        (("withdraw", "north", "--key", "anna.key"), "is not the representative"),
        (("bid", "north", "north/000000.json", "--key", "founder.key"), "must have the fields"),
        (("account", "north", "00"), "start of one public key"),
        (("deliver", "north", "--out", "d.json", "--key", "b.key"), "no deal is sealed"),
    ],
)
def test_refusals_are_one_line_and_change_nothing(run, tmp_path, args, why):
    founded(run, "north", ("anna", 100, "1"))
    before = sorted((one.name, one.read_bytes()) for one in (tmp_path / "north").iterdir())
    run(*args, fails=why)
    assert sorted((one.name, one.read_bytes()) for one in (tmp_path / "north").iterdir()) == before


def test_an_empty_federation_cannot_bid(run):
    founded(run, "empty")
    wanted(run)
    run("bid", "empty", "wanted.json", "--key", "founder.key", fails="must have members to bid")
