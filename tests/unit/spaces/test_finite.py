"""Finite spaces: what is no metric is refused, since a guarantee by distance would mean nothing."""

import math

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.mechanisms.location import ElasticChannel
from reticent.spaces import FiniteSpace, Grid, finite

LINE = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))


def test_a_metric_is_taken_as_it_is():
    space = FiniteSpace(LINE, unit="hop")
    assert (space.size, space.unit, space.shortest, space.diameter) == (4, "hop", 1.0, 3.0)
    assert space.distances(1).tolist() == [1.0, 0.0, 1.0, 2.0]
    assert space.open.all()
    with pytest.raises(ValueError, match="read-only"):
        space.matrix[0, 1] = 5.0


def test_a_single_place():
    space = FiniteSpace([[0.0]])
    assert (space.size, space.shortest, space.diameter) == (1, math.inf, 0.0)


def changed(*entries):
    table = LINE.copy()
    for x, y, value in entries:
        table[x, y] = value
    return table


BAD = {
    "not square": (np.zeros((2, 3)), r"matrix must be square, got shape \(2, 3\)"),
    "no matrix": ([1.0, 2.0], "matrix must be square"),
    "empty": (np.zeros((0, 0)), "matrix must be square"),
    "negative": (changed((0, 1, -1.0), (1, 0, -1.0)), "finite distances >= 0"),
    "not a number": (changed((0, 1, np.nan), (1, 0, np.nan)), "finite distances >= 0"),
    "infinite": (changed((0, 3, np.inf), (3, 0, np.inf)), "finite distances >= 0"),
    "asymmetric": (changed((0, 1, 1.5)), "matrix must be symmetric"),
    "asymmetric by one bit": (changed((0, 3, np.nextafter(3.0, 4.0))), "matrix must be symmetric"),
    "zero apart": (changed((0, 1, 0.0), (1, 0, 0.0)), "0 on the diagonal and > 0 elsewhere"),
    "own distance": (changed((2, 2, 0.1)), "0 on the diagonal and > 0 elsewhere"),
    "triangle": (changed((0, 3, 3.1), (3, 0, 3.1)), "matrix must keep the triangle inequality"),
    "triangle by a little": (
        changed((0, 3, 3.0 + 1e-12), (3, 0, 3.0 + 1e-12)),
        "matrix must keep the triangle inequality",
    ),
    "squared distances": (LINE**2, "matrix must keep the triangle inequality"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_metric_is_refused(case):
    matrix, message = BAD[case]
    with pytest.raises(ParameterError, match=message):
        FiniteSpace(matrix)


def test_planted_without_the_check_a_level_would_be_a_lie(monkeypatch):
    """Squared distances: 2 beta is claimed, and twice as much is lost."""
    monkeypatch.setattr(finite, "_check_metric", lambda _: None)
    channel = ElasticChannel(FiniteSpace(LINE**2), [0.1, 0.2, 0.3, 0.4], 1.0)
    assert channel.exact_level() > 1.5 * channel.level
    sound = ElasticChannel(FiniteSpace(LINE), [0.1, 0.2, 0.3, 0.4], 1.0)
    assert sound.exact_level() <= sound.level


@pytest.mark.parametrize("dimensions", [1, 2, 5])
def test_points_make_a_metric_whatever_the_rounding(dimensions):
    """Points on a line, where the triangle inequality is an equation."""
    rng = np.random.default_rng(dimensions)
    along = np.sort(rng.uniform(0, 1000, 40))[:, None] * rng.normal(size=dimensions)
    assert FiniteSpace.of_points(along).size == 40
    assert FiniteSpace.of_points(rng.normal(size=(30, dimensions))).shortest > 0.0


def test_points_that_coincide_or_have_no_shape():
    with pytest.raises(ParameterError, match="> 0 elsewhere"):
        FiniteSpace.of_points([[0.0, 1.0], [0.0, 1.0]])
    with pytest.raises(ParameterError, match=r"points must have shape \(places, coordinates\), got \(3,\)"):
        FiniteSpace.of_points([0.0, 1.0, 2.0])


def test_no_large_matrix_by_accident(monkeypatch):
    monkeypatch.setattr(finite, "MOST_DENSE", 3)
    with pytest.raises(ParameterError, match="at most 3 places, got 4"):
        FiniteSpace(LINE)
    with pytest.raises(ParameterError, match="a matrix of 4160 cells is too large: at most 4096"):
        Grid(64, 65, 1.0, 1.0).matrix  # noqa: B018
