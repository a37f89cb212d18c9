"""Contracts in process, on pyrevm: calls, answers, events, reasons, gas as a receipt shows it.

The machine runs all calls as if in one transaction: what one call touched is warm for the next, and its gas
is less than a receipt would show. `Metered` therefore runs every call on a fresh machine that holds nothing
but the storage. pyrevm counts the intrinsic gas (21,000 and the data) and takes refunds off; what it lacks is
the least price of data since Prague (EIP-7623), which is added here.
`python tests/contracts/revm.py` prints the table.
"""

import json
import re
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from hashlib import sha256
from pathlib import Path

from eth_abi import decode, encode
from eth_utils import keccak
from eth_utils.abi import collapse_if_tuple
from pyrevm import EVM, AccountInfo, BlockEnv

import reticent.federated.crowd.contracts
import reticent.ledger.ethereum.contracts
from reticent.chain.compile import compiled

FOLDER = Path(reticent.ledger.ethereum.contracts.__file__).parent
CROWD = Path(reticent.federated.crowd.contracts.__file__).parent
OWNER, ORACLE, ANNA, BRUNO, STRANGER, NEXT = (f"0x{number:02x}" + "00" * 18 + "01" for number in range(1, 7))
PEOPLE = (OWNER, ORACLE, ANNA, BRUNO, STRANGER, NEXT)
NOBODY = "0x" + "00" * 20
NO_KEY = b"\0" * 32


class Refused(Exception):
    """A call that the contract refused, with its reason; empty where the compiler's own checks refuse."""

    @property
    def reason(self):
        """The cause alone: the contracts' reasons read `ledger: cause`."""
        return self.args[0].partition(": ")[2] or self.args[0]


class Halted(Exception):
    """The machine gave up a call. No contract of ours makes it."""


@dataclass(frozen=True)
class Call:
    selector: bytes
    inputs: list
    outputs: list


@dataclass(frozen=True)
class Answer:
    """What a call that was not refused gave."""

    value: object  # a tuple where there are several
    events: list  # (name, fields) each
    gas: int


class Artifact:
    """A compiled contract and how it is spoken to."""

    def __init__(self, found):
        self.name, self.abi = found["name"], found["abi"]
        self.creation, self.runtime = (
            bytes.fromhex(found["bytecode"][2:]),
            bytes.fromhex(found["runtime"][2:]),
        )

    @cached_property
    def calls(self):
        found = {}
        for part in self.abi:
            if part["type"] == "function":
                inputs, outputs = _types(part["inputs"]), _types(part["outputs"])
                selector = keccak(text=f"{part['name']}({','.join(inputs)})")[:4]
                found[part["name"]] = Call(selector, inputs, outputs)
        return found

    @cached_property
    def events(self):
        """The events by their topic: name, then (name, type) of the indexed fields and of the others."""
        found = {}
        for part in self.abi:
            if part["type"] == "event":
                kinds = [collapse_if_tuple(one) for one in part["inputs"]]
                topic = keccak(text=f"{part['name']}({','.join(kinds)})")
                fields = [(one["name"], kind) for one, kind in zip(part["inputs"], kinds, strict=True)]
                kept = [one["indexed"] for one in part["inputs"]]
                found[topic] = (
                    part["name"],
                    [field for field, indexed in zip(fields, kept, strict=True) if indexed],
                    [field for field, indexed in zip(fields, kept, strict=True) if not indexed],
                )
        return found

    def event(self, topics, data):
        name, indexed, others = self.events[topics[0]]
        fields = {
            field: decode([kind], topic)[0] for (field, kind), topic in zip(indexed, topics[1:], strict=True)
        }
        held = decode([kind for _, kind in others], data)
        return name, fields | {field: value for (field, _), value in zip(others, held, strict=True)}


def _types(parts):
    return [collapse_if_tuple(one) for one in parts]


@cache
def artifact(name="PrivacyLedger"):
    """As it is committed."""
    return Artifact(json.loads(_file(f"{name}.json").read_text()))


def source(name="PrivacyLedger"):
    return _file(f"{name}.vy").read_text()


def _file(name):
    return next(folder / name for folder in (FOLDER, CROWD) if (folder / name).is_file())


@cache
def planted(*changes, name="PrivacyLedger"):
    """The contract with some text of its source replaced; each must occur exactly once."""
    text = source(name)
    for old, new in changes:
        assert text.count(old) == 1, f"{text.count(old)} times in the source: {old}"
        text = text.replace(old, new)
    return Artifact(compiled(name, text))


class Contract:
    """A contract on a machine of its own. Each call is a transaction in the next block."""

    def __init__(self, what=None):
        self.artifact = what or artifact()
        self.block = 0
        self._evm = EVM()
        for person in PEOPLE:
            self._evm.set_balance(person, 10**30)
        self.address = self._evm.deploy(OWNER, self.artifact.creation)
        self.creation_gas = receipt_gas(self._evm.result, self.artifact.creation)

    def data(self, function, *arguments):
        call = self.artifact.calls[function]
        return call.selector + encode(call.inputs, arguments)

    def call(self, sender, function, *arguments, worth=0):
        """Send a transaction, with so many wei. Raises Refused."""
        self.block += 1
        data, outputs = self.data(function, *arguments), self.artifact.calls[function].outputs
        return self.raw(sender, data, outputs, worth)

    def raw(self, sender, data, outputs=(), worth=0):
        """As `call`, with data that may be anything."""
        evm = self._machine()
        back = self._run(evm, sender, data, value=worth)
        events = [self.artifact.event(*log.data) for log in evm.result.logs]
        return Answer(_plain(decode(outputs, back)), events, receipt_gas(evm.result, data))

    def read(self, function, *arguments):
        """Ask for the state, by nobody in particular."""
        call = self.artifact.calls[function]
        data = call.selector + _encoded(tuple(call.inputs), arguments)
        return _decoded(tuple(call.outputs), self._run(self._machine(), STRANGER, data, is_static=True))

    def _machine(self):
        self._evm.set_block_env(BlockEnv(number=self.block))
        return self._evm

    def _run(self, evm, sender, data, **how):
        try:
            return evm.message_call(sender, self.address, data, **how)
        except RuntimeError as refusal:
            found = re.search(r"^Revert \{ gas_used: \d+, output: 0x([0-9a-f]*) \}", str(refusal))
            if not found:
                raise Halted(str(refusal)) from None
            output = bytes.fromhex(found[1])
            raise Refused(decode(["string"], output[4:])[0] if output else "") from None


class Metered(Contract):
    """Every call on a fresh machine, as the first of its transaction: its gas is that of a receipt.

    Args:
        what: the contract; the committed one by default.
        slots: every place of the storage that calls may write.
    """

    def __init__(self, what=None, slots=()):
        super().__init__(what)
        self.slots, self._storage = set(slots), {}

    def _machine(self):
        evm = EVM()
        for person in PEOPLE:
            evm.set_balance(person, 10**30)
        evm.insert_account_info(self.address, AccountInfo(nonce=1, code=self.artifact.runtime))
        evm.set_block_env(BlockEnv(number=self.block))
        for slot, held in self._storage.items():
            before = evm.snapshot()
            evm.insert_account_storage(self.address, slot, held)
            evm.revert(before)  # the value stays, and is cold
        return evm

    def _run(self, evm, sender, data, **how):
        back = super()._run(evm, sender, data, **how)
        self._storage = {slot: evm.storage(self.address, slot) for slot in self.slots}
        return back


def slots_of(dataset, keys, people, marks, numbers):
    """Places in the storage of PrivacyLedger.vy, in the order of its variables and of their fields.

    Args:
        dataset: the data set that is written to.
        keys: how many values each key has.
        people: analysts.
        marks: (caller, idempotency key) pairs.
        numbers: how many measurements.
    """

    def held(place, key):
        return int.from_bytes(
            keccak(place.to_bytes(32) + (key if isinstance(key, bytes) else key.to_bytes(32)))
        )

    measurements, datasets, analysts, by_key, sums, waiting, answers = range(1, 8)  # the compiler keeps 0
    found = {measurements, *(held(datasets, dataset) + i for i in range(8))}
    for person in people:
        found |= {held(held(analysts, dataset), int(person, 16)) + i for i in range(2)}
    for key, size in keys.items():
        found |= {held(held(by_key, dataset), key) + i for i in range(5)}
        found |= {held(held(held(sums, dataset), key), i) for i in range(size)}
    places = [encode(["bytes32", "address", "bytes32"], [dataset, *mark]) for mark in marks]
    return (
        found
        | {held(answers, keccak(place)) for place in places}
        | {held(waiting, i) for i in range(numbers)}
    )


def receipt_gas(result, data):
    """With the least price of the data since EIP-7623: 10 gas a zero byte and 40 another."""
    zeros = data.count(0)
    return max(result.gas_used, 21_000 + 10 * zeros + 40 * (len(data) - zeros))


def _plain(values):
    return values[0] if len(values) == 1 else (values or None)


@lru_cache(10_000)  # the state is read far more often than it changes, and eth_abi takes its time
def _encoded(kinds, arguments):
    return encode(kinds, arguments)


@lru_cache(10_000)
def _decoded(kinds, data):
    return _plain(decode(kinds, data))


def dataset_of(owner, name):
    return keccak(encode(["address", "string"], [owner, name]))


def key_of(name, question=b"", grid=0, dimension=0):
    parts = [keccak(name), keccak(question), grid, dimension]
    return keccak(encode(["bytes32", "bytes32", "int16", "uint16"], parts))


def payment_of(name):
    return keccak(encode(["bytes32", "bytes32"], [keccak(b"payment"), keccak(name)]))


def identity_of(dataset, key, start, information):
    return keccak(encode(["bytes32", "bytes32", "uint64", "uint64"], [dataset, key, start, information]))


def once(text):
    """An idempotency key."""
    return sha256(text.encode()).digest() if text is not None else NO_KEY


def register(contract, *, name="census", owner=OWNER, cap=1000, minimum=5, oracle=ORACLE):
    """Register a data set; return its identifier."""
    terms = (name, "mu2", "replace_one", b"one person", cap, minimum, oracle, sha256(name.encode()).digest())
    return contract.call(owner, "register", *terms).value


def gas_table():
    """Gas of deploying and of each kind of call, as receipts show it."""
    units, question = 10**10, b'{"count": {"where": "age >= 30 and age < 40"}, "data": "census-2026"}'
    dataset, name = dataset_of(OWNER, "census-2026"), b"9c" * 32
    sizes = {key_of(name, question, 3, size): size for size in (1, 2, 10, 100, 512)}
    new, longest = key_of(b"5f" * 32, question, 3, 1), key_of(b"\xff" * 4000, b"\xff" * 8192, 3, 1)
    others = {new: 1, longest: 1, payment_of(b"7d" * 32): 0, payment_of(b"7e" * 32): 0}
    marks = [(ANNA, once("a")), (ANNA, once("b")), (OWNER, once("c"))]
    ledger = Metered(slots=slots_of(dataset, sizes | others, [ANNA], marks, 20))
    table = {"deploy PrivacyLedger": ledger.creation_gas}

    def run(label, sender, function, *arguments):
        table[label] = ledger.call(sender, function, *arguments).gas

    terms = ("mu2", "replace_one", b"one person of census-2026", 10**13, 10**7, ORACLE, b"\x5a" * 32)
    run("register", OWNER, "register", "census-2026", *terms)
    run("allow", OWNER, "allow", dataset, ANNA, 10**13)
    run("allow, again", OWNER, "allow", dataset, ANNA, 10**13 + 1)
    number = 0
    for key, size in sizes.items():
        run(f"declare, {size}", ANNA, "declare", dataset, name, question, 3, size)
        values = [(-1) ** i * (123_456_789 + i) for i in range(size)]
        for nth in range(3):
            which = f"{size}, {('first', 'second', 'third')[nth]}"
            record = (number, dataset, key, nth * units, units, values)
            run(f"charge, {which}", ANNA, "request", dataset, key, (nth + 1) * units, NO_KEY)
            run(f"fulfil, {which}", ORACLE, "fulfil", *record)
            table[f"charge + fulfil, {which}"] = table[f"charge, {which}"] + table[f"fulfil, {which}"]
            number += 1
        kept = (3 * units, 3 * units, tuple(3 * units * value for value in values))
        assert ledger.read("recorded", dataset, key) == kept  # the storage was carried over
    run("declare, longest", ANNA, "declare", dataset, b"\xff" * 4000, b"\xff" * 8192, 3, 1)
    run("declare, new key", ANNA, "declare", dataset, b"5f" * 32, question, 3, 1)
    run("charge, 1, new key", ANNA, "request", dataset, new, units, NO_KEY)
    run("fulfil, 1, new key", ORACLE, "fulfil", number, dataset, new, 0, units, [123_456_789])
    table["charge + fulfil, 1, new key"] = table["charge, 1, new key"] + table["fulfil, 1, new key"]
    run("reuse", ANNA, "request", dataset, key, units, NO_KEY)
    run("reuse, idempotent", ANNA, "request", dataset, key, units, once("a"))
    run("reuse, repeated", ANNA, "request", dataset, key, units, once("a"))
    run("charge, idempotent", ANNA, "request", dataset, key, 4 * units, once("b"))
    run("charge, repeated", ANNA, "request", dataset, key, 4 * units, once("b"))
    run("charge by the owner", OWNER, "request", dataset, key, 5 * units, NO_KEY)
    run("pay", OWNER, "pay", dataset, b"7d" * 32, units, NO_KEY)
    run("pay, idempotent", OWNER, "pay", dataset, b"7e" * 32, units, once("c"))
    run("pay, repeated", OWNER, "pay", dataset, b"7e" * 32, units, once("c"))
    run("pause", OWNER, "pause", dataset, True)
    run("resume", OWNER, "pause", dataset, False)
    run("appoint", OWNER, "appoint", dataset, NEXT)
    run("offer", OWNER, "offer", dataset, NEXT)
    run("take", NEXT, "take", dataset)
    heads = Metered(artifact("HeadAnchor"))
    table["deploy HeadAnchor"] = heads.creation_gas
    origin, root, totals, *signature = (sha256(text.encode()).digest() for text in "abcde")
    table["anchor"] = heads.call(OWNER, "anchor", origin, 123_456, root, totals, signature).gas
    return table


if __name__ == "__main__":
    for operation, gas in gas_table().items():
        print(f"{operation:30}{gas:>12,}")
