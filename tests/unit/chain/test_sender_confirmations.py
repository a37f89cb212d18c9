"""Transactions until they are confirmed, dropped or reorganised away."""

import pytest

from reticent.chain.fees import gas_and_tip
from reticent.chain.node import Node
from reticent.chain.sender import Sender
from reticent.errors import NotConfirmed

from .proxy import Proxy
from .sent import TO, chain, manual, mined, mining

__all__ = ["chain", "manual", "mining"]  # fixtures


# Confirmations


def check_confirmations(make, node):
    """Three confirmations are three blocks on top, and not one less."""
    sender = make(node, node.keys[0], confirmations=3, timeout_s=0)
    sent = sender.send(TO, b"")
    for _ in range(4):  # in no block; in one; under one; under two
        with pytest.raises(NotConfirmed, match=rf"{sent.hash} has no 3 confirmations after 0 s"):
            sender.wait(sent)
        node.rpc("evm_mine")
    receipt = sender.wait(sent)
    assert node.number() == receipt.block + 3


def test_confirmations(manual):
    check_confirmations(Sender, manual)


def test_not_waiting_would_be_caught(manual):
    """Planted: a receipt is enough."""

    class Planted(Sender):
        def _confirmed(self, missing):
            depth, self.confirmations = self.confirmations, 0
            try:
                return super()._confirmed(missing)
            finally:
                self.confirmations = depth

    with pytest.raises(pytest.fail.Exception):
        check_confirmations(Planted, manual)


def test_one_too_few_would_be_caught(manual):
    """Planted: the transaction's own block counts as a confirmation."""

    class Planted(Sender):
        def _all_answers(self, asked):
            answers = super()._all_answers(asked)
            return [
                hex(int(a, 16) + 1) if m == "eth_blockNumber" else a
                for (m, _), a in zip(asked, answers, strict=True)
            ]

    with pytest.raises(pytest.fail.Exception):
        check_confirmations(Planted, manual)


def check_stale_receipt(make, node):
    """A reorganisation between receipt and number: the receipt's block is in the chain no longer."""

    def call(method, parameters, forward):
        found = forward(method, parameters)
        if method == "eth_getTransactionReceipt" and found:
            found["blockHash"] = "0x" + "00" * 32
        return found

    with Proxy(node.url, call=call) as server:
        between = Node(server.url)
        sender = make(between, node.keys[0], confirmations=1, timeout_s=0)
        sent = sender.send(TO, b"")
        node.rpc("evm_mine")
        with pytest.raises(NotConfirmed):
            sender.wait(sent)
        between.close()


def test_a_stale_receipt(chain):
    check_stale_receipt(Sender, chain)


def test_believing_a_stale_receipt_would_be_caught(chain):
    """Planted: the block of a receipt is not looked up."""

    class Planted(Sender):
        def _all_answers(self, asked):
            if asked[0][0] == "eth_getBlockByNumber":
                return [{"hash": "0x" + "00" * 32}] * len(asked)
            return super()._all_answers(asked)

    with pytest.raises(pytest.fail.Exception):
        check_stale_receipt(Planted, chain)


def test_what_needs_no_confirmations_is_asked_for_once(anvil, rich):
    asked = []

    def call(method, parameters, forward):
        asked.append(method)
        return forward(method, parameters)

    with Proxy(anvil.url, call=call) as server:
        node = Node(server.url)
        sender = Sender(node, rich(node), confirmations=0, timeout_s=120)
        sent = sender.send(TO, b"data", gas=50_000)
        sender.wait(sent)  # it is in a block now
        del asked[:]
        assert sender.wait(sent).succeeded
        assert asked == ["eth_getTransactionReceipt"]
        node.close()


def test_blocks_in_intervals(own_anvil):
    running = own_anvil(block_time_s=1)
    node = Node(running.url)
    sender = Sender(node, running.keys[0], confirmations=1, timeout_s=120)
    receipt = sender.transact(TO, b"")
    assert node.number() >= receipt.block + 1
    node.close()


def test_never_in_a_block(manual):
    sender = Sender(manual, manual.keys[0], timeout_s=0.3)
    sent = sender.send(TO, b"")
    with pytest.raises(NotConfirmed, match=rf"transaction {sent.hash} is in no block after 0\.3 s"):
        sender.wait(sent)
    manual.rpc("evm_mine")
    sender._timeout_s = 120.0
    assert sender.wait(sent).succeeded


# Dropped and reorganised


def check_dropped(make, manual, mining):
    sender = make(manual, manual.keys[0], timeout_s=120)
    sent = sender.send(TO, b"data")
    manual.rpc("anvil_dropTransaction", sent.hash)
    with mining(manual):
        assert sender.wait(sent).transaction == sent.hash  # the hash of the same bytes
    assert mined(manual, sender.address) == [(0, b"data")]


def test_dropped_from_the_pool(manual, mining):
    check_dropped(Sender, manual, mining)


class Forgetful(Sender):
    """Planted: what was sent is sent."""

    def _send_again(self, sent, *, is_stuck=False):
        self._timeout_s = 0.5


class Redrawing(Sender):
    """Planted: what is broadcast again is signed again."""

    def _send_again(self, sent, *, is_stuck=False):
        with self._guard:
            fees = self._current_fees()
            again = self._signed(sent.destination, sent.data, 70_000, "", nonce=sent.nonce, fees=fees)
            self._announce([self._replaced(sent, again)])


@pytest.mark.parametrize("planted", [Forgetful, Redrawing])
def test_not_sending_the_same_again_would_be_caught(manual, mining, planted):
    with pytest.raises((NotConfirmed, AssertionError)):
        check_dropped(planted, manual, mining)


def test_reorganised_away(manual, mining):
    """Three times, each before it is deep enough: the same bytes get in again."""
    sender = Sender(manual, manual.keys[0], confirmations=2, timeout_s=120)
    sent = sender.send(TO, b"data")
    for _ in range(3):
        manual.rpc("evm_mine")
        assert manual.receipt(sent.hash) is not None
        manual.rpc("anvil_reorg", 1, [])
        assert manual.receipt(sent.hash) is None
        assert sender._send_again(sent) is None
    with mining(manual):
        assert sender.wait(sent).transaction == sent.hash
    assert mined(manual, sender.address) == [(0, b"data")]


def test_one_whom_nobody_waits_for_is_sent_again_with_those_before_it(manual):
    """Both were reorganised away; only the second is asked for again, and waits for the first one's nonce."""
    sender = Sender(manual, manual.keys[0])
    sender.send(TO, b"first")
    second = sender.send(TO, b"second", gas=50_000)
    manual.rpc("evm_mine")
    manual.rpc("anvil_reorg", 1, [])
    assert mined(manual, sender.address) == []
    sender.send_again(second)
    manual.rpc("evm_mine")
    assert mined(manual, sender.address) == [(0, b"first"), (1, b"second")]


def test_a_limit_of_gas_that_is_no_lower_than_asked(manual):
    sender = Sender(manual, manual.keys[0])
    assert gas_and_tip(sender.send(TO, b"data", least_gas=90_000).raw)[0] == 90_000
    assert gas_and_tip(sender.send(TO, b"data", least_gas=1).raw)[0] > 21_000


def check_gap(sender, chain):
    first = sender.transact(TO, b"first")
    chain.rpc("anvil_reorg", 1, [])
    assert chain.receipt(first.transaction) is None
    assert sender.transact(TO, b"second", gas=50_000).succeeded
    assert mined(chain, sender.address) == [(0, b"first"), (1, b"second")]


def test_an_earlier_one_was_reorganised_away(chain):
    """Nobody waits for the first any more, and the second cannot get in before it."""
    check_gap(Sender(chain, chain.keys[0], timeout_s=120), chain)


def test_leaving_the_gap_would_be_caught(chain, monkeypatch):
    """Planted: only what is waited for is broadcast again."""
    sender = Sender(chain, chain.keys[0], timeout_s=0.5)
    monkeypatch.setattr("reticent.chain.sender._REMEMBERED", 0)

    class Nothing(dict):
        def __setitem__(self, nonce, sent):
            pass

    sender._recent = Nothing()
    with pytest.raises((NotConfirmed, AssertionError)):
        check_gap(sender, chain)


def check_block_while_asking(make, manual):
    """A block comes just when the sender looks whether its nonce is taken: nothing is sent twice."""
    state = {"mine": False}

    def call(method, parameters, forward):
        if method == "eth_sendRawTransaction":
            state["mine"] = True
        if method == "eth_getTransactionCount" and parameters[1] == "latest" and state["mine"]:
            state["mine"] = False
            forward("evm_mine", [])
        return forward(method, parameters)

    with Proxy(manual.url, call=call) as server:
        node = Node(server.url)
        sender = make(node, manual.keys[0], timeout_s=120)
        assert sender.transact(TO, b"data").succeeded
        manual.rpc("evm_mine")
        assert mined(manual, sender.address) == [(0, b"data")]
        node.close()


def test_a_block_while_asking(manual):
    check_block_while_asking(Sender, manual)


def test_asking_in_the_wrong_order_would_be_caught(manual):
    """Planted: first the receipt, then the count."""

    class Planted(Sender):
        def _send_again(self, sent, *, is_stuck=False):
            if self.node.receipt(sent.hash) is not None:
                return
            used = int(self.node.rpc("eth_getTransactionCount", self.address, "latest"), 16)
            if used > sent.nonce:
                self._nonce = None
                self._announce([self._signed_anew(sent)])

    with pytest.raises(AssertionError):
        check_block_while_asking(Planted, manual)
