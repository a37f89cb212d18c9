"""The oracle on a real chain: analysts ask, it records; strangers' words; one oracle at a time."""

import json
import os
import socket
import threading
from contextlib import closing, nullcontext
from fractions import Fraction

import pytest
import requests
from eth_utils.crypto import keccak

from reticent.chain.keys import Key
from reticent.chain.sender import Sender
from reticent.errors import LedgerError, NodeUnavailable, NotMeasured, QuestionRefused, TransactionRefused
from reticent.ledger import SqlLedger
from reticent.ledger.ethereum.records import Records
from reticent.query import Case, Session, census, histogram, mean
from reticent.query import count as how_many
from reticent.query.chain import oracle as oracle_module
from reticent.query.chain.oracle import State, open_oracle
from reticent.query.declarations import dataset_file
from reticent.query.language.questions import resolve
from reticent.query.measure import plan

from ..lying import Liar, reply
from .town import Town, faults, seen

ASKED = mean("income", where="age > 60")


@pytest.fixture
def declaration(tmp_path_factory):
    return census.write(tmp_path_factory.mktemp("census"), rows=300)


@pytest.fixture
def data(declaration):
    return dataset_file.read(declaration)


@pytest.fixture
def town(anvil, data, tmp_path):
    made = Town(anvil, data, tmp_path)
    yield made
    made.close()


@pytest.fixture
def oracle(declaration, town):
    with open_oracle(declaration, town.connect, town.folder) as opened:
        yield opened


def planned(data, query=ASKED):
    return plan(resolve(query, data))


def spent(town):
    with SqlLedger(town.folder / "own.sqlite", create=False) as own:
        return own.balance(town.data.name).spent


# From question to answer


@pytest.fixture
def running(oracle):
    """The oracle at work in a thread."""
    stop = threading.Event()
    thread = threading.Thread(target=oracle.run, args=(stop, 0.02))
    thread.start()
    yield
    stop.set()
    thread.join()


def test_analysts_ask_and_the_oracle_records(town, data, running):
    with Session(data, None, town.ledger(town.analyst), wait_s=60) as session:
        first = session.ask(ASKED, epsilon=1.0)
        assert (first.case, first.cost) == (Case.FRESH, first.information)
        again = session.ask(ASKED, epsilon=1.0)
        assert (again.case, again.cost, again.cells) == (Case.EQUAL, 0, first.cells)
        finer = session.ask(ASKED, epsilon=1.5)
        assert (finer.case, finer.cost) == (Case.REFINED, finer.information - first.information)
        other = session.ask(histogram("race"), epsilon=1.0, reuse="key")
        assert len(other.cells) == 4
        balance = session.balance()
        reading = town.ledger(town.owner)
        with Session(data, None, reading, wait_s=60) as looking:  # somebody else: free
            assert looking.ask(ASKED, epsilon=1.5).cells == finer.cells
            assert looking.balance() == balance
    sent = seen(town.paper)
    assert len(sent) == 3
    state = town.state()
    assert state.waiting == {}
    for (_, key), under in state.keys.items():
        records = [one for one in sent if one.key == key]
        sums = [sum(one.information * one.values[i] for one in records) for i in range(under.size)]
        assert (under.sums, under.recorded) == (sums, sum(one.information for one in records))
    assert balance.spent == finer.information + other.information == spent(town)


def test_the_same_error_is_free_again_for_everybody(town, data, running):
    """A guess of 300 rows where a handful match: the interval is wide, and the same request stays bought."""
    asked = mean("income", where="age > 85"), {"error": 50_000.0, "rows": 300}
    with Session(data, None, town.ledger(town.analyst), wait_s=60) as session:
        query, accuracy = asked
        first = session.ask(query, **accuracy)
        assert first.cost == first.information > 0
        with Session(data, None, town.ledger(town.owner), wait_s=60) as looking:
            assert looking.price(query, **accuracy).cost == 0
            again = looking.ask(query, **accuracy)
        assert (again.cost, again.cells) == (0, first.cells)
        assert session.balance().spent == first.cost


def test_the_answer_is_the_contract_s_sums_over_its_information(town, data, running):
    with Session(data, None, town.ledger(town.analyst), wait_s=60) as session:
        query = how_many(where="age > 60")
        answer = session.ask(query, epsilon=1.0)
        prepared = planned(data, query)
        (under,) = town.state().keys.values()
        estimate = Fraction(under.sums[0], under.recorded) / 2**prepared.shift
        assert answer.value == pytest.approx(float(estimate), rel=1e-12)
        exact = json.loads(under.question)
        assert exact["measured"] == "count"


def test_an_oracle_that_is_away_costs_time_only(town, data, declaration):
    with Session(data, None, town.ledger(town.analyst), wait_s=0.05) as session:
        with pytest.raises(NotMeasured):
            session.ask(ASKED, epsilon=1.0)
        charged = session.balance().spent
        with open_oracle(declaration, town.connect, town.folder) as oracle:
            assert [one.state for one in oracle.step()] == [State.RECORDED]
        assert session.ask(ASKED, epsilon=1.0).cost == 0
        assert session.balance().spent == charged == spent(town)
        with pytest.raises(QuestionRefused):
            session.ask(ASKED, epsilon=9.0)


class CuttingNode(Liar):
    """A node whose replies are cut in their bodies as long as `is_cutting`."""

    def __init__(self, url):
        self.is_cutting, self._target = False, url
        super().__init__(self._answer)

    def _answer(self, line, request):
        body = request.partition(b"\r\n\r\n")[2]
        headers = {"Content-Type": "application/json"}
        answer = reply(requests.post(self._target, data=body, headers=headers, timeout=60).content)
        line.sendall(answer[:-5] if self.is_cutting else answer)
        if self.is_cutting:
            line.shutdown(socket.SHUT_RDWR)


def test_an_oracle_waits_out_replies_that_are_cut(town, data, declaration):
    """Not even the second try of a call gets through; it says so once, and measures when they are whole."""
    said, waits, stop = [], threading.Event(), threading.Event()

    def say(line):
        said.append(line)
        waits.set()

    with closing(CuttingNode(town.url)) as node:
        town.oracle_url = node.url
        with open_oracle(declaration, town.connect, town.folder, say=say) as oracle:
            node.is_cutting = True
            thread = threading.Thread(target=oracle.run, args=(stop, 0.02))
            thread.start()
            try:
                assert waits.wait(60)
                node.is_cutting = False
                with Session(data, None, town.ledger(town.analyst), wait_s=60) as session:
                    assert session.ask(ASKED, epsilon=1.0).case is Case.FRESH
            finally:
                stop.set()
                thread.join()
    assert said[0].endswith("does not answer (ProtocolError); trying again until it is over")
    assert "it is over, going on" in said


# Strangers' words, in the contract itself

WORDS = {
    "another grid": {"grid": -3},
    "another size": {"dimension": 7},
    "any size": {"dimension": 0},
    "another name": {"name": "income"},
    "no question": {"question": "SELECT * FROM census"},
    "no words at all": {"question": b""},
    "bytes that are no text": {"name": b"\xff\x00", "question": b"\xff\xfe\x00"},
    "another version": {"question": ("version", '"version":"2"')},
    "another data set": {"question": ("data", '"data":"sensus"')},
}


def test_strangers_words_are_refused_and_cost_the_oracle_nothing(town, data, oracle):
    prepared, least = planned(data), 2 * data.terms.minimum
    for words in WORDS.values():
        if isinstance(words.get("question"), tuple):
            field, instead = words["question"]
            stated = json.loads(prepared.question.text)[field]
            words = {"question": prepared.question.text.replace(f'"{field}":"{stated}"', instead)}
            assert words["question"] != prepared.question.text
        town.ask(prepared, least, **words)
    outcomes = oracle.step()
    assert [one.state for one in outcomes] == [State.REFUSED] * len(WORDS)
    assert (spent(town), seen(town.paper)) == (0, [])
    good = town.ask(prepared, least)
    assert [one.state for one in oracle.step()] == [State.REFUSED] * len(WORDS) + [State.RECORDED]
    assert [one.identity for one in seen(town.paper)] == [good]
    assert spent(town) == least


# A small analyst


def test_a_small_analyst_makes_an_oracle_record_little(town, data, oracle):
    """Each value must be paid for: a quota of three of them buys no record of four, nor one after another."""
    least, prepared = data.terms.minimum, planned(data, histogram("race"))
    assert prepared.values == 4
    town.send(town.owner, "allow", town.dataset, town.analyst.address, 3 * least)
    with pytest.raises(TransactionRefused, match="past the quota"):
        town.ask(prepared, least)
    with (
        Session(data, None, town.ledger(town.analyst), wait_s=60) as session,
        pytest.raises(LedgerError, match=rf"quota: asked {4 * least} units, only {3 * least} left"),
    ):
        session.ask(histogram("race"), information=least / 10**12)
    town.send(town.owner, "allow", town.dataset, town.analyst.address, 9 * least)
    for _ in range(2):
        assert town.ask(prepared, least)[3] == 4 * least
    with pytest.raises(TransactionRefused, match="past the quota"):
        town.ask(prepared, least)
    assert [one.state for one in oracle.step()] == [State.RECORDED] * 2
    assert spent(town) == 8 * least


def test_the_price_on_a_chain_is_what_is_charged(town, data, running):
    """A price counts the values, where they are recorded on a chain; beside the rows they are free."""
    query, least = histogram("race"), data.terms.minimum
    with Session(data, None, town.ledger(town.analyst), wait_s=60) as session:
        assert session.price(query, information=2 * least / 10**12).cost == 4 * least
        answer = session.ask(query, information=2 * least / 10**12, reuse="key")
        assert (answer.cost, answer.information, answer.without_reuse) == (4 * least,) * 3
        assert session.price(query, information=3.9 * least / 10**12).cost == 0
        assert session.price(query, information=5 * least / 10**12, reuse="key").cost == 4 * least
        assert session.balance().spent == 4 * least


# One oracle


def test_a_second_oracle_is_refused(town, data, oracle, declaration):
    with pytest.raises(LedgerError, match=r"another oracle runs in .*oracle: one data set has one oracle"):
        open_oracle(declaration, town.connect, town.folder)
    oracle.close()
    with open_oracle(declaration, town.connect, town.folder) as after:
        assert after.step() == []


def test_the_check_finds_oracles_side_by_side(town, oracle, declaration, monkeypatch):
    monkeypatch.setattr(oracle_module, "_alone", lambda folder: nullcontext())
    with open_oracle(declaration, town.connect, town.folder) as second:
        assert second.step() == []


def test_an_oracle_that_cannot_be_opened_leaves_no_lock(town, data, declaration, tmp_path):
    def refused(outbox):
        raise LedgerError("no chain here")

    for _ in range(2):
        with pytest.raises(LedgerError, match="no chain here"):
            open_oracle(declaration, refused, town.folder)
    with open_oracle(declaration, town.connect, town.folder) as oracle:
        assert oracle.step() == []


def test_everything_lies_beside_the_declaration(town, tmp_path):
    path = census.write(tmp_path / "elsewhere", rows=300)
    with open_oracle(path, town.connect):
        pass
    folder = path.parent / "census.reticent" / "oracle"
    assert {"own.sqlite", "outbox.sqlite", "oracle.lock"} <= {one.name for one in folder.iterdir()}
    assert folder.stat().st_mode & 0o77 == 0


def test_an_oracle_that_was_replaced_draws_nothing(town, data, oracle):
    town.ask(planned(data), data.terms.minimum)
    town.send(town.owner, "appoint", town.dataset, town.analyst.address)
    with pytest.raises(LedgerError, match="the oracle of census is"):
        oracle.step()
    assert (spent(town), seen(town.paper)) == (0, [])
    town.send(town.owner, "appoint", town.dataset, town.keeper.address)
    assert [one.state for one in oracle.step()] == [State.RECORDED]


# A key that is replaced while it records


def replaced_key(town, declaration, data, monkeypatch, *, when, nonces):
    """An oracle whose key is replaced while its record is on its way; what the next one makes of it.

    Args:
        town: with the data set.
        declaration: of it.
        data: what it says.
        monkeypatch: cuts the old one off.
        when: before its record is handed to the node ("signed"); after, and it comes into no block ("sent"),
            or into one where the key is replaced already ("reverted").
        nonces: that the new key has used before, more than the old one.
    """
    town.ask(planned(data), data.terms.minimum)
    node, fresh = town.node, Key(os.urandom(32))
    for key in (fresh, town.keeper):
        node.rpc("anvil_setBalance", key.address, hex(10**24))
    used = int(node.rpc("eth_getTransactionCount", town.keeper.address, "latest"), 16)
    node.rpc("anvil_setNonce", fresh.address, hex(max(0, used + nonces)))

    def lost(self, *given):
        raise NodeUnavailable("the node is away")

    with open_oracle(declaration, town.connect, town.folder) as old, monkeypatch.context() as away:
        away.setattr(Sender, "_announce" if when == "signed" else "wait_many", lost)
        if when != "signed":
            node.rpc("evm_setAutomine", False)
        with pytest.raises(LedgerError, match="the node is away"):
            old.step()
    if when == "signed":
        town.send(town.owner, "appoint", town.dataset, fresh.address)
    else:  # the owner's word gets in first
        raw = seen(town.paper)[-1].raw
        node.rpc("anvil_dropTransaction", "0x" + keccak(bytes.fromhex(raw[2:])).hex())
        node.rpc("evm_setAutomine", True)
        town.send(town.owner, "appoint", town.dataset, fresh.address)
        if when == "reverted":
            node.rpc("eth_sendRawTransaction", raw)
    town.keeper = fresh
    with open_oracle(declaration, town.connect, town.folder) as new, monkeypatch.context() as slow:
        if when == "reverted":  # a block comes once it was looked for in vain
            meant = Sender._confirmed
            node.rpc("evm_setAutomine", False)

            def confirmed(self, missing):
                found = meant(self, missing)
                node.rpc("anvil_mine", "0x1")
                return found

            slow.setattr(Sender, "_confirmed", confirmed)
        try:
            return [one.state for one in new.step()]
        finally:
            node.rpc("evm_setAutomine", True)


@pytest.mark.parametrize("nonces", [-1, 0, 5])
@pytest.mark.parametrize("when", ["signed", "sent", "reverted"])
def test_a_new_key_records_the_draw_of_the_old_one(town, declaration, data, monkeypatch, when, nonces):
    states = replaced_key(town, declaration, data, monkeypatch, when=when, nonces=nonces)
    assert states == [State.RECORDED]
    assert faults(town) == []


def test_planted_taking_an_old_revert_for_the_end_is_caught(town, declaration, data, monkeypatch):
    monkeypatch.setattr(Sender, "_may_follow", lambda self, reverted: False)
    assert replaced_key(town, declaration, data, monkeypatch, when="reverted", nonces=1) == [State.DELAYED]


def test_planted_sending_what_the_old_key_signed_is_caught(town, declaration, data, monkeypatch):
    class Anybody(str):
        __hash__, __eq__ = str.__hash__, lambda self, other: True

    monkeypatch.setattr("reticent.chain.sender.signer_of", lambda raw: Anybody())
    assert replaced_key(town, declaration, data, monkeypatch, when="signed", nonces=0) == [State.DELAYED]


def test_planted_an_oracle_that_draws_for_each_key_is_caught(town, declaration, data, monkeypatch):
    meant = oracle_module._identity
    monkeypatch.setattr(oracle_module, "_identity", lambda chain, one: f"{meant(chain, one)}/{chain.address}")
    monkeypatch.setattr(
        Records, "_label", lambda self, waiting, data: f"{self._sender.address}/{waiting.number}"
    )
    replaced_key(town, declaration, data, monkeypatch, when="sent", nonces=0)
    assert "two draws left for one request" in faults(town)
