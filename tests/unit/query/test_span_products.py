"""Products of whole numbers by floats are exact, and weights are those of one start after the other."""

import numpy as np
import pytest

from reticent.query.span import best
from reticent.query.span.best import Weights

LARGEST = (1 << 20) - 1  # of a relation of 64 bits


@pytest.mark.parametrize("relations", [1, 3, 640, 1 << 11])
def test_a_product_by_floats_is_exact(relations):
    rng = np.random.default_rng(relations)
    left = rng.integers(-LARGEST, LARGEST + 1, (40, relations))
    most = (1 << 62) // (LARGEST * relations)
    right = rng.integers(-most, most + 1, (relations, 9))
    left[0], right[:, 0] = LARGEST, most
    left[1], right[:, 1] = -LARGEST, -most
    assert np.array_equal(best._exact_product(left, right), left @ right)
    assert np.array_equal(left.astype(object) @ right.astype(object), left @ right), "nothing overflows"


def test_planted_parts_that_are_too_large_are_caught(monkeypatch):
    monkeypatch.setattr(best, "_PART_BITS", 40)
    monkeypatch.setattr(best, "_PART", (1 << 40) - 1)
    left = np.full((1, 640), LARGEST)
    right = np.full((640, 1), (1 << 32) + 1)
    assert not np.array_equal(best._exact_product(left, right), left @ right)


@pytest.mark.parametrize("large", [False, True])
def test_all_starts_at_once_are_as_each_alone(large):
    rng = np.random.default_rng(5)
    relations = rng.integers(-9, 10, (12, 5)) * (10**12 if large else 1)
    relations = relations.astype(object) if large else relations
    starts = [Weights({row: int(rng.integers(1, 99)) for row in range(12)}, 7) for _ in range(4)]
    by = rng.normal(size=(5, 4))
    together = best._moved(starts, relations, list(range(12)), by)
    alone = [best._moved([one], relations, list(range(12)), by[:, [at]])[0] for at, one in enumerate(starts)]
    assert together == alone
