"""Crashes in the middle of acts: a folder holds whole acts only, and goes on where it was."""

import os
import shutil

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.errors import GuaranteeError, ParameterError
from reticent.market.federations import acts, folder

from ...support.crash_points import enumerate_crashes
from .federating import EPSILON, key_of

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def write_in_place(place, number, text):
    """Planted: write an act under its name, not beside it."""
    with (place / folder._name(number)).open("wb", buffering=0) as target:
        target.write(text[: len(text) // 2])
        target.write(text[len(text) // 2 :])


def act_twice(place, answers):
    """Let two members join; append to a file how many acts were told."""
    file = os.open(answers, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    federation = folder.opened(place)
    for _ in range(2):
        folder.done(place, federation, acts.Join(5, 10**12), Ed25519PrivateKey.generate())
        os.write(file, b"%d\n" % federation.count)


def found_federation(place):
    folder.founded(place, acts.Found("north", "to test", 1, 1, 10**13), key_of("founder"))


def is_torn(place, told):
    """Whether a folder cannot be read, or lacks an act that was told."""
    try:
        return folder.opened(place).count < told
    except (ParameterError, GuaranteeError):
        return True


def torn_after_crashes(base):
    """End a process at each of its points; yield each point with whether the folder is torn."""
    start, live, answers = base / "start", base / "live", base / "answers"
    found_federation(start)
    shutil.copytree(start, live)
    for point in enumerate_crashes(lambda: act_twice(live, answers)):
        told = [int(line) for line in answers.read_text().split()] if answers.exists() else []
        yield point, is_torn(live, max(told, default=0))
        answers.unlink(missing_ok=True)
        shutil.rmtree(live)
        shutil.copytree(start, live)


def test_no_crash_tears_a_folder(tmp_path):
    calls = []
    for point, torn in torn_after_crashes(tmp_path):
        assert not torn, str(point)
        calls.append(point.call)
    assert "posix.fsync" in calls
    federation = folder.opened(tmp_path / "live")
    folder.done(tmp_path / "live", federation, acts.Join(5, EPSILON), key_of("anna"))


def test_planted_acts_that_are_written_in_place_are_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "_put", write_in_place)
    assert any(torn for _, torn in torn_after_crashes(tmp_path))
