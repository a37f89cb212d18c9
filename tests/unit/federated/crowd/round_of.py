"""A round without a chain: people with keys, a store, and the history that a chain would tell."""

from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from reticent.chain.keys import Key
from reticent.federated.crowd import updates
from reticent.federated.crowd.history import RoundHistory, TaskHistory
from reticent.federated.crowd.modes import OnDevice
from reticent.federated.crowd.rounds import Place
from reticent.federated.crowd.task_text import CrowdTask
from reticent.federated.crowd.terms import Prices, Terms
from reticent.federated.robust import Grid

TRAINING = OnDevice(inputs=4, classes=3, l2=0.0, clip=1.0, records=20, rate=0.5, steps=4, mu=1.0)
GRID = Grid(15, 1 << 12, 1 << 15, floor=1 << 4)
TASK = CrowdTask("Tell washing programmes apart", TRAINING, GRID, rounds=3, liars=1)
TERMS = Terms(rounds=3, people=9, f=1)
PRICES = Prices(1000, 300, 5000, 7001, 10**14)
CONTRACT, IDENTIFIER = "0x" + "11" * 20, b"\x22" * 32
PLACE = Place(31337, CONTRACT, IDENTIFIER)


def key_of(name):
    return Key(sha256(name.encode()).digest())


@dataclass
class Person:
    key: Key

    @property
    def address(self):
        return self.key.address


PEOPLE = [Person(key_of(f"customer {number}")) for number in range(9)]


def numbers_of(count=7, seed=5, grid=GRID):
    """Updates that are near each other, on the grid."""
    draw = np.random.default_rng(seed)
    way = draw.normal(size=grid.dimensions)
    return [grid.placed(way + 0.1 * draw.normal(size=grid.dimensions)).astype(np.int32) for _ in range(count)]


def history_of(store, given, *, task=TASK, number=0, before=None, terms=TERMS):
    """A round `number` in which these updates came: arrays, or pairs of file and key."""
    start = store.put(task.start())
    rounds = [RoundHistory() for _ in range(number + 1)]
    if before is not None:
        rounds[:number] = before
    found = TaskHistory(
        key_of("maker").address,
        "0x" + "00" * 20,
        bytes(task.cid),
        bytes(start),
        terms,
        PRICES,
        0,
        rounds=rounds,
    )
    for person, update in zip(PEOPLE, given, strict=False):
        found.customers.append(person.address)
        if update is None:
            continue
        if isinstance(update, tuple):
            cid, key = update
        else:
            sealed = updates.seal(task.grid, update, PLACE.origin(number, person.address), person.key)
            cid, key = bytes(store.put(sealed.file)), sealed.key
        rounds[number].revealed[person.address] = cid, key
    return found


def with_(origin, **changes):
    return replace(origin, **changes)
