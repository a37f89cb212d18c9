"""A data set on a real chain for the tests of the oracle, and everything that the oracle ever sends.

What an oracle hands to a node is public from then on, mined or not. `Watched` writes it to a file before it
is sent, so that it is known even of a process that is killed in the next instant.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import rlp
from eth_abi import decode

from reticent.chain.contracts import Artifact
from reticent.chain.node import Node
from reticent.chain.sender import Sender
from reticent.ledger import SqlLedger
from reticent.ledger.ethereum import contracts
from reticent.ledger.ethereum.contract import dataset_id, key_id
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.ledger.ethereum.verify import verify

LEDGER = Artifact.read(Path(contracts.__file__).with_name("PrivacyLedger.json"))
_FULFIL = ["uint256", "bytes32", "bytes32", "uint64", "uint64", "int64[]"]


class Watched(Node):
    """A node that keeps what it is handed, first of all."""

    def __init__(self, url, paper, point=lambda: None):
        self._paper, self._point = os.open(paper, os.O_WRONLY | os.O_APPEND | os.O_CREAT), point
        super().__init__(url)

    def rpc(self, method, *parameters):
        self._note([(method, parameters)])
        return super().rpc(method, *parameters)

    def rpc_many(self, calls):
        self._note(calls)
        answers = super().rpc_many(calls)
        self._point()
        return answers

    def _note(self, calls):
        sent = [given[0] for method, given in calls if method == "eth_sendRawTransaction"]
        if sent:
            self._point()
            os.write(self._paper, "".join(one + "\n" for one in sent).encode())
            self._point()

    def close(self):
        super().close()
        if self._paper is not None:
            os.close(self._paper)
        self._paper = None


@dataclass(frozen=True)
class Seen:
    """A record that left an oracle."""

    raw: str
    data: bytes
    number: int
    dataset: bytes
    key: bytes
    start: int
    information: int
    values: tuple

    @property
    def identity(self):
        return self.dataset, self.key, self.start, self.information


def seen(paper):
    """Every record that an oracle ever handed to its node."""
    found = []
    for raw in dict.fromkeys(Path(paper).read_text().split() if Path(paper).exists() else []):
        data = fields_of(raw)["data"]
        *named, values = decode(_FULFIL, data[4:])
        found.append(Seen(raw, data, *named, tuple(values)))
    return found


def fields_of(raw):
    """What a signed transaction says; before EIP-1559 the whole price is a tip."""
    body = bytes.fromhex(raw[2:])
    if body[0] == 2:
        _, nonce, tip, fee, gas, _, value, data, *_ = rlp.decode(body[1:])
    else:
        nonce, fee, gas, _, value, data, *_ = rlp.decode(body)
        tip = fee
    numbers = {"nonce": nonce, "tip": tip, "fee": fee, "gas": gas, "value": value}
    return {"data": data} | {name: int.from_bytes(number) for name, number in numbers.items()}


class Town:
    """One contract with one data set: its owner, its oracle, and an analyst who may spend all of it."""

    def __init__(self, anvil, data, folder):
        self.url, self.data = anvil.url, data
        self.oracle_url = None  # of a node that only the oracle asks
        self.owner, self.keeper, self.analyst = anvil.keys[:3]
        self.node = Node(self.url)
        self.dataset = dataset_id(self.owner.address, data.name)
        self.paper, self.folder = folder / "seen.txt", folder / "oracle"
        deployed = Sender(self.node, self.owner).transact(None, LEDGER.creation)
        self.address, self.first_block = deployed.contract, deployed.block
        with self.ledger(self.owner) as ledger:
            ledger.register(data.terms, oracle=self.keeper.address, commitment=b"\1" * 32)
            ledger.allow(data.name, self.analyst.address, data.terms.cap)

    def ledger(self, key, *, node=None, **options):
        """The ledger as somebody sees it."""
        return EthereumLedger(
            node or Node(self.url), self.address, key,
            owner=self.owner.address, first_block=self.first_block, **options,
        )  # fmt: skip

    def connect(self, outbox, point=lambda: None, **options):
        """The ledger as the oracle sees it, watched."""
        node = Watched(self.oracle_url or self.url, self.paper, point)
        return self.ledger(self.keeper, node=node, outbox=outbox, **options)

    def send(self, key, function, *arguments):
        """Call the contract as anybody may."""
        return Sender(self.node, key).transact(self.address, LEDGER.encode(function, *arguments))

    def ask(self, prepared, information, *, name=None, question=None, grid=None, dimension=None):
        """A request as a session makes it, or with other words; `information` is bought on top."""
        asked = prepared.question
        words = (
            _bytes(asked.key if name is None else name),
            _bytes(asked.text if question is None else question),
            prepared.shift if grid is None else grid,
            asked.cells * prepared.coordinates if dimension is None else dimension,
        )
        key = key_id(*words)
        held = LEDGER.decode("keys", self._call("keys", self.dataset, key))[0]
        if not held[0]:
            self.send(self.analyst, "declare", self.dataset, *words)
        self.send(self.analyst, "request", self.dataset, key, held[3] + information, bytes(32))
        return self.dataset, key, held[3], max(information, self.data.terms.minimum * max(1, words[3]))

    def _call(self, function, *arguments):
        return self.node.call(self.address, LEDGER.encode(function, *arguments))

    def state(self):
        """All that is on the chain, redone from its events and compared with what is stored."""
        return verify(self.node, LEDGER, self.address, first_block=self.first_block)[1]

    def close(self):
        self.node.close()


def _bytes(given):
    return given.encode() if isinstance(given, str) else given


def faults(town, draw=lambda one: one.data):
    """What is wrong once nothing waits any more, in words."""
    wrong, draws, sums = [], {}, {}
    for one in seen(town.paper):
        draws.setdefault(one.identity, {})[draw(one)] = one
    if any(len(found) > 1 for found in draws.values()):
        wrong.append("two draws left for one request")
    values = [one.values for found in draws.values() for one in found.values()]
    if len(set(values)) != len(values):
        wrong.append("one draw was sent for two measurements")
    state = town.state()
    if state.waiting:
        wrong.append("a request is lost")
    asked = [(one.dataset, one.key, one.start, one.information) for one in state.measurements if not one.paid]
    if len(set(asked)) != len(asked) or not set(asked) <= set(draws):
        wrong.append("something was recorded that was never sent, or twice")
    for one in (one for identity in asked for one in list(draws.get(identity, {}).values())[:1]):
        held = sums.setdefault((one.dataset, one.key), [0] * len(one.values))
        sums[one.dataset, one.key] = [a + one.information * b for a, b in zip(held, one.values, strict=True)]
    recorded = {place: under for place, under in state.keys.items() if under.recorded and not under.paid}
    if any(sums.get(place) != under.sums for place, under in recorded.items()):
        wrong.append("other values are recorded than were drawn")
    with SqlLedger(town.folder / "own.sqlite", create=False) as own:
        before = sum(one.information for one in state.measurements if one.paid)  # elsewhere
        if own.balance(town.data.name).spent != before + sum(information for *_, information in draws):
            wrong.append("the own total is not what was sent")
        if own.pending(town.data.name):
            wrong.append("the own ledger waits for a draw")
    return wrong
