"""Tags of many reports at once: the same verdicts as `hmac`, by either engine."""

import hmac
import os

import numpy as np
import pytest

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
COUNT = 70  # not a multiple of the loop's lanes


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


@pytest.fixture(scope="module")
def compress():
    pytest.importorskip("numba")
    return tags.compiled()


def test_few_reports():
    assert wrong_lengths(tags.are_genuine) == []
    assert tags.are_genuine(MASTER, genuine(47, 0)).shape == (0,)


def test_many_reports(compress):
    assert wrong_lengths(lambda *given: tags.many(compress, *given)) == []


def test_planted_no_comparison_is_caught(monkeypatch):
    monkeypatch.setattr(hmac, "compare_digest", lambda *_: True)
    assert wrong_lengths(tags.are_genuine) == list(LENGTHS)


def test_planted_half_a_tag_is_caught(compress, monkeypatch):
    """What differs is looked for in the first words only."""
    real = np.bitwise_or.reduce

    class Lenient:
        @staticmethod
        def reduce(differ, axis):
            return real(differ[:2], axis=axis)

    monkeypatch.setattr(np, "bitwise_or", Lenient)
    assert wrong_lengths(lambda *given: tags.many(compress, *given))


@pytest.mark.parametrize("fault", ["length", "key"])
def test_planted_wrong_padding_is_caught(compress, monkeypatch, fault):
    if fault == "length":
        real = tags._ended
        monkeypatch.setattr(tags, "_ended", lambda texts: real(texts[:, :-1]))
    else:
        monkeypatch.setattr(tags, "_PADS", (0x36, 0x36))
    assert wrong_lengths(lambda *given: tags.many(compress, *given)) == list(LENGTHS)


def test_the_loop_comes_after_many_reports(compress, monkeypatch):
    monkeypatch.setattr(tags, "COMPILE_AFTER", 3 * tags.MANY)
    monkeypatch.setattr(tags, "_LOOP", loop := tags.Loop())
    asked = []
    monkeypatch.setattr(tags, "many", lambda *given: asked.append(len(given[2])) or np.ones(len(given[2])))
    table = genuine(47, tags.MANY)
    for _ in range(2):
        assert tags.are_genuine(MASTER, table).all()
    assert not loop.is_begun
    tags.are_genuine(MASTER, table)
    assert loop.is_begun
    tags.compile_now()
    assert tags.are_genuine(MASTER, table).all()
    assert asked[-1] == tags.MANY
    before = len(asked)
    tags.are_genuine(MASTER, table[:10])  # not worth it
    assert len(asked) == before


def test_there_may_be_no_loop(monkeypatch):
    monkeypatch.setenv("RETICENT_ENGINE", "numpy")
    monkeypatch.setattr(tags, "_LOOP", loop := tags.Loop())
    tags.compile_now()
    assert loop.is_begun
    assert tags.are_genuine(MASTER, genuine(47, tags.MANY)).all()
