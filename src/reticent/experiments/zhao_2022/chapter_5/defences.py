"""Averages of a round, ours and Flower's, alike: updates of all clients in, one update out.

Ours work on the grid and refuse what is not on it. Flower's work on the floats that came. Each is told of as
many liars as it can be at most: f of R >= 2f + 3, for Bulyan of R >= 4f + 3.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from reticent.errors import MissingExtra, ParameterError
from reticent.federated.robust import Grid, mean, median, multi_krum, trimmed_mean
from reticent.federated.robust.grid import Update
from reticent.mechanisms.base import Floats

Defence = Callable[[Floats], Floats | None]
NONE = "mean"


def ours(grid: Grid, liars: int) -> dict[str, Defence]:
    """The averages of `federated.robust`; None where too few updates are left."""

    def krum(updates: Sequence[Update], left: int) -> Any:
        return mean([updates[place] for place in multi_krum(updates, left).accepted])

    rules: dict[str, Callable[[Sequence[Update], int], Any]] = {
        NONE: lambda updates, _: mean(updates),
        "Multi-Krum": krum,
        "median": lambda updates, _: median(updates),
        "trimmed mean": trimmed_mean,
    }
    return {name: _on(grid, liars, rule) for name, rule in rules.items()}


def _on(grid: Grid, liars: int, rule: Callable[[Sequence[Update], int], Any]) -> Defence:
    def average(came: Floats) -> Floats | None:
        updates = []
        for one in came:
            steps = np.rint(one * grid.steps) if np.isfinite(one).all() else one
            try:
                updates.append(grid.checked(_whole(steps)))
            except ParameterError:
                continue
        try:
            return grid.values(rule(updates, max(0, liars - (len(came) - len(updates)))))
        except ParameterError:
            return None

    return average


def _whole(steps: Floats) -> Any:
    """Whole numbers as such; what is none as it came, to be refused."""
    return steps.astype(np.int64) if np.isfinite(steps).all() and np.abs(steps).max() < 2.0**62 else steps


def flowers(clients: int, liars: int) -> dict[str, Defence]:
    """Flower's strategies, given messages as from nodes."""
    try:
        from flwr.serverapp import strategy
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError as error:
        raise MissingExtra("Flower's strategies", "flower") from error
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # those of Flower's process
    logging.getLogger("flwr").setLevel(logging.ERROR)
    made = {
        "FedAvg (Flower)": strategy.FedAvg(),
        "MultiKrum (Flower)": strategy.MultiKrum(
            num_malicious_nodes=liars, num_nodes_to_select=clients - liars
        ),
        "Bulyan (Flower)": strategy.Bulyan(num_malicious_nodes=(clients - 3) // 4),
        "FedMedian (Flower)": strategy.FedMedian(),
        "FedTrimmedAvg (Flower)": strategy.FedTrimmedAvg(beta=liars / clients),
    }
    return {name: _by(one) for name, one in made.items()}


@contextmanager
def _frozen() -> Iterator[None]:
    """Flower collects garbage for each reply of Bulyan: let it not look at all that is loaded besides."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _by(strategy: Any) -> Defence:
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

    def average(came: Floats) -> Floats | None:
        replies = []
        for node, one in enumerate(came):
            content: dict[str, Any] = {
                "arrays": ArrayRecord({"theta": Array(np.ascontiguousarray(one))}),
                "metrics": MetricRecord({"num-examples": 1}),
            }
            replies.append(Message(RecordDict(content), reply_to=Message(RecordDict(), node + 1, "train")))
        with np.errstate(all="ignore"), _frozen():
            arrays, _ = strategy.aggregate_train(1, replies)
        return None if arrays is None else np.asarray(arrays["theta"].numpy(), dtype=np.float64)

    return average
