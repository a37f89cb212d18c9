"""A Flower strategy that averages by exact Multi-Krum and keeps reputations of its nodes.

to a node     "arrays"  ArrayRecord   the parameters, one array `theta` of doubles
"config"  ConfigRecord  reticent-round (from 0), reticent-grid [dimensions, steps, norm]
from a node   "report"  ConfigRecord  payload: the update in grid steps, int32, little-endian (`answer`)

Nothing here protects a node's records: what it sends is seen by the server. Send what was made private
before, see `federated.on_device`. A node that is gone, silent or sends anything else than an update of the
grid is counted as such, and the round ends without it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from logging import INFO
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid as Nodes
from flwr.serverapp.strategy import Strategy

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.federated.flower import records
from reticent.federated.robust import Evaluation, Grid, Judgement, judge, reputation
from reticent.federated.robust.averages import Integers
from reticent.files import appearing
from reticent.mechanisms.base import Floats

GRID = "reticent-grid"
_LARGEST = 1 << 62  # of a number of the model, in steps


@dataclass(frozen=True)
class RobustRound:
    """One round that is over.

    Attributes:
        number: from 0.
        asked: how many nodes got the parameters.
        accepted: nodes whose updates were averaged.
        low: nodes that lost reputation, or stay without.
        refused: nodes that sent what is no update.
        missing: how many did not answer, or failed.
        stepped: whether the model moved; not if too few updates held.
    """

    number: int
    asked: int
    accepted: tuple[int, ...]
    low: tuple[int, ...]
    refused: tuple[int, ...]
    missing: int
    stepped: bool

    def metrics(self) -> MetricRecord:
        """Return the round as a Flower metric record."""
        counts = {name: len(getattr(self, name)) for name in ("accepted", "low", "refused")}
        return MetricRecord(
            {"asked": self.asked, "missing": self.missing, "stepped": int(self.stepped), **counts}
        )


def answer(message: Message, grid: Grid, update: Floats) -> Message:
    """Build the reply of a node's app: its update on the grid. Not private by itself."""
    steps = grid.placed(update).astype("<i4").tobytes()
    return Message(records.answer(steps), reply_to=message)


def asked(message: Message) -> tuple[int, Grid, Floats]:
    """The round, the grid and the parameters that a node was sent."""
    config = message.content.config_records[records.CONFIG]
    number, given = config[records.ROUND], config[GRID]
    if not isinstance(number, int) or not isinstance(given, list) or len(given) != 3:
        raise ParameterError(f"the message must hold {records.ROUND} and {GRID}")
    grid = Grid(*[int(one) for one in given])
    return number, grid, records.flat(message.content.array_records[records.ARRAYS], grid.dimensions)


class RobustKrum(Strategy):
    """Multi-Krum on a public grid, with reputations.

    Args:
        grid: Grid of the updates.
        clients: nodes of a round, at random; all that there are, if they are fewer.
        liars: f, how many of them may lie; clients >= 2f + 3.
        most: the largest reputation.
        checkpoint: a file to write after every round, and to go on from if it is there.
        on_round: called with every round that is over.

    Attributes:
        theta: the model in grid steps, the same on every machine.
        reputations: Reputation of each node; a new one has none.
        rounds: Rounds that are over, of this process.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        clients: int,
        liars: int,
        most: int = 100,
        checkpoint: str | os.PathLike[str] | None = None,
        on_round: Callable[[RobustRound, Judgement | None], None] | None = None,
    ) -> None:
        self.grid, self._liars = grid, whole("liars", liars, low=0)
        self._clients = whole("clients", clients, low=2 * self._liars + 3)
        self._most = whole("most", most, low=1, high=reputation.MOST_REPUTATION)
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._on_round = on_round
        self.theta: Integers | None = None
        self.reputations: dict[int, int] = {}
        self.rounds: list[RobustRound] = []
        self._number = 0
        self._asked: set[int] = set()
        if self._checkpoint is not None and self._checkpoint.exists():
            self._load(self._checkpoint)

    def summary(self) -> None:
        """Say how is averaged."""
        log(INFO, "\tMulti-Krum on a grid: %d clients a round, %d may lie", self._clients, self._liars)

    def initial_arrays(self) -> ArrayRecord:
        """Zeros, or where a run that ended goes on."""
        return self._arrays(np.zeros(self.grid.dimensions, np.int64) if self.theta is None else self.theta)

    def _arrays(self, theta: Integers) -> ArrayRecord:
        return ArrayRecord([self.grid.values(theta)])

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Nodes
    ) -> Iterable[Message]:
        """Return the parameters for the nodes of a round."""
        if self.theta is None:
            start = records.flat(arrays, self.grid.dimensions) * self.grid.steps
            if not np.isfinite(start).all() or np.abs(start).max() > _LARGEST:
                raise ParameterError("arrays must hold finite numbers that the grid reaches")
            self.theta = np.rint(start).astype(np.int64)
        nodes = list(grid.get_node_ids())
        picked = secrets.SystemRandom().sample(nodes, min(self._clients, len(nodes)))
        self._asked = set(picked)
        told = [self.grid.dimensions, self.grid.steps, self.grid.norm]
        content: dict[str, Any] = {
            records.ARRAYS: self._arrays(self.theta),
            records.CONFIG: ConfigRecord({**config, records.ROUND: self._number, GRID: told}),
        }
        return [Message(RecordDict(content), node, MessageType.TRAIN) for node in picked]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Judge what came, in the order of the nodes' numbers; step; change reputations."""
        assert self.theta is not None
        came: dict[int, Any] = {}
        for reply in replies:
            node = reply.metadata.src_node_id
            if node in self._asked and not reply.has_error():
                came.setdefault(node, self._update(reply))
        nodes = sorted(came)
        judgement = self._judged([came[node] for node in nodes])
        said = dict(zip(nodes, judgement.evaluations, strict=True)) if judgement else {}
        if judgement is not None:
            self.theta = self.theta + judgement.update
            self._remember(said)
        found = RobustRound(
            number=self._number,
            asked=len(self._asked),
            accepted=tuple(nodes[place] for place in judgement.accepted) if judgement else (),
            low=tuple(node for node, one in said.items() if one is Evaluation.LOW),
            refused=tuple(node for node in nodes if came[node] is None)
            if judgement is None
            else tuple(nodes[place] for place in judgement.refused),
            missing=len(self._asked) - len(nodes),
            stepped=judgement is not None,
        )
        self._number += 1
        self._asked = set()
        self.rounds.append(found)
        if self._checkpoint is not None:
            self._save(self._checkpoint)
        if self._on_round is not None:
            self._on_round(found, judgement)
        return self._arrays(self.theta), found.metrics()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Nodes
    ) -> Iterable[Message]:
        """Nobody: what nodes would say of their data is not paid for. Give `start` an `evaluate_fn`."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing."""
        return None

    def _update(self, reply: Message) -> Any:
        """The update of a reply; None for anything else, whatever it is."""
        payload = records.payload_of(reply)
        if payload is None or len(payload) != 4 * self.grid.dimensions:
            return None
        return np.frombuffer(payload, dtype="<i4")

    def _judged(self, updates: list[Any]) -> Judgement | None:
        try:
            return judge(self.grid, updates, self._liars)
        except ParameterError:  # too few
            return None

    def _remember(self, said: dict[int, Evaluation]) -> None:
        held = {node: self.reputations.get(node, reputation.LOWEST) for node in said}
        h = reputation.average(list(held.values()))
        for node, evaluation in said.items():
            self.reputations[node] = reputation.changed(held[node], evaluation, average=h, most=self._most)

    # Checkpoints: one file of numpy arrays, no pickle, replaced as a whole.

    def _terms(self) -> list[int]:
        return [
            self.grid.dimensions,
            self.grid.steps,
            self.grid.norm,
            self.grid.floor,
            self._liars,
            self._most,
        ]

    def _save(self, path: Path) -> None:
        nodes = list(self.reputations)
        with appearing(path, mode=0o600) as file:  # who took part is in it
            np.savez(
                file,
                terms=np.array(self._terms(), dtype=np.int64),
                theta=np.asarray(self.theta, dtype=np.int64),
                number=np.int64(self._number),
                nodes=np.array(nodes, dtype=np.uint64),
                reputations=np.array([self.reputations[node] for node in nodes], dtype=np.int64),
            )

    def _load(self, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as held:
                kept = {name: held[name] for name in held.files}
            theta, number = kept["theta"].astype(np.int64, casting="safe"), int(kept["number"])
            pairs = zip(kept["nodes"].tolist(), kept["reputations"].tolist(), strict=True)
            reputations = {int(node): int(one) for node, one in pairs}
            terms = kept["terms"].tolist()
        except Exception as error:
            raise ParameterError(f"checkpoint {path.name} must be one that this strategy wrote") from error
        if terms != self._terms() or theta.shape != (self.grid.dimensions,):
            raise ParameterError(f"checkpoint {path.name} must be of the same grid and terms")
        self.theta, self._number, self.reputations = theta, number, reputations
