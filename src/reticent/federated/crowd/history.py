"""The state that the events of FederatedTask add up to, with the contract's arithmetic done again.

`History` is given to `chain.log.ChainLog`. It believes the chain who called and when; what follows from that
(order, sets, quorums, averages, reputations, pay, fees) it computes itself, and a contract or a node that
says otherwise is contradicted by name. Proofs of seats are in the calls, not in events: they are not
checked here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from reticent.chain.contracts import Event
from reticent.errors import LedgerDamaged
from reticent.federated.crowd.commitments import NEWEST, RoundCommitments
from reticent.federated.crowd.contract import VOID, Proposal, commitment, proposal_id
from reticent.federated.crowd.lottery.seats import seats
from reticent.federated.crowd.terms import MOST_REPUTATION, Prices, Terms, pool
from reticent.federated.robust.reputation import LOWEST, Evaluation, average, changed


@dataclass
class DrawHistory:
    """A draw: who took how many seats, what was proposed and who voted for it."""

    task: bytes
    round: int
    stake: int
    expected: int
    seats: dict[str, int] = field(default_factory=dict)
    votes: dict[bytes, set[str]] = field(default_factory=dict)


@dataclass
class RoundHistory:
    """A round: its commitments, what was revealed, proposals by their hash, and the result."""

    commits: RoundCommitments = field(default_factory=RoundCommitments)
    revealed: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)  # CID and key
    proposals: dict[bytes, tuple[str, bytes, Proposal]] = field(default_factory=dict)  # leader, CID, words
    result: bytes | None = None
    average: int = 0
    is_closed: bool = False
    settled: dict[str, tuple[int, int]] = field(default_factory=dict)  # reputation, pay
    rewarded: dict[str, int] = field(default_factory=dict)


@dataclass
class TaskHistory:
    """A task as it was posted, and what became of it."""

    manufacturer: str
    token: str
    text: bytes
    model: bytes
    terms: Terms
    prices: Prices
    pool: int
    customers: list[str] = field(default_factory=list)  # by index
    rounds: list[RoundHistory] = field(default_factory=lambda: [RoundHistory()])
    is_cancelled: bool = False

    def number(self) -> int:
        """Return the number of the round that runs, or would be next."""
        return len(self.rounds) - 1


class History:
    """Tasks, draws, stakes and reputations by the events so far.

    Args:
        version: Version of the contract that wrote them.
    """

    def __init__(self, version: int = NEWEST) -> None:
        self._version = version
        self.tasks: dict[bytes, TaskHistory] = {}
        self.draws: dict[int, DrawHistory] = {}
        self.units: dict[str, int] = {}  # of each miner
        self.reputations: dict[tuple[str, str], int] = {}  # by manufacturer and customer
        self.overturned: dict[int, bytes] = {}  # the result that fell, by its draw
        self.slashed: set[tuple[int, str]] = set()  # draw and miner

    def apply(self, event: Event) -> None:
        """Take in the next event. Raises LedgerDamaged if it contradicts those before or the rules."""
        taken = _TAKEN.get(event.name)
        if taken is not None:
            taken(self, event.fields)

    def _task(self, fields: dict[str, Any]) -> TaskHistory:
        found = self.tasks.get(fields["task"])
        _agree(found is not None, "a task that was never posted")
        return found  # type: ignore[return-value]

    def _posted(self, fields: dict[str, Any]) -> None:
        terms, prices = Terms(*fields["terms"]), Prices(*fields["prices"])
        _agree(fields["task"] not in self.tasks, "a task posted twice")
        _agree(fields["pool"] == pool(terms, prices), "a pool that is not the dearest course")
        maker, token = _address(fields["manufacturer"]), _address(fields["token"])
        posted = TaskHistory(maker, token, fields["text"], fields["model"], terms, prices, fields["pool"])
        posted.rounds = [self._new_round()]
        self.tasks[fields["task"]] = posted

    def _new_round(self) -> RoundHistory:
        return RoundHistory(RoundCommitments(self._version))

    def _applied(self, fields: dict[str, Any]) -> None:
        task, customer = self._task(fields), _address(fields["customer"])
        _agree(fields["index"] == len(task.customers) < task.terms.people, "a customer's index")
        _agree(customer not in task.customers, "a customer twice")
        task.customers.append(customer)
        self.reputations.setdefault((task.manufacturer, customer), LOWEST)

    def _enrolled(self, fields: dict[str, Any]) -> None:
        miner = _address(fields["miner"])
        _agree(miner not in self.units and fields["units"] > 0, "a stake twice, or of nothing")
        self.units[miner] = fields["units"]

    def _gone(self, fields: dict[str, Any]) -> None:
        units = self.units.pop(_address(fields["miner"]), None)
        _agree(units == fields["units"], "another stake than was enrolled")

    def _slashed(self, fields: dict[str, Any]) -> None:
        draw, miner = fields["draw"], _address(fields["miner"])
        fallen = self.overturned.get(draw)
        _agree(
            fallen is not None and miner in self.draws[draw].votes.get(fallen, ()), "a stake lost for nothing"
        )
        _agree((draw, miner) not in self.slashed, "a stake lost twice")
        self._gone(fields)
        self.slashed.add((draw, miner))

    def _committed(self, fields: dict[str, Any]) -> None:
        task, customer = self._task(fields), _address(fields["customer"])
        _agree(fields["round"] == task.number(), "a commitment to another round")
        _agree(customer in task.customers, "a commitment of nobody's")
        _agree(task.rounds[-1].commits.may_commit(customer), "a second commitment")
        task.rounds[-1].commits.add(customer, fields["commitment"])

    def _revealed(self, fields: dict[str, Any]) -> None:
        task, customer, number = self._task(fields), _address(fields["customer"]), fields["round"]
        _agree(number == task.number(), "an update of another round")
        bound = commitment(fields["task"], number, customer, fields["cid"], fields["key"])
        _agree(task.rounds[-1].commits.is_bound(customer, bound), "an update that was not committed to")
        _agree(task.customers.index(customer) == fields["index"], "a customer's index")
        _agree(customer not in task.rounds[-1].revealed, "a second update")
        task.rounds[-1].revealed[customer] = fields["cid"], fields["key"]

    def _seeded(self, fields: dict[str, Any]) -> None:
        task, number = self._task(fields), fields["round"]
        _agree(number == task.number() and fields["draw"] not in self.draws, "a draw of another round")
        appeal = task.rounds[-1].result is not None
        _agree(fields["expected"] == task.terms.expected * (3 if appeal else 1), "seats of a committee")
        drawn = DrawHistory(fields["task"], number, fields["stake"], fields["expected"])
        self.draws[fields["draw"]] = drawn

    def _seated(self, fields: dict[str, Any]) -> None:
        draw, miner = self.draws.get(fields["draw"]), _address(fields["miner"])
        _agree(draw is not None and miner not in draw.seats, "seats out of a draw, or twice")
        assert draw is not None
        units = self.units.get(miner, 0)
        _agree(0 < units <= draw.stake, "seats without a stake")
        right = seats(fields["output"], units, draw.stake, draw.expected)
        _agree(fields["seats"] == right > 0, "seats that the lot does not give")
        draw.seats[miner] = right

    def _proposed(self, fields: dict[str, Any]) -> None:
        task, number = self._task(fields), self._task(fields).number()
        words = tuple(fields[name] for name in ("counted", "accepted", "low", "paid"))
        proposal = Proposal(fields["draw"], keccak(fields["cid"]), *words)
        named = proposal_id(fields["task"], number, proposal)
        _agree(named == fields["proposal"], "a proposal's hash")
        leader, before = _address(fields["leader"]), task.rounds[-1].proposals.get(named)
        _agree(before is None or before[0] != leader, "a proposal twice")
        counted, accepted, low, paid = words
        shown = sum(1 << task.customers.index(one) for one in task.rounds[-1].revealed)
        fits = not (
            counted & ~shown or accepted & ~counted or low & (accepted | ~counted) or paid & ~accepted
        )
        _agree(fits, "sets of updates that do not fit")
        task.rounds[-1].proposals[named] = leader, fields["cid"], proposal
        # The second leader may say the same as the first; votes of the first turn do not count for it.
        if (draw := self.draws.get(fields["draw"])) is not None:
            draw.votes.pop(named, None)

    def _voted(self, fields: dict[str, Any]) -> None:
        draw, miner = self.draws.get(fields["draw"]), _address(fields["miner"])
        _agree(draw is not None and draw.seats.get(miner) == fields["seats"], "a vote with other seats")
        assert draw is not None
        votes = draw.votes.setdefault(fields["proposal"], set())
        _agree(miner not in votes, "a second vote")
        votes.add(miner)

    def _decided(self, fields: dict[str, Any]) -> None:
        task = self._task(fields)
        now, named = task.rounds[-1], fields["proposal"]
        _agree(fields["round"] == task.number() and named in now.proposals, "a result that nobody proposed")
        _agree(now.result is None, "a second result")
        self._check_quorum(now.proposals[named][2].draw, named)
        mine = [one for (maker, _), one in self.reputations.items() if maker == task.manufacturer]
        _agree(fields["average"] == average(mine), "another average reputation")
        now.result, now.average = named, fields["average"]

    def _check_quorum(self, number: int, named: bytes) -> None:
        draw = self.draws[number]
        votes = sum(draw.seats[miner] for miner in draw.votes.get(named, ()))
        _agree(3 * votes > 2 * sum(draw.seats.values()), "a result without two thirds of the seats")

    def _overturned(self, fields: dict[str, Any]) -> None:
        now = self._task(fields).rounds[-1]
        _agree(now.result is not None, "nothing to overturn")
        assert now.result is not None
        last = max(number for number, draw in self.draws.items() if draw.task == fields["task"])
        self._check_quorum(last, now.result)
        _agree(now.proposals[now.result][2].draw == fields["draw"], "another draw than was overturned")
        self.overturned[fields["draw"]] = now.result
        now.result = None

    def _closed(self, fields: dict[str, Any]) -> None:
        task = self._task(fields)
        now = task.rounds[-1]
        _agree(fields["round"] == task.number(), "the end of another round")
        if fields["result"] == VOID:
            _agree(len(now.revealed) < 2 * task.terms.f + 3, "a round called void that was not")
        else:
            _agree(fields["result"] == now.result, "another result than was decided")
            task.pool -= task.prices.leader_fee
        now.result, now.is_closed = fields["result"], True
        task.rounds.append(self._new_round())

    def _settled(self, fields: dict[str, Any]) -> None:
        task, customer, number = self._task(fields), _address(fields["customer"]), fields["round"]
        _agree(number < len(task.rounds) and task.rounds[number].is_closed, "a round that is not closed")
        which = task.rounds[number]
        _agree(customer in which.revealed and customer not in which.settled, "a customer settled twice")
        reputation, pay = self._due(task, which, customer)
        _agree(fields["reputation"] == reputation, "another reputation")
        _agree(fields["pay"] == min(pay, task.pool), "another pay")
        task.pool -= fields["pay"]
        self.reputations[task.manufacturer, customer] = reputation
        which.settled[customer] = reputation, fields["pay"]

    def _due(self, task: TaskHistory, which: RoundHistory, customer: str) -> tuple[int, int]:
        """Return the reputation and the pay of a customer by the rules."""
        before = self.reputations[task.manufacturer, customer]
        if which.result is None or which.result == VOID:
            return before, 0
        proposal, bit = which.proposals[which.result][2], 1 << task.customers.index(customer)
        judged = (
            Evaluation.HIGH
            if proposal.accepted & bit
            else Evaluation.LOW
            if proposal.low & bit
            else Evaluation.KEPT
        )
        reputation = changed(before, judged, average=which.average, most=MOST_REPUTATION)
        if not proposal.paid & bit:
            return reputation, 0
        bonus = task.prices.bonus if which.commits.is_early(customer) else 0
        return reputation, reputation * (task.prices.unit + bonus)

    def _rewarded(self, fields: dict[str, Any]) -> None:
        task, miner, number = self._task(fields), _address(fields["miner"]), fields["round"]
        _agree(number < len(task.rounds) and task.rounds[number].is_closed, "a round that is not closed")
        which = task.rounds[number]
        _agree(which.result in which.proposals and miner not in which.rewarded, "a seat rewarded twice")
        assert which.result is not None
        draw = self.draws[which.proposals[which.result][2].draw]
        _agree(miner in draw.votes.get(which.result, ()), "a fee for no vote")
        fee = task.prices.committee_fee * draw.seats[miner] // sum(draw.seats.values())
        _agree(fields["fee"] == min(fee, task.pool), "another fee")
        task.pool -= fields["fee"]
        which.rewarded[miner] = fields["fee"]

    def _cancelled(self, fields: dict[str, Any]) -> None:
        self._task(fields).is_cancelled = True

    def _reclaimed(self, fields: dict[str, Any]) -> None:
        task = self._task(fields)
        _agree(fields["amount"] == task.pool, "another rest of the pool")
        task.pool = 0


def _agree(holds: bool, otherwise: str) -> None:
    if not holds:
        raise LedgerDamaged(f"the events of the crowd's contract contradict themselves: {otherwise}")


def _address(given: str) -> str:
    return str(to_checksum_address(given))


_TAKEN = {
    "Posted": History._posted,
    "Applied": History._applied,
    "Enrolled": History._enrolled,
    "Released": History._gone,
    "Slashed": History._slashed,
    "Committed": History._committed,
    "Revealed": History._revealed,
    "Seeded": History._seeded,
    "Seated": History._seated,
    "Proposed": History._proposed,
    "Voted": History._voted,
    "Decided": History._decided,
    "Overturned": History._overturned,
    "Closed": History._closed,
    "Settled": History._settled,
    "Rewarded": History._rewarded,
    "Cancelled": History._cancelled,
    "Reclaimed": History._reclaimed,
}
