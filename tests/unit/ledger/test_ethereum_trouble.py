"""A ledger on a chain at wrong places, with nodes that die, and what its oracle records."""

from contextlib import closing
from functools import partial

import pytest

from reticent.chain.anvil import Anvil
from reticent.chain.contracts import Artifact
from reticent.chain.node import Node
from reticent.chain.outbox import Outbox
from reticent.chain.sender import Sender
from reticent.errors import (
    AlreadyFulfilled,
    ChainError,
    CommitUnknown,
    NodeUnavailable,
    ParameterError,
    ReticentError,
    TransactionRefused,
    UnknownMeasurement,
    WrongChain,
)
from reticent.ledger import Reading
from reticent.ledger.base import Order
from reticent.ledger.ethereum import contracts as contracts_folder
from reticent.ledger.ethereum.contract import artifact
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.ledger.lockfile import LockFile

from .contracts_in_use import TERMS, ledger, other, units

__all__ = ["ledger", "other"]  # fixtures


# Wrong places


def test_another_contract_or_none_is_refused(anvil, ledger):
    anchor = Artifact.read(f"{contracts_folder.__path__[0]}/HeadAnchor.json")
    with closing(Node(anvil.url)) as node:
        sender = Sender(node, anvil.keys[9])
        place = sender.transact(None, anchor.creation, gas=3_000_000).contract
        with pytest.raises(WrongChain, match="is not this version of PrivacyLedger"):
            EthereumLedger(node, place, anvil.keys[0])
        with pytest.raises(WrongChain, match="there is no contract at 0x"):
            EthereumLedger(node, anvil.keys[3].address, anvil.keys[0])
        for address in ("0x12", 5, "0xF39Fd6e51aad88F6F4ce6aB8827279cffFb92266"):
            with pytest.raises(ParameterError, match="contract must be an address: 0x and 40"):
                EthereumLedger(node, address, anvil.keys[0])
    with pytest.raises(WrongChain, match="serves chain 31337, asked for 1"):
        Node(anvil.url, chain_id=1)


def deployed(anvil, **options):
    with closing(Node(anvil.url)) as node:
        place = Sender(node, anvil.keys[9]).transact(None, artifact().creation, gas=4_000_000).contract
    made = EthereumLedger(Node(anvil.url), place, anvil.keys[0], **options)
    made.open(TERMS)
    return made


def test_a_node_that_is_dead_before_changes_nothing(anvil):
    with Anvil() as own:
        ledger = deployed(own)
    with closing(ledger):
        for call in (
            partial(ledger.request, "census", "k", units(5), idempotency="i"),
            partial(ledger.request_many, [Order("census", "k", units(5))]),
            partial(ledger.reading, "census", "k"),
            ledger.accounts,
        ):
            with pytest.raises(NodeUnavailable, match="does not answer"):
                call()


@pytest.mark.parametrize("when", ["send_many", "wait_many"])
def test_a_node_that_dies_on_the_way_leaves_it_open(anvil, monkeypatch, when):
    with Anvil() as own:
        ledger = deployed(own)
        meant = getattr(ledger._sender, when)

        def dies(*given, **options):
            own.close()
            return meant(*given, **options)

        monkeypatch.setattr(ledger._sender, when, dies)
        with closing(ledger), pytest.raises(CommitUnknown, match="ask again, with the same idempotency key"):
            ledger.request("census", "k", units(5), idempotency="i")


@pytest.mark.parametrize("idempotency", [None, "i"])
def test_a_lost_answer_is_charged_once(ledger, monkeypatch, idempotency):
    ask = partial(ledger.request, "census", "k", units(5), idempotency=idempotency)

    def lost(signed):
        answers.append(meant(signed))
        ledger._node.rpc("evm_mine")  # now it is in the chain
        raise NodeUnavailable("the node does not answer")

    meant, answers = ledger._sender._announce, []
    with monkeypatch.context() as patched:
        patched.setattr(ledger._sender, "_announce", lost)
        with pytest.raises(CommitUnknown):
            ask()  # what says what is measured arrives
        with pytest.raises(CommitUnknown):
            ask()  # the request arrives
    assert len(answers) == 2
    assert ask().charged == (5 if idempotency else 0)
    assert ledger.balance("census").spent == 5
    assert len(ledger.pending("census")) == 1


def test_a_lost_record_is_recorded_again(ledger, monkeypatch):
    number = ledger.request("census", "k", units(5)).pending[0].number
    (waits,) = ledger.waiting("census")
    with monkeypatch.context() as patched:
        patched.setattr(ledger._sender.node, "rpc_many", lambda calls: unavailable())
        with pytest.raises(CommitUnknown, match="record the same again"):
            ledger.record(waits, [3])
    sent = ledger.record(waits, [3])
    assert ledger.settle(sent).succeeded
    with pytest.raises(AlreadyFulfilled, match=f"measurement {number} has its values"):
        ledger.settle(ledger.record(waits, [3]))


def unavailable():
    raise NodeUnavailable("the node does not answer")


def test_a_poor_key_is_refused_by_the_node(anvil, ethereum):
    from reticent.chain.keys import Key

    with ethereum(key=Key("0x" + "77" * 32)) as poor, pytest.raises(TransactionRefused, match=r"(?i)funds"):
        poor.open(TERMS)
    assert ReticentError in TransactionRefused.__mro__


# The oracle


def test_an_outbox_keeps_the_first_values_for_ever(ledger, other, tmp_path):
    for key in ("k", "l"):
        ledger.request("census", key, units(5))
    with closing(Outbox(tmp_path / "outbox.db")) as outbox:
        oracle = other(0, outbox=outbox)
        first, second = oracle.waiting("census")
        sent = oracle.record(first, [3])
        assert oracle.record(first, [3]) == sent
        with pytest.raises(ChainError, match="other values were signed before for measurement 0"):
            oracle.record(first, [4])
        assert oracle.settle(sent).succeeded
        assert oracle.settle(oracle.record(first, [3])).succeeded  # the same bytes: nothing new
        renumbered = type(first)(**(vars(first) | {"number": 9}))
        with pytest.raises(ChainError, match="other values were signed before for measurement 9"):
            oracle.record(renumbered, [4])
        with pytest.raises(UnknownMeasurement, match="measurement 9 was never asked for"):
            oracle.settle(oracle.record(renumbered, [3]))
        swapped = type(second)(**(vars(second) | {"information": 6}))
        with pytest.raises(UnknownMeasurement, match="measurement 1 was never asked for"):
            oracle.settle(oracle.record(swapped, [3]))
        assert oracle.settle_many(oracle.record_many([(second, [8])]))[0].succeeded
    assert ledger.readings("census", ["k", "l"]) == [
        Reading("census", "k", 5, (15,), 0),
        Reading("census", "l", 5, (40,), 0),
    ]


def messages(ledger, monkeypatch):
    """How many methods are asked for in each message to the node from now on."""
    meant, sent = Node._post, []

    def post(self, body):
        sent.append([one["method"] for one in body] if isinstance(body, list) else [body["method"]])
        return meant(self, body)

    monkeypatch.setattr(Node, "_post", post)
    return sent


def test_what_one_asked_for_is_recorded_in_two_messages(ledger, other, monkeypatch):
    """The number is known from asking, and the reading comes with the receipt: no log is read."""
    number = ledger.request("census", "k", units(5)).pending[0].number
    sent = messages(ledger, monkeypatch)
    ledger._sender._fees, ledger._sender._nonce = (1e18, ledger._sender._current_fees()), None
    del sent[:]
    assert ledger.fulfil(number, [3]) == Reading("census", "k", 5, (15,), 0)
    assert sent[:3] == [
        ["eth_getTransactionCount", "eth_getTransactionCount"],
        ["eth_sendRawTransaction"],
        ["eth_getTransactionReceipt", "eth_call"],
    ]
    again = {method for one in sent[3:] for method in one}  # where the block came later than the first look
    assert again <= {"eth_getTransactionReceipt", "eth_call"}
    monkeypatch.undo()
    monkeypatch.setattr("reticent.ledger.ethereum.ledger._REMEMBERED", 1)  # what is forgotten is read
    numbers = [ledger.request("census", key, units(5)).pending[0].number for key in ("l", "m")]
    assert list(ledger._own) == numbers[1:]
    assert [ledger.fulfil(one, [4]).sums for one in numbers] == [(20,), (20,)]


def test_a_reading_from_before_the_record_is_read_again(ledger, monkeypatch):
    """A node behind a balancer may answer the second half of a message from an older block."""
    number = ledger.request("census", "k", units(5)).pending[0].number
    (waits,) = ledger.waiting("census")
    stale = ledger._node.rpc(*_flat(ledger._contract.asked("recorded", waits.dataset, waits.key)))
    meant = ledger._node.rpc_many

    def rpc_many(calls):
        found = meant(calls)
        return [found[0], stale] if [one for one, _ in calls][1:] == ["eth_call"] else found

    monkeypatch.setattr(ledger._node, "rpc_many", rpc_many)
    assert ledger.fulfil(number, [3]) == Reading("census", "k", 5, (15,), 0)


def _flat(asked):
    return asked[0], *asked[1]


def test_who_shares_a_key_takes_turns(ledger, other, tmp_path, monkeypatch):
    sharing = other(0, lock=tmp_path / "turn.lock")
    assert sharing.request("census", "k", units(5)).charged == 5
    monkeypatch.setattr("reticent.ledger.ethereum.ledger._TURN_S", 0.05)
    with closing(LockFile(str(tmp_path / "turn.lock"))) as held:
        assert held.acquire(60)
        with pytest.raises(ChainError, match=r"another process with this key has been sending for 0\.05 s"):
            sharing.request("census", "l", units(5))
        held.release()
        monkeypatch.setattr("reticent.ledger.ethereum.ledger._TURN_S", 60.0)
        assert sharing.request("census", "l", units(5)).charged == 5
        assert held.acquire(60)  # it was given back


def test_a_wrong_number_of_values_is_told_from_the_chain(ledger, other):
    ledger.request("census", "k", units(5))
    ledger.fulfil(0, [1, 2])
    ledger.request("census", "k", units(10))
    (waits,) = other(0).waiting("census")
    with pytest.raises(
        ParameterError, match="values must be as many as before under the key of measurement 1"
    ):
        other(0).settle(other(0).record(waits, [1]))
    ledger._sizes.clear()
    with pytest.raises(ParameterError, match="values must be 2 under this key, got 1"):
        ledger.fulfil(1, [1])
    with pytest.raises(ParameterError, match="values must be 2 under this key, got 1"):
        ledger.fulfil(1, [1])
