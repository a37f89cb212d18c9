"""Clones of batches are combinations of the batch, at the distance that the theorem says."""

import numpy as np
import pytest

from reticent.audit.leakage import Kind, invert
from reticent.audit.leakage.batch_clones import clone_distances, clone_map, residuals
from reticent.audit.leakage.layers import softmax
from reticent.errors import ParameterError

from .nets import network


def test_candidates_of_a_batch_are_combinations_at_the_distance_that_is_said():
    generator = np.random.default_rng(5)
    found = 0
    for _ in range(6):
        layers = network(generator, [8, 4], scale=2.0)
        records, labels = generator.standard_normal((3, 8)), np.arange(3)
        leak = invert(layers, layers.update(records, labels.astype(np.float64), biases=False), labels=labels)
        assert leak.kind is Kind.CANDIDATES
        pi = residuals(softmax(layers.forward(records)[1]), labels)
        for clone in leak.candidates:
            theirs = residuals(softmax(layers.forward(clone.records)[1]), clone.targets)
            mapping = clone_map(pi, theirs)
            assert np.allclose(mapping.T @ records, clone.records, atol=1e-6)
            far = np.linalg.norm(clone.records - records, axis=1)
            assert clone_distances(records, mapping) == pytest.approx(far, abs=1e-6)
            found += bool(far.max() > 1e-3)
    assert found >= 3  # real clones, not the batch itself


def test_pi_has_full_rank_below_the_number_of_classes_and_not_from_there_on():
    """The conjecture after Lemma 6.10, over drawn softmax rows; and Table 6.1, which is at k = m."""
    generator = np.random.default_rng(6)
    for _ in range(200):
        classes = int(generator.integers(3, 12))
        records = int(generator.integers(1, classes + 1))
        p = softmax(3.0 * generator.standard_normal((records, classes)))
        rank = np.linalg.matrix_rank(residuals(p, generator.permutation(classes)[:records]))
        assert rank == min(records, classes - 1)
    table = [[0.70, 0.13, 0.17], [0.12, 0.71, 0.17], [0.13, 0.15, 0.72]]
    pi = residuals(table, [0, 1, 2])
    assert np.linalg.matrix_rank(pi) == 2
    with pytest.raises(ParameterError, match="fewer records than classes"):
        clone_map(pi, pi)


def test_shapes_are_checked():
    with pytest.raises(ParameterError, match="records by classes"):
        residuals([0.5, 0.5], [0])
