"""`verify` is silent about whatever people do with the contract: disputes, lost draws, tokens, gates."""

import random
from dataclasses import replace

import pytest

from reticent.chain.contracts import Event
from reticent.chain.node import Log
from reticent.chain.transactions import Transaction
from reticent.federated.crowd import verify as verifying
from reticent.federated.crowd.contract import Status
from reticent.federated.crowd.evidence import Called, Evidence
from reticent.federated.crowd.verify import Contradiction
from reticent.store import Directory

from .crowd import CHAIN, MAKER, UNIT
from .revm import NOBODY, Refused, artifact
from .test_task_walk import World


class Recorded(World):
    """A world, and every call that was taken, as a node would tell it."""

    def __init__(self, chance, what=None):
        self.taken = []
        super().__init__(what, None, chance)

    def call(self, person, function, *arguments, worth=0):
        before = self.crowd.call

        def noted(*given, **how):
            answer = before(*given, **how)
            self.note(person, function, arguments, worth, answer)
            return answer

        self.crowd.call = noted
        try:
            super().call(person, function, *arguments, worth=worth)
        finally:
            del self.crowd.call

    def note(self, person, function, arguments, worth, answer):
        number = len(self.taken)
        named, block = f"0x{number:064x}", self.crowd.block
        data = self.crowd.data(function, *arguments)
        sent = Transaction(
            named,
            person.address,
            self.crowd.address.lower(),
            data,
            worth,
            block,
            self.hash_of(block),
            number,
            None,
        )
        logs = [
            Event(name, fields, Log(self.crowd.address, (), b"", block, self.hash_of(block), named, place))
            for place, (name, fields) in enumerate(answer.events)
        ]
        self.taken.append(Called(sent, tuple(logs)))

    def hash_of(self, block):
        return "0x" + self.crowd.blockhash(block).hex()

    def balance(self, token):
        crowd = self.crowd
        return crowd.balance() if token == NOBODY else crowd.token_call(MAKER, "balanceOf", crowd.address)

    def evidence(self):
        crowd = self.crowd
        fixed = [
            event.fields["fixed"] for one in self.taken for event in one.events if event.name == "Seeded"
        ]
        numbers = {one.transaction.block for one in self.taken} | set(fixed)
        return Evidence(
            CHAIN, crowd.address.lower(), UNIT, tuple(self.taken),
            {number: self.hash_of(number) for number in numbers}, crowd.block,
            lambda asked: [crowd.read(view, *given) for view, given in asked],
            self.balance,
            crowd.read("version"),
        )  # fmt: skip


def walked(calls, seed, what=None):
    world = Recorded(random.Random(seed), what)
    while world.calls < calls:
        world.play()
    return world


def check(evidence):
    unchecked = []
    state, history = verifying._done_again(evidence, unchecked)
    verifying._check_state(state, evidence, unchecked)
    return state, history


def indirect(evidence):
    elsewhere = [
        replace(one, transaction=replace(one.transaction, to="0x" + "ab" * 20)) for one in evidence.calls
    ]
    return replace(evidence, calls=tuple(elsewhere))


@pytest.mark.parametrize(
    ("calls", "seeds"), [(1500, range(3)), pytest.param(3000, range(30), marks=pytest.mark.slow)]
)
def test_it_is_silent_whatever_people_do(calls, seeds):
    seen = set()
    for seed in seeds:
        evidence = walked(calls, seed).evidence()
        state, history = check(evidence)
        check(indirect(evidence))
        seen |= {task.status for task in state.tasks.values()}
        seen |= {event.name for one in evidence.calls for event in one.events}
        for task, held in history.tasks.items():
            assert held.pool == state.tasks[task].pool
    assert seen >= {Status.DONE, "Overturned", "Slashed", "Redrawn", "Withdrawn", "Released", "Reclaimed"}


def test_it_is_silent_about_version_1():
    """Second commitments, which it takes of a customer who commits to nothing first, included."""
    evidence = walked(800, 2, artifact("FederatedTask-v1")).evidence()
    state, history = check(evidence)
    check(indirect(evidence))
    rounds = [one for task in history.tasks.values() for one in task.rounds]
    assert any(one.commits.count > len(one.commits) for one in rounds)
    assert state.version == 1
    with pytest.raises(Contradiction):
        check(replace(evidence, version=2))


def test_a_call_that_is_left_out_is_found_whichever_it_is():
    evidence = walked(400, 5).evidence()
    check(evidence)
    assert len(evidence.calls) > 60
    silent = []
    for place, one in enumerate(evidence.calls):
        without = (*evidence.calls[:place], *evidence.calls[place + 1 :])
        try:
            check(replace(evidence, calls=without))
        except Contradiction:
            continue
        silent.append([event.name for event in one.events])
    assert silent == []


def test_a_token_that_lies_speaks_against_its_own_tasks_only(tmp_path):
    """Whoever posts chooses the token, whose balance may become anything later."""
    world = walked(400, 3)
    lying = replace(world.evidence(), balance=lambda token: 0 if token != NOBODY else world.balance(token))
    state, _ = check(world.evidence())
    by_kind = {held.token == NOBODY: task for task, held in state.tasks.items()}
    assert any(state.holds(held.token) for held in state.tasks.values() if held.token != NOBODY)
    report = verifying.verify(lying, by_kind[True], Directory(tmp_path))
    assert any("the token" in line for line in report.unchecked)
    with pytest.raises(Contradiction, match="the contract has 0 of the token"):
        verifying.verify(lying, by_kind[False], Directory(tmp_path))
    poor = replace(world.evidence(), balance=lambda token: 0)
    with pytest.raises(Contradiction, match="the contract has 0 of coin"):
        verifying.verify(poor, by_kind[True], Directory(tmp_path))


def test_planted_a_check_that_never_looks_at_the_state_misses_calls(monkeypatch):
    monkeypatch.setattr(verifying, "_storage", lambda state: iter(()))
    evidence = walked(400, 5).evidence()
    silent = 0
    for place in range(len(evidence.calls)):
        without = (*evidence.calls[:place], *evidence.calls[place + 1 :])
        try:
            check(replace(evidence, calls=without))
        except (Contradiction, Refused):
            continue
        silent += 1
    assert silent > 0


def changed(value, chance):
    """Another value of the same kind."""
    if isinstance(value, int):
        return value ^ 1 << chance.randrange(8)
    if isinstance(value, tuple):
        at = chance.randrange(len(value))
        return (*value[:at], changed(value[at], chance), *value[at + 1 :])
    if isinstance(value, bytes):
        if not value:
            return b"\1"
        at = chance.randrange(len(value))
        return value[:at] + bytes([value[at] ^ 1 << chance.randrange(8)]) + value[at + 1 :]
    at = chance.randrange(2, len(value))  # an address
    return value[:at] + format(int(value[at], 16) ^ 1 << chance.randrange(4), "x") + value[at + 1 :]


def altered(evidence, chance):
    """One field of one event is another."""
    place = chance.randrange(len(evidence.calls))
    one = evidence.calls[place]
    at = chance.randrange(len(one.events))
    event = one.events[at]
    name = chance.choice(list(event.fields))
    other = replace(event, fields=event.fields | {name: changed(event.fields[name], chance)})
    events = (*one.events[:at], other, *one.events[at + 1 :])
    calls = (*evidence.calls[:place], replace(one, events=events), *evidence.calls[place + 1 :])
    return f"{event.name} {name}", replace(evidence, calls=calls)


# What the contract keeps nowhere and only a call shows: a task's first model, whose a failed dispute was,
# and the bits of an output that change neither its seats nor its rank. Such calls are said to be unchecked.
NOWHERE = {"Posted model", "Disputed disputer", "Seated output"}


@pytest.mark.parametrize("times", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_an_altered_event_is_found_even_where_nobody_has_the_call(times):
    chance, evidence = random.Random(3), indirect(walked(1500, 1).evidence())
    silent = []
    for _ in range(times):
        what, other = altered(evidence, chance)
        try:
            check(other)
        except Contradiction:
            continue
        silent.append(what)
    assert set(silent) <= NOWHERE
    assert len(silent) < times / 50
