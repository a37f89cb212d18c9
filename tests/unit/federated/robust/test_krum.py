"""Multi-Krum is exact, says the same in any order of adding, and holds against what it is said to."""

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.federated.robust import Grid, krum, multi_krum
from reticent.federated.robust.grid import MOST_NORM

SEVEN = np.array([[0, 0], [10, 0], [0, 10], [10, 10], [500, 500], [5, 20], [-400, 300]], dtype=np.int32)


def slow(updates, f):
    """The definition, in Python's whole numbers."""
    rows = [[int(number) for number in update] for update in updates]
    scores = []
    for i, one in enumerate(rows):
        apart = sorted(
            sum((a - b) ** 2 for a, b in zip(one, other, strict=True))
            for j, other in enumerate(rows)
            if j != i
        )
        scores.append(sum(apart[: len(rows) - f - 2]))
    order = sorted(range(len(rows)), key=lambda place: (scores[place], place))
    return tuple(sorted(order[: len(rows) - f])), tuple(scores)


def test_seven_points():
    found = multi_krum(SEVEN, 2)
    assert found.accepted == (0, 1, 2, 3, 5)
    assert found.scores == (400, 400, 325, 325, 1445725, 675, 736525)


@pytest.mark.parametrize("reach", [3, 1 << 10, 1 << 21])
def test_it_is_the_definition(reach):
    draw = np.random.default_rng(reach)
    for _ in range(20):
        count = int(draw.integers(3, 14))
        updates = draw.integers(-reach, reach + 1, (count, int(draw.integers(1, 40))), dtype=np.int32)
        f = int(draw.integers(0, (count - 3) // 2 + 1))
        found = multi_krum(updates, f)
        assert (found.accepted, found.scores) == slow(updates, f)


def longest(draw, count, size):
    """Updates as long as they may be, most of it in a few numbers."""
    given = draw.normal(size=(count, size)) * np.exp(draw.normal(0.0, 4.0, size))
    grid = Grid(size, 1, MOST_NORM)
    return [grid.placed(one / np.linalg.norm(one) * MOST_NORM) for one in given]


def test_the_longest_updates_are_exact_across_blocks(monkeypatch):
    updates = longest(np.random.default_rng(2), 9, 3000)
    assert min(Grid(3000, 1, MOST_NORM).squared_norm(one) for one in updates) > 2**49
    wanted = slow(updates, 3)
    for columns in (1, 7, 1000, 3000, 1 << 14):
        monkeypatch.setattr(krum, "_COLUMNS", columns)
        found = multi_krum(updates, 3)
        assert (found.accepted, found.scores) == wanted


def test_any_order_of_the_numbers_gives_the_same_bits():
    """A machine that adds in another order."""
    draw = np.random.default_rng(3)
    updates = np.stack(longest(draw, 8, 5000))
    wanted = krum.squared_distances(updates)
    for _ in range(5):
        assert np.array_equal(
            krum.squared_distances(np.ascontiguousarray(updates[:, draw.permutation(5000)])), wanted
        )


def test_planted_floats_depend_on_the_order():
    draw = np.random.default_rng(4)
    updates = np.stack(longest(draw, 8, 5000)) / 3.0
    turned = updates[:, draw.permutation(5000)]
    assert not np.array_equal(updates @ updates.T, turned @ turned.T)


def test_updates_too_long_to_be_exact_are_refused():
    with pytest.raises(ParameterError, match="norm of at most 33554432"):
        multi_krum(np.full((3, 4), MOST_NORM, dtype=np.int32), 0)


def test_copies_are_no_neighbours_of_themselves():
    """Two liars with the same far update have each other at distance 0; the rest of their score is large."""
    updates = np.vstack([np.random.default_rng(5).integers(-9, 10, (7, 20)), np.full((2, 20), 900)]).astype(
        np.int32
    )
    assert multi_krum(updates, 2).accepted == tuple(range(7))
    same = np.repeat(updates[:1], 5, axis=0)
    assert multi_krum(same, 1).scores == (0,) * 5
    assert multi_krum(same, 1).accepted == (0, 1, 2, 3), "of equal scores the earlier"


def test_planted_self_found_by_sorting_gives_other_scores():
    """Rounding makes the distance of an update to itself, or to its copy, anything near zero, also below."""
    draw = np.random.default_rng(6)
    floats = (1e4 + draw.normal(0.0, 1e-3, (9, 50))).astype(np.float32)
    squares = np.square(floats).sum(axis=1)
    apart = squares[:, None] + squares[None, :] - 2 * floats @ floats.T
    assert (np.argsort(apart, axis=1)[:, 0] != np.arange(9)).any()


@pytest.mark.parametrize(("count", "f"), [(2, 0), (4, 1), (6, 2), (100, 49)])
def test_too_few_for_so_many_liars(count, f):
    with pytest.raises(ParameterError, match=f"updates must be >= {2 * f + 3}, got {count}"):
        multi_krum(np.zeros((count, 3), dtype=np.int32), f)


def test_more_than_a_round_holds():
    with pytest.raises(ParameterError, match="updates must be <= 1024"):
        multi_krum(np.zeros((1025, 1), dtype=np.int32), 0)
