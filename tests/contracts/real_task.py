"""A task with real updates, judgements and models on a chain; what a node says of it, and alterations."""

import copy
import json
import random
from itertools import count

import numpy as np

from reticent.chain.keys import Key
from reticent.chain.log import ChainLog
from reticent.chain.node import Node, as_number
from reticent.federated.crowd import updates
from reticent.federated.crowd.contract import artifact, task_id
from reticent.federated.crowd.history import History
from reticent.federated.crowd.modes import OnDevice
from reticent.federated.crowd.rounds import Place, judged
from reticent.federated.crowd.task_text import CrowdTask, PublicTest
from reticent.federated.robust import Grid
from reticent.store import Directory, tensors

from .task_on_anvil import TERMS, Played

TRAINING = OnDevice(inputs=4, classes=3, l2=0.0, clip=1.0, records=20, rate=0.5, steps=4, mu=1.0)
GRID = Grid(15, 1 << 12, 1 << 15, floor=1 << 4)


class Real(Played):
    """Six customers, one of whom is far out; in the second round one withholds a file and one sends zeros."""

    def __init__(self, url, folder):
        super().__init__(url)
        self.store, self.chance = Directory(folder), np.random.default_rng(7)
        rows = self.chance.normal(size=(30, 4)).astype("<f4")
        labels = rows.argmax(axis=1).clip(0, 2).astype("<i4")
        test = tensors.put(self.store, {"features": rows, "labels": labels})
        self.crowd_task = CrowdTask(
            "Tell washing programmes apart", TRAINING, GRID, TERMS.rounds, TERMS.f, test=PublicTest(test, 30)
        )
        self.text = bytes(self.store.put(self.crowd_task.to_json()))
        self.model = bytes(self.store.put(self.crowd_task.start()))
        self.task = task_id(self.maker.address, self.text)
        self.place = Place(self.node.chain_id, self.contract.address, self.task)

    def updates(self):
        way, found = self.chance.normal(size=15), {}
        for index, person in enumerate(self.customers):
            values = way + 0.1 * self.chance.normal(size=15)
            if index == 1:
                values = -3 * way
            if index == 2 and self.number == 1:
                values = way * 0
            update = GRID.placed(values)
            origin = self.place.origin(self.number, person.address)
            sealed = updates.seal(GRID, update, origin, Key(person.secret))
            cid = self.store.put(sealed.file)
            if index == 3 and self.number == 1:
                self.store._path(cid).unlink()
            found[person] = bytes(cid), sealed.key
        return found

    def result(self):
        log = ChainLog(self.node, artifact(), self.contract.address, History)
        held = log.sync().tasks[self.task]
        found = judged(self.crowd_task, self.place, held, self.number, self.store)
        self.store.put(found.file)
        return bytes(found.cid), (found.counted, found.accepted, found.low, found.paid)

    def finish(self):
        """Everybody takes what they are owed; a miner leaves; the rest goes back."""
        for person in [*self.customers, *self.miners]:
            if self.contract.owed(person.address):
                self.call(person, "withdraw", "0x" + "00" * 20)
        self.call(self.miners[0], "leave")
        self.until(self.contract.progress(self.task).since + TERMS.claim_blocks)
        self.call(self.maker, "reclaim", self.task)


def really_play(url, folder):
    played = Real(url, folder)
    played.begin()
    for _ in range(TERMS.rounds):
        played.collect()
        played.draw()
        played.judge()
        played.end()
    played.finish()
    return played


class Recording(Node):
    """A node, and all that it says."""

    def __init__(self, url):
        self.tape = {}
        super().__init__(url)

    def _post(self, body):
        answer = super()._post(body)
        asked = body if isinstance(body, list) else [body]
        told = {one["id"]: one for one in (answer if isinstance(answer, list) else [answer])}
        for one in asked:
            self.tape[key_of(one)] = {part: told[one["id"]][part] for part in told[one["id"]] if part != "id"}
        return answer


class Tape(Node):
    """What a node said, said again. What it was not asked it refuses."""

    def __init__(self, tape):
        self._where, self.url, self._identities, self._together = "tape", "tape", count(1), True
        self.tape = tape
        self.chain_id = as_number(self.rpc("eth_chainId"))

    def _post(self, body):
        return [self._one(one) for one in body] if isinstance(body, list) else self._one(body)

    def _one(self, asked):
        refusal = {"error": {"code": -1, "message": "this was not asked before"}}
        return {"id": asked["id"]} | self.tape.get(key_of(asked), refusal)

    def close(self):
        pass


def key_of(asked):
    return json.dumps([asked["method"], asked["params"]])


# Parts of a node's answers that say what happened. Others (gas used, times, a copy of a signature's parity)
# say nothing about a task; where a log or transaction stands in its block matters only beside others there.
TOLD = {
    "eth_getLogs": ("address", "topics", "data", "blockNumber", "blockHash", "transactionHash"),
    "eth_getTransactionByHash": (
        "hash", "from", "to", "input", "value", "nonce", "gas", "maxFeePerGas", "maxPriorityFeePerGas",
        "chainId", "yParity", "r", "s", "type", "blockNumber", "blockHash",
    ),
    "eth_getBlockByNumber": ("number", "hash"),
    "eth_call": None,
    "eth_getCode": None,
    "eth_chainId": None,
}  # fmt: skip


def flipped(text, chance):
    """Hexadecimal digits with one changed."""
    at = chance.randrange(2, len(text))
    return text[:at] + chance.choice([one for one in "0123456789abcdef" if one != text[at]]) + text[at + 1 :]


def altered_answer(tape, method, chance):
    """What a node said with one digit changed in one place."""
    found = dict(tape)
    key = chance.choice([one for one in tape if json.loads(one)[0] == method and tape[one].get("result")])
    answer = copy.deepcopy(found[key])
    parts = TOLD[method]
    if parts is None:
        answer["result"] = flipped(answer["result"], chance)
        what = json.loads(key)[1]
    else:
        one = chance.choice(answer["result"]) if isinstance(answer["result"], list) else answer["result"]
        what = chance.choice([part for part in parts if one.get(part) not in (None, [], "0x")])
        if isinstance(one[what], list):
            at = chance.randrange(len(one[what]))
            one[what][at] = flipped(one[what][at], chance)
        else:
            one[what] = flipped(one[what], chance)
    found[key] = answer
    return f"{method} {what}", found


def altered_order(tape, chance):
    """Logs left out, told twice, or in another order."""
    found = dict(tape)
    key = next(one for one in tape if json.loads(one)[0] == "eth_getLogs")
    logs = list(found[key]["result"])
    at = chance.randrange(len(logs))
    what = chance.choice(["left out", "twice", "swapped"])
    if what == "left out":
        del logs[at]
    elif what == "twice":
        logs.insert(at, logs[at])
    else:
        other = chance.choice([place for place in range(len(logs)) if place != at])
        logs[at], logs[other] = logs[other], logs[at]
    found[key] = {**found[key], "result": logs}
    return f"log {what}", found


def altered(tape, chance):
    """A name and a tape that is altered somewhere."""
    kind = chance.choice(["eth_getLogs", "eth_getTransactionByHash", "eth_call", "order", "few"])
    if kind == "order":
        return altered_order(tape, chance)
    if kind == "few":
        kind = chance.choice(["eth_getBlockByNumber", "eth_getCode", "eth_chainId"])
    return altered_answer(tape, kind, chance)


class Spoilt(Directory):
    """A store in which one block has other bytes."""

    def __init__(self, folder, cid, chance):
        super().__init__(folder)
        self._spoilt, self._chance = cid, random.Random(chance.random())

    def _fetch(self, cid):
        block = super()._fetch(cid)
        if str(cid) != self._spoilt or not block:
            return block
        at = self._chance.randrange(8 * len(block))
        return block[: at // 8] + bytes([block[at // 8] ^ 1 << at % 8]) + block[at // 8 + 1 :]
