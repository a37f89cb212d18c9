"""Small tasks for edges, as texts and as they are."""

import numpy as np

from reticent.federated.crowd.modes import DocumentedSplit, NoisedSplit
from reticent.federated.crowd.task_text import CrowdTask
from reticent.federated.robust import Grid
from reticent.federated.split.documented import NOT_PROTECTED, PUBLIC
from reticent.store import cid_of

NOISED = NoisedSplit(side=14, inputs=6, classes=3, front=str(cid_of(b"a front")), rate=1.0, mu=2.0)
DOCUMENTED = DocumentedSplit(
    record=NOT_PROTECTED, side=8, classes=2, hidden=8, normalisation=PUBLIC, epsilon=10.0, batch=8, epochs=2,
    rate=0.03, seed=7,
)  # fmt: skip


def text(training, **changes):
    """The task of a mode."""
    grid = Grid(training.dimensions, 1 << 16, 1 << 24)
    given = {"purpose": "bars", "training": training, "grid": grid, "rounds": 3, "liars": 0}
    return CrowdTask(**given | changes)


def noised_records(count=9):
    draw = np.random.default_rng(4)
    return draw.normal(size=(count, 6)), draw.integers(0, 3, count)


def pictures(count=20):
    draw = np.random.default_rng(5)
    return draw.random((count, 8, 8), dtype=np.float32), draw.integers(0, 2, count)
