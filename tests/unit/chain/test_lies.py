"""Nodes that lie about fees, nonces and receipts, or keep what they are given: what it costs, and its end."""

from itertools import pairwise

import pytest

from reticent.chain import fees
from reticent.chain.fees import GWEI, Ceiling, Fees, gas_and_tip, raised_fees
from reticent.chain.keys import Key
from reticent.chain.sender import _NONCES, Sender
from reticent.errors import (
    FeeTooHigh,
    NodeUnavailable,
    NotConfirmed,
    ParameterError,
    ParameterTypeError,
    TransactionRefused,
)

from .liars import TO, Liar, chain, key, liar, mined, open_outbox
from .proxy import Refused

__all__ = ["chain", "key", "liar", "open_outbox"]  # fixtures


ETHER = 10**18


def block_with(base_fee):
    def told(parameters, forward):
        return {**forward("eth_getBlockByNumber", parameters), "baseFeePerGas": base_fee}

    return told


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


def test_what_is_the_next_for_long_is_replaced(chain, key, open_outbox, monkeypatch, virtual_time):
    """The node counts it, and blocks come without it: a tip that is too small, say. Only the next one."""
    chain.rpc("evm_setAutomine", False)
    outbox = open_outbox()
    sender = Sender(chain, key, outbox=outbox, timeout_s=1.0)
    sent = sender.send_many([(TO, b"0"), (TO, b"1")], labels=["a", "b"], gas=50_000)
    with pytest.raises(NotConfirmed):
        sender.wait_many(sent)
    assert len(outbox.versions("a")) == 1  # not before
    monkeypatch.setattr("reticent.chain.sender._STUCK_AFTER_S", 0.3)
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
