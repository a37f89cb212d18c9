"""Exact Multi-Krum against one product of the same updates in doubles, and against Flower's, on floats.

A round of ours is checked, judged and averaged from what was received; Flower's `MultiKrum.aggregate_train`
does the last two. Both accept the same number of updates.
"""

from __future__ import annotations

import logging
import tracemalloc

import numpy as np

from benchmarks.measure import Figure, cpu_ratio
from reticent.federated.robust import Grid, judge, multi_krum

UPDATES, DIMENSIONS, LIARS = 100, 1_000_000, 30
GRID = Grid(DIMENSIONS, 1 << 16, 1 << 25)


def _updates():
    draw = np.random.default_rng(0)
    return [draw.integers(-(1 << 14), 1 << 14, DIMENSIONS, dtype=np.int32) for _ in range(UPDATES)]


def against_a_product() -> float:
    """Time of Multi-Krum / time of one product of the matrix with itself."""
    updates = _updates()
    doubles = np.stack(updates).astype(np.float64)
    return 1.0 / cpu_ratio(lambda: doubles @ doubles.T, lambda: multi_krum(updates, LIARS), repetitions=5)


def against_flower() -> float:
    """How many times faster a round is."""
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp.strategy import MultiKrum
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # those of Flower's process
    logging.getLogger("flwr").setLevel(logging.ERROR)
    updates = _updates()
    accepted = UPDATES - LIARS
    strategy = MultiKrum(num_malicious_nodes=LIARS, num_nodes_to_select=accepted)
    replies = []
    for node, update in enumerate(updates):
        content = {
            "arrays": ArrayRecord({"theta": Array(GRID.values(update))}),
            "metrics": MetricRecord({"num-examples": 1}),
        }
        message = Message(RecordDict(), node, "train")
        replies.append(Message(RecordDict(content), reply_to=message))

    def flowers() -> None:
        arrays, _ = strategy.aggregate_train(1, replies)
        assert arrays is not None

    return cpu_ratio(flowers, lambda: judge(GRID, updates, LIARS), repetitions=3)


def memory() -> float:
    """The most memory that judging takes beside the updates, in all updates together."""
    updates = _updates()
    tracemalloc.start()
    judge(GRID, updates, LIARS)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return 1.0 + most / sum(update.nbytes for update in updates)


FIGURES = [
    Figure("Multi-Krum, 100 x 1 million", "one product in doubles", 2.0, against_a_product, at_most=True),
    Figure("a round of Multi-Krum, the same", "Flower's MultiKrum", 10.0, against_flower),
    Figure("a round's memory, the same", "the updates", 1.5, memory, at_most=True),
]
