"""Tags of many reports at once: the same verdicts as `hmac`."""

import hmac
import os
from types import SimpleNamespace

import numpy as np

from reticent.federated import payload
from reticent.fleet import tags
from reticent.fleet.enrolment import TAG_BYTES, Use, device_key, tag
from reticent.randomness import SimulationStream

from . import fleet

MASTER = os.urandom(32)
LENGTHS = (
    47,
    62,
    63,
    70,
    71,
    72,
    79,
    80,
    135,
    136,
    200,
    4096,
)  # content and padding fill blocks, or just not
COUNT = 70


def are_genuine(master, table):
    return tags.are_genuine(master, table, tags.Use.SURVEY, slice(13, 21))


def genuine(length, count=COUNT, use=Use.SURVEY):
    contents = [os.urandom(length - TAG_BYTES) for _ in range(count)]
    rows = [one + tag(device_key(MASTER, one[13:21]), use, one) for one in contents]
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(count, length).copy()


def spoilt(table):
    """One bit of every second report flipped, anywhere; which stay as they were."""
    rng = np.random.default_rng(len(table) + table.shape[1])
    for row in range(0, len(table), 2):
        table[row, rng.integers(table.shape[1])] ^= 1 << rng.integers(8)
    return np.arange(len(table)) % 2 == 1


def wrong_lengths(check):
    """The lengths of reports about which a check is wrong. No false alarm: a forged tag takes 2^-128."""
    found = []
    for length in LENGTHS:
        table = genuine(length)
        whole = check(MASTER, table)
        is_whole = spoilt(table)
        if not whole.all() or not np.array_equal(check(MASTER, table), is_whole):
            found.append(length)
    return found


def test_reports_are_judged_as_hmac_judges_them():
    assert wrong_lengths(are_genuine) == []
    assert are_genuine(MASTER, genuine(47, 0)).shape == (0,)


def test_planted_no_comparison_is_caught(monkeypatch):
    monkeypatch.setattr(tags, "_are_equal", lambda due, sent: np.ones(len(sent), dtype=bool))
    assert wrong_lengths(are_genuine) == list(LENGTHS)


def test_planted_half_a_tag_is_caught(monkeypatch):
    real = tags._are_equal
    monkeypatch.setattr(tags, "_are_equal", lambda due, sent: real(due[:, :8], sent[:, :8]))
    table = genuine(47)
    table[:, -1] ^= 1
    assert are_genuine(MASTER, table).all()
    monkeypatch.undo()
    assert not are_genuine(MASTER, table).any()


def test_planted_wrong_padding_is_caught(monkeypatch):
    monkeypatch.setattr(tags, "_XORED", [tags._XORED[0]] * 2)
    assert wrong_lengths(are_genuine) == list(LENGTHS)


# A label for each use


def lengths_that_hold_elsewhere():
    """Tags of other uses, and without a label, that hold for a survey."""
    found = [use for use in Use if use is not Use.SURVEY and are_genuine(MASTER, genuine(47, use=use)).any()]
    contents = [os.urandom(47 - TAG_BYTES) for _ in range(COUNT)]
    plain = [one + hmac.digest(device_key(MASTER, one[13:21]), one, "sha256")[:TAG_BYTES] for one in contents]
    table = np.frombuffer(b"".join(plain), dtype=np.uint8).reshape(COUNT, 47)
    return found + (["without a label"] if are_genuine(MASTER, table).any() else [])


def test_a_tag_of_one_use_holds_in_no_other(monkeypatch):
    """It failed: one key, one form of tags. Planted: a tag without its label."""
    assert lengths_that_hold_elsewhere() == []
    monkeypatch.setattr(tags, "Use", SimpleNamespace(SURVEY=SimpleNamespace(value=b"")))
    assert lengths_that_hold_elsewhere() == ["without a label"]


def test_no_label_begins_another():
    labels = [use.value for use in Use]
    assert not [(one, two) for one in labels for two in labels if one is not two and two.startswith(one)]


def counted_elsewhere():
    """Whether the report of a training counts as one of a survey, for an operator who found one id for both.

    Ids are eight bytes: two texts with one id take about 2^32 tries, which an operator has time for.
    """
    survey, who = fleet.single("Duchi"), fleet.enrolment(0)
    task = SimpleNamespace(id=survey.id, use=Use.TRAINING)
    body = fleet.report(survey, who, stream=SimulationStream(1), nonce=b"12345678")[21:-TAG_BYTES]
    sent = payload.written(task, who, 0, body)
    table = np.frombuffer(sent, dtype=np.uint8).reshape(1, -1)
    return bool(are_genuine(fleet.MASTER, table)[0])


def test_a_report_of_a_training_counts_in_no_survey(monkeypatch):
    """It failed: both begin with version, id, number and reporter. Planted: both under one label."""
    assert not counted_elsewhere()
    monkeypatch.setattr(tags, "Use", SimpleNamespace(SURVEY=Use.TRAINING))
    assert counted_elsewhere()
