"""Flower strategies: the rounds of `server`, over whatever nodes there are.

A node that is gone, silent, refuses or sends anything else than its own report of the round is counted as
such, and the round ends without it. Nothing that a node sends can end the run.
"""

from __future__ import annotations

import math
import os
import secrets
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from logging import INFO
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.federated import payload, tasks
from reticent.federated.flower import records
from reticent.federated.payload import Outcome
from reticent.federated.server import Round, Training
from reticent.files import appearing
from reticent.fleet.operator import Operator
from reticent.ledger.base import Unit

_POLL_S = 0.5


@dataclass(frozen=True)
class Summary:
    """One round that is over.

    Attributes:
        number: of the round, from 0.
        asked: how many nodes got the task.
        counted: how many reports were averaged.
        refused: nodes that said no, on public grounds.
        bad: answers that are no report of this round, or a client's second one or one too many.
        missing: nodes that did not answer, or failed.
        noise: predicted: the standard deviation of a number of the average report, root mean square over
            the numbers, for the worst data; infinite if nothing was counted.
        bytes_each: the length of a report.
        price: what each client paid that is counted.
        unit: in which it paid.
    """

    number: int
    asked: int
    counted: int
    refused: int
    bad: int
    missing: int
    noise: float
    bytes_each: int
    price: float
    unit: str

    def metrics(self) -> MetricRecord:
        """Return the round as a Flower metric record."""
        return MetricRecord({name: value for name, value in asdict(self).items() if name != "unit"})


class ReportStrategy(Strategy):
    """The common part of strategies; each family of tasks has its own subclass, which steps it.

    Args:
        task: Task to learn.
        file: Signed task file, as nodes get it.
        operator: Operator who knows the clients, and in whose ledger each round is entered before it moves
            anything.
        least: a round with fewer reports moves nothing.
        patience_s: Seconds that a round waits for `task.group` nodes that may still report; then it goes on
            with those that are there.
        checkpoint: a file to write after every round.
        resume: go on from `checkpoint`, if it is there.
        on_round: called with every round that is over.

    Attributes:
        training: the state: parameters and the number of the next round.
        rounds: Rounds that are over, of this process.
    """

    training: Any

    def __init__(
        self,
        task: Any,
        file: bytes,
        operator: Operator,
        *,
        least: int = 1,
        patience_s: float = 60.0,
        checkpoint: str | os.PathLike[str] | None = None,
        resume: bool = False,
        on_round: Callable[[Summary], None] | None = None,
    ) -> None:
        self.task, self._file, self._operator = task, file, operator
        self._least = whole("least", least, low=1)
        self._patience_s = real("patience_s", patience_s, low=0.0)
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._on_round = on_round
        self.rounds: list[Summary] = []
        self._asked: Counter[int] = Counter()  # rounds by node
        self._counted: Counter[bytes] = Counter()  # rounds by client
        self._group = 0  # nodes asked in this round
        self._like: ArrayRecord | None = None
        self._is_resumed = False
        if self._checkpoint is not None and resume and self._checkpoint.exists():
            self._load(self._checkpoint)

    @property
    def rounds_left(self) -> int:
        """The number of rounds of the task that are still to be trained."""
        return int(self.task.rounds - self.training.number)

    # What a family says

    @abstractmethod
    def _begin(self, arrays: ArrayRecord) -> None:
        """Take names and shapes from the first arrays, and the start too unless training is under way."""

    @abstractmethod
    def _arrays(self) -> ArrayRecord:
        """Return the parameters of the next round."""

    @abstractmethod
    def _round(self) -> Any:
        """The next round, empty."""

    @abstractmethod
    def _step(self, found: Any | None) -> None:
        """End a round; None if nothing moves."""

    @abstractmethod
    def _facts(self, found: Any) -> dict[str, Any]:
        """Noise, bytes_each, price and unit of a round."""

    @abstractmethod
    def _kept(self) -> dict[str, Any]:
        """The state, as arrays."""

    @abstractmethod
    def _restored(self, kept: Mapping[str, Any]) -> Any:
        """The training that was kept."""

    # What Flower calls

    def summary(self) -> None:
        """Say what is learnt."""
        log(INFO, "\t%s: %s", self.task.name, self.task.purpose)
        log(INFO, "\t%d rounds left, of %d clients each", self.rounds_left, self.task.group)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The task and the parameters for the nodes of a round."""
        number = self.task.checked_round(self.training.number)
        if self._like is None:
            self._begin(arrays)
        nodes = self._picked(grid)
        self._group = len(nodes)
        self._asked.update(nodes)
        content = records.question(self._file, number, self._arrays(), config)
        return [Message(content, node, MessageType.TRAIN, group_id=str(number)) for node in nodes]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average the reports that hold, and step."""
        found, reports, refused, bad = self._round(), [], 0, 0
        for reply in replies:
            if reply.has_error():
                refused += str(reply.error.reason).startswith(records.REFUSED)
                continue
            report = records.payload_of(reply)
            if report is None or self._counted[records.client_of(report)] >= self.task.participations:
                bad += 1
            else:
                reports.append(report)
        for report, outcome in zip(reports, found.add(reports), strict=True):
            self._counted[records.client_of(report)] += outcome is Outcome.COUNTED
        bad += len(reports) - found.clients
        summary = Summary(
            number=found.number,
            asked=self._group,
            counted=found.clients,
            refused=refused,
            bad=bad,
            missing=self._group - found.clients - refused - bad,
            **self._facts(found),
        )
        self._step(found if found.clients >= self._least else None)
        self.rounds.append(summary)
        if self._checkpoint is not None:
            self._save(self._checkpoint)
        if self._on_round is not None:
            self._on_round(summary)
        return self._arrays(), summary.metrics()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody: what clients would say of their data is not paid for. Give `start` an `evaluate_fn`."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing."""
        return None

    def _picked(self, grid: Grid) -> list[int]:
        """A random group of nodes that were asked less often than the task allows."""
        end = time.monotonic() + self._patience_s
        while True:
            free = [node for node in grid.get_node_ids() if self._asked[node] < self.task.participations]
            if len(free) >= self.task.group or time.monotonic() >= end:
                return secrets.SystemRandom().sample(free, min(self.task.group, len(free)))
            time.sleep(_POLL_S)

    # Checkpoints: one file of numpy arrays, no pickle, replaced as a whole.

    def _save(self, path: Path) -> None:
        clients = [(int.from_bytes(who, "big"), times) for who, times in self._counted.items()]
        with appearing(path, mode=0o600) as file:  # who took part is in it
            np.savez(
                file,
                task=np.frombuffer(self.task.id, dtype=np.uint8),
                nodes=np.array(list(self._asked.items()), dtype=np.uint64).reshape(-1, 2),
                clients=np.array(clients, dtype=np.uint64).reshape(-1, 2),
                **self._kept(),
            )

    def _load(self, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as held:
                kept = {name: held[name] for name in held.files}
            training = self._restored(kept)
            asked = Counter({int(node): int(times) for node, times in kept["nodes"]})
            counted = Counter({int(who).to_bytes(8, "big"): int(times) for who, times in kept["clients"]})
            task = kept["task"].tobytes()
        except Exception as error:
            raise ParameterError(f"checkpoint {path.name} must be one that this strategy wrote") from error
        if task != self.task.id:
            raise ParameterError(f"checkpoint {path.name} must be of the same task")
        self.training, self._asked, self._counted, self._is_resumed = training, asked, counted, True


class PrivateFedSGD(ReportStrategy):
    """LDP-FedSGD: the server of a signed task. Options as of `ReportStrategy`."""

    training: Training

    def __init__(self, file: bytes, operator: Operator, **options: Any) -> None:
        task = tasks.task_of(file)
        self.training = Training.begun(task)
        super().__init__(task, file, operator, **options)

    def initial_arrays(self) -> ArrayRecord:
        """Zeros in one array: where training begins, if the app has no shapes of its own."""
        return ArrayRecord([np.zeros(self.task.dimensions)])

    def _begin(self, arrays: ArrayRecord) -> None:
        theta = records.flat(arrays, self.task.dimensions)
        if not self._is_resumed:
            self.training = Training.begun(self.task, theta)
        self._like = arrays

    def _arrays(self) -> ArrayRecord:
        assert self._like is not None
        return records.shaped(self.training.theta, self._like)

    def _round(self) -> Round:
        return Round(self.task, self.training.number, self._operator)

    def _step(self, found: Round | None) -> None:
        self.training.step(np.zeros(self.task.dimensions) if found is None else found.gradient())

    def _facts(self, found: Round) -> dict[str, Any]:
        noise = math.sqrt(float(self.task.noise(found.clients).mean())) if found.clients else math.inf
        return {
            "noise": noise,
            "bytes_each": payload.size(self.task),
            "price": self.task.epsilon,
            "unit": Unit.EPSILON.value,
        }

    def _kept(self) -> dict[str, Any]:
        held = self.training
        return {"theta": held.theta, "velocity": held.velocity, "number": np.int64(held.number)}

    def _restored(self, kept: Mapping[str, Any]) -> Training:
        return Training(self.task, kept["theta"], kept["velocity"], int(kept["number"]))
