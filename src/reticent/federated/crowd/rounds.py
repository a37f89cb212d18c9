"""A crowd's round judged from the chain's history and a store, the same on every machine to the last byte.

Leaders propose what comes out, voters compare it, `verify` does it again. An update that cannot be fetched is
not counted; one that can be, and cannot be opened or is not on the grid, is low.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from eth_utils.crypto import keccak

from reticent.errors import ContentTooLarge, GuaranteeError, ParameterError, StoreError
from reticent.federated.crowd import updates
from reticent.federated.crowd.contract import VOID, Proposal
from reticent.federated.crowd.history import TaskHistory
from reticent.federated.crowd.task_text import CrowdTask
from reticent.federated.crowd.updates import Origin
from reticent.federated.robust import Evaluation, judge
from reticent.federated.robust.averages import Integers
from reticent.federated.robust.grid import Update
from reticent.store import Cid, Store, cid_of

_LEAST = 3  # updates that Multi-Krum needs where nobody lies


@dataclass(frozen=True)
class Place:
    """The location of a task: chain, contract, and its identifier there."""

    chain_id: int
    contract: str
    task: bytes

    def origin(self, number: int, customer: str) -> Origin:
        """Return the origin of a customer's update of a round."""
        return Origin(self.chain_id, self.contract, self.task, number, customer)


@dataclass(frozen=True)
class Judged:
    """The result of a round. Sets of customers are bits by index.

    Attributes:
        file: of the next model.
        cid: CID of that file.
        counted: updates that could be fetched.
        accepted: Counted updates that Multi-Krum accepts.
        low: Counted updates that are rejected and far out, or not in order.
        paid: Accepted updates above the norm floor.
        scores: of Multi-Krum, by index, of those in order.
        refused: Reasons, by index, for updates that are not in order.
        missing: indices of those that could not be fetched.
    """

    file: bytes
    cid: Cid
    counted: int
    accepted: int
    low: int
    paid: int
    scores: Mapping[int, int]
    refused: Mapping[int, str]
    missing: tuple[int, ...]

    def proposal(self, draw: int) -> Proposal:
        """Return the result as the leader of a draw proposes it."""
        return Proposal(draw, keccak(bytes(self.cid)), self.counted, self.accepted, self.low, self.paid)


def model_before(history: TaskHistory, number: int) -> bytes:
    """The CID of the model that a round begins with: of the last result, or of the task's start."""
    for which in reversed(history.rounds[:number]):
        if which.result is not None and which.result != VOID:
            return which.proposals[which.result][1]
    return history.model


def judged(
    task: CrowdTask,
    place: Place,
    history: TaskHistory,
    number: int,
    store: Store,
    *,
    counted: int | None = None,
) -> Judged:
    """Judge a round, once its updates are revealed.

    Args:
        task: Text of the task (`task_text.read`).
        place: Location of the task.
        history: Events of the task on the chain.
        number: Number of the round.
        store: Store of the files.
        counted: only these updates, as bits, of those that can be fetched: what somebody else proposed. None
            for all. Compare it with what comes out: an update of it that cannot be fetched is missing there.

    Returns:
        What everybody must find who fetched the same updates. Of `liars`, as many are assumed as so many
        updates allow, so that nobody stops a round by withholding a file.

    Raises:
        ParameterError: there are fewer than three updates in order, another text than the contract's, or no
            model of the task before this one.
        StoreError: the model before cannot be fetched.
    """
    task.check_terms(history.terms)
    if bytes(task.cid) != history.text:
        raise ParameterError("the text is not the one that the contract keeps")
    fetched, refused, missing = _fetched(task, place, history, number, store, counted)
    places = sorted(fetched)
    if len(places) < _LEAST:
        raise ParameterError(
            f"round {number} has {len(places)} updates that can be fetched, of {_LEAST} at least"
        )
    liars = min(task.liars, (len(places) - _LEAST) // 2)
    found = judge(task.grid, [fetched[at] for at in places], liars, multiple=task.multiple)
    accepted = [places[at] for at in found.accepted]
    low = [at for at, said in zip(places, found.evaluations, strict=True) if said is Evaluation.LOW]
    slight = {places[at] for at in found.slight}
    fetched.clear()  # models may be large
    refused = {places[at]: why for at, why in found.refused.items()} | refused
    file = _next(task, task.model(store, _cid(model_before(history, number))), found.update)
    return Judged(
        file,
        cid_of(file),
        _bits(places),
        _bits(accepted),
        _bits(low),
        _bits([at for at in accepted if at not in slight]),
        {places[at]: score for at, score in found.scores.items()},
        refused,
        tuple(missing),
    )


def _fetched(
    task: CrowdTask, place: Place, history: TaskHistory, number: int, store: Store, counted: int | None
) -> tuple[dict[int, Update | None], dict[int, str], list[int]]:
    """Return the updates by index, None if one cannot be opened; the reasons; and the missing indices."""
    held: dict[int, Update | None] = {}
    refused: dict[int, str] = {}
    missing: list[int] = []
    revealed = history.rounds[number].revealed
    for index, customer in enumerate(history.customers):
        if customer not in revealed or (counted is not None and not counted >> index & 1):
            continue
        cid, key = revealed[customer]
        try:
            held[index] = _update(task, place.origin(number, customer), cid, key, store)
        except StoreError:
            missing.append(index)
        except (GuaranteeError, ParameterError) as error:
            held[index], refused[index] = None, str(error)
    return held, refused, missing


def _update(task: CrowdTask, origin: Origin, cid: bytes, key: bytes, store: Store) -> Update:
    """Return an update. Raises StoreError if it cannot be fetched, other errors if it is no update."""
    try:
        file = store.get(_cid(cid), most=updates.size_of(task.grid))
    except ContentTooLarge as error:
        raise ParameterError(str(error)) from error
    return updates.opened(task.grid, file, key, origin)


def _cid(raw: bytes) -> Cid:
    """Return the CID of bytes on the chain. Bytes that are no CID count as a file that cannot be fetched."""
    try:
        return Cid.of_bytes(raw, "other bytes on the chain")
    except ParameterError as error:
        raise StoreError(str(error)) from error


def _next(task: CrowdTask, model: Integers, update: Integers) -> bytes:
    """Return the file of the last model plus the average: integers, so that no order of adding matters."""
    return task.model_file(np.add(model, update, dtype=np.int64, out=update))


def _bits(places: list[int]) -> int:
    return sum(1 << at for at in places)
