"""What the survey draws: known blocks, uniform, different for every purpose."""

import threading

import numpy as np
import pytest
from scipy.stats import chi2

from reticent.fleet.lots import Lots

IDS = np.random.default_rng(4).integers(0, 1 << 64, 40_000, dtype=np.uint64)
LEVEL = 1e-7  # of one test below: together under 1e-6


def fits(counts, expected):
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), counts.size - 1)) > LEVEL


@pytest.fixture(scope="module")
def lots():
    return Lots(bytes(range(32)))


def test_a_draw_is_one_block_of_aes(lots):
    """FIPS 197, C.3: the block 00112233445566778899aabbccddeeff under this key."""
    ids = np.array([0x0011223344556677], dtype=np.uint64)
    drawn = lots._draws(ids, 0x8899AABB, 0xCC, 0xDDEEFF)
    assert int(drawn[0]) == 0x8EA2B7CA516745BF


def test_dither_levels_are_uniform(lots):
    counts = np.bincount(lots.dither(IDS, 5, 1, 64), minlength=64)
    assert fits(counts, IDS.size / 64)
    assert not fits(np.bincount(lots.dither(IDS, 5, 1, 64) // 2 * 2, minlength=64), IDS.size / 64)  # planted


def test_groups_are_uniform_and_the_same_in_every_period(lots):
    assert fits(np.bincount(lots.group(IDS, 32), minlength=32), IDS.size / 32)
    assert lots.group(IDS, 1).tolist() == [0] * IDS.size


def test_every_choice_of_attributes_is_equally_likely(lots):
    asked = lots.attributes(IDS, 3, 2, 5)
    assert (asked.sum(axis=1) == 2).all()
    choices = np.unique(asked @ (1 << np.arange(5)), return_counts=True)[1]
    assert choices.size == 10
    assert fits(choices, IDS.size / 10)


def test_draws_differ_by_period_attribute_and_purpose(lots):
    def together(a, b):
        return np.bincount(8 * a + b, minlength=64)

    base = lots.dither(IDS, 5, 1, 8)
    for other in (lots.dither(IDS, 6, 1, 8), lots.dither(IDS, 5, 2, 8), lots.group(IDS, 8)):
        assert fits(together(base, other), IDS.size / 64)
    assert not fits(together(base, lots.dither(IDS, 5, 1, 8)), IDS.size / 64)  # planted: one purpose for both


def test_many_are_drawn_as_each_alone(lots):
    periods = np.arange(50)
    ids = IDS[:50]
    one = [int(lots.dither(ids[i : i + 1], i, 2, 1024)[0]) for i in range(50)]
    assert lots.dither(ids, periods, 2, 1024).tolist() == one
    each = [lots.attributes(ids[i : i + 1], i, 2, 5)[0].tolist() for i in range(50)]
    assert lots.attributes(ids, periods, 2, 5).tolist() == each


def in_threads(draw):
    """What several threads at once are given, or the names of their errors."""
    found = []

    def work():
        for _ in range(10):
            try:
                found.append(draw().tobytes())
            except RuntimeError as error:
                found.append(type(error).__name__)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return set(found)


def test_threads_may_draw_at_once(lots):
    many = np.tile(IDS, 10)
    assert in_threads(lambda: lots.dither(many, 5, 1, 64)) == {lots.dither(many, 5, 1, 64).tobytes()}
