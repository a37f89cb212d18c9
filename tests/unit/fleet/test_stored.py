"""What devices of an earlier release wrote is what these read and write, byte for byte."""

import json

import pytest

from reticent.errors import BudgetExceeded
from reticent.fleet.reporter import Reporter
from reticent.ledger.device.marks import Marks

from .examples import EXAMPLES, STORED, ledger_records, told


def stored(name):
    return json.loads((STORED / f"{name}.json").read_text())


def files(name):
    return [one.encode() for one in stored(name)["files"]]


def differences(name, folder):
    """Which fields of a stored example these devices do not reproduce."""
    found, due = told(EXAMPLES[name], files(name), folder), stored(name)
    return {field for field in found if json.loads(json.dumps(found[field])) != due[field]}


@pytest.mark.parametrize("name", EXAMPLES)
def test_devices_say_and_keep_what_they_did(tmp_path, name):
    """Reports under a seed, errors, what is heeded, the account, keys and contents of the ledger."""
    assert differences(name, tmp_path) == set()


@pytest.mark.parametrize("name", EXAMPLES)
def test_signed_texts_are_the_same_bytes(name):
    example = EXAMPLES[name]
    for file in files(name):
        found = example.signing.verified(file, example.room.SIGNER)
        assert example.signing.signed(found, example.room.SIGNING) == file


def again(name, folder):
    """What a device says from the stored ledger: whether it is as before, and at no price."""
    example, due = EXAMPLES[name], stored(name)
    (folder / "ledger").write_bytes((STORED / f"{name}.ledger").read_bytes())
    with example.open(folder / "ledger", Marks(folder / "marks", moved=True)) as device:
        taken = [device.take(file) for file in files(name)]
        asked = [one for one in taken if getattr(one, "number", 0) == 0]
        said = [example.report(device, one, 0).hex() for one in asked]
        return said == due["said"][0] and device.spent == due["spent"] / 10**12


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_stored_ledger_is_opened_and_remembers(tmp_path, name):
    assert ledger_records((STORED / f"{name}.ledger").read_bytes()) == stored(name)["records"]
    assert again(name, tmp_path)


@pytest.mark.parametrize("name", EXAMPLES)
def test_planted_another_key_of_the_ledger_is_found(tmp_path, name, monkeypatch):
    true = Reporter._head
    monkeypatch.setattr(Reporter, "_head", lambda self, asked: f"other/{true(self, asked)}")
    (tmp_path / "again").mkdir()
    assert {"records"} <= differences(name, tmp_path)
    try:
        is_same = again(name, tmp_path / "again")
    except BudgetExceeded:  # what is left holds no second report
        is_same = False
    assert not is_same


@pytest.mark.parametrize("name", EXAMPLES)
def test_planted_a_report_that_is_drawn_anew_is_found(tmp_path, name, monkeypatch):
    true = Reporter._once

    def forgetful(self, held, number, draw, **price):
        true(self, held, number, draw, **price)
        return tuple(draw())

    monkeypatch.setattr(Reporter, "_once", forgetful)
    assert "said" in differences(name, tmp_path)
