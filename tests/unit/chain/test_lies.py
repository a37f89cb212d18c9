"""Nodes that lie about fees, nonces and receipts, or keep what they are given: what it costs, and its end."""

from itertools import pairwise

import pytest

from reticent.chain import fees
from reticent.chain.fees import GWEI, Ceiling, Fees, gas_and_tip, raised_fees
from reticent.chain.keys import Key
from reticent.chain.node import Node
from reticent.chain.outbox import Outbox
from reticent.chain.sender import _NONCES, Sender
from reticent.errors import (
    ChainError,
    FeeTooHigh,
    NodeUnavailable,
    NotConfirmed,
    ParameterError,
    ParameterTypeError,
    TransactionRefused,
)

from .proxy import Proxy, Refused

TO = "0x" + "00" * 19 + "Aa"
ETHER = 10**18


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


def block_with(base_fee):
    def told(parameters, forward):
        return {**forward("eth_getBlockByNumber", parameters), "baseFeePerGas": base_fee}

    return told


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


# Ceilings


def test_the_defaults():
    assert Ceiling() == Ceiling.of() == Ceiling(100 * GWEI, 10 * GWEI)
    assert Ceiling.of(2.5) == Ceiling(2_500_000_000, 2_500_000_000)
    assert Ceiling.of(50) == Ceiling(50 * GWEI, 10 * GWEI)
    assert Ceiling.of(50, 0.5) == Ceiling(50 * GWEI, GWEI // 2)
    assert Ceiling.of(None, 20) == Ceiling(100 * GWEI, 20 * GWEI)
    assert Ceiling.of(10**9, 0) == Ceiling(ETHER, 0)


@pytest.mark.parametrize(
    ("max_fee", "max_tip", "words"),
    [
        (0, None, "max_fee must be > 0"),
        (-1, None, "max_fee must be > 0"),
        (1e-12, None, "max_fee must be >= 1, got 0"),
        (float("nan"), None, "max_fee must be finite"),
        (2 * 10**9, None, "max_fee must be > 0 and <= 1e"),
        (1, -1, "max_tip must be >= 0"),
        (1, 2, r"max_tip must be at most max_fee \(1 gwei\), got 2 gwei"),
        (None, 101, r"max_tip must be at most max_fee \(100 gwei\)"),
    ],
)
def test_bad_ceilings(max_fee, max_tip, words):
    with pytest.raises(ParameterError, match=words):
        Ceiling.of(max_fee, max_tip)


@pytest.mark.parametrize(
    ("given", "name"),
    [(("1", 1), "max_fee"), ((1, None), "max_tip"), ((True, 0), "max_fee"), ((2, 1.5), "max_tip")],
)
def test_a_ceiling_is_whole_wei(given, name):
    with pytest.raises(ParameterTypeError, match=f"^{name} must be"):
        Ceiling(*given)


def check_tip(make, chain, liar, key):
    """300 ether of tip are asked for: half of the ceiling is paid."""
    liar.lies["eth_maxPriorityFeePerGas"] = hex(300 * ETHER)
    sender = make(liar.node, key, ceiling=Ceiling(40 * GWEI, 2 * GWEI), timeout_s=120)
    assert sender.transact(TO, b"data").succeeded
    ((nonce, data, paid, tip),) = mined(chain, key.address)
    assert (nonce, data, tip) == (0, b"data", GWEI)
    assert paid <= 40 * GWEI


def test_a_tip_of_300_ether(chain, liar, key):
    check_tip(Sender, chain, liar, key)


def test_believing_the_tip_would_be_caught(chain, liar, key, monkeypatch):
    """Planted: the node's word is the tip."""
    monkeypatch.setattr(
        "reticent.chain.sender.current_fees", lambda node, ceiling: Fees(400 * ETHER, 300 * ETHER)
    )
    with pytest.raises((AssertionError, TransactionRefused)):
        check_tip(Sender, chain, liar, key)


@pytest.mark.parametrize("base", [101 * GWEI, 1 << 63, 1 << 64, (1 << 256) - 1])
def test_a_base_fee_above_the_ceiling(liar, key, open_outbox, base):
    """Nothing is signed, whatever the number; afterwards all is well."""
    outbox = open_outbox()
    sender = Sender(liar.node, key, outbox=outbox, timeout_s=120)
    liar.lies["eth_getBlockByNumber"] = block_with(hex(base))
    with pytest.raises(FeeTooHigh, match=r"^max_fee must be at least .* got 100: nothing was signed$"):
        sender.send(TO, b"data", label="a")
    assert outbox.find("a") is None
    assert liar.raw == []
    liar.lies.clear()
    assert sender.transact(TO, b"data", label="a").succeeded


@pytest.mark.parametrize(
    ("method", "lie"),
    [
        ("eth_getBlockByNumber", block_with("-0x1")),
        ("eth_getBlockByNumber", block_with("0x" + "f" * 65)),
        ("eth_getBlockByNumber", block_with("0x1_0")),
        ("eth_maxPriorityFeePerGas", "-0x5"),
        ("eth_maxPriorityFeePerGas", "17"),
        ("eth_getTransactionCount", "-0x1"),
        ("eth_getTransactionCount", hex(1 << 53)),
        ("eth_getTransactionCount", hex(1 << 64)),
        ("eth_estimateGas", hex(1 << 53)),
        ("eth_estimateGas", "-0x1"),
    ],
)
def test_numbers_that_cannot_be(liar, key, open_outbox, method, lie):
    sender = Sender(liar.node, key, outbox=open_outbox(), timeout_s=120)
    liar.lies[method] = lie
    with pytest.raises(NodeUnavailable, match="the node gave no"):
        sender.send(TO, b"data", label="a")
    assert liar.raw == []
    liar.lies.clear()
    assert sender.transact(TO, b"data", label="a").succeeded


def test_the_largest_numbers_that_may_be(liar, key, open_outbox):
    outbox = open_outbox()
    liar.lies |= {
        "eth_getTransactionCount": hex((1 << 53) - 1),
        "eth_maxPriorityFeePerGas": hex((1 << 256) - 1),
        "eth_getBlockByNumber": block_with(hex(ETHER)),
        "eth_sendRawTransaction": "0x00",
    }
    sender = Sender(liar.node, key, ceiling=Ceiling(ETHER, ETHER), outbox=outbox)
    sent = sender.send(TO, b"data", label="a", gas=30_000)
    assert (sent.nonce, sent.fee, gas_and_tip(sent.raw)) == ((1 << 53) - 1, ETHER, (30_000, ETHER // 2))
    assert outbox.versions("a") == [sent]


def test_a_price_before_eip_1559(own_anvil):
    running = own_anvil("--hardfork", "berlin")
    with Liar(running.url) as liar:
        ceiling = Ceiling(60 * GWEI, 40 * GWEI)
        sender = Sender(liar.node, running.keys[0], ceiling=ceiling, timeout_s=120)
        liar.lies["eth_gasPrice"] = hex(40 * GWEI)
        sent = sender.send(TO, b"data")
        assert sent.fee == 40 * GWEI  # the margin stays below
        with pytest.raises(FeeTooHigh, match="a replacement must pay more"):
            sender._raised(sent)
        sender._fees = None
        liar.lies["eth_gasPrice"] = hex(41 * GWEI)
        with pytest.raises(FeeTooHigh, match=r"max_tip must be at least 41 gwei .* got 40: nothing"):
            sender.send(TO, b"data")


def test_a_lie_that_there_is_no_base_fee(chain, liar, key):
    """All of a price is a tip then, and paid: it stays below the ceiling of tips."""
    liar.lies["eth_getBlockByNumber"] = block_with(None)
    liar.lies["eth_gasPrice"] = hex(2 * GWEI)
    sender = Sender(liar.node, key, ceiling=Ceiling(40 * GWEI, 2 * GWEI), timeout_s=120)
    assert sender.transact(TO, b"data").succeeded
    ((_, _, paid, tip),) = mined(chain, key.address)
    assert (paid, tip < 2 * GWEI) == (2 * GWEI, True)
    sender._fees = None
    liar.lies["eth_gasPrice"] = hex(39 * GWEI)
    with pytest.raises(FeeTooHigh, match="max_tip must be at least 39 gwei"):
        sender.send(TO, b"data")


@pytest.mark.parametrize(
    ("base", "tip", "price", "old", "new"),
    [
        (8, 2, 10, (16, 4), (21, 6)),  # a quarter more than before, and one
        (8, 3, 10, (16, 2), (21, 3)),  # or as the chain asks now
        (30, 3, 33, (16, 2), (66, 3)),  # twice what it costs
        (8, 2, 40, (16, 4), (80, 6)),  # by what the node says that the next block costs
        (8, 2, 60, (16, 4), (100, 6)),  # up to the ceilings
        (8, 2, 10, (88, 8), (100, 10)),
        (8, 2, 10, (89, 8), None),  # where an eighth more is above them, there is none
        (8, 2, 10, (16, 9), None),
    ],
)
def test_what_a_replacement_pays(liar, key, base, tip, price, old, new):
    liar.lies |= {
        "eth_getBlockByNumber": block_with(hex(base)),
        "eth_maxPriorityFeePerGas": hex(tip),
        "eth_gasPrice": hex(price),
    }
    raw, _ = key.sign(
        {"chainId": 31337, "nonce": 0, "value": 0, "gas": 21_000, "data": b""} | Fees(*old).fields()
    )
    if new is None:
        with pytest.raises(
            FeeTooHigh, match=r"^a replacement must pay more than max_fee 1e-07 or max_tip 1e-08"
        ):
            raised_fees(liar.node, Ceiling(100, 10), raw, old[0])
    else:
        assert raised_fees(liar.node, Ceiling(100, 10), raw, old[0]) == Fees(*new)


def test_a_replacement_stays_below_the_ceiling(chain, liar, key):
    """The base fee outruns the ceiling: nothing more is signed, and what is signed waits until it falls."""
    chain.rpc("evm_setAutomine", False)
    sender = Sender(liar.node, key, ceiling=Ceiling(5 * GWEI, GWEI), timeout_s=120)
    sent = sender.send(TO, b"data")
    liar.lies["eth_getBlockByNumber"] = block_with(hex(6 * GWEI))
    with pytest.raises(FeeTooHigh, match="max_fee must be at least 6 gwei"):
        sender._raised(sent)
    assert sender._send_again(sent) is None
    assert set(liar.raw) == {"0x" + sent.raw.hex()}
    liar.lies.clear()
    chain.rpc("evm_mine")
    assert sender.wait(sent).transaction == sent.hash


def test_replacements_up_to_the_ceiling(chain, key):
    """Each pays an eighth more at least, in both; the last is below the ceiling; then there is none."""
    chain.rpc("evm_setAutomine", False)
    ceiling = Ceiling(40 * GWEI, 3 * GWEI)
    sender = Sender(chain, key, ceiling=ceiling)
    one = sender.send(TO, b"data")
    versions = [one]
    with pytest.raises(FeeTooHigh, match="more than max_fee 40 or max_tip 3 gwei for a unit of gas"):  # noqa: PT012
        for _ in range(40):
            one = sender._raised(one)
            versions.append(one)
            assert chain.rpc("eth_sendRawTransaction", "0x" + one.raw.hex()) == one.hash
    assert len(versions) > 3
    for old, new in pairwise(versions):
        assert new.fee * 8 >= old.fee * 9
        assert gas_and_tip(new.raw)[1] * 8 >= gas_and_tip(old.raw)[1] * 9
        assert (new.nonce, new.data, gas_and_tip(new.raw)[0]) == (0, b"data", gas_and_tip(old.raw)[0])
    assert versions[-1].fee <= ceiling.fee
    assert 2 * GWEI < gas_and_tip(versions[-1].raw)[1] <= ceiling.tip
    chain.rpc("evm_mine")
    assert [(nonce, data) for nonce, data, _, _ in mined(chain, key.address)] == [(0, b"data")]


def test_a_node_that_wants_more_than_the_ceiling(liar, key):
    liar.lies["eth_sendRawTransaction"] = Refused("transaction underpriced: tip needed 25 gwei")
    sender = Sender(liar.node, key, ceiling=Ceiling(40 * GWEI, 2 * GWEI))
    with pytest.raises(TransactionRefused, match=r"tip needed 25 gwei, and a replacement must pay more"):
        sender.send(TO, b"data")
    tips = [gas_and_tip(bytes.fromhex(one[2:]))[1] for one in liar.raw]
    assert tips == sorted(tips)
    assert tips[-1] <= 2 * GWEI


# Nonces


def check_nonce_lie(make, chain, liar, key, open_outbox, *, restarted, timeout_s=120):
    """One lie, of a thousand nonces that nobody used: with the truth, it gets in."""
    sender = make(liar.node, key, outbox=open_outbox(), timeout_s=timeout_s)
    liar.lies["eth_getTransactionCount"] = hex(1000)
    first = sender.send(TO, b"data", label="a")
    assert first.nonce == 1000
    liar.lies.clear()
    if restarted:
        sender = make(liar.node, key, outbox=open_outbox(), timeout_s=timeout_s)
        first = sender.send(TO, b"data", label="a")
    assert sender.wait(first).succeeded
    assert [(nonce, data) for nonce, data, _, _ in mined(chain, key.address)] == [(0, b"data")]
    versions = open_outbox().versions("a")
    assert [one.nonce for one in versions] == [1000, 0]  # both bytes are kept
    assert {"0x" + one.raw.hex() for one in versions} == set(liar.raw)
    assert sender.transact(TO, b"next", label="b").succeeded


@pytest.mark.parametrize("restarted", [False, True])
def test_a_lie_about_the_nonce(chain, liar, key, open_outbox, restarted):
    check_nonce_lie(Sender, chain, liar, key, open_outbox, restarted=restarted)


class Stubborn(Sender):
    """Planted: what was signed is sent, whatever its nonce."""

    def _chosen(self, sent, live, used, coming):
        return sent


@pytest.mark.parametrize("restarted", [False, True])
def test_keeping_a_wrong_nonce_would_be_caught(chain, liar, key, open_outbox, restarted):
    with pytest.raises(NotConfirmed):
        check_nonce_lie(Stubborn, chain, liar, key, open_outbox, restarted=restarted, timeout_s=2)


@pytest.mark.parametrize("words", ["nonce too high", "Nonce is too distant in the future", "NonceGap"])
def test_a_node_that_refuses_a_nonce_ahead(chain, liar, key, open_outbox, words):
    sender = Sender(liar.node, key, outbox=open_outbox(), timeout_s=120)
    liar.lies["eth_getTransactionCount"] = lambda *_: liar.lies.pop("eth_getTransactionCount") and hex(50)
    liar.lies["eth_sendRawTransaction"] = refusing(liar, words)
    sender._nonce = 50
    assert sender.transact(TO, b"data", label="a").succeeded
    assert [(nonce, data) for nonce, data, _, _ in mined(chain, key.address)] == [(0, b"data")]


def refusing(liar, words):
    """Refuses the first."""

    def told(parameters, forward):
        liar.lies.clear()
        raise Refused(words)

    return told


def test_several_with_nonces_that_do_not_follow(chain, liar, key, open_outbox):
    """A batch signed from a lie on: each gets its place."""
    sender = Sender(liar.node, key, outbox=open_outbox(), timeout_s=120)
    liar.lies["eth_getTransactionCount"] = hex(1000)
    calls, labels = [(TO, b"%d" % i) for i in range(5)], [f"{i}" for i in range(5)]
    sent = sender.send_many(calls, labels=labels, gas=50_000)
    assert [one.nonce for one in sent] == list(range(1000, 1005))
    liar.lies.clear()
    assert all(one.succeeded for one in sender.wait_many(sent))
    found = mined(chain, key.address)
    assert [nonce for nonce, *_ in found] == list(range(5))
    assert {data for _, data, *_ in found} == {data for _, data in calls}


def test_several_that_were_kept_and_forgotten_are_sent_as_they_were(chain, key, open_outbox):
    """The node lost them while nobody looked: they follow each other, and no byte is new."""
    chain.rpc("evm_setAutomine", False)
    calls, labels = [(TO, b"%d" % i) for i in range(5)], [f"{i}" for i in range(5)]
    sent = Sender(chain, key, outbox=open_outbox()).send_many(calls, labels=labels, gas=50_000)
    chain.rpc("anvil_dropAllTransactions")
    chain.rpc("evm_setAutomine", True)
    sender = Sender(chain, key, outbox=open_outbox(), timeout_s=120)
    again = sender.send_many(calls[::-1], labels=labels[::-1], gas=50_000)
    assert again == sent[::-1]
    assert all(one.succeeded for one in sender.wait_many(again))


def test_what_was_kept_and_what_is_new_share_no_nonce(chain, liar, key, open_outbox):
    """After a restart, some that the node forgot, some whose nonce was a lie, and some that are new."""
    chain.rpc("evm_setAutomine", False)
    first = Sender(liar.node, key, outbox=open_outbox())
    forgotten = first.send_many([(TO, b"0"), (TO, b"1")], labels=["0", "1"], gas=50_000)
    liar.lies["eth_getTransactionCount"] = hex(1000)
    first._nonce = None
    lied = first.send_many([(TO, b"2"), (TO, b"3")], labels=["2", "3"], gas=50_000)
    assert [one.nonce for one in (*forgotten, *lied)] == [0, 1, 1000, 1001]
    liar.lies.clear()
    chain.rpc("anvil_dropAllTransactions")
    chain.rpc("evm_setAutomine", True)
    outbox = open_outbox()
    sender = Sender(liar.node, key, outbox=outbox, timeout_s=120)
    names = [f"{i}" for i in (0, 1, 2, 3, 4)]
    sent = sender.send_many([(TO, name.encode()) for name in names], labels=names, gas=50_000)
    assert [one.nonce for one in sent] == [0, 1, 2, 3, 4]
    assert sent[:2] == forgotten
    assert [len(outbox.versions(name)) for name in names] == [1, 1, 2, 2, 1]
    assert all(one.succeeded for one in sender.wait_many(sent))
    assert [data for _, data, *_ in mined(chain, key.address)] == [name.encode() for name in names]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_receipt_that_comes_after_the_count(chain, liar, key, open_outbox, restarted):
    """As anvil on a busy machine: the nonce is counted already, and the block is not shown yet."""
    outbox, hidden = open_outbox(), [5]
    sender = Sender(liar.node, key, outbox=outbox, timeout_s=120)
    first = sender.send(TO, b"data", label="a")
    assert sender.wait(first).succeeded

    def late(parameters, forward):
        hidden[0] -= 1
        return forward("eth_getTransactionReceipt", parameters) if hidden[0] < 0 else None

    liar.lies["eth_getTransactionReceipt"] = late
    if restarted:
        sender = Sender(liar.node, key, outbox=open_outbox(), timeout_s=120)
        assert sender.send(TO, b"data", label="a") == first
    else:
        assert sender._send_again(first) is None
    assert outbox.versions("a") == [first]
    assert len(mined(chain, key.address)) == 1


def check_no_end_of_nonces(make, liar, key, open_outbox, rounds=30):
    """A node that says of each nonce that it is taken, to processes that start again and again."""
    counts = iter(range(10**6))
    liar.lies["eth_getTransactionCount"] = lambda *_: hex(next(counts) // 2)
    liar.lies["eth_sendRawTransaction"] = Refused("nonce too low")
    liar.lies["eth_getTransactionByHash"] = lambda *_: None
    outbox = open_outbox()
    for _ in range(rounds):
        sender = make(liar.node, key, outbox=outbox, timeout_s=0.2)
        with pytest.raises((TransactionRefused, NotConfirmed)):
            sender.transact(TO, b"data", label="a", gas=50_000)
    assert len({one.nonce for one in outbox.versions("a")}) <= _NONCES
    assert set(liar.raw) == {"0x" + one.raw.hex() for one in outbox.versions("a")}


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr("reticent.chain.sender._RIVAL_PAUSE_S", 0.0)
    monkeypatch.setattr("reticent.chain.sender._SHOWN_AFTER_S", 0.0)


def test_a_node_that_takes_every_nonce(chain, liar, key, open_outbox, clock, no_pause):
    check_no_end_of_nonces(Sender, liar, key, open_outbox)
    sender, outbox = Sender(liar.node, key, outbox=open_outbox(), timeout_s=0.2), open_outbox()
    for wait, nonces in ((59, 8), (1, 9), (119, 9), (1, 10), (-240, 11)):  # the clock may be set back
        clock(wait)
        with pytest.raises((TransactionRefused, NotConfirmed)):
            sender.transact(TO, b"data", label="a", gas=50_000)
        assert len({one.nonce for one in outbox.versions("a")}) == nonces
    liar.lies.clear()
    clock(480)
    sender._timeout_s = 120.0
    assert sender.transact(TO, b"data", label="a", gas=50_000).succeeded
    for raw in liar.raw:  # all that was signed reaches the chain in the end: it is paid for, and no more
        try:
            chain.rpc("eth_sendRawTransaction", raw)
        except ChainError:
            continue
    found = mined(chain, key.address)
    assert {data for _, data, *_ in found} == {b"data"}
    assert len(found) <= 12


def test_signing_for_ever_would_be_caught(liar, key, open_outbox, clock, no_pause):
    """Planted: a nonce that is taken is a reason for the next."""

    class Planted(Sender):
        def _may_sign_anew(self, sent):
            return True

    with pytest.raises(AssertionError):
        check_no_end_of_nonces(Planted, liar, key, open_outbox, rounds=3)


def test_a_version_that_can_still_count_is_not_signed_again(chain, liar, key, open_outbox):
    """The node said that its nonce was taken, and now that it is free: the first bytes are sent once more."""
    chain.rpc("evm_setAutomine", False)
    outbox = open_outbox()
    sender = Sender(liar.node, key, outbox=outbox, timeout_s=120)
    first = sender.send(TO, b"data", label="a")
    liar.lies["eth_getTransactionCount"] = hex(3)
    assert sender._send_again(first) is None
    assert [one.nonce for one in outbox.versions("a")] == [0, 3]
    liar.lies.clear()
    chain.rpc("anvil_dropAllTransactions")
    again = Sender(liar.node, key, outbox=open_outbox(), timeout_s=120)
    assert again.send(TO, b"data", label="a") == first
    chain.rpc("evm_mine")
    assert again.wait(first).transaction == first.hash
    assert len(outbox.versions("a")) == 2


# Receipts


def test_a_lie_that_it_reverted(chain, liar, key, open_outbox):
    """It is signed anew a few times at most; what was true before stays true."""
    outbox = open_outbox()
    sender = Sender(liar.node, key, outbox=outbox, timeout_s=120)
    sent = sender.send(TO, b"data", label="a")
    assert sender.wait(sent).succeeded

    def reverted(parameters, forward):
        found = forward("eth_getTransactionReceipt", parameters)
        return found and {**found, "status": "0x0"}

    liar.lies["eth_getTransactionReceipt"] = reverted
    for _ in range(_NONCES + 2):
        sender = Sender(liar.node, key, outbox=outbox, timeout_s=120)
        with pytest.raises(TransactionRefused, match="it reverted in its block"):
            sender.transact(TO, b"data", label="a")
    assert len(outbox.versions("a")) == _NONCES
    liar.lies.clear()
    assert sender.transact(TO, b"data", label="a").succeeded
    assert len(outbox.versions("a")) == len(mined(chain, key.address)) == _NONCES


def test_an_older_version_in_a_block_after_a_restart(chain, key, open_outbox):
    """Whoever starts again knows all versions: what got in is found, and nothing is sent."""
    chain.rpc("evm_setAutomine", False)
    outbox = open_outbox()
    sender = Sender(chain, key, outbox=outbox)
    first = sender.send(TO, b"data", label="a")
    newer = sender._raised(first)
    assert outbox.versions("a") == [first, newer]
    chain.rpc("evm_mine")
    with Liar(chain.url) as watched:
        again = Sender(watched.node, key, outbox=open_outbox(), timeout_s=120)
        assert again.wait(again.send(TO, b"data", label="a")).transaction == first.hash
        assert set(watched.raw) == {"0x" + newer.raw.hex()}
    assert len(outbox.versions("a")) == 2


def test_a_block_while_looking_at_what_was_kept(chain, liar, key, open_outbox):
    """A block comes between the count and the receipts: nothing is signed."""
    chain.rpc("evm_setAutomine", False)
    outbox = open_outbox()
    first = Sender(chain, key, outbox=outbox).send(TO, b"data", label="a")

    def made(parameters, forward):
        found = forward("eth_getTransactionReceipt", parameters)
        liar.lies.clear()
        chain.rpc("evm_mine")
        return found

    liar.lies["eth_getTransactionReceipt"] = made
    sender = Sender(liar.node, key, outbox=outbox, timeout_s=120)
    assert sender.send(TO, b"data", label="a") == first
    assert sender.wait(first).transaction == first.hash
    assert outbox.versions("a") == [first]


# Kept, and never in a block


def check_kept(make, chain, liar, key, open_outbox, *, timeout_s=120):
    """A pool that took a transaction, says that it knows it, and will never put it into a block.

    anvil's does, now and then: one that arrives while the block before it is made waits for that for ever.
    """
    kept = []

    def told(parameters, forward):
        if not kept:
            kept.append(parameters[0])
            return "0x" + "00" * 32
        if parameters[0] in kept:
            raise Refused("transaction already imported")
        return forward("eth_sendRawTransaction", parameters)

    liar.lies["eth_sendRawTransaction"] = told
    outbox = open_outbox()
    sender = make(liar.node, key, outbox=outbox, timeout_s=timeout_s)
    sent = sender.send_many([(TO, b"0"), (TO, b"1")], labels=["a", "b"], gas=50_000)
    assert all(one.succeeded for one in sender.wait_many(sent))
    assert [(nonce, data) for nonce, data, _, _ in mined(chain, key.address)] == [(0, b"0"), (1, b"1")]
    old, new = outbox.versions("a")
    assert old == sent[0]
    assert (new.nonce, new.data, new.fee > old.fee) == (old.nonce, old.data, True)
    assert len(outbox.versions("b")) == 1


def test_a_node_that_keeps_what_it_was_given(chain, liar, key, open_outbox):
    check_kept(Sender, chain, liar, key, open_outbox)


def test_sending_the_same_for_ever_would_be_caught(chain, liar, key, open_outbox):
    """Planted: what the node knows is on its way."""

    class Planted(Sender):
        def _raised_or_same(self, sent):
            return sent

    with pytest.raises(NotConfirmed):
        check_kept(Planted, chain, liar, key, open_outbox, timeout_s=3)


def test_what_is_the_next_for_long_is_replaced(chain, key, open_outbox, monkeypatch):
    """The node counts it, and blocks come without it: a tip that is too small, say. Only the next one."""
    chain.rpc("evm_setAutomine", False)
    outbox = open_outbox()
    sender = Sender(chain, key, outbox=outbox, timeout_s=0.5)
    sent = sender.send_many([(TO, b"0"), (TO, b"1")], labels=["a", "b"], gas=50_000)
    with pytest.raises(NotConfirmed):
        sender.wait_many(sent)
    assert len(outbox.versions("a")) == 1  # not before
    monkeypatch.setattr("reticent.chain.sender._STUCK_AFTER_S", 0.1)
    with pytest.raises(NotConfirmed):
        sender.wait_many(sent)
    versions = outbox.versions("a")
    assert len(versions) > 1
    assert {one.nonce for one in versions} == {0}
    assert len(outbox.versions("b")) == 1
    chain.rpc("evm_mine")
    sender._timeout_s = 120.0
    assert [one.succeeded for one in sender.wait_many(sent)] == [True, True]
    ((_, _, _, tip), _) = mined(chain, key.address)
    assert tip == gas_and_tip(versions[-1].raw)[1]


def test_a_tip_that_is_no_method(liar, chain, key):
    """Without the method, a tip is what the price is above the base fee; not below nothing."""
    liar.lies["eth_maxPriorityFeePerGas"] = Refused({"code": -32601, "message": "method not found"})
    liar.lies["eth_gasPrice"] = hex(3 * GWEI)
    liar.lies["eth_getBlockByNumber"] = block_with(hex(GWEI))
    assert fees.current_fees(liar.node, Ceiling()) == Fees(4 * GWEI, 2 * GWEI)
    liar.lies["eth_gasPrice"] = hex(GWEI // 2)
    assert fees.current_fees(liar.node, Ceiling()) == Fees(2 * GWEI, 0)
    assert fees.current_fees(liar.node, Ceiling(GWEI, 0)) == Fees(GWEI, 0)


def test_a_key_of_nobody(chain):
    """A tip of nothing can be replaced by a higher fee alone."""
    sender = Sender(chain, Key(b"\x07" * 32), ceiling=Ceiling(40 * GWEI, 0))
    sent = sender._signed(TO, b"data", 50_000, "")
    newer = sender._raised(sent)
    assert (gas_and_tip(newer.raw), newer.fee > sent.fee) == ((50_000, 0), True)
