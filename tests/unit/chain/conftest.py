"""What the tests of the chain share: a node of the session's anvil, a sender with money, a contract."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import reticent.ledger.ethereum.contracts
from reticent.chain.contracts import Artifact
from reticent.chain.keys import Key
from reticent.chain.node import Node
from reticent.chain.sender import Sender

CONTRACTS = Path(reticent.ledger.ethereum.contracts.__file__).parent


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A transaction that is in no block is looked after at once."""
    monkeypatch.setattr("reticent.chain.sender._AGAIN_AFTER_S", 0.05)
    monkeypatch.setattr("reticent.chain.sender._LONGEST_PAUSE_S", 0.05)


@pytest.fixture
def node(anvil):
    found = Node(anvil.url)
    yield found
    found.close()


@pytest.fixture
def rich():
    """Keys of their own, with money: tests that share a chain share no nonces."""

    def make(node, secret=None):
        key = Key(secret or os.urandom(32))
        node.rpc("anvil_setBalance", key.address, hex(10**24))
        return key

    return make


@pytest.fixture
def sender(node, rich):
    return Sender(node, rich(node), timeout_s=120)


@pytest.fixture(scope="session")
def ledger():
    return Artifact.read(CONTRACTS / "PrivacyLedger.json")


@pytest.fixture(scope="session")
def anchor():
    return Artifact.read(CONTRACTS / "HeadAnchor.json")


@pytest.fixture
def own_anvil(anvil):  # `anvil` skips where there is none
    """Start chains that a test may stop, or tell what to do."""
    from reticent.chain.anvil import Anvil

    started = []

    def start(*arguments, **options):
        started.append(Anvil(*arguments, **options))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def virtual_time(monkeypatch):
    """Let the time of senders pass only while they sleep, and in no time."""
    now = [1000.0]

    def sleep(seconds):
        now[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep, time=lambda: time.time())
    monkeypatch.setattr("reticent.chain.sender.time", clock)
