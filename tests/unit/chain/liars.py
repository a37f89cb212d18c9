"""A node that lies, for the tests of what it may cost."""

import pytest

from reticent.chain.node import Node
from reticent.chain.outbox import Outbox

from .proxy import Proxy

TO = "0x" + "00" * 19 + "Aa"


class Liar(Proxy):
    """A node whose answers to some methods are what `lies` says; a callable is given the true answer."""

    def __init__(self, target):
        self.lies, self.raw = {}, []
        super().__init__(target, call=self._told)
        self.node = Node(self.url)

    def _told(self, method, parameters, forward):
        if method == "eth_sendRawTransaction":
            self.raw.append(parameters[0])
        lie = self.lies.get(method)
        if isinstance(lie, Exception):
            raise lie
        if lie is None:
            return forward(method, parameters)
        return lie(parameters, forward) if callable(lie) else lie

    def __exit__(self, *error):
        self.node.close()
        super().__exit__(*error)


@pytest.fixture
def chain(own_anvil):
    running = own_anvil()
    node = Node(running.url)
    node.keys = running.keys
    yield node
    node.close()


@pytest.fixture
def liar(chain):
    with Liar(chain.url) as server:
        yield server


@pytest.fixture
def key(chain):
    return chain.keys[0]


@pytest.fixture
def open_outbox(tmp_path):
    opened = []

    def start():
        opened.append(Outbox(tmp_path / "outbox"))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture
def clock(monkeypatch):
    """Set the clock by which nonces are spared."""
    now = [1e9]
    monkeypatch.setattr("reticent.chain.sender.time.time", lambda: now[0])

    def forward(seconds):
        now[0] += seconds

    return forward


def mined(node, address):
    """(nonce, data, paid for a unit of gas, tip) of every transaction of an address."""
    found = []
    for number in range(node.number() + 1):
        block = node.rpc("eth_getBlockByNumber", hex(number), True)
        base = int(block.get("baseFeePerGas", "0x0"), 16)
        for one in block["transactions"]:
            if one["from"].lower() == address.lower():
                paid = int(node.rpc("eth_getTransactionReceipt", one["hash"])["effectiveGasPrice"], 16)
                data = bytes.fromhex(one["input"][2:])
                found.append((int(one["nonce"], 16), data, paid, paid - base))
    return found
