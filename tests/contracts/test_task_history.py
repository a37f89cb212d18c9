"""What the events of a task add up to: as the contract says, and contradicted where a number is altered."""

from dataclasses import replace

import pytest

from reticent.chain.log import ChainLog
from reticent.errors import ReticentError
from reticent.federated.crowd.contract import artifact
from reticent.federated.crowd.history import History

from .task_on_anvil import TERMS, play

# Numbers that nothing else in the events determines: a stake's size and a block are the chain's own word.
FREE = {
    ("Enrolled", "units"),
    ("Seeded", "fixed"),
    ("Seeded", "stake"),
    ("Posted", "terms"),
    ("Posted", "prices"),
}


@pytest.fixture(scope="module")
def played(anvil):
    found = play(anvil.url)
    yield found
    found.close()


@pytest.fixture(scope="module")
def log(played):
    found = ChainLog(played.node, artifact(), played.contract.address, History)
    found.sync()
    return found


def test_the_history_is_what_the_contract_says(played, log):
    history, task = log.state, log.state.tasks[played.task]
    assert task.pool == played.contract.pool(played.task)
    assert [one.is_closed for one in task.rounds] == [True, True, False]
    for person in played.customers:
        known = history.reputations[task.manufacturer, person.address]
        assert known == played.contract.reputation(task.manufacturer, person.address)
        paid = sum(one.settled[person.address][1] for one in task.rounds[: TERMS.rounds])
        assert paid == played.contract.owed(person.address)
    assert history.units == {person.address: 100 + place for place, person in enumerate(played.miners)}
    assert task.rounds[1].result is not None


def altered(events):
    """Every history in which one number of one event is one more, or one event is told twice."""
    for place, event in enumerate(events):
        for name, number in event.fields.items():
            if isinstance(number, int) and (event.name, name) not in FREE:
                other = replace(event, fields=event.fields | {name: number + 1})
                yield f"{event.name} {name}", [*events[:place], other, *events[place + 1 :]]
        yield f"{event.name} twice", [*events[: place + 1], event, *events[place + 1 :]]


def is_contradicted(events):
    history = History()
    try:
        for event in events:
            history.apply(event)
    except ReticentError:
        return True
    return False


def test_every_altered_number_and_repetition_is_contradicted(log):
    events = list(log.events())
    assert not is_contradicted(events)
    tried = list(altered(events))
    assert len(tried) > 200
    assert [what for what, history in tried if not is_contradicted(history)] == []


def test_planted_a_history_that_believes_pay_is_found(log, monkeypatch):
    monkeypatch.setattr(History, "_due", lambda self, task, which, customer: Believing())
    found = [what for what, history in altered(list(log.events())) if not is_contradicted(history)]
    assert {"Settled pay", "Settled reputation"} <= set(found)


class Believing(tuple):
    """Reputation and pay that are whatever is said."""

    def __new__(cls):
        return super().__new__(cls, (Anything(), Anything()))


class Anything(int):
    """Equal to every number."""

    def __eq__(self, other):
        return True

    def __lt__(self, other):
        return True

    __hash__ = int.__hash__


def test_a_second_leader_may_say_what_the_first_said_and_votes_begin_anew(log):
    """A first turn may end without enough votes; the same proposal has the same hash in the second."""
    events = list(log.events())
    at = next(place for place, event in enumerate(events) if event.name == "Proposed")
    voted = next(event for event in events[at:] if event.name == "Voted")
    first = replace(events[at], fields=events[at].fields | {"leader": "0x" + "12" * 20})
    turn = [*events[:at], first, voted, *events[at:]]
    assert not is_contradicted(turn)
    assert is_contradicted([*events[:at], first, voted, voted, *events[at:]])
    assert is_contradicted([*events[:at], first, first, *events[at:]])
    decided = next(place for place, event in enumerate(turn) if event.name == "Decided")
    last = max(place for place in range(decided) if turn[place].name == "Voted")
    assert is_contradicted([*turn[:last], *turn[last + 1 :]])
