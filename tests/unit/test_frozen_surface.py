"""Tests that what users, devices and stored files see is the same as before a change.

The golden files are written by `python -m tests.support.surface --write`; review every line that changes.
"""

import pytest
import typer

from ..support import surface


@pytest.mark.parametrize("part", surface.PARTS)
def test_surface_is_unchanged(part):
    """Each part of the surface equals its golden file."""
    assert surface.render(surface.PARTS[part]()) == (surface.GOLDEN / f"{part}.txt").read_text()


def test_every_golden_file_is_compared():
    """Each golden file belongs to a part that is collected."""
    assert {path.stem for path in surface.GOLDEN.iterdir()} == set(surface.PARTS)


def list_changes(part):
    """Return the lines that a planted change removes from a golden file, and the lines that it adds."""
    expected = (surface.GOLDEN / f"{part}.txt").read_text().splitlines()
    actual = surface.render(surface.PARTS[part]()).splitlines()
    return set(expected) - set(actual), set(actual) - set(expected)


def test_planted_renamed_flag_is_found(monkeypatch):
    """A flag that follows the new name of a Python parameter is a change."""
    build_command = typer.main.get_command

    def rename_flag(app):
        command = build_command(app)
        option = next(param for param in command.commands["serve"].params if "--port" in param.opts)
        option.opts = ["--http-port"]
        return command

    monkeypatch.setattr(typer.main, "get_command", rename_flag)
    removed, added = list_changes("commands")
    assert {line.split(" | ")[1] for line in removed} == {"--port"}
    assert {line.split(" | ")[1] for line in added} == {"--http-port"}


def test_planted_renamed_response_field_is_found(monkeypatch):
    """A response field that follows the new name of a Python attribute is a change."""
    service = surface.build_service()
    error = next(
        schema
        for schema in service.openapi()["components"]["schemas"].values()
        if {"type", "message"} <= set(schema.get("properties", ()))
    )
    error["properties"]["text"] = error["properties"].pop("message")
    monkeypatch.setattr(surface, "build_service", lambda: service)
    removed, added = list_changes("http")
    assert "/health/live GET | 5XX .error.message required" in removed
    assert "/health/live GET | 5XX .error.text" in added


def test_planted_lost_page_is_found(monkeypatch):
    """A page that is no longer served is a change."""
    service = surface.build_service()
    service.router.routes.pop()
    monkeypatch.setattr(surface, "build_service", lambda: service)
    assert list_changes("pages") == ({"/static MOUNT"}, set())


def test_planted_renamed_column_and_label_are_found(monkeypatch):
    """A column, or the label of a signed text, that a careless codemod renames in a literal is a change."""
    literals = [
        (kind, text.replace("wording TEXT", "words TEXT").replace("reticent-bill/", "reticent-menu/"))
        for kind, text in surface.list_literals()
    ]
    monkeypatch.setattr(surface, "list_literals", lambda: literals)
    _, added = list_changes("tables")
    assert len(added) == 1
    assert "words TEXT NOT NULL" in added.pop()
    removed, added = list_changes("literals")
    assert (removed, added) == ({r"label reticent-bill/v1\n"}, {r"label reticent-menu/v1\n"})


def test_planted_renamed_event_argument_is_found(monkeypatch):
    """An argument of a contract's event under another name is a change."""
    load = surface.json.loads

    def rename_argument(text):
        return load(text.replace('"name": "miner"', '"name": "worker"'))

    monkeypatch.setattr(surface.json, "loads", rename_argument)
    removed, added = list_changes("contracts")
    assert "FederatedTask event Enrolled(address indexed miner, uint256 units)" in removed
    assert "FederatedTask event Enrolled(address indexed worker, uint256 units)" in added
