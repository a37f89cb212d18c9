"""The sender: nonces, fees, confirmations; dropped, reorganised, replaced and reverted transactions."""

import threading

import pytest

from reticent.chain.fees import gas_and_tip
from reticent.chain.keys import Key
from reticent.chain.node import Node
from reticent.chain.sender import Sender, _says
from reticent.errors import ChainError, NodeUnavailable, NotConfirmed, ParameterError, TransactionRefused

from .proxy import Proxy, Refused

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
    """Two with the same key, each sure of its nonces, one after the other and at once."""
    for i in range(4):
        assert one.transact(TO, b"one %d" % i).succeeded
        assert other.transact(TO, b"other %d" % i).succeeded
        many = one.send_many([(TO, b"many %d %d" % (i, j)) for j in range(3)], gas=50_000)
        assert all(found.succeeded for found in one.wait_many(many))
    failures = []

    def work(sender, name):
        try:
            for i in range(10):
                assert sender.transact(TO, b"%s %d" % (name, i), gas=50_000).succeeded
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in ((one, b"left"), (other, b"right"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    found = mined(one.node, one.address)
    assert [nonce for nonce, _ in found] == list(range(40))
    assert len({data for _, data in found}) == 40


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
    assert sender.wait(sent).succeeded


# Dropped and reorganised


def check_dropped(make, manual, mining):
    sender = make(manual, manual.keys[0], timeout_s=5)
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
    sender = make(manual, manual.keys[0], timeout_s=5)
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
