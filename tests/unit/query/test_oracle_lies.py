"""Oracles that are killed anywhere, under a node that lies about fees, nonces and receipts.

Nothing is drawn twice, every request is recorded once the lies end, and what they cost is bounded: each byte
that ever left is looked at, and all of them are handed to an honest node in the end, as a liar could.
"""

import os
import random
import signal

import pytest
from eth_utils.crypto import keccak

from reticent.chain import sender
from reticent.chain.fees import GWEI, Ceiling, Fees
from reticent.errors import ChainError, ReticentError
from reticent.query.chain.oracle import Oracle, open_oracle
from reticent.query.rows import source

from ..chain.proxy import Proxy, Refused
from .test_oracle_crashes import (
    FORK,
    MOST_POINTS,
    POINTS,
    around,
    chain,
    declaration,
    first_opened,
    fresh,
    questions,
    redrawn,
    rows,
    struck,
)
from .town import Town, faults, fields_of, seen

__all__ = ["chain", "declaration", "fresh"]  # fixtures

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

CEILING = Ceiling(5 * GWEI, 2 * GWEI)
ETHER = 10**18
CRASHED = 4


class Liar(Proxy):
    """A node of which each answer about fees, nonces and receipts is a lie with some chance."""

    def __init__(self, target, seed):
        self.chance, self.draw, self.told = 0.3, random.Random(seed), 0
        super().__init__(target, call=self._answer)

    def _answer(self, method, parameters, forward):
        lie = getattr(self, f"_{method}", None)
        if lie is None or self.draw.random() >= self.chance:
            return forward(method, parameters)
        self.told += 1
        return lie(parameters, forward)

    def _number(self):
        return hex(self.draw.choice([0, 1, 7, GWEI, 300 * ETHER, 1 << 63, 1 << 64, (1 << 256) - 1]))

    def _eth_maxPriorityFeePerGas(self, parameters, forward):
        return self._number()

    def _eth_gasPrice(self, parameters, forward):
        return self._number()

    def _eth_getBlockByNumber(self, parameters, forward):
        found = forward("eth_getBlockByNumber", parameters)
        return found and {**found, "baseFeePerGas": self.draw.choice([self._number(), "-0x1", None])}

    def _eth_getTransactionCount(self, parameters, forward):
        true = int(forward("eth_getTransactionCount", parameters), 16)
        near = max(0, true + self.draw.choice([-2, -1, 1, 2, 3, 1000]))
        return self.draw.choice([hex(near), hex(near), hex(near), "0x0", hex(1 << 60), "-0x1"])

    def _eth_getTransactionReceipt(self, parameters, forward):
        found = forward("eth_getTransactionReceipt", parameters)
        made = {
            "transactionHash": parameters[0], "blockNumber": "0x1", "blockHash": "0x" + "00" * 32,
            "status": self.draw.choice(["0x0", "0x1"]), "gasUsed": self._number(), "contractAddress": None,
            "logs": [],
        }  # fmt: skip
        other = {**found, "status": "0x0"} if found else made
        return self.draw.choice([None, made, other, 7, {"blockNumber": "0x1"}])

    def _eth_getTransactionByHash(self, parameters, forward):
        return self.draw.choice([None, {}])

    def _eth_sendRawTransaction(self, parameters, forward):
        words = ["nonce too low", "already known", "transaction underpriced", "nonce too high", "pool full"]
        if self.draw.random() < 0.3:  # it goes out all the same
            forward("eth_sendRawTransaction", parameters)
        if self.draw.random() < 0.5:
            return "0x" + keccak(bytes.fromhex(parameters[0][2:])).hex()
        raise Refused(self.draw.choice(words))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for name in ("_AGAIN_AFTER_S", "_LONGEST_PAUSE_S", "_SHOWN_AFTER_S"):
        monkeypatch.setattr(f"reticent.chain.sender.{name}", 0.02)
    monkeypatch.setattr("reticent.chain.sender._RIVAL_PAUSE_S", 0.0)


def work(town, path, last, timeout_s, planted):
    """One step of an oracle in a process of its own; whatever is no error of ours is a crash."""
    point = struck(last)
    for kind, name in POINTS:
        around(kind, name, point)
    source.connect = rows
    if planted is not None:
        planted()

    def connect(outbox):
        outbox = None if planted is redraws else outbox
        return town.connect(outbox, point, timeout_s=timeout_s, ceiling=CEILING)

    try:
        with open_oracle(path, connect, town.folder) as oracle:
            oracle.step()
    except ReticentError:
        os._exit(0)
    except BaseException:
        os._exit(CRASHED)
    os._exit(0)


def redraws():
    """Planted: no outbox, and a fresh draw at each start."""
    Oracle._values = redrawn


def pays_whatever():
    """Planted: a tip above the ceiling, as the node says."""
    sender.current_fees = lambda node, ceiling: Fees(CEILING.fee, CEILING.tip + 1)


def stepped(town, path, last=0, *, timeout_s=0.15, planted=None):
    child = FORK.Process(target=work, args=(town, path, last, timeout_s, planted))
    child.start()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode == -signal.SIGKILL


def check_funds(town, before):
    """What was signed stays below the ceilings, and what was paid is no more than they allow."""
    nonces, most = {}, {}
    left = [(fields_of(one.raw), one) for one in seen(town.paper)]
    for fields, one in left:
        assert fields["fee"] <= CEILING.fee
        assert fields["tip"] <= CEILING.tip
        assert fields["value"] == 0
        nonces.setdefault(one.identity, set()).add(fields["nonce"])
        most[fields["nonce"]] = max(most.get(fields["nonce"], 0), fields["gas"] * CEILING.fee)
    assert max(map(len, nonces.values())) <= sender._NONCES + 1  # the last one is the honest node's
    node, keeper = town.node, town.keeper.address
    for _, one in sorted(left, key=lambda found: found[0]["nonce"]):  # all that ever left
        try:
            node.rpc("eth_sendRawTransaction", one.raw)
        except ChainError:
            continue
    node.rpc("evm_mine")
    paid = before - int(node.rpc("eth_getBalance", keeper, "latest"), 16)
    assert 0 < paid <= sum(most.values())
    return paid


def lied_to(running, path, folder, monkeypatch, *, kills, seed, planted=None, points=None):
    """Oracles that start again and again, until so many were killed; then an honest node.

    Args:
        points: where each is killed, in turn; by chance without.

    Returns:
        How often they started, and were lied to, and what they paid.
    """
    rng = random.Random(seed)
    monkeypatch.setattr("reticent.chain.sender._NONCE_PAUSE_S", 1e6)  # no more nonces while it lies
    town = Town(running, first_opened(path), folder())
    before = int(town.node.rpc("eth_getBalance", town.keeper.address, "latest"), 16)
    asked, starts, killed = questions(town.data), 0, 0
    town.ask(next(asked), 4 * town.data.terms.minimum)
    with Liar(running.url, seed) as liar:
        town.oracle_url = liar.url
        while starts < len(points) if points else killed < kills or liar.told < 10 * kills:
            if starts % 3 == 2:
                town.ask(next(asked), 4 * town.data.terms.minimum * rng.randint(1, 9))
            liar.chance = rng.choice([0.05, 0.15, 0.5])
            last = points[starts] if points else rng.choice([0, 0, rng.randint(1, MOST_POINTS)])
            killed += stepped(town, path, last, planted=planted)
            starts += 1
        lies = liar.told
    town.oracle_url = None
    monkeypatch.setattr("reticent.chain.sender._NONCE_PAUSE_S", 0.0)
    for _ in range(20):
        if not town.state().waiting:
            break
        stepped(town, path, timeout_s=5, planted=planted)
    assert faults(town) == []
    paid = check_funds(town, before)
    assert faults(town) == []
    town.close()
    assert killed >= kills
    return starts, lies, paid


def test_lies_draw_nothing_twice_and_cost_little(chain, declaration, fresh, monkeypatch):
    assert lied_to(chain, declaration, fresh, monkeypatch, kills=1, seed=18)[1] >= 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_lies_draw_nothing_twice_and_cost_little_in_full(chain, declaration, fresh, monkeypatch, seed):
    starts, lies, paid = lied_to(chain, declaration, fresh, monkeypatch, kills=20, seed=seed)
    print(f"seed {seed}: {starts} starts, {lies} lies, {paid / ETHER:.6f} ether")
    assert lies >= 200


@pytest.mark.slow
def test_lies_at_every_step_draw_nothing_twice_and_cost_little(chain, declaration, fresh, monkeypatch):
    """Killed at its first point, then at its second, and so on, four times over."""
    points = 4 * list(range(1, MOST_POINTS + 1))
    ended = lied_to(chain, declaration, fresh, monkeypatch, kills=MOST_POINTS, seed=5, points=points)
    print("at every step: {} starts, {} lies, {} wei".format(*ended))


def test_a_fee_above_the_ceiling_would_be_found(chain, declaration, fresh, monkeypatch):
    with pytest.raises(AssertionError):
        lied_to(chain, declaration, fresh, monkeypatch, kills=0, seed=18, planted=pays_whatever)


@pytest.mark.parametrize(("planted", "found"), [(None, []), (redraws, ["two draws left for one request"])])
def test_a_second_draw_would_be_found(chain, declaration, fresh, planted, found):
    """A node that takes a record and says so, and keeps it; then an honest one."""

    def call(method, parameters, forward):
        if method == "eth_sendRawTransaction":
            return "0x" + keccak(bytes.fromhex(parameters[0][2:])).hex()
        return forward(method, parameters)

    town = Town(chain, first_opened(declaration), fresh())
    town.ask(next(questions(town.data)), 4 * town.data.terms.minimum)
    with Proxy(chain.url, call=call) as keeping:
        town.oracle_url = keeping.url
        stepped(town, declaration, planted=planted)
    town.oracle_url = None
    stepped(town, declaration, timeout_s=120, planted=planted)
    assert faults(town)[:1] == found
    town.close()
