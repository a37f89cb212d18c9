"""Verification of a crowd's task from chain and store alone; the first contradiction is named.

1. Every transaction was signed by its sender as it stands, and lies in the block that it is said to be in.
2. `replay` does every call again, by the contract's rules and by each proof of a seat: order, windows, seeds,
   stakes, seats, leaders, sets, quorums, averages, reputations, pay, fees. Events must say the same.
3. The contract's storage and its balance at the end are what the calls add up to, so no call was left out.
4. Every result is judged again from the updates in the store: the sets and the model's bytes must come out.

Which chain of blocks is the right one, only the node can say; nobody can say whether a file could be fetched
when it was judged. Everything that cannot be checked is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from reticent.chain.contracts import Event
from reticent.errors import (
    ChainError,
    ContentForged,
    LedgerDamaged,
    ParameterError,
    ReticentError,
    StoreError,
)
from reticent.federated.crowd import task_text
from reticent.federated.crowd.commitments import NEWEST, OLD_VERSION
from reticent.federated.crowd.contract import NOBODY, VOID, Proposal, artifact
from reticent.federated.crowd.evidence import Called, Evidence, Question
from reticent.federated.crowd.history import History, RoundHistory, TaskHistory
from reticent.federated.crowd.replay import Refused, Replay, Said, Task
from reticent.federated.crowd.rounds import Judged, Place, judged
from reticent.federated.crowd.task_text import CrowdTask
from reticent.store import Cid, Store

_NONE = (1 << 256) - 1  # the second leader where there is one only
_WITHIN = ("post", "withdraw")  # calls that call others, in which somebody may call back


class Contradiction(LedgerDamaged):
    """A contradiction between the chain's record and the rules, in one line."""


@dataclass
class Report:
    """The outcome of a verification.

    Attributes:
        calls: transactions that were done again.
        last: Number of the last block.
        chain: State that all events add up to.
        state: State that all calls add up to.
        history: History of the task.
        text: Text of the task; None if it is gone.
        rounds: Result of each round that was judged again, by number.
        unchecked: Things that could not be checked, and why.
        remarks: Things that are odd, and contradict nothing.
    """

    calls: int
    last: int
    chain: History
    state: Replay
    history: TaskHistory
    text: CrowdTask | None = None
    rounds: dict[int, Judged] = field(default_factory=dict)
    unchecked: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def verify(evidence: Evidence, task: bytes, store: Store) -> Report:
    """Verify a task by doing it again.

    Args:
        evidence: Record of the chain (`evidence.read`).
        task: Identifier of the task.
        store: Store of the files.

    Raises:
        Contradiction: The first contradiction, by name.
        ParameterError: there is no such task.
    """
    unchecked: list[str] = []
    done_again, history = _done_again(evidence, unchecked)
    if task not in history.tasks:
        raise ParameterError(f"there is no task {task.hex()} in this contract")
    _check_state(done_again, evidence, unchecked, done_again.tasks[task].token)
    held = history.tasks[task]
    report = Report(len(evidence.calls), evidence.last, history, done_again, held, unchecked=unchecked)
    if evidence.version < NEWEST:
        report.remarks.append(f"the contract is of version {evidence.version}: {OLD_VERSION}")
    _check_files(report, Place(evidence.chain_id, evidence.address, task), store)
    return report


# Calls


def _done_again(evidence: Evidence, unchecked: list[str]) -> tuple[Replay, History]:
    """Apply every call by the rules; return that state, and the one that the events add up to."""

    def blockhash(number: int) -> bytes:
        if number not in evidence.blocks:
            raise Contradiction(f"block {number}, whose hash is a seed, is not in the chain")
        return bytes.fromhex(evidence.blocks[number].removeprefix("0x"))

    state = Replay(evidence.chain_id, evidence.address, evidence.unit, blockhash, evidence.version)
    history, last, seen = History(evidence.version), (-1, -1, -1), set()
    unsigned, indirect = 0, 0
    for called in evidence.calls:
        _check_place(evidence, called)
        at = (called.transaction.block, called.transaction.position, called.events[0].log.index)
        _agree(at > last and called.transaction.hash not in seen, called, "it is out of its order")
        seen.add(called.transaction.hash)
        last = (*at[:2], called.events[-1].log.index)
        unsigned += called.transaction.signed is None
        indirect += called.transaction.to != evidence.address
        _do_again(state, evidence, called)
        for event in called.events:
            try:
                history.apply(event)
            except ReticentError as error:
                raise Contradiction(f"{_named(called)}: {error}") from error
    if unsigned:
        unchecked.append(f"signatures of {unsigned} transactions, which a rollup made and nobody signed")
    if indirect:
        unchecked.append(
            f"arguments of {indirect} calls by way of other contracts: gates' signatures, proofs"
        )
    return state, history


def _check_place(evidence: Evidence, called: Called) -> None:
    """Check that the sender signed a transaction, and that it lies in its block."""
    one = called.transaction
    _agree(one.is_signed(evidence.chain_id) is not False, called, "its sender did not sign it so")
    _agree(evidence.blocks.get(one.block) == one.block_hash, called, f"it is not in block {one.block}")
    _agree(bool(called.events) and one.block <= evidence.last, called, "it wrote nothing")
    index = -1
    for event in called.events:
        log = event.log
        here = (log.block, log.block_hash.lower(), log.transaction.lower(), log.address.lower())
        same = here == (one.block, one.block_hash, one.hash, evidence.address)
        _agree(same, called, f"its event {event.name} is of another place")
        _agree(log.index > index, called, f"its event {event.name} is out of its order")
        index = log.index


def _do_again(state: Replay, evidence: Evidence, called: Called) -> None:
    """Check that a transaction wrote what its call must write."""
    one, events = called.transaction, list(called.events)
    if one.to == evidence.address:
        try:
            function, arguments = artifact().called(one.data)
        except ChainError as error:
            raise Contradiction(f"{_named(called)}: {error}") from error
        events = _expect(state, called, events, one.sender, function, arguments, one.value_wei)
        _agree(not events or function in _WITHIN, called, "it wrote more than its call does")
    while events:  # by way of another contract: what was called follows from what was written
        events = _expect(state, called, events, *_meant(state, events[0]))


def _expect(
    state: Replay,
    called: Called,
    events: list[Event],
    sender: str,
    function: str,
    arguments: tuple[Any, ...],
    worth: int,
) -> list[Event]:
    """Return the events that are left when those of a call are taken off."""
    try:
        said: Said = state.call(called.transaction.block, sender, function, *arguments, worth=worth)[1]
    except Refused as refusal:
        raise Contradiction(f"{_named(called)}: {function} would have been refused: {refusal}") from refusal
    except (
        ReticentError,
        ArithmeticError,
        AttributeError,
        KeyError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        if isinstance(error, Contradiction):
            raise
        raise Contradiction(f"{_named(called)}: {function} cannot be done again") from error
    _agree(len(events) >= len(said), called, f"{function} wrote less than it does")
    for event, (name, fields) in zip(events, said, strict=False):
        _agree(event.name == name, called, f"{function} writes {name}, not {event.name}")
        for key, right in fields.items():
            _agree(event.fields.get(key) == right, called, f"{name} has another {key} than follows")
        _agree(set(event.fields) == set(fields), called, f"{name} has other fields")
    return events[len(said) :]


def _meant(state: Replay, event: Event) -> tuple[str, str, tuple[Any, ...], int]:
    """Return the call that an event follows from: sender, function, arguments and wei."""
    of = event.fields
    task = of.get("task", b"")
    held = state.tasks.get(task)
    match event.name:
        case "Posted":
            given = tuple(of[name] for name in ("text", "model", "terms", "prices", "token", "gate"))
            return of["manufacturer"], "post", given, of["pool"] if of["token"] == NOBODY else 0
        case "Applied":
            return of["customer"], "apply", (task, None, 0, 0), 0
        case "Enrolled":
            return of["miner"], "enrol", (), of["units"] * state.unit
        case "Left" | "Released":
            return of["miner"], {"Left": "leave", "Released": "release"}[event.name], (), 0
        case "Committed":
            return of["customer"], "commit", (task, of["commitment"]), 0
        case "Revealed":
            return of["customer"], "reveal", (task, of["cid"], of["key"]), 0
        case "Seeded":
            return NOBODY, "seed", (task, state.change_before(of["fixed"])), 0
        case "Seated":
            return of["miner"], "seat", (task, None, of["output"], ()), 0
        case "Proposed":
            sets = tuple(of[name] for name in ("cid", "counted", "accepted", "low", "paid"))
            return of["leader"], "propose", (task, *sets), 0
        case "Voted":
            return of["miner"], "vote", (task, of["proposal"]), 0
        case "Disputed":
            return of["disputer"], "dispute", (task,), held.prices.deposit if held else 0
        case "Closed" | "Redrawn" | "Cancelled" | "Reclaimed":
            verb = {"Closed": "close", "Reclaimed": "reclaim"}.get(event.name, "redraw")
            return NOBODY, verb, (task,), 0
        case "Settled":
            return NOBODY, "settle", (task, of["round"], of["customer"], _result(state, task, of["round"])), 0
        case "Rewarded":
            return NOBODY, "reward", (task, of["round"], of["miner"]), 0
        case "Slashed":
            return NOBODY, "slash", (of["draw"], of["miner"]), 0
        case "Withdrawn":
            return of["who"], "withdraw", (of["token"],), 0
    raise Contradiction(f"the event {event.name} follows from no call")


def _result(state: Replay, task: bytes, number: int) -> tuple[Any, ...]:
    """Return the fields of the proposal that a round decided; any, where the round is void."""
    held = state.tasks.get(task)
    named = held.rounds[number].result if held and number < len(held.rounds) else None
    return state.proposed.get(named or b"", (0, bytes(32), 0, 0, 0, 0))


# The state at the end


def _check_state(state: Replay, evidence: Evidence, unchecked: list[str], own: str = NOBODY) -> None:
    """Check that the contract's storage is what the calls add up to, and that it has what it owes.

    The poster of a task chooses its token, which may say anything of a balance: a claim of the token of other
    tasks is no contradiction in one that is paid in `own`.
    """
    expected = dict(_storage(state))
    asked = list(expected)
    for (view, arguments), told in zip(asked, evidence.views(asked), strict=True):
        if told != expected[view, arguments]:
            shown = ", ".join(one.hex() if isinstance(one, bytes) else str(one) for one in arguments)
            raise Contradiction(f"the contract's {view}({shown}) is not what its calls add up to")
    for token in sorted({NOBODY, *(task.token for task in state.tasks.values())}):
        has = evidence.balance(token)
        if has is None:
            unchecked.append(f"the balance in the token {token}, which does not answer")
        elif has < state.holds(token):
            what = "coin" if token == NOBODY else f"the token {token}"
            line = f"the contract has {has} of {what}, and owes and holds {state.holds(token)}"
            if token in (NOBODY, own):
                raise Contradiction(line)
            unchecked.append(f"other tasks' token: {line}")


def _storage(state: Replay) -> Iterator[tuple[Question, Any]]:
    """Yield views of the contract, and the answer that each must give."""
    for task, held in state.tasks.items():
        progress = (held.status, held.number, len(held.customers), held.tries, held.since, held.draw)
        yield ("progress", (task,)), progress
        yield ("tasks", (task,)), _task_words(held, progress)
        for index, who in enumerate(held.customers):
            unsettled = held.unsettled.get(who, -1) + 1
            yield ("customers", (task, who)), index + 1 | unsettled << 16
        for number, one in enumerate(held.rounds):
            counts = one.commits.count | len(one.revealed) << 16 | one.average << 32
            winner = 0 if one.winner is None else one.winner[0] << 8 | one.winner[1]
            revealed = sum(1 << index for index in one.revealed)
            yield ("rounds", (task, number)), (revealed, counts, one.result or bytes(32), winner)
            for who, word in one.commits.words.items():
                yield ("commitments", (task, number, held.customers.index(who))), word
    for number, draw in enumerate(state.draws[1:], start=1):
        votes = [sum(draw.seats[one] for one in draw.votes[rank]) for rank in (0, 1)]
        body = draw.stake | sum(draw.seats.values()) << 64 | votes[0] << 96 | votes[1] << 128
        named = tuple(draw.proposals.get(rank, bytes(32)) for rank in (0, 1))
        words = [before << 160 | int(who, 16) for before, who in draw.leaders]
        first, second = [*words, _NONE][:2] if words else [0, 0]
        yield ("draws", (number,)), (draw.seed, body | draw.block << 160, first, second, named)
        for who, count in draw.seats.items():
            marks = (who in draw.votes[0]) | (who in draw.votes[1]) << 1 | (who in draw.done) << 2
            yield ("seats", (number, who)), count | marks << 32
    yield ("last_draw", ()), len(state.draws) - 1
    for who, miner in state.miners.items():
        word = miner.units | miner.since << 64 | miner.left << 128 | miner.locked << 192
        yield ("miners", (who,)), word
    for (maker, customer), points in state.reputations.items():
        yield ("reputations", (maker, customer)), 256 | points
    for (token, who), amount in state.owed.items():
        yield ("owed", (token, who)), amount
    block, units = state.totals[-1]
    yield ("changes", ()), len(state.totals) - 1
    yield ("totals", (len(state.totals) - 1,)), units | block << 64


def _task_words(held: Task, progress: tuple[int, ...]) -> tuple[Any, ...]:
    """Return a task as the contract packs it."""
    terms = _packed(held.terms.words(), (0, 16, 32, 40, 48, 64, 88, 116, 144, 172, 200, 228))
    prices = held.prices
    pay = _packed((prices.unit, prices.bonus), (0, 96))
    fees = _packed((prices.leader_fee, prices.committee_fee, prices.deposit), (0, 80, 160))
    where = _packed(progress, (0, 8, 24, 40, 56, 120))
    disputer = held.disputer or NOBODY
    return held.maker, held.token, held.gate, terms, pay, fees, held.pool, where, disputer


def _packed(words: tuple[int, ...], places: tuple[int, ...]) -> int:
    return sum(int(word) << place for word, place in zip(words, places, strict=True))


# Files


class _Watched(Store):
    """A store that records which files it could not give, or gave wrongly."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.gone: set[Cid] = set()
        self.forged: set[Cid] = set()

    def _fetch(self, cid: Cid) -> bytes:
        try:
            return self._store.block(cid)
        except ContentForged:
            self.forged.add(cid)
            raise
        except StoreError:
            self.gone.add(cid)
            raise

    def _keep(self, cid: Cid, block: bytes) -> None:
        raise StoreError("nothing is written while a task is checked")


def _check_files(report: Report, place: Place, store: Store) -> None:
    """Judge every result again."""
    watched, history = _Watched(store), report.history
    try:
        report.text = task_text.read(watched, history.text)
        report.text.check_terms(history.terms)
    except StoreError as error:
        _check_forged(watched, "the task's text")
        report.unchecked.append(f"all judgements: the task's text is gone ({error})")
        return
    except ParameterError as error:
        report.unchecked.append(f"all judgements: the text is none of a task that can be judged ({error})")
        return
    for number, which in enumerate(history.rounds):
        if which.result is not None and which.result != VOID:
            _judge_again(report, place, number, which, store)


def _judge_again(report: Report, place: Place, number: int, which: RoundHistory, store: Store) -> None:
    assert report.text is not None
    assert which.result is not None
    watched = _Watched(store)
    _, cid, proposal = which.proposals[which.result]
    what = f"round {number}"
    try:
        found = judged(report.text, place, report.history, number, watched, counted=proposal.counted)
    except StoreError as error:
        _check_forged(watched, f"{what}, the model before it")
        report.unchecked.append(f"{what}: the model before it is gone ({error})")
        return
    except ParameterError as error:
        _check_forged(watched, what)
        if watched.gone:
            report.unchecked.append(f"{what}: its updates are gone")
            return
        raise Contradiction(f"{what}: a result, and there is none ({error})") from error
    _check_forged(watched, what)
    if found.missing:
        whose = ", ".join(report.history.customers[index] for index in found.missing)
        if not watched.gone:
            raise Contradiction(f"{what}: counted, and no file could ever be fetched: the update of {whose}")
        report.unchecked.append(f"{what}: updates are gone, so sets and model were not made again: {whose}")
        return
    _compare(what, found, cid, proposal)
    report.rounds[number] = found
    _look_around(report, place, number, found, store)


def _compare(what: str, found: Judged, cid: bytes, proposal: Proposal) -> None:
    right = found.proposal(proposal.draw)
    for name in ("accepted", "low", "paid"):
        if getattr(right, name) != getattr(proposal, name):
            raise Contradiction(
                f"{what}: the set of those {name} is {getattr(proposal, name):b}, "
                f"and the updates give {getattr(right, name):b}"
            )
    if bytes(found.cid) != cid or right != proposal:
        raise Contradiction(f"{what}: the model is not the last one and the average of the accepted updates")


def _look_around(report: Report, place: Place, number: int, found: Judged, store: Store) -> None:
    """Remark on a missing model file, and on updates that can be fetched and were not counted."""
    assert report.text is not None
    watched = _Watched(store)
    try:
        watched.get(found.cid, most=len(found.file))
    except StoreError:
        _check_forged(watched, f"round {number}, its model")
        report.remarks.append(f"round {number}: the file of the model is gone; it was made again")
    for index, customer in enumerate(report.history.customers):
        held = report.history.rounds[number].revealed.get(customer)
        if held is None or found.counted >> index & 1:
            continue
        try:
            watched.get(Cid.of_bytes(held[0]), most=len(found.file))
        except ReticentError:
            continue
        report.remarks.append(f"round {number}: the update of {customer} was not counted, and is there now")


def _check_forged(watched: _Watched, what: str) -> None:
    if watched.forged:
        cid = min(watched.forged, key=str)
        raise Contradiction(f"{what}: the store gives other bytes than {cid} names")


def _agree(holds: bool, called: Called, otherwise: str) -> None:
    if not holds:
        raise Contradiction(f"{_named(called)}: {otherwise}")


def _named(called: Called) -> str:
    one = called.transaction
    return f"transaction {one.hash} in block {one.block}"
