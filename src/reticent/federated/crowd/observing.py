"""The view of a verified task for an observer: rounds, customers, miners, in words and numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from reticent.errors import ParameterError, StoreError
from reticent.federated.crowd.contract import VOID, Proposal, Status
from reticent.federated.crowd.history import RoundHistory
from reticent.federated.crowd.replay import Task
from reticent.federated.crowd.verify import Report
from reticent.store import Cid, Store

STATUS = {
    Status.COLLECTING: "collecting updates",
    Status.WAITING: "waiting for another draw",
    Status.JUDGING: "judging",
    Status.DECIDED: "decided, may be disputed",
    Status.DISPUTED: "disputed",
    Status.APPEALING: "judged by the larger committee",
    Status.DONE: "over",
    Status.CANCELLED: "cancelled",
}


@dataclass(frozen=True)
class RoundSeen:
    """A round as an observer sees it.

    Attributes:
        number: Number of the round, from 0.
        state: State of the round in words.
        committed: Number of customers who committed; the next fields count customers alike.
        accuracy: Accuracy of the round's model on the public test rows; None where it is not known.
        is_judged_again: True if the sets and the model of the round were computed again from the updates.
    """

    number: int
    state: str
    committed: int
    revealed: int
    accepted: int
    kept: int
    low: int
    uncounted: int
    draws: int
    seats: int
    votes: int
    leader: str
    model: str
    accuracy: float | None
    is_judged_again: bool


@dataclass(frozen=True)
class CustomerSeen:
    """A customer: the mark of each round's update, the reputation now, and the pay so far."""

    index: int
    address: str
    marks: tuple[str, ...]
    reputation: int
    pay: int


@dataclass(frozen=True)
class MinerSeen:
    """A miner: stake now, seats in each round, and fees so far."""

    address: str
    units: int
    seats: tuple[int, ...]
    fees: int


@dataclass(frozen=True)
class Seen:
    """A verified task as an observer sees it.

    Attributes:
        start: Accuracy of the model that the task began with, if it is known.
        without_accuracy: Reason why there is no accuracy, in words; empty if there is one.
    """

    status: str
    is_over: bool
    block: int
    pool: int
    token: str
    rounds: tuple[RoundSeen, ...]
    customers: tuple[CustomerSeen, ...]
    miners: tuple[MinerSeen, ...]
    start: float | None
    without_accuracy: str
    unchecked: tuple[str, ...] = field(default=())
    remarks: tuple[str, ...] = field(default=())


def seen(report: Report, task: bytes, store: Store) -> Seen:
    """Return the view of a task that was verified."""
    held, history = report.state.tasks[task], report.history
    running = () if held.status >= Status.DONE else (held.number,)
    numbers = [*range(held.number), *running]
    if held.status == Status.CANCELLED:
        numbers.append(held.number)
    accuracy = _Accuracy(report, store)
    return Seen(
        STATUS[held.status],
        held.status >= Status.DONE,
        report.last,
        held.pool,
        held.token,
        tuple(_round(report, task, held, number, accuracy) for number in numbers),
        tuple(_customer(report, held, index, numbers) for index in range(len(history.customers))),
        tuple(_miners(report, task, numbers)),
        accuracy.of(history.model),
        accuracy.without,
        tuple(report.unchecked),
        tuple(report.remarks),
    )


def _round(report: Report, task: bytes, held: Task, number: int, accuracy: _Accuracy) -> RoundSeen:
    which = report.history.rounds[number]
    proposal, leader, model = _decided(which)
    draws = {at: one for at, one in report.chain.draws.items() if (one.task, one.round) == (task, number)}
    draw = None if proposal is None else draws[proposal.draw]
    voted = set() if draw is None or which.result is None else draw.votes.get(which.result, set())
    counted, accepted, low = (0, 0, 0) if proposal is None else proposal.words()[2:5]
    return RoundSeen(
        number,
        _state(held, which, number),
        len(which.commits),
        len(which.revealed),
        accepted.bit_count(),
        (counted & ~accepted & ~low).bit_count(),
        low.bit_count(),
        0 if proposal is None else len(which.revealed) - counted.bit_count(),
        len(draws),
        sum(sum(one.seats.values()) for one in ([draw] if draw else list(draws.values())[-1:])),
        0 if draw is None else sum(draw.seats[miner] for miner in voted),
        leader,
        "" if model is None else _name(model),
        None if model is None else accuracy.of(model),
        number in report.rounds,
    )


def _decided(which: RoundHistory) -> tuple[Proposal | None, str, bytes | None]:
    if which.result is None or which.result == VOID:
        return None, "", None
    leader, model, proposal = which.proposals[which.result]
    return proposal, leader, model


def _state(held: Task, which: RoundHistory, number: int) -> str:
    if number == held.number:
        return STATUS[held.status]
    return "void, too few updates" if which.result == VOID else "closed"


def _name(cid: bytes) -> str:
    try:
        return str(Cid.of_bytes(cid))
    except ParameterError:
        return "no CID"


def _customer(report: Report, held: Task, index: int, numbers: list[int]) -> CustomerSeen:
    address = report.history.customers[index]
    marks, pay = [], 0
    for number in numbers:
        which = report.history.rounds[number]
        marks.append(_mark(which, address, index))
        pay += which.settled.get(address, (0, 0))[1]
    points = report.state.reputations[held.maker, address.lower()]
    return CustomerSeen(index, address, tuple(marks), points, pay)


def _mark(which: RoundHistory, address: str, index: int) -> str:
    """Return the word for a customer's update in a round."""
    proposal = _decided(which)[0]
    if address not in which.revealed:
        return "committed" if address in which.commits else "none"
    if proposal is None:
        return "revealed"
    for name, word in (("accepted", proposal.accepted), ("low", proposal.low), ("kept", proposal.counted)):
        if word >> index & 1:
            return name
    return "not counted"


def _miners(report: Report, task: bytes, numbers: list[int]) -> list[MinerSeen]:
    seats: dict[str, dict[int, int]] = {}
    for draw in report.chain.draws.values():
        if draw.task == task:
            for miner, count in draw.seats.items():
                held = seats.setdefault(miner, {})
                held[draw.round] = held.get(draw.round, 0) + count
    found = []
    for miner, taken in sorted(seats.items()):
        fees = sum(one.rewarded.get(miner, 0) for one in report.history.rounds)
        for one in report.history.rounds:
            if one.is_closed and _decided(one)[1] == miner:
                fees += report.history.prices.leader_fee
        units = report.chain.units.get(miner, 0)
        found.append(MinerSeen(miner, units, tuple(taken.get(number, 0) for number in numbers), fees))
    return found


class _Accuracy:
    """The accuracy of models on the public test rows; each model is fetched once."""

    def __init__(self, report: Report, store: Store) -> None:
        self._text, self._store = report.text, store
        self._known: dict[bytes, float | None] = {}
        self.without = ""
        if self._text is None:
            self.without = "The task's text is gone, so no accuracy is known."
        elif self._text.test is None:
            self.without = "The task names no public test rows, so no accuracy is known."

    def of(self, model: bytes) -> float | None:
        """The share of rows that are classified rightly."""
        if self.without or self._text is None:
            return None
        if model not in self._known:
            self._known[model] = self._measured(model)
        return self._known[model]

    def _measured(self, model: bytes) -> float | None:
        assert self._text is not None
        try:
            return self._text.accuracy(self._store, self._text.model(self._store, Cid.of_bytes(model)))
        except (StoreError, ParameterError) as error:
            self.without = f"The accuracy of a model is not known: {error}."
            return None
