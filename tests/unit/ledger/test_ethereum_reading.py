"""What a ledger on a chain reads: how deep, from which block on, in how many looks, and past which lies."""

from dataclasses import replace

import pytest

pytest.importorskip("reticent.chain.keys", reason="eth-account is not installed")

from reticent.chain.node import Node
from reticent.errors import ParameterError, UnknownAccount
from reticent.ledger import Amount, Terms, Unit
from reticent.ledger.base import Order
from reticent.ledger.ethereum.accounts import ChainAccounts
from reticent.ledger.ethereum.contract import Contract
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.privacy import Neighbours

TERMS = Terms("census", Unit.MU2, Neighbours.REPLACE_ONE, "one person", 1000, 3)


def units(number):
    return Amount(number, Unit.MU2, Neighbours.REPLACE_ONE)


@pytest.fixture
def ledger(ethereum):
    """A ledger with an account, of one who owns, asks and measures."""
    with ethereum() as made:
        made.open(TERMS)
        yield made


@pytest.fixture
def again(anvil, ledger):
    """Open the same ledger with other options."""
    made = []

    def opened(**options):
        options = {"first_block": 0, **options}
        made.append(EthereumLedger(Node(anvil.url), ledger.contract, anvil.keys[0], **options))
        return made[-1]

    yield opened
    for one in made:
        one.close()


# How deep


def test_an_account_is_found_once_it_has_its_confirmations(ledger, again):
    deep = again(confirmations=2)
    for _ in range(2):
        with pytest.raises(UnknownAccount, match="account census was never opened"):
            deep.balance("census")
        ledger._node.rpc("anvil_mine", "0x1")
    assert deep.balance("census") == ledger.balance("census")


def too_early(ledger, deep):
    """Whether something is read of a record before two blocks lie on top of it; it must be read then."""

    def read():
        readings = [deep.reading("census", "k"), *deep.readings("census", ["k"])]
        return [one.information for one in readings] + [deep.balance("census").spent]

    ledger._node.rpc("anvil_mine", "0x2")
    grant = ledger.request("census", "k", units(5))
    ledger._node.rpc("anvil_mine", "0x2")
    ledger.fulfil(grant.pending[0].number, [7])
    early = []
    for _ in range(2):
        early += read()[:2]
        ledger._node.rpc("anvil_mine", "0x1")
    assert read() == [5, 5, 5]
    return any(early)


def test_a_record_is_read_once_it_has_its_confirmations(ledger, again):
    assert not too_early(ledger, again(confirmations=2))


def test_planted_reading_the_newest_block_is_caught(ledger, again, monkeypatch):
    monkeypatch.setattr(ChainAccounts, "_depth", lambda self: "latest")
    assert too_early(ledger, again(confirmations=2))


def test_without_confirmations_the_newest_block_is_read(ledger, again):
    grant = ledger.request("census", "k", units(5))
    ledger.fulfil(grant.pending[0].number, [7])
    assert again().reading("census", "k").information == 5
    assert (ledger._depth(), again(confirmations=10_000)._depth()) == ("latest", 0)


# From where on


@pytest.mark.parametrize("wrong", [-1, -(1 << 60)])
def test_a_first_block_is_a_block(again, wrong):
    with pytest.raises(ParameterError, match="first_block must be"):
        again(first_block=wrong)


def test_lists_begin_at_the_first_block(ledger, again):
    registered = ledger.status("census").registered
    assert [one.terms for one in again(first_block=registered).accounts()] == [TERMS]
    assert again(first_block=registered + 1).accounts() == []


# How often


@pytest.fixture
def looks(monkeypatch):
    """How many asks each look at the contract is about."""
    counted, meant = [], Contract.looks

    def counting(self, asked, **options):
        counted.append(len(asked))
        return meant(self, asked, **options)

    monkeypatch.setattr(Contract, "looks", counting)
    return counted


def test_a_batch_that_nobody_came_before_is_decided_at_one_look(ledger, looks):
    """What is charged, what is written and free, what is free alone, what is refused: in any order."""
    ledger.request("census", "known", units(9))
    looks.clear()
    found = ledger.request_many(
        [
            Order("census", "fresh", units(20)),
            Order("census", "known", units(9)),
            Order("census", "known", units(5), "again"),
            Order("census", "known", units(7)),
            Order("census", "huge", units(5000)),
            Order("census", "known", units(12)),
        ]
    )
    assert [getattr(one, "charged", type(one).__name__) for one in found] == [
        20, 0, 0, 0, "BudgetExceeded", 3
    ]  # fmt: skip
    assert looks == [6]


def test_a_free_ask_after_one_that_is_written_and_free_waits_for_nobody(ledger, looks):
    ledger.request("census", "known", units(9))
    looks.clear()
    found = ledger.request_many(
        [Order("census", "known", units(5), "first"), Order("census", "known", units(7))]
    )
    assert [(one.information, one.charged) for one in found] == [(9, 0), (9, 0)]
    assert looks == [2]


def test_a_view_is_asked_of_the_newest_block_in_its_own_word(ledger, monkeypatch):
    """Some nodes forgive capitals: what is sent is looked at, not what comes back."""
    node, sent = ledger._node, []
    one, many = node.rpc, node.rpc_many
    monkeypatch.setattr(node, "rpc", lambda *asked: (sent.append(asked), one(*asked))[1])
    monkeypatch.setattr(
        node, "rpc_many", lambda asked: (sent.extend((m, *p) for m, p in asked), many(asked))[1]
    )
    contract, dataset = ledger._contract, ledger._dataset("census")
    contract.call("measurements")
    contract.call_many([("measurements", ())] * 2)
    contract.held(dataset)
    contract.looks([(dataset, bytes(32), ledger.address, bytes(32))] * 2)
    assert [asked[2] for asked in sent if asked[0] == "eth_call"] == ["latest"] * 6


def test_a_view_is_of_the_newest_block_unless_another_is_named(ledger):
    """One call and several, which go by different messages."""
    contract, node = ledger._contract, ledger._node
    before = node.number()
    ledger.request("census", "k", units(5))
    dataset, call = ledger._dataset("census"), ("measurements", ())
    assert contract.call_many([call]) == contract.call_many([call, call])[:1] == [(1,)]
    assert contract.call_many([call, call], block=before) == [contract.call(*call[:1], block=before)] * 2
    assert contract.call("measurements", block=before) == (0,)
    assert contract.held(dataset).spent == 5
    assert contract.held(dataset, block=before).spent == 0
    asked = (dataset, ledger._key_id("census", "k")[0], ledger.address, bytes(32))
    assert [one.requested for one in contract.looks([asked, asked])] == [5, 5]
    assert [one.requested for one in contract.looks([asked], block=before)] == [0]
    assert contract.asked("measurements")[1][1] == "latest"


# Nodes that lie


@pytest.mark.parametrize("lie", [{"logs": ()}, {"address": "0x" + "11" * 20}])
def test_a_receipt_without_the_contracts_event_is_no_word_of_it(ledger, looks, monkeypatch, lie):
    """A node that hides what was written, or tells it of another contract: storage is looked at again."""
    meant = ledger._sender.wait_many

    def told(receipt):
        if "logs" in lie:
            return replace(receipt, **lie)
        return replace(receipt, logs=tuple(replace(log, **lie) for log in receipt.logs))

    monkeypatch.setattr(ledger._sender, "wait_many", lambda sent: [told(one) for one in meant(sent)])
    found = ledger.request("census", "k", units(5))
    assert (found.information, found.charged, found.remaining) == (5, 0, 995)
    assert [one.information for one in found.pending] == [5]
    assert looks == [1, 1]
    assert ledger.balance("census").spent == 5
