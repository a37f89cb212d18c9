"""The sender: nonces, fees, confirmations; dropped, reorganised, replaced and reverted transactions."""

import itertools
import threading
import time
from types import SimpleNamespace

import pytest

from reticent.chain.fees import gas_and_tip
from reticent.chain.keys import Key
from reticent.chain.node import Node
from reticent.chain.outbox import Sent
from reticent.chain.sender import Sender, _says
from reticent.errors import ChainError, NodeUnavailable, NotConfirmed, ParameterError, TransactionRefused

from .proxy import Proxy, Refused
from .sent import TO, chain, manual, mined, mining

__all__ = ["chain", "manual", "mining"]  # fixtures


# Nonces


def check_threads(sender):
    """Eight threads send ten each: all get into blocks, without a gap and without a duplicate."""
    failures, sent = [], [f"{i}.{j}".encode() for i in range(8) for j in range(10)]

    def work(i):
        try:
            for data in sent[10 * i : 10 * i + 10]:
                assert sender.transact(TO, data, gas=50_000).succeeded
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failures == []
    found = mined(sender.node, sender.address)
    assert [nonce for nonce, _ in found] == list(range(80))
    assert sorted(data for _, data in found) == sorted(sent)


def test_eight_threads(chain):
    check_threads(Sender(chain, chain.keys[0], timeout_s=120))


def test_a_gap_would_be_caught(chain):
    """Planted: every fifth nonce is left out."""

    class Planted(Sender):
        def _next_nonce(self):
            found = super()._next_nonce()
            return found if found % 5 else super()._next_nonce()

    with pytest.raises(AssertionError):
        check_threads(Planted(chain, chain.keys[0], timeout_s=0.5))


def check_rivals(one, other):
    """Two with the same key, each sure of its nonces, one after the other."""
    for i in range(4):
        assert one.transact(TO, b"one %d" % i).succeeded
        assert other.transact(TO, b"other %d" % i).succeeded
        many = one.send_many([(TO, b"many %d %d" % (i, j)) for j in range(3)], gas=50_000)
        assert all(found.succeeded for found in one.wait_many(many))
    found = mined(one.node, one.address)
    assert [nonce for nonce, _ in found] == list(range(20))
    assert len({data for _, data in found}) == 20


def test_a_rival_with_the_same_key(chain):
    check_rivals(*(Sender(chain, chain.keys[0], timeout_s=120) for _ in range(2)))


def test_not_signing_anew_would_be_caught(chain):
    """Planted: a nonce that is taken is a refusal."""

    class Planted(Sender):
        def _signed_anew(self, sent):
            raise TransactionRefused("the nonce is taken")

    with pytest.raises((AssertionError, TransactionRefused)):
        check_rivals(*(Planted(chain, chain.keys[0], timeout_s=1) for _ in range(2)))


def test_a_rival_while_no_blocks_come(manual, mining):
    """The node refuses to replace the rival's transaction for the same fee: ours gets the next nonce."""
    one, other = (Sender(manual, manual.keys[0], timeout_s=120) for _ in range(2))
    first = one.send(TO, b"0")
    other._nonce = first.nonce
    second = other.send(TO, b"1")
    assert second.nonce == first.nonce + 1
    with mining(manual):
        assert one.wait(first).succeeded
        assert other.wait(second).succeeded
    assert mined(manual, one.address) == [(0, b"0"), (1, b"1")]


def test_a_rival_that_takes_the_nonce_later(manual, mining):
    """The transaction was dropped, and its nonce used by another one: signed anew, with the same data."""
    one, other = (Sender(manual, manual.keys[0], timeout_s=120) for _ in range(2))
    sent = one.send(TO, b"ours")
    manual.rpc("anvil_dropTransaction", sent.hash)
    other.send(TO, b"rival")
    with mining(manual):
        assert one.wait(sent).succeeded
        assert one.wait(sent).succeeded  # the first version still names it
    assert mined(manual, one.address) == [(0, b"rival"), (1, b"ours")]


def test_what_can_be_sent_no_longer(manual):
    """The nonce was taken, and there is no money for another: refused, and the others are still told."""
    one, other = (Sender(manual, manual.keys[0], timeout_s=120) for _ in range(2))
    sent = one.send_many([(TO, b"0"), (TO, b"1")], gas=50_000)
    manual.rpc("anvil_dropTransaction", sent[1].hash)
    manual.rpc("evm_mine")
    other.send(TO, b"rival")
    manual.rpc("evm_mine")
    manual.rpc("anvil_setBalance", one.address, "0x0")
    found = one.wait_many(sent)
    assert found[0].succeeded
    assert "Insufficient funds" in found[1].reason


def test_a_refusal_of_the_same_bytes_is_not_final(manual, mining):
    """They were taken once, and may be in a block soon, whatever the node says to them now."""
    state = {"full": False}

    def call(method, parameters, forward):
        if method == "eth_sendRawTransaction" and state["full"]:
            raise Refused("txpool is full")
        return forward(method, parameters)

    with Proxy(manual.url, call=call) as server:
        node = Node(server.url)
        sender = Sender(node, manual.keys[0], timeout_s=120)
        sent = sender.send(TO, b"data")
        state["full"] = True
        assert sender._send_again(sent) is None
        with mining(manual):
            assert sender.wait(sent).transaction == sent.hash
        node.close()


def test_a_node_that_dies_while_it_is_signed_anew(manual, mining):
    """The nonce that was given out for it and never broadcast leaves no gap."""
    state = {"dead": False}

    def message(body, forward):
        return (503, b"") if state["dead"] and "eth_sendRawTransaction" in str(body) else forward(body)

    with Proxy(manual.url, message=message) as server:
        node = Node(server.url)
        one, other = (
            Sender(node, manual.keys[0], timeout_s=120),
            Sender(manual, manual.keys[0], timeout_s=120),
        )
        sent = one.send(TO, b"ours")
        manual.rpc("anvil_dropTransaction", sent.hash)
        other.send(TO, b"rival")
        manual.rpc("evm_mine")
        state["dead"] = True
        with pytest.raises(NodeUnavailable, match="503"):
            one.wait(sent)
        state["dead"] = False
        with mining(manual):
            assert one.transact(TO, b"later").succeeded
            assert one.wait(sent).succeeded
        assert [data for _, data in mined(manual, one.address)] == [b"rival", b"later", b"ours"]
        node.close()


def check_refusal_leaves_no_gap(sender, ledger):
    address = sender.transact(None, ledger.creation).contract
    bad = ledger.encode("take", bytes(32))
    with pytest.raises(TransactionRefused, match="not offered"):
        sender.send_many([(TO, b"a"), (TO, b"b"), (address, bad), (TO, b"c")])
    assert sender.transact(TO, b"d").succeeded


def test_a_refusal_among_several_leaves_no_gap(node, rich, ledger):
    check_refusal_leaves_no_gap(Sender(node, rich(node), timeout_s=120), ledger)


def test_a_gap_after_a_refusal_would_be_caught(node, rich, ledger):
    """Planted: nonces that were given out and not used stay given out."""

    class Planted(Sender):
        @property
        def _nonce(self):
            return self.kept

        @_nonce.setter
        def _nonce(self, nonce):
            self.kept = getattr(self, "kept", None) if nonce is None else nonce

    with pytest.raises(NotConfirmed):
        check_refusal_leaves_no_gap(Planted(node, rich(node), timeout_s=0.5), ledger)


# Refusals


def test_no_money(node):
    sender = Sender(node, Key(b"\x01" * 31 + b"\x07"), timeout_s=120)
    with pytest.raises(TransactionRefused, match="Insufficient funds"):
        sender.send(TO, b"")
    node.rpc("anvil_setBalance", sender.address, hex(10**20))
    assert sender.transact(TO, b"").succeeded


def test_too_little_gas(sender, ledger):
    with pytest.raises(TransactionRefused, match="intrinsic gas too low"):
        sender.send(TO, b"", gas=100)
    address = sender.transact(None, ledger.creation).contract
    terms = ("a", "mu2", "replace one", b"person", 10, 1, sender.address, bytes(32))
    data = ledger.encode("register", *terms)
    sent = sender.send(address, data, gas=60_000)
    with pytest.raises(TransactionRefused, match="it ran out of gas in its block"):
        sender.wait(sent)
    assert sender.transact(address, data).succeeded


def test_a_creation_that_reverts(sender):
    sent = sender.send(None, bytes.fromhex("60006000fd"), gas=100_000)
    with pytest.raises(TransactionRefused, match="it reverted in its block"):
        sender.wait(sent)


def test_reasons(sender, ledger):
    address = sender.transact(None, ledger.creation).contract
    data = ledger.encode("take", bytes(32))
    with pytest.raises(TransactionRefused) as caught:  # before it is sent
        sender.send(address, data)
    assert caught.value.reason == "ledger: not offered"
    sent = sender.send(address, data, gas=100_000)
    with pytest.raises(TransactionRefused) as caught:  # in its block
        sender.wait(sent)
    assert caught.value.reason == "ledger: not offered"


def test_one_reverted_among_several(sender, ledger):
    address = sender.transact(None, ledger.creation).contract
    calls = [(TO, b"1"), (address, ledger.encode("take", bytes(32))), (TO, b"2")]
    sent = sender.send_many(calls, gas=100_000)
    found = sender.wait_many(sent)
    assert found[0].transaction == sent[0].hash
    assert found[1].reason == "ledger: not offered"
    assert found[2].transaction == sent[2].hash


@pytest.mark.parametrize("to", ["", "0x12", "somebody", TO + "00", 7])
def test_no_address(sender, to):
    with pytest.raises(ParameterError, match="an address must be 0x and 40 hexadecimal digits"):
        sender.send(to, b"")


def test_what_nodes_say():
    assert _says(ChainError("refused: Already Known"), ("alreadyknown",))
    assert not _says(ChainError("refused: unknown transaction type"), ("knowntransaction",))


@pytest.mark.parametrize("words", ["unknown transaction type", "txpool is full", "nonsense"])
def test_a_refusal_is_not_taken_for_a_yes(anvil, rich, words):
    def call(method, parameters, forward):
        if method == "eth_sendRawTransaction":
            raise Refused(words)
        return forward(method, parameters)

    with Proxy(anvil.url, call=call) as server:
        node = Node(server.url)
        with pytest.raises(TransactionRefused, match=words):
            Sender(node, rich(node)).send(TO, b"")
        node.close()


@pytest.mark.parametrize("words", ["nonce too low", "max fee per gas less than block base fee"])
def test_a_node_that_is_never_content(anvil, rich, words, monkeypatch):
    monkeypatch.setattr("reticent.chain.sender._TRIES", 4)

    def call(method, parameters, forward):
        if method == "eth_sendRawTransaction":
            raise Refused(words)
        return forward(method, parameters)

    with Proxy(anvil.url, call=call) as server:
        node = Node(server.url)
        with pytest.raises(TransactionRefused, match=rf"in 4 tries: .*{words}"):
            Sender(node, rich(node)).send(TO, b"")
        node.close()


@pytest.mark.parametrize(
    "method",
    ["eth_getTransactionCount", "eth_estimateGas", "eth_maxPriorityFeePerGas", "eth_getBlockByNumber"],
)
def test_answers_of_another_shape(anvil, rich, method):
    def call(asked, parameters, forward):
        return ["no"] if asked == method else forward(asked, parameters)

    with Proxy(anvil.url, call=call) as server:
        node = Node(server.url)
        with pytest.raises(NodeUnavailable, match="the node gave no"):
            Sender(node, rich(node)).send(TO, b"")
        node.close()


def test_a_node_that_dies_while_waiting(own_anvil):
    running = own_anvil("--no-mining")
    node = Node(running.url)
    sender = Sender(node, running.keys[0], timeout_s=120)
    sent = sender.send(TO, b"")
    running.close()
    with pytest.raises(NodeUnavailable, match="does not answer"):
        sender.wait(sent)
    with pytest.raises(NodeUnavailable, match="does not answer"):
        sender.send(TO, b"")
    node.close()


@pytest.mark.parametrize("way", ["backwards", "refused"])
def test_nodes_that_are_odd_about_batches(anvil, rich, way):
    def message(body, forward):
        if not isinstance(body, list):
            return forward(body)
        return forward(body)[::-1] if way == "backwards" else {"error": {"message": "no batches"}, "id": None}

    with Proxy(anvil.url, message=message) as server:
        node = Node(server.url)
        sender = Sender(node, rich(node), confirmations=0, timeout_s=120)
        sent = sender.send_many([(TO, b"%d" % i) for i in range(5)], gas=50_000)
        assert [one.transaction for one in sender.wait_many(sent)] == [one.hash for one in sent]
        node.close()


# Fees


def test_the_base_fee_rose_before_sending(chain):
    sender = Sender(chain, chain.keys[0], timeout_s=120)
    low = sender._current_fees().most
    chain.rpc("anvil_setNextBlockBaseFeePerGas", hex(low * 7))
    assert sender.transact(TO, b"data").succeeded
    assert mined(chain, sender.address) == [(0, b"data")]


def test_the_base_fee_rose_while_waiting(manual, mining):
    sender = Sender(manual, manual.keys[0], timeout_s=120)
    sent = sender.send(TO, b"data")
    manual.rpc("anvil_setNextBlockBaseFeePerGas", hex(sent.fee * 5))
    manual.rpc("evm_mine")
    assert manual.receipt(sent.hash) is None
    with mining(manual):
        receipt = sender.wait(sent)
    assert receipt.transaction != sent.hash
    assert mined(manual, sender.address) == [(sent.nonce, b"data")]
    assert sender.wait(sent) == receipt


def test_not_raising_the_fee_would_be_caught(manual, mining):
    """Planted: the same bytes for ever."""

    class Planted(Sender):
        def _raised(self, sent):
            return sent

    sender = Planted(manual, manual.keys[0], timeout_s=0.5)
    sent = sender.send(TO, b"data")
    manual.rpc("anvil_setNextBlockBaseFeePerGas", hex(sent.fee * 1000))
    manual.rpc("evm_mine")
    with pytest.raises(NotConfirmed):
        sender.wait(sent)


def check_old_version(make, manual):
    """Signed anew with a higher fee, and it is the first version that gets in: nothing more is sent."""
    sender = make(manual, manual.keys[0], timeout_s=120)
    sent = sender.send(TO, b"data")
    newer = sender._raised(sent)
    assert (newer.nonce, newer.destination, newer.data) == (sent.nonce, sent.destination, sent.data)
    manual.rpc("evm_mine")
    assert sender.wait(newer).transaction == sent.hash
    manual.rpc("evm_mine")
    assert mined(manual, sender.address) == [(0, b"data")]


def test_an_old_version_gets_in(manual):
    check_old_version(Sender, manual)


def test_forgetting_old_versions_would_be_caught(manual, mining):
    """Planted: only the last version is looked for."""

    class Planted(Sender):
        def _all_of(self, sent):
            return super()._all_of(sent)[-1:]

    with mining(manual), pytest.raises(AssertionError):
        check_old_version(Planted, manual)


def test_a_replacement_pays_more_in_both(manual):
    """Nodes ask for a tenth or an eighth more, of the most and of the tip; the gas stays."""
    sender = Sender(manual, manual.keys[0])
    sent = sender.send(TO, b"data")
    newer = sender._raised(sent)
    (gas, tip), (newer_gas, newer_tip) = gas_and_tip(sent.raw), gas_and_tip(newer.raw)
    assert newer_gas == gas
    assert newer_tip >= tip * 9 / 8
    assert newer.fee >= sent.fee * 9 / 8
    assert manual.rpc("eth_sendRawTransaction", "0x" + newer.raw.hex()) == newer.hash


def test_a_node_without_tips(anvil, rich):
    def call(method, parameters, forward):
        if method == "eth_maxPriorityFeePerGas":
            raise Refused({"code": -32601, "message": "method not found"})
        return forward(method, parameters)

    with Proxy(anvil.url, call=call) as server:
        node = Node(server.url)
        assert Sender(node, rich(node), timeout_s=120).transact(TO, b"").succeeded
        node.close()


@pytest.mark.parametrize("fork", ["berlin", "istanbul"])
def test_a_chain_without_eip_1559(own_anvil, mining, fork, monkeypatch):
    running = own_anvil("--hardfork", fork)
    node = Node(running.url)
    assert node.block().base_fee is None
    sender = Sender(node, running.keys[0], confirmations=1, timeout_s=120)
    node.rpc("evm_setAutomine", False)
    sent = sender.send(TO, b"data")
    assert sent.raw[0] >= 0xC0  # a plain list: no type
    assert gas_and_tip(sent.raw)[1] == 0
    node.rpc("anvil_dropTransaction", sent.hash)
    with mining(node):
        assert sender.wait(sent).transaction == sent.hash
    second = sender.send(TO, b"dearer")
    node.rpc("anvil_dropTransaction", second.hash)
    for place in ("fees", "sender"):  # the price rose: signed anew with the same nonce
        monkeypatch.setattr(f"reticent.chain.{place}.price_of", lambda node: 3 * sent.fee)
    with mining(node):
        receipt = sender.wait(second)
    assert receipt.transaction != second.hash
    found = node.rpc("eth_getTransactionByHash", receipt.transaction)
    assert int(found["gasPrice"], 16) >= 3 * sent.fee
    assert mined(node, sender.address) == [(0, b"data"), (1, b"dearer")]
    node.close()


@pytest.mark.parametrize("options", [{"confirmations": -1}, {"timeout_s": -1}, {"timeout_s": float("nan")}])
def test_bad_options(node, options):
    with pytest.raises(ParameterError):
        Sender(node, Key(b"\x01" * 32), **options)


def test_what_is_stuck_is_replaced_once_in_a_while(node, rich, monkeypatch):
    """By a clock that goes on a second with each look: one replacement a minute, not one a broadcast."""
    ticks, told = itertools.count(), []
    clock = SimpleNamespace(monotonic=lambda: float(next(ticks)), sleep=lambda pause: None, time=time.time)
    monkeypatch.setattr("reticent.chain.sender.time", clock)
    monkeypatch.setattr("reticent.chain.sender._AGAIN_AFTER_S", 5.0)
    monkeypatch.setattr(Sender, "_confirmed", lambda self, missing: {})
    monkeypatch.setattr(Sender, "_send_again", lambda self, sent, *, is_stuck: told.append(is_stuck))
    sent = Sent("", "", b"", "0x00", b"", 0, 1)
    with pytest.raises(NotConfirmed, match="transaction 0x00 is in no block after 400 s"):
        Sender(node, rich(node), timeout_s=400).wait_many([sent])
    assert len(told) > 40
    assert 5 <= told.count(True) <= 7
