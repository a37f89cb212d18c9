"""A capability is one folder and one line: a toy one, in a copy of the tree, has all its parts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import reticent
from reticent.apps.listed import APPS, NAMES

SOURCE = Path(reticent.__file__).parent

FILES = {
    "__init__.py": '"""A toy."""\n',
    "app.py": """
from pathlib import Path
from reticent.apps.base import App
from reticent.cli.commands import Commands, Panel

def _commands():
    from reticent.apps.toy.commands import demo, toy
    return Commands(panel=Panel.CHECK, groups=(), commands=(toy,), demos={"toy": demo})

def _served():
    from reticent.apps.toy import pages
    from reticent.service.served import Served, Tab
    tabs = (Tab(9, "toy", "/toy", "Toys"),)
    here = Path(__file__).parent
    return Served(folder=here, routers=(pages.router,), tabs=tabs, prepare=None, running=None)

APP = App(name="toy", commands=_commands, served=_served)
""",
    "commands.py": """
def toy() -> None:
    "Play."
    print("played")

def demo() -> None:
    "Watch somebody play."
    print("watched")
""",
    "pages.py": """
from fastapi import APIRouter, Request
from reticent.service.visits import Seen, page
router = APIRouter()

@router.get("/api/v1/toy")
def told() -> dict[str, str]:
    return {"toy": "ball"}

@router.get("/toy", include_in_schema=False)
def shown(request: Request, visit: Seen):
    return page(request, "toy.html", visit, here="toy")
""",
    "templates/toy.html": '{% extends "base.html" %}{% block main %}<p>A ball.</p>{% endblock %}',
    "static/toy.js": "// a ball",
}
LOOK = """
import pathlib, sys
from fastapi.testclient import TestClient
from reticent.apps.service.serving import create_app
from reticent.service.keys import Role
from reticent.service.settings import Settings
from reticent.service.visits import COOKIE

app = create_app(Settings(pathlib.Path(sys.argv[1]), grid_s=0.0))
with TestClient(app) as client:
    print(client.get("/api/v1/toy").json())
    _, key = app.state.desk.state.make_key("ann", Role.ANALYST)
    client.cookies.set(COOKIE, app.state.desk.state.enter(key)[0])
    page = client.get("/toy").text
    print("A ball." in page, '<a href="/toy" aria-current="page">Toys</a>' in page)
    print(client.get("/static/toy.js").text)
"""


@pytest.fixture
def tree(tmp_path):
    """A copy of the tree with a toy capability: its folder, and a line in the list."""
    home = tmp_path / "src" / "reticent"
    shutil.copytree(SOURCE, home, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in FILES.items():
        path = home / "apps" / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    listed = home / "apps" / "listed.py"
    listed.write_text(listed.read_text().replace('    "service",\n', '    "service",\n    "toy",\n'))
    return home


def run(tree, *args):
    return subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(tree.parent), "PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_one_folder_and_one_line_are_a_capability(tree, tmp_path):
    changed = [
        path.relative_to(tree)
        for path in tree.rglob("*")
        if path.is_file()
        and (not (old := SOURCE / path.relative_to(tree)).exists() or old.read_bytes() != path.read_bytes())
    ]
    assert {str(path) for path in changed if path.parts[:2] != ("apps", "toy")} == {"apps/listed.py"}
    assert run(tree, "-m", "reticent", "toy").stdout == "played\n"
    assert run(tree, "-m", "reticent", "demo", "toy").stdout == "watched\n"
    folder = tmp_path / "served"
    folder.mkdir()
    seen = run(tree, "-c", LOOK, str(folder))
    assert seen.stdout.splitlines() == ["{'toy': 'ball'}", "True True", "// a ball"], seen.stderr


@pytest.mark.parametrize(
    ("left_out", "told"),
    [
        (", served=_served", "'served'"),
        (', demos={"toy": demo}', "'demos'"),
        ('name="toy", ', "'name'"),
        ("APP = ", "APP"),
    ],
)
def test_planted_a_part_that_is_left_out_is_an_error_at_import(tree, left_out, told):
    app = tree / "apps" / "toy" / "app.py"
    assert left_out in app.read_text()
    app.write_text(app.read_text().replace(left_out, ""))
    failed = run(tree, "-m", "reticent", "--debug", "--help")
    assert failed.returncode == 1
    assert told in failed.stderr.splitlines()[-1]


def test_planted_two_of_one_name_are_refused(tree):
    commands = tree / "apps" / "toy" / "commands.py"
    commands.write_text(commands.read_text().replace("def toy()", "def ask()") + "toy = ask\n")
    failed = run(tree, "-m", "reticent", "--debug", "--help")
    assert "two capabilities add 'ask' to the command" in failed.stderr
    (tree / "apps" / "toy" / "templates" / "ask.html").write_text("")
    assert "ask.html has the name of" in run(tree, "-c", LOOK, str(tree)).stderr


def test_every_folder_is_in_the_list():
    folders = {path.parent.name for path in (SOURCE / "apps").glob("*/__init__.py")}
    assert folders == set(NAMES) == {one.name for one in APPS}
