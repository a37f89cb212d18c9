"""Senders on a chain of their own, for the tests of sending."""

import threading

import pytest

from reticent.chain.node import Node

TO = "0x" + "00" * 19 + "Aa"


@pytest.fixture
def chain(own_anvil):
    """A node of a chain of its own, and the chain's keys."""
    running = own_anvil()
    node = Node(running.url)
    node.keys = running.keys
    yield node
    node.close()


@pytest.fixture
def manual(chain):
    """A chain that makes blocks when it is told to."""
    chain.rpc("evm_setAutomine", False)
    return chain


@pytest.fixture
def mining():
    """Make blocks in the background while the `with` block lasts."""

    class Mining:
        def __init__(self, node):
            self.node, self.done = Node(node.url), threading.Event()
            self.thread = threading.Thread(target=self.run)

        def run(self):
            while not self.done.wait(0.02):
                self.node.rpc("evm_mine")

        def __enter__(self):
            self.thread.start()

        def __exit__(self, *error):
            self.done.set()
            self.thread.join()
            self.node.close()

    return Mining


def mined(node, address):
    """(nonce, data) of every transaction of an address, in the order of the chain."""
    found = []
    for number in range(node.number() + 1):
        for one in node.rpc("eth_getBlockByNumber", hex(number), True)["transactions"]:
            if one["from"].lower() == address.lower():
                found.append((int(one["nonce"], 16), bytes.fromhex(one["input"][2:])))
    return found
