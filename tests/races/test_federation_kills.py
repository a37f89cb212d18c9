"""Kill -9 in the middle of a federation's acts, at random moments: a folder holds whole acts only."""

import os
import random
import signal
import time

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.market.federations import acts, folder

from ..unit.ledger.device_history import exit_code, in_child
from ..unit.market.test_federation_crashes import found_federation, is_torn

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def write_slowly_in_place(place, number, text):
    """Planted: write an act under its name, byte by byte."""
    with (place / folder._name(number)).open("wb", buffering=0) as target:
        for position in range(len(text)):
            target.write(text[position : position + 1])


def act_for_ever(place, pipe):
    federation = folder.opened(place)
    os.write(pipe, b"0\n")
    while True:
        folder.done(place, federation, acts.Join(5, 10**12), Ed25519PrivateKey.generate())
        os.write(pipe, b"%d\n" % federation.count)


def kill_one(place, answers, delay_s):
    """Kill a process some time after so many acts; return whether it left the folder torn."""
    read, write = os.pipe()
    child = in_child(lambda: act_for_ever(place, write))
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = [int(pipe.readline()) for _ in range(1 + answers)]
        time.sleep(delay_s)
        os.kill(child, signal.SIGKILL)
        told += [int(line) for line in pipe.read().split()]
    assert exit_code(child) == -signal.SIGKILL
    return is_torn(place, max(told))


@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_no_kill_tears_a_folder(tmp_path, race_counter, kills):
    rng, place = random.Random(1), tmp_path / "north"
    found_federation(place)
    assert not any(kill_one(place, kill % 5, rng.uniform(0, 0.01)) for kill in range(kills))
    race_counter.report(f"{kills} kills, {folder.opened(place).count} acts")


def test_planted_acts_that_are_written_in_place_are_caught(tmp_path, monkeypatch, race_counter):
    monkeypatch.setattr(folder, "_put", write_slowly_in_place)
    rng, place = random.Random(1), tmp_path / "north"
    found_federation(place)
    race_counter.repeat_until_caught(
        lambda number: kill_one(place, number % 5, rng.uniform(0, 0.01)), max_attempts=1000
    )
