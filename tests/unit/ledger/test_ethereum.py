"""The ledger on a real chain: what it refuses, what a lost node leaves behind, races, traces against SQL."""

import json
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from reticent.chain.node import Node
from reticent.chain.sender import Sender
from reticent.errors import (
    AccountConflict,
    AlreadyFulfilled,
    BudgetExceeded,
    ChainError,
    IdempotencyConflict,
    KeyUsed,
    LedgerError,
    ParameterError,
    TransactionRefused,
    UnknownAccount,
    WrongChain,
)
from reticent.ledger import Measurement, Reading, Terms, Unit
from reticent.ledger.base import Order, payment_key
from reticent.ledger.ethereum.contract import artifact, key_id, payment_id
from reticent.ledger.ethereum.ledger import EthereumLedger

from .contracts_in_use import REPLACE, TERMS, analyst, ledger, other, units

__all__ = ["analyst", "ledger", "other"]  # fixtures


pytest.importorskip("reticent.chain.keys", reason="eth-account is not installed")


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
