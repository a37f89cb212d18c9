"""A node that lies about nonces neither stops a key for ever nor makes it pay twice."""

import pytest

from reticent.chain.sender import _NONCES, Sender
from reticent.errors import (
    ChainError,
    NotConfirmed,
    TransactionRefused,
)

from .liars import TO, chain, clock, key, liar, mined, open_outbox
from .proxy import Refused

__all__ = ["chain", "clock", "key", "liar", "open_outbox"]  # fixtures


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


def test_a_node_that_takes_every_nonce(chain, liar, key, open_outbox, virtual_time, clock, no_pause):
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


def test_signing_for_ever_would_be_caught(liar, key, open_outbox, virtual_time, clock, no_pause):
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
