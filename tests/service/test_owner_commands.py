"""The commands that say which owner may register which file."""

import re
import shutil
import sys

import pytest

from reticent.apps import main

from .owners_at_work import olga, otto, text
from .running import TestClient

__all__ = ["olga", "otto"]  # fixtures


@pytest.fixture
def command(monkeypatch, capsys):
    """Run `reticent source ARGS` in this process; return exit code and what was said."""

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["reticent", "source", *map(str, args)])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, "".join(capsys.readouterr())

    return run


def test_the_operator_assigns_lists_and_releases(folder, desk, olga, command):
    shutil.copy(folder / "town.csv", folder / "other.csv")
    code, told = command("assign", folder, "other.csv", "otto")
    assert (code, told) == (0, "other.csv is otto's\n")
    desk.register(olga, text())
    code, told = command("assign", folder, "town.csv", "olga")
    assert (code, told) == (0, "town.csv is olga's, with town\n")
    (folder / "other.csv").unlink()
    code, told = command("list", folder)
    assert code == 0
    lines = [line for line in told.splitlines() if ".csv" in line]
    assert [line.split()[1] for line in lines] == ["fresh.csv", "other.csv", "town.csv"]
    assert "gone or replaced" in lines[1]
    assert command("release", folder, "other.csv") == (0, "other.csv is nobody's\n")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (("assign", "town.csv", "alice"), "owner must be somebody who has the key of an owner, got 'alice'"),
        (
            ("assign", "town.csv", "nobody"),
            "owner must be somebody who has the key of an owner, got 'nobody'",
        ),
        (("assign", "town.csv", "otto"), "file must be nobody else's, town.csv is olga's (key"),
        (("assign", "gone.csv", "otto"), "file must be a file, there is none at"),
        (("assign", "census.yaml", "otto"), "file must be a file with rows: no declaration, key or ledger"),
        (("assign", ".service/ledger.key", "otto"), "file must be a file"),
        (
            ("assign", "../beside.csv", "otto"),
            "file must be a file in the service's folder, got '../beside.csv'",
        ),
        (("release", "gone.csv"), "file must be assigned to somebody, got 'gone.csv'"),
    ],
)
def test_what_the_operator_mistypes_is_said_in_one_line(folder, keys, command, given, line):
    (folder.parent / "beside.csv").write_text("age\n1\n")
    code, told = command(given[0], folder, *given[1:])
    assert code == 2
    assert told.startswith(f"error: {line}")
    assert told.count("\n") == 1


def test_pages_show_what_is_assigned(service, folder, keys):
    def visit(who):
        fresh = TestClient(service.app, follow_redirects=False)
        token = re.search('name="csrf" value="([^"]+)"', fresh.get("/signin").text)[1]
        fresh.post("/signin", data={"key": keys[who], "csrf": token})
        return fresh

    olga, otto = visit("olga"), visit("otto")
    assert "town.csv" in olga.get("/owner/register").text
    assert olga.get("/owner/register?file=town.csv").status_code == 200
    assert ".csv" not in otto.get("/owner/register").text
    for name in ("town.csv", "census.csv"):
        assert otto.get(f"/owner/register?file={name}").status_code == 404
    assert "(at most 8)" in olga.get("/owner/register?file=town.csv").text
