"""Devices that are put back from a backup, for the tests of what they may still report."""

import os
import shutil

import pytest

from reticent.errors import LedgerError, RolledBack

from .rooms import ROOMS

TIMES = 40


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    """The disk is not waited for: only a loss of power could tell."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(params=ROOMS)
def room(request):
    """One kind of devices."""
    return ROOMS[request.param]()


@pytest.fixture
def folder(tmp_path):
    """The folder of a device, as its backup has it."""
    made = tmp_path / "device"
    made.mkdir()
    return made


def restored(folder, before):
    """The whole folder as it was."""
    shutil.rmtree(folder)
    shutil.copytree(before, folder)


def deleted(folder, before):
    """The ledger is gone, and whatever lies beside it."""
    shutil.rmtree(folder)
    folder.mkdir()


def reports_of_one_period(room, folder, again, times=TIMES, **options):
    """How many reports of one period leave if the device is put back before each: all are drawn anew."""
    path, before = folder / "ledger", folder.with_name("backup")
    with room.open(path, **options) as one:
        room.report(one, 0)
    shutil.copytree(folder, before)
    left, refusals = [], []
    for _ in range(times):
        try:
            with room.open(path, **options) as one:
                left.append(room.report(one, 1))
        except LedgerError as refusal:
            refusals.append(refusal)
        again(folder, before)
    assert all(isinstance(one, RolledBack) for one in refusals)
    return len(left)
