"""kill -9 in the middle of acts: a folder holds whole acts only, and goes on where it was."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reticent.errors import GuaranteeError, ParameterError
from reticent.market.federations import acts, folder

from .federating import EPSILON, key_of

WORKER = """
import os, sys, time
from pathlib import Path
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from reticent.market.federations import acts, folder

def in_place(place, number, file):
    with (place / folder._name(number)).open("wb", buffering=0) as target:
        for at in range(len(file)):
            target.write(file[at : at + 1])
            time.sleep(0.002)  # so that a kill comes in between

if sys.argv[2] == "planted":
    folder._put = in_place
place = Path(sys.argv[1])
federation = folder.opened(place)
print("ready", flush=True)
while True:
    folder.done(place, federation, acts.Join(5, 10**12), Ed25519PrivateKey.generate())
    print(federation.count, flush=True)
"""


def killed(place, which, after):
    """Let a process act, and kill it once it has said so many acts; how many it said in all."""
    command = [sys.executable, "-c", WORKER, str(place), which]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        said = 0
        for line in worker.stdout:
            said = said if line.startswith("ready") else int(line)
            after -= 1
            if after < 0:
                os.kill(worker.pid, signal.SIGKILL)
                break
        rest = [int(line) for line in worker.stdout.read().split() if line.isdigit()]
    return max([said, *rest])


def torn(place, kills, which):
    """After how many kills the folder cannot be gone through, or lacks an act that was said."""
    folder.founded(Path(place), acts.Found("north", "to test", 1, 1, 10**13), key_of("founder"))
    found = 0
    for kill in range(kills):
        said = killed(place, which, after=kill % 5)
        try:
            found += folder.opened(Path(place)).count < said
        except (ParameterError, GuaranteeError):
            return found + 1
    return found


def test_some_kills(tmp_path):
    assert torn(tmp_path / "north", 3, "right") == 0
    federation = folder.opened(tmp_path / "north")
    folder.done(tmp_path / "north", federation, acts.Join(5, EPSILON), key_of("anna"))


@pytest.mark.slow
def test_a_hundred_kills(tmp_path):
    assert torn(tmp_path / "north", 100, "right") == 0


def test_planted_acts_that_are_written_in_place_are_caught(tmp_path):
    assert torn(tmp_path / "north", 12, "planted") > 0
