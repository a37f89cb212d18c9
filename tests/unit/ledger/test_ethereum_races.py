"""Races for a budget on a chain, and random traces held against SQL."""

import random
import threading
import time

import pytest

from reticent.chain.node import Node
from reticent.errors import (
    BudgetExceeded,
    LedgerError,
    NotConfirmed,
    ReticentError,
    TransactionRefused,
)
from reticent.ledger import SqlLedger, Terms, Unit
from reticent.ledger.base import Grant, Order
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.ledger.ethereum.orders import Orders

from .contracts_in_use import REPLACE, TERMS, analyst, ledger, other, units

__all__ = ["analyst", "ledger", "other"]  # fixtures


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
        while plain.balance("census").spent < 10:  # its block may be later than the caller's patience
            time.sleep(0.01)
        with pytest.raises(NotConfirmed, match=r"what is bought has no 2 confirmations after 0.2 s"):
            slow.request("census", "l", units(5))
        assert slow.request("census", "k", units(5)).charged == 0
