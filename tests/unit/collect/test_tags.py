"""Tags of many reports at once: the same verdicts as `hmac`."""

import hmac
import os

import numpy as np

from reticent.collect import tags
from reticent.collect.enrolment import TAG_BYTES, device_key, tag

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


def genuine(length, count=COUNT):
    contents = [os.urandom(length - TAG_BYTES) for _ in range(count)]
    rows = [one + tag(device_key(MASTER, one[13:21]), one) for one in contents]
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
    assert wrong_lengths(tags.are_genuine) == []
    assert tags.are_genuine(MASTER, genuine(47, 0)).shape == (0,)


def test_planted_no_comparison_is_caught(monkeypatch):
    monkeypatch.setattr(hmac, "compare_digest", lambda *_: True)
    assert wrong_lengths(tags.are_genuine) == list(LENGTHS)


def test_planted_half_a_tag_is_caught(monkeypatch):
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda mine, sent: real(mine[:8], sent[:8]))
    table = genuine(47)
    table[:, -1] ^= 1
    assert tags.are_genuine(MASTER, table).all()
    monkeypatch.undo()
    assert not tags.are_genuine(MASTER, table).any()


def test_planted_wrong_padding_is_caught(monkeypatch):
    monkeypatch.setattr(tags, "_XORED", [tags._XORED[0]] * 2)
    assert wrong_lengths(tags.are_genuine) == list(LENGTHS)
