"""What a crowd's checks cost beside what they cannot do without.

The lottery's proofs against products of libsecp256k1 (a proof needs four, a check four and decoding); a round
judged from files against hashing, decrypting and Multi-Krum alone; calls that are verified against recovering
their senders.
"""

from __future__ import annotations

import tempfile
import tracemalloc
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from benchmarks.measure import Figure, cpu_ratio
from reticent.chain.contracts import Event
from reticent.chain.keys import Key
from reticent.chain.node import Log
from reticent.chain.transactions import as_transaction
from reticent.federated.crowd import replay, updates
from reticent.federated.crowd import verify as verifying
from reticent.federated.crowd.contract import NOBODY, artifact
from reticent.federated.crowd.evidence import Called, Evidence
from reticent.federated.crowd.history import TaskHistory
from reticent.federated.crowd.lottery import secp256k1
from reticent.federated.crowd.modes import OnDevice
from reticent.federated.crowd.rounds import Place, judged
from reticent.federated.crowd.task_text import CrowdTask
from reticent.federated.crowd.terms import Prices, Terms, pool
from reticent.federated.robust import Grid, judge
from reticent.store import Cid, Directory

SECRET, ALPHA, TIMES = bytes(range(1, 33)), b"\x5a" * 32, 50
PEOPLE, NUMBERS = 40, 250_000  # of a round that is judged
CUSTOMERS = 100  # whose calls are verified
CONTRACT = "0x" + "11" * 20


def _product():
    from coincurve import PublicKey

    key, scalar = PublicKey(secp256k1().public_key(SECRET)), bytes(range(32, 0, -1))

    def run() -> None:
        for _ in range(TIMES):
            key.multiply(scalar)

    return run


def proving() -> float:
    """A proof / a product."""

    def run() -> None:
        for _ in range(TIMES):
            secp256k1().prove(SECRET, ALPHA)

    return 1.0 / cpu_ratio(_product(), run)


def verifying_a_lot() -> float:
    """A check of a proof / a product."""
    vrf = secp256k1()
    public, proof = vrf.public_key(SECRET), vrf.prove(SECRET, ALPHA)

    def run() -> None:
        for _ in range(TIMES):
            vrf.verify(public, ALPHA, proof)

    return 1.0 / cpu_ratio(_product(), run)


@dataclass
class Round:
    """A round in files, ready to be judged."""

    store: Directory
    task: CrowdTask
    place: Place
    history: TaskHistory


def _round(folder: str, people: int, numbers: int) -> Round:
    training = OnDevice(
        inputs=numbers // 4 - 1, classes=4, l2=0.0, clip=1.0, records=9, rate=1.0, steps=1, mu=1.0
    )
    grid, liars = Grid(training.dimensions, 1 << 12, 1 << 25), people // 8
    task = CrowdTask("bench", training, grid, rounds=1, liars=liars)
    terms = Terms(rounds=1, people=people, f=liars)
    store, place, draw = Directory(folder), Place(1, CONTRACT, b"\x22" * 32), np.random.default_rng(1)
    start = bytes(store.put(task.start()))
    history = TaskHistory(NOBODY, NOBODY, bytes(task.cid), start, terms, Prices(0, 0, 0, 0, 0), 0)
    for number in range(people):
        key = Key(sha256(bytes([number])).digest())
        update = draw.integers(-99, 100, grid.dimensions, dtype=np.int32)
        sealed = updates.seal(grid, update, place.origin(0, key.address), key)
        history.customers.append(key.address)
        history.rounds[0].revealed[key.address] = bytes(store.put(sealed.file)), sealed.key
    return Round(store, task, place, history)


def judging() -> float:
    """A round from files / hashing, decrypting and Multi-Krum of the same."""
    with tempfile.TemporaryDirectory() as folder:
        one = _round(folder, PEOPLE, NUMBERS)
        files = [
            (one.store.get(Cid.of_bytes(cid)), key, one.place.origin(0, who).words())
            for who, (cid, key) in one.history.rounds[0].revealed.items()
        ]
        head = len(files[0][0]) - 16 - 4 * one.task.grid.dimensions

        def bare() -> None:
            found = []
            for file, key, words in files:
                sha256(file).digest()  # of the file's blocks
                sha256(file).digest()  # of what is signed
                inside = AESGCM(key).decrypt(bytes(12), memoryview(file)[81:], words)
                found.append(np.frombuffer(inside, "<i4", offset=head - 81))
            judge(one.task.grid, found, one.task.liars)

        def ours() -> None:
            judged(one.task, one.place, one.history, 0, one.store)

        return 1.0 / cpu_ratio(bare, ours, repetitions=5)


def judging_memory(people: int = PEOPLE, numbers: int = NUMBERS) -> float:
    """The most memory while a round is judged / its updates."""
    with tempfile.TemporaryDirectory() as folder:
        one = _round(folder, people, numbers)
        tracemalloc.start()
        try:
            judged(one.task, one.place, one.history, 0, one.store)
            return tracemalloc.get_traced_memory()[1] / (people * 4 * one.task.grid.dimensions)
        finally:
            tracemalloc.stop()


def _told(key, number, data, worth):
    """A transaction as a node tells it."""
    given = {
        "type": 2,
        "chainId": 1,
        "nonce": number,
        "maxFeePerGas": 9,
        "maxPriorityFeePerGas": 2,
        "gas": 90_000,
    }
    raw = key._account.sign_transaction({**given, "to": CONTRACT, "value": worth, "data": data})
    words = {name: hex(one) for name, one in given.items()} | {"to": CONTRACT, "value": hex(worth)}
    words |= {"input": "0x" + data.hex(), "yParity": hex(raw.v), "r": hex(raw.r), "s": hex(raw.s)}
    words |= {"from": key.address, "hash": "0x" + bytes(raw.hash).hex(), "accessList": []}
    return words | {"blockNumber": "0x1", "blockHash": "0x" + "ab" * 32, "transactionIndex": hex(number)}


def _history():
    """Transactions of many customers who apply and commit, as a node tells them, with what they wrote."""
    terms, prices = Terms(rounds=1, people=CUSTOMERS, f=1), Prices(1, 0, 0, 0, 0)
    state = replay.Replay(1, CONTRACT, 10**15, lambda number: bytes(32))
    maker, text = Key(SECRET), b"\1" * 36
    calls = [
        (maker, "post", (text, text, terms.words(), prices.words(), NOBODY, NOBODY), pool(terms, prices))
    ]
    task, _ = replay.Replay(1, CONTRACT, 10**15, bytes).call(
        1, maker.address.lower(), "post", *calls[0][2], worth=calls[0][3]
    )
    people = [Key(sha256(number.to_bytes(2)).digest()) for number in range(CUSTOMERS)]
    calls += [(key, "apply", (task, 0, 0, 0), 0) for key in people]
    calls += [(key, "commit", (task, sha256(key.address.encode()).digest()), 0) for key in people]
    found = []
    for number, (key, function, given, worth) in enumerate(calls):
        told = _told(key, number, artifact().encode(function, *given), worth)
        said = state.call(1, key.address.lower(), function, *given, worth=worth)[1]
        log = Log(CONTRACT, (), b"", 1, told["blockHash"], told["hash"], number)
        found.append((told, tuple(Event(name, fields, log) for name, fields in said)))
    return found


def calls_verified() -> float:
    """A call that is verified / recovering its sender."""
    from coincurve import PublicKey

    found = _history()
    signature = Key(SECRET)._account.unsafe_sign_hash(ALPHA).signature
    plain = bytes(signature[:64]) + bytes([signature[64] - 27])

    def bare() -> None:
        for _ in found:
            PublicKey.from_signature_and_message(plain, ALPHA, hasher=None)

    def ours() -> None:
        calls = tuple(Called(as_transaction(told), events) for told, events in found)
        evidence = Evidence(1, CONTRACT, 10**15, calls, {1: "0x" + "ab" * 32}, 1, list, lambda token: 0)
        verifying._done_again(evidence, [])

    return 1.0 / cpu_ratio(bare, ours, repetitions=5)


FIGURES = [
    Figure("crowd, proof of a lot", "a product of coincurve", 40.0, proving, at_most=True),
    Figure("crowd, check of a lot", "a product of coincurve", 40.0, verifying_a_lot, at_most=True),
    Figure("crowd, a round judged", "hashing, decrypting, Krum", 2.0, judging, at_most=True),
    Figure("crowd, memory of judging", "the updates", 1.5, judging_memory, at_most=True),
    Figure("crowd, a call verified", "a recovery of coincurve", 20.0, calls_verified, at_most=True),
]
