"""The ledger on a real chain: what it refuses, what a lost node leaves behind, races, traces against SQL."""

import json
import random
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("reticent.chain.keys", reason="eth-account is not installed")

from reticent.chain.anvil import Anvil
from reticent.chain.contracts import Artifact
from reticent.chain.node import Node
from reticent.chain.outbox import Outbox
from reticent.chain.sender import Sender
from reticent.errors import (
    AccountConflict,
    AlreadyFulfilled,
    BudgetExceeded,
    ChainError,
    CommitUnknown,
    IdempotencyConflict,
    KeyUsed,
    LedgerError,
    NodeUnavailable,
    NotConfirmed,
    ParameterError,
    ReticentError,
    TransactionRefused,
    UnknownAccount,
    UnknownMeasurement,
    WrongChain,
)
from reticent.ledger import Amount, Measurement, Reading, SqlLedger, Terms, Unit
from reticent.ledger.base import Grant, Order, payment_key
from reticent.ledger.ethereum import contracts as contracts_folder
from reticent.ledger.ethereum.contract import artifact, key_id, payment_id
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.ledger.ethereum.orders import Orders
from reticent.ledger.lockfile import LockFile
from reticent.privacy import Neighbours

REPLACE = Neighbours.REPLACE_ONE
TERMS = Terms("census", Unit.MU2, REPLACE, "one person of Málaga", 1000, 3)


def units(number):
    return Amount(number, Unit.MU2, REPLACE)


@pytest.fixture
def ledger(ethereum):
    """A ledger with an account, of one who owns, asks and measures."""
    with ethereum() as made:
        made.open(TERMS)
        yield made


@pytest.fixture
def other(anvil, ledger):
    """A function that gives a ledger of somebody else (by number) on the same contract and accounts."""
    made = []

    def open_as(number, **options):
        options = {"owner": ledger.owner, "first_block": 0, **options}
        made.append(EthereumLedger(Node(anvil.url), ledger._contract.address, anvil.keys[number], **options))
        return made[-1]

    yield open_as
    for one in made:
        one.close()


@pytest.fixture
def analyst(ledger, other):
    """Somebody who may be charged 100 units."""
    made = other(1)
    ledger.allow("census", made.address, 100)
    return made


# What it is


def test_the_ledger_room_loads_no_chain():
    code = "import reticent.ledger, sys; sys.exit(any(m in sys.modules for m in ('web3', 'eth_account')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_an_account_keeps_its_terms(ledger, other):
    assert ledger.balance("census").terms == TERMS
    assert other(1).balance("census") == ledger.balance("census")
    assert [one.terms for one in other(1).accounts()] == [TERMS]
    assert other(2, owner=None).accounts() == []
    assert ledger.measured_by_oracle
    with pytest.raises(UnknownAccount, match=r"account nobody was never opened$"):
        other(1).balance("nobody")
    with pytest.raises(
        UnknownAccount, match=f"account new was never opened by {ledger.owner}, who alone can"
    ):
        other(1).open(Terms("new", Unit.MU2, REPLACE, "one", 10))
    with pytest.raises(AccountConflict, match="account census is open with other terms"):
        other(1).open(Terms("census", Unit.MU2, REPLACE, "one", 10))
    with pytest.raises(AccountConflict, match="account census is registered already"):
        ledger.register(TERMS, oracle=ledger.address, commitment=bytes(32))
    with pytest.raises(LedgerError, match=f"can only be registered by {ledger.owner}"):
        other(1).register(TERMS, oracle=ledger.address, commitment=bytes(32))


def test_a_contract_of_an_earlier_release_is_known_by_name(anvil):
    """As 0.1.0 deployed it: payments could be blocked there. Planted: an artifact that knows of none."""
    old = json.loads((Path(__file__).parent / "data" / "PrivacyLedger-1.json").read_text())
    with closing(Node(anvil.url)) as node:
        sender = Sender(node, anvil.keys[9])
        place = sender.transact(None, bytes.fromhex(old["bytecode"][2:]), gas=5_000_000).contract
        with pytest.raises(WrongChain, match=r"but version 1, of 0\.1\.0, where whoever may ask can block"):
            EthereumLedger(node, place, anvil.keys[0])
        with pytest.raises(WrongChain, match=r"is not this version of PrivacyLedger$"):
            replace(artifact(), earlier={}).check(node, place)
        fresh = sender.transact(None, artifact().creation, gas=5_000_000).contract
        assert node.call(fresh, artifact().encode("version")) == (2).to_bytes(32)


def test_nobody_blocks_a_payment_that_is_on_its_way(ledger, analyst):
    """It failed: an analyst who saw `pay` in the pool declared and requested its name first."""
    events = pytest.importorskip("dp_accounting.dp_event", reason="dp-accounting is not installed")
    event, name = events.GaussianDpEvent(4e5), payment_key("elsewhere")
    encode, to = artifact().encode, ledger._contract.address
    dataset, key = ledger._dataset("census"), key_id(name.encode(), b"", 0, 0)
    for data in (
        encode("declare", dataset, name.encode(), b"", 0, 0),
        encode("request", dataset, key, 20, bytes(32)),
    ):
        analyst._sender.transact(to, data)
    with pytest.raises(TransactionRefused, match="unknown key"):
        analyst._sender.transact(to, encode("request", dataset, payment_id(name.encode()), 20, bytes(32)))
    paid = ledger.pay("census", event, key="elsewhere")
    assert (paid.key, paid.pending) == (name, ())
    assert ledger.reading("census", name) == Reading("census", name, paid.charged, (), 0)
    state = ledger.log.sync()
    assert state.datasets[dataset].spent == 20 + paid.charged
    assert state.keys[dataset, payment_id(name.encode())].name == name
    with pytest.raises(KeyUsed, match="account census: a payment needs a fresh key"):
        ledger.pay("census", event, key="elsewhere")


def test_what_is_declared_goes_to_the_chain_with_the_first_request(ledger, other):
    ledger.declare("census", "mean age", question='{"mean": "age"}', grid=-3, dimension=2)
    assert list(ledger.log.sync().keys) == []
    grant = ledger.request("census", "mean age", units(40))
    (waits,) = ledger.waiting("census")
    assert (waits.number, waits.name, waits.question) == (0, "mean age", '{"mean": "age"}')
    assert (waits.grid, waits.dimension, waits.start, waits.information) == (-3, 2, 0, 40)
    assert waits.key == key_id(b"mean age", b'{"mean": "age"}', -3, 2)
    assert waits.dataset == ledger._dataset("census")
    assert grant.pending == (Measurement(0, "census", "mean age", 40, fulfilled=False),)
    assert ledger.pending("census") == list(grant.pending)
    assert ledger.reading("census", "mean age") == Reading("census", "mean age", 0, (), 40)
    with pytest.raises(ParameterError, match="values must be 2 under this key, got 3"):
        other(0).fulfil(0, [1, 2, 3])
    assert other(0).fulfil(0, [5, -7]) == Reading("census", "mean age", 40, (200, -280), 0)
    assert ledger.reading("census", "mean age").sums == (200, -280)
    assert other(3).reading("census", "mean age").information == 0  # nothing is declared there: another key
    with pytest.raises(AlreadyFulfilled, match="measurement 0 has its values"):
        ledger.fulfil(0, [5, -8])


def test_another_declaration_is_another_key(ledger):
    for dimension in (1, 2):
        ledger.declare("census", "k", question="q", grid=0, dimension=dimension)
        assert ledger.request("census", "k", units(10)).charged == 10
    assert ledger.request("census", "k", units(10)).charged == 0


def test_a_payment_needs_a_fresh_name_and_no_other(ledger):
    """What is measured under the same words is another key."""
    events = pytest.importorskip("dp_accounting.dp_event", reason="dp-accounting is not installed")
    event = events.GaussianDpEvent(4e5)
    ledger.declare("census", "k", question="q", grid=0, dimension=1)
    paid = ledger.pay("census", event, key="k", idempotency="once")
    ledger.request("census", "k", units(10))
    assert ledger.pay("census", event, key="k", idempotency="once").charged == paid.charged > 0
    with pytest.raises(KeyUsed, match="account census: a payment needs a fresh key"):
        ledger.pay("census", event, key="k", idempotency="again")
    ledger.declare("census", "l", question="q", grid=0, dimension=1)
    ledger.request("census", "l", units(10))
    assert ledger.pay("census", event, key="l").charged == paid.charged


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"dimension": 513}, "dimension must be <= 512 on a chain, got 513"),
        ({"question": "é" * 4097}, "question must be at most 8192 bytes on a chain, got 8194"),
        ({"question": "\ud800"}, "question must be a text that UTF-8 can hold"),
        ({"grid": 40_000}, "grid must be <= 32767, got 40000"),
    ],
)
def test_words_that_a_chain_cannot_hold_are_refused(ledger, words, reason):
    with pytest.raises(ParameterError, match=reason):
        ledger.declare("census", "k", **({"question": "q", "grid": 0, "dimension": 1} | words))


def test_the_largest_words_and_records_fit_their_gas(ledger):
    ledger.open(replace(TERMS, name="large", cap=1024, minimum=1))
    key = "\U0001f600" * 1000
    ledger.declare("large", key, question="é" * 4096, grid=-32767, dimension=512)
    number = ledger.request("large", key, units(7), idempotency="i").pending[0].number
    highest = (1 << 62) - 1
    with pytest.raises(ParameterError, match="values must be at most 512 on a chain, got 513"):
        ledger.fulfil(number, [0] * 513)
    sums = ledger.fulfil(number, [highest, -highest] * 256).sums
    assert sums == (512 * highest, -512 * highest) * 256
    ledger.request("large", key, units(1024))
    assert ledger.fulfil(number + 1, [-highest, highest] * 256).sums == (0,) * 512


def test_each_value_must_be_paid_for(ledger):
    """The minimum is charged for each value that a key is declared with; what passes the cap is refused."""
    ledger.declare("census", "four", question="q", grid=0, dimension=4)
    assert ledger.request("census", "four", units(5)).charged == 12
    assert ledger.request("census", "four", units(12)).charged == 0
    grants = ledger.request_many([Order("census", "four", units(14)), Order("census", "four", units(50))])
    assert [one.charged for one in grants] == [12, 26]
    assert ledger.balance("census").spent == 50
    ledger.declare("census", "wide", question="q", grid=0, dimension=334)
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.request("census", "wide", units(5))
    assert (refusal.value.asked, refusal.value.left) == (1002, 950)
    assert [one.name for one in ledger.log.sync().keys.values()] == ["four"]
    ledger.declare("census", "fits", question="q", grid=0, dimension=316)
    assert ledger.request("census", "fits", units(5)).charged == 948


def test_an_analyst_has_a_first_request_within_its_gas(analyst):
    assert analyst.request("census", "k", units(5), idempotency="i").charged == 5


# What it refuses


def test_who_is_not_allowed_is_told_so(ledger, other, analyst):
    stranger = other(5)
    with pytest.raises(LedgerError, match=f"account census: analyst {stranger.address} is not allowed$"):
        stranger.request("census", "k", units(5))
    analyst.request("census", "k", units(5))
    reason = f"measurement 0: {stranger.address} is not the oracle of its account"
    with pytest.raises(LedgerError, match=reason):
        stranger.fulfil(0, [1])
    (waits,) = stranger.waiting("census")
    with pytest.raises(LedgerError, match="is not the oracle of its account"):
        stranger.settle(stranger.record(waits, [1]))
    events = pytest.importorskip("dp_accounting.dp_event", reason="dp-accounting is not installed")
    with pytest.raises(LedgerError, match="account census: only its owner and its oracle pay, not 0x"):
        analyst.pay("census", events.GaussianDpEvent(4e5), key="paid")
    for verb in (partial(analyst.pause, "census"), partial(analyst.allow, "census", stranger.address, 5)):
        with pytest.raises(LedgerError, match=f"account census: {analyst.address} is not its owner"):
            verb()
    with pytest.raises(LedgerError, match=f"account census was not offered to {stranger.address}"):
        stranger.take("census")
    ledger.allow("census", analyst.address, 0)
    with pytest.raises(LedgerError, match="is not allowed"):
        analyst.request("census", "k", units(5))
    assert ledger.balance("census").spent == 5


def test_a_quota_is_not_passed(ledger, analyst):
    assert analyst.request("census", "k", units(90)).charged == 90
    reason = f"account census: analyst {analyst.address}, quota: asked 11 units, only 10 left"
    with pytest.raises(LedgerError, match=reason) as refused:
        analyst.request("census", "l", units(11))
    assert not isinstance(refused.value, BudgetExceeded)
    assert analyst.request("census", "k", units(80)).charged == 0
    ledger.request("census", "l", units(900))
    with pytest.raises(BudgetExceeded, match="account census: asked 11 units, only 10 left"):
        analyst.request("census", "m", units(11))
    assert ledger.balance("census").spent == 990


def test_a_pause_stops_spending_only(ledger, analyst):
    number = analyst.request("census", "k", units(9)).pending[0].number
    ledger.pause("census")
    ledger.pause("census")
    assert ledger.status("census").paused
    for one in (ledger, analyst):
        with pytest.raises(LedgerError, match="account census is paused by its owner"):
            one.request("census", "l", units(11))
        assert one.request("census", "k", units(9), idempotency="free").charged == 0
    assert ledger.fulfil(number, [4]).sums == (36,)
    ledger.resume("census")
    assert analyst.request("census", "l", units(11)).charged == 11


def test_a_status_shows_who_may_what(ledger, analyst, other):
    third = other(3)
    analyst.request("census", "k", units(9))
    ledger.appoint("census", analyst.address)
    ledger.offer("census", third.address)
    status = analyst.status("census")
    assert (status.balance.spent, status.balance.terms) == (9, TERMS)
    assert (status.owner, status.oracle, status.candidate) == (
        ledger.address,
        analyst.address,
        third.address,
    )
    assert [(one.address, one.quota, one.used) for one in status.analysts] == [(analyst.address, 100, 9)]
    assert (status.measurements, status.pending, status.paused) == (1, 1, False)
    ledger.offer("census", None)
    assert ledger.status("census").candidate is None
    ledger.offer("census", third.address)
    third.take("census")
    assert (third.status("census").owner, third.status("census").registrant) == (
        third.address,
        ledger.address,
    )
    with pytest.raises(LedgerError, match="is not allowed"):
        ledger.request("census", "k", units(10))
    assert third.request("census", "k", units(10)).charged == 3  # the minimum
    with pytest.raises(UnknownAccount, match="account nobody was never opened"):
        ledger.status("nobody")
    with pytest.raises(UnknownAccount, match="account nobody was never opened"):
        ledger.pause("nobody")


def test_an_idempotency_key_is_the_callers_own(ledger, analyst):
    assert ledger.request("census", "k", units(9), idempotency="i").charged == 9
    assert analyst.request("census", "k", units(8), idempotency="i").charged == 0
    with pytest.raises(IdempotencyConflict, match="idempotency key i was used for another request"):
        analyst.request("census", "k", units(9), idempotency="i")


def transactions(ledger):
    return int(ledger._node.rpc("eth_getTransactionCount", ledger.address, "latest"), 16)


def test_an_idempotency_key_that_comes_twice_in_one_call(ledger):
    orders = [
        Order("census", "k", units(9), "i"),
        Order("census", "k", units(9), "i"),
        Order("census", "k", units(8), "i"),
        Order("census", "k", units(12), "j"),
    ]
    before = transactions(ledger)
    first, again, other, last = ledger.request_many(orders)
    assert transactions(ledger) == before + 3  # the key, i and j: nothing is sent for what is known
    assert [(one.charged, one.information) for one in (first, again, last)] == [(9, 9), (9, 9), (3, 12)]
    assert str(other) == "idempotency key i was used for another request"
    assert ledger.balance("census").spent == 12


def test_free_requests_without_an_idempotency_key_send_nothing(ledger):
    ledger.request("census", "k", units(9))
    block = ledger._node.number()
    assert ledger.request("census", "k", units(9)).charged == 0
    orders = [Order("census", "k", units(number)) for number in range(1, 8)]
    assert [grant.charged for grant in ledger.request_many(orders)] == [0] * 7
    assert ledger._node.number() == block


def test_a_key_has_a_history_and_its_gas_is_asked_for_once(ledger, monkeypatch):
    ledger.request("census", "other", units(5))
    number = ledger.request("census", "k", units(5)).pending[0].number
    ledger.fulfil(number, [3])
    logs = [one.log for one in ledger.history("census", "k")]
    assert [one.name for one in ledger.history("census", "k")] == [
        "Declared", "MeasurementRequested", "Fulfilled",
    ]  # fmt: skip
    used = [ledger._node.receipt(log.transaction).gas for log in logs]
    assert ledger.gas(logs + logs[:1]) == used + used[:1]
    elsewhere = replace(logs[0], block_hash="0x" + "00" * 32)
    assert ledger.gas([elsewhere, logs[1]]) == [None, used[1]]
    monkeypatch.setattr(ledger._node, "rpc_many", lambda calls: [ChainError("away")] * len(calls))
    assert ledger.gas(logs) == used
    assert ledger.gas([elsewhere]) == [None]
    monkeypatch.undo()
    monkeypatch.setattr("reticent.ledger.ethereum.ledger._REMEMBERED", 1)
    ledger.gas([elsewhere, *logs])
    assert list(ledger._gas) == [(logs[2].block_hash, logs[2].transaction)]


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


# Races


def between_look_and_send(monkeypatch, deed):
    """Let `deed` happen after the first look of the next request."""
    meant, left = Orders._looks, [deed]

    def looks(self, asks, block):
        found = meant(self, asks, block)
        if left:
            left.pop()()
        return found

    monkeypatch.setattr(Orders, "_looks", looks)


def test_a_race_for_the_last_units_is_decided_by_the_chain(ledger, analyst, monkeypatch):
    ledger.request("census", "most", units(950))
    between_look_and_send(monkeypatch, lambda: analyst.request("census", "l", units(40)))
    with pytest.raises(BudgetExceeded, match="account census: asked 30 units, only 10 left"):
        ledger.request("census", "k", units(30))
    assert ledger.balance("census").spent == 990


def test_a_race_for_a_key_is_paid_once(ledger, analyst, monkeypatch):
    between_look_and_send(monkeypatch, lambda: analyst.request("census", "k", units(20)))
    grant = ledger.request("census", "k", units(30))
    assert (grant.charged, grant.information, grant.remaining) == (10, 30, 970)
    assert [one.information for one in grant.pending] == [20, 10]
    assert ledger.balance("census").spent == 30


def test_a_race_of_one_idempotency_key_is_charged_once(ledger, other, monkeypatch):
    twin = other(0)
    ask = {"account": "census", "key": "k", "information": units(30), "idempotency": "same"}
    between_look_and_send(monkeypatch, lambda: twin.request(**ask))
    assert ledger.request(**ask).charged == 30
    assert ledger.balance("census").spent == 30


def test_a_batch_in_a_race_is_decided_again_where_the_chain_differs(ledger, analyst, monkeypatch):
    between_look_and_send(monkeypatch, lambda: analyst.request("census", "a", units(60)))
    orders = [
        Order("census", "a", units(60)),  # now free
        Order("census", "b", units(900)),
        Order("census", "c", units(60)),  # looked past the cap at first
        Order("census", "b", units(5)),
    ]
    answers = ledger.request_many(orders)
    assert [str(one) if isinstance(one, LedgerError) else one.charged for one in answers] == [
        0,
        900,
        "account census: asked 60 units, only 40 left",
        0,
    ]
    assert ledger.balance("census").spent == 960


def test_whoever_is_refused_again_and_again_is_told_so(ledger, monkeypatch):
    ledger.request("census", "most", units(950))
    meant = Orders._looks
    monkeypatch.setattr(Orders, "_looks", lambda *given: [one._replace(spent=0) for one in meant(*given)])
    reason = r"account census: the chain refused 8 times \(past the cap\): ask again"
    with pytest.raises(LedgerError, match=reason):
        ledger.request("census", "k", units(60))
    assert ledger.balance("census").spent == 950


def test_too_little_gas_is_no_race(ledger, monkeypatch):
    ledger.request("census", "k", units(3))
    monkeypatch.setattr("reticent.ledger.ethereum.orders.REQUEST_GAS", 40_000)
    with pytest.raises(TransactionRefused):
        ledger.request("census", "k", units(60))
    assert ledger.balance("census").spent == 3


def granted_by(ledgers, asks):
    """What each of several threads is charged, one thread for each ledger."""
    granted = [[] for _ in ledgers]
    barrier = threading.Barrier(len(ledgers))

    def work(place):
        barrier.wait()
        for ask in asks(place):
            try:
                granted[place].append(ask(ledgers[place]))
            except BudgetExceeded:
                granted[place].append(0)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(ledgers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {len(one) for one in granted} == {len(asks(0))}
    return granted


@pytest.fixture
def racers(ethereum, anvil):
    """Three ledgers with keys of their own on one account of 60 units."""
    with ethereum() as first:
        first.open(Terms("a", Unit.MU2, REPLACE, "one", 60))
        ledgers = [first]
        for key in anvil.keys[1:3]:
            first.allow("a", key.address, 60)
            place = first._contract.address
            ledgers.append(EthereumLedger(Node(anvil.url), place, key, owner=first.owner))
        yield ledgers
        for ledger in ledgers:
            ledger.close()


def one_by_one(place):
    return [lambda ledger, i=i: ledger.request("a", f"{place}/{i}", units(3)).charged for i in range(10)]


def test_racing_askers_never_pass_the_cap(racers):
    granted = granted_by(racers, one_by_one)
    assert sum(map(sum, granted)) == 60 == racers[0].balance("a").spent
    assert len(racers[0].pending("a")) == 20


def test_racing_askers_of_one_key_pay_once(racers):
    def asks(place):
        return [
            lambda ledger, i=i: (
                ledger.request("a", f"key {i}", units(2 + i), idempotency="same").charged
                if i == 0
                else ledger.request("a", f"key {i}", units(2 + i)).charged
            )
            for i in range(5)
        ]

    granted = granted_by(racers, asks)
    assert [sum(one) for one in zip(*granted, strict=True)] == [2, 3, 4, 5, 6]
    assert racers[0].balance("a").spent == 20


def test_the_race_catches_who_takes_his_look_for_the_answer(racers, monkeypatch):
    """Planted: grants are given by what was seen, whatever the chain says."""
    barrier = threading.Barrier(3)

    def trusting(self, asks):
        looks = dict(zip(asks, self._looks(asks, "latest"), strict=True))
        barrier.wait()
        self._written(asks, looks)
        barrier.wait()
        return {
            place: Grant(ask.terms.name, ask.key, ask.information, ask.information, 0, ())
            for place, ask in asks.items()
            if looks[place].spent + ask.information <= ask.terms.cap
        } | {place: BudgetExceeded("a", 0, 0) for place, look in looks.items() if look.spent + 3 > look.cap}

    monkeypatch.setattr(Orders, "_round", trusting)
    granted = granted_by(racers, one_by_one)
    assert sum(map(sum, granted)) > 60


# Traces


def outcome(call):
    try:
        answer = call()
    except ReticentError as refusal:
        return type(refusal), str(refusal)
    if isinstance(answer, list):
        return [(type(one), str(one)) if isinstance(one, LedgerError) else one for one in answer]
    return answer


def trace(seed):
    """Calls in random order, each as a function of a ledger."""
    events = pytest.importorskip("dp_accounting.dp_event", reason="dp-accounting is not installed")
    draw = random.Random(seed)
    keys, texts = ["k", "l", "m"], [None, None, "once", "twice", "thrice"]
    terms = Terms("a", Unit.MU2, REPLACE, "one", draw.randint(60, 400), draw.randint(1, 20))
    calls = [lambda ledger: ledger.open(terms)]
    for _ in range(12):
        key, text, number = draw.choice(keys), draw.choice(texts), draw.randint(1, 90)
        values = [draw.randint(-(1 << 62) + 1, (1 << 62) - 1) for _ in range(draw.choice([1, 1, 1, 2]))]
        orders = [
            Order("a", draw.choice(keys), units(draw.randint(1, 90)), draw.choice(texts))
            for _ in range(draw.randint(1, 5))
        ]
        event = events.GaussianDpEvent(draw.choice([2e5, 4e5]))
        calls.append(
            draw.choice(
                [
                    lambda ledger, k=key, n=number, t=text: ledger.request("a", k, units(n), idempotency=t),
                    lambda ledger, o=orders: ledger.request_many(o),
                    lambda ledger, n=number % 7, v=values: ledger.fulfil(n, v),
                    lambda ledger, n=number % 4, v=values: ledger.fulfil(n, v),
                    lambda ledger, e=event, k=key, t=text: ledger.pay("a", e, key=k, idempotency=t),
                ]
            )
        )
    return [*calls, lambda ledger: ledger.accounts(), lambda ledger: ledger.pending("a")] + [
        lambda ledger, key=key: ledger.reading("a", key) for key in keys
    ]


def differences(make, folder, seeds):
    found = []
    for seed in seeds:
        with make() as ours, SqlLedger(folder / f"{seed}.db") as theirs:
            found += [
                (seed, mine, other)
                for call in trace(seed)
                if (mine := outcome(lambda call=call: call(ours)))
                != (other := outcome(lambda call=call: call(theirs)))
            ]
    return found


def test_random_traces_answer_as_sql_does(ethereum, tmp_path):
    assert differences(ethereum, tmp_path, range(5)) == []


@pytest.mark.slow
def test_two_hundred_random_traces_answer_as_sql_does(ethereum, tmp_path):
    assert differences(ethereum, tmp_path, range(200)) == []


def test_the_traces_catch_a_ledger_that_forgets_retries(ethereum, tmp_path, monkeypatch):
    meant = EthereumLedger._ask
    monkeypatch.setattr(EthereumLedger, "_ask", lambda self, *given: meant(self, *given[:-1], None))
    assert differences(ethereum, tmp_path, range(5))


def test_confirmations_that_never_come_are_told(ethereum):
    with ethereum() as plain:
        plain.open(TERMS)
        plain.request("census", "k", units(5))
        place, node = plain._contract.address, plain._node
        node.rpc("anvil_mine", "0x1")
        slow = EthereumLedger(node, place, plain._sender._key, confirmations=2, timeout_s=0.2)
        with pytest.raises(NotConfirmed, match=r"has no 2 confirmations after 0.2 s"):
            slow.request("census", "l", units(5))
        with pytest.raises(NotConfirmed, match=r"what is bought has no 2 confirmations after 0.2 s"):
            slow.request("census", "l", units(5))
        assert slow.request("census", "k", units(5)).charged == 0
