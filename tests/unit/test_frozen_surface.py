"""Tests that what users, devices and stored files see is the same as before a change.

The golden files are written by `python -m tests.support.surface --write`; review every line that changes.
"""

import dataclasses
import sqlite3
from contextlib import closing

import pytest
import typer

from reticent.collect import survey_file
from reticent.errors import LedgerDamaged, ParameterError
from reticent.ledger import SqlLedger
from reticent.ledger.ethereum import chain_file
from reticent.ledger.verify import verify
from reticent.mechanisms import catalogue
from reticent.mechanisms.numeric import hybrid
from reticent.privacy import Neighbours

from ..support import stored_formats, surface

LEDGER = stored_formats.FILES / "ledger-version-3.sql"


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


def test_planted_renamed_stored_field_is_found(monkeypatch):
    """A field of a stored file that follows the new name of a dataclass field is a change."""

    def rename_field(value):
        fields = dataclasses.asdict(value)
        return {name.replace("contract", "address"): field for name, field in fields.items()}

    monkeypatch.setattr(chain_file, "asdict", rename_field)
    removed, added = list_changes("formats")
    assert {line.split()[0] for line in removed | added} == {"chain.json", "crowd.json"}
    assert any(line.startswith("chain.json | .address = ") for line in added)


def test_planted_renamed_mechanism_is_found(monkeypatch):
    """A mechanism whose new class name would stand in signed texts is a change."""
    monkeypatch.setattr(hybrid, "DuchiMechanism", hybrid.Duchi, raising=False)
    monkeypatch.setitem(catalogue.NUMERIC, "DuchiMechanism", catalogue.NUMERIC["Duchi"])
    monkeypatch.delitem(catalogue.NUMERIC, "Duchi")
    monkeypatch.setattr(stored_formats, "SAMPLES", {"catalogue": stored_formats.SAMPLES["catalogue"]})
    removed, added = list_changes("formats")
    assert "catalogue | .Duchi = []" in removed
    assert "catalogue | .DuchiMechanism = []" in added


def test_planted_renamed_file_field_is_found(monkeypatch):
    """A field of a survey file under another name is a change: the stored file can no longer be read."""
    fields = tuple(name.replace("period", "interval") for name in survey_file._FIELDS)
    monkeypatch.setattr(survey_file, "_FIELDS", fields)
    with pytest.raises(ParameterError, match="field 'period' is not known"):
        surface.collect_file_fields()


# The stored ledger


def restore_ledger(path, text):
    """Write a ledger from the SQL of its database."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(text)
    return SqlLedger(path)


def test_ledgers_are_stored_as_before(tmp_path):
    """A ledger with the same content and nonces has the same tables and rows."""
    assert stored_formats.dump_ledger(tmp_path) == LEDGER.read_text()


def test_stored_ledger_opens_and_verifies(tmp_path):
    """The stored ledger of version 3 is accepted whole, and repeats a charge for nothing."""
    with restore_ledger(tmp_path / "ledger.sqlite", LEDGER.read_text()) as ledger:
        assert verify(ledger).size == 14
        assert [balance.spent for balance in ledger.accounts()] == [1000, 0, 0, 0, 0, 50]
        amount = stored_formats.build_amounts()[5]
        assert ledger.charge("account-5", "sale", amount, idempotency="once").charged == 50
        assert ledger.balance("account-5").spent == 50


def test_planted_renamed_relation_is_found(tmp_path):
    """A relation between neighbours under another name is not accepted in a stored ledger."""
    text = LEDGER.read_text().replace(Neighbours.REPLACE_ONE.name, "SUBSTITUTE_ONE")
    with pytest.raises((KeyError, LedgerDamaged)), restore_ledger(tmp_path / "ledger", text) as ledger:
        verify(ledger)
