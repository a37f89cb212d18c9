"""Combined answers on a chain: the same charges as beside the data, and an oracle that measures them."""

from __future__ import annotations

import threading

import pytest

from reticent.ledger import MemoryLedger
from reticent.ledger.base import Worded
from reticent.ledger.ethereum.accounts import ChainAccounts
from reticent.query import By, Case, Session, census, histogram
from reticent.query import count as how_many
from reticent.query.chain.oracle import open_oracle
from reticent.query.declarations import dataset_file
from reticent.query.language.questions import resolve
from reticent.query.measure import plan
from reticent.query.plans import Plans
from reticent.query.purchases import Purchases
from reticent.randomness import SimulationStream

from .tables import Tallied
from .town import Town

AGES = histogram(By("age", edges=(20, 40, 60, 80)))
ASKED = [  # information in mu^2; one is free, one is paid in part, one is outside of the span
    (AGES, 0.02, "span"),
    (how_many(where="age >= 20 and age < 60"), 0.006, "span"),
    (how_many(where="age >= 20 and age < 60"), 0.03, "span"),
    (how_many(where="age >= 30"), 0.01, "span"),
    (how_many(where="age >= 30"), 0.01, "none"),
    (AGES, 0.025, "span"),
]


@pytest.fixture
def declaration(tmp_path_factory):
    return census.write(tmp_path_factory.mktemp("census"), rows=300)


@pytest.fixture
def town(anvil, declaration, tmp_path):
    made = Town(anvil, dataset_file.read(declaration), tmp_path)
    yield made
    made.close()


@pytest.fixture
def running(declaration, town):
    with open_oracle(declaration, town.connect, town.folder) as oracle:
        stop = threading.Event()
        thread = threading.Thread(target=oracle.run, args=(stop, 0.02))
        thread.start()
        yield
        stop.set()
        thread.join()


def asked_of(session):
    found = []
    for query, information, reuse in ASKED:
        price = session.price(query, information=information, reuse=reuse)
        answer = session.ask(query, information=information, reuse=reuse)
        assert (price.cost, price.case) == (answer.cost, answer.case)
        found.append((answer.case, answer.cost, answer.information))
    return found


@pytest.mark.usefixtures("running")
def test_charges_on_a_chain_are_those_beside_the_data(town):
    with Session(town.data, None, town.ledger(town.analyst), wait_s=60) as session:
        on_chain = asked_of(session)
        answer = session.known(ASKED[1][0])
        assert [len(part.measurements) for part in answer.combined.parts] == [1, 2]
    rows = Tallied(town.data, [(cell, 60, 0, 0) for cell in range(5)])
    with Session(town.data, rows, MemoryLedger(), rng=SimulationStream(1)) as session:
        assert asked_of(session) == on_chain
    assert [case for case, _, _ in on_chain][1:5] == [Case.SPAN, Case.SPAN, Case.FRESH, Case.FRESH]
    assert on_chain[1][1] == 0 < on_chain[2][1] < 0.03 * 10**12


# Texts of strangers under the name of a purchase

STRANGE_TEXTS = {
    "no question": {"question": "{}"},
    "no text at all": {"question": b""},
    "bytes that are no text": {"question": b"\xff\xfe\x00"},
    "a text that names another key": {"question": '{"measured":"count"}'},
    "another grid": {"grid": -3},
    "another size": {"dimension": 1},
    "any size": {"dimension": 0},
}
WITHIN = how_many(where="age >= 20 and age < 60")


def buy_under_name(town, words):
    """Pay, as an analyst, the least for other words under the name of the histogram of ages."""
    town.ask(plan(resolve(AGES, town.data)), 1, **words)


def check_reuse(town):
    """Check that an analyst who comes now answers from what was bought, free."""
    with Session(town.data, None, town.ledger(town.analyst), wait_s=60) as session:
        price = session.price(WITHIN, information=0.006)
        assert (price.cost, price.case) == (0, Case.SPAN)
        assert session.known(WITHIN) is not None


def check_strange_texts(town):
    """Check reuse of one purchase beside every text, declared before and after it."""
    before, after = list(STRANGE_TEXTS)[::2], list(STRANGE_TEXTS)[1::2]
    for name in before:
        buy_under_name(town, STRANGE_TEXTS[name])
    with Session(town.data, None, town.ledger(town.analyst), wait_s=60) as session:
        assert session.ask(AGES, information=0.02).cost > 0
        for name in after:
            buy_under_name(town, STRANGE_TEXTS[name])
            check_reuse(town)
        assert session.price(WITHIN, information=0.006).cost == 0, "a session that is open already"


@pytest.mark.usefixtures("running")
def test_no_text_of_a_stranger_takes_the_place_of_a_purchase(town):
    check_strange_texts(town)


@pytest.mark.usefixtures("running")
def test_a_session_that_saw_a_strange_text_first_takes_the_right_one(town):
    with Session(town.data, None, town.ledger(town.analyst), wait_s=60) as session:
        buy_under_name(town, STRANGE_TEXTS["no question"])
        assert session.price(WITHIN, information=0.006).cost > 0
        with Session(town.data, None, town.ledger(town.analyst), wait_s=60) as buyer:
            buyer.ask(AGES, information=0.02)
        assert session.price(WITHIN, information=0.006).cost == 0


@pytest.mark.usefixtures("running")
def test_planted_the_last_text_of_a_name_wins(town, monkeypatch):
    """The old fault: one text for each name, whoever declared it."""

    def last_text(self, account, after=0):
        with self.log.reading() as state:
            keys = [key for key in state.keys.values() if key.question and key.requested]
            return Worded({key.name: key.question for key in keys}, 0)

    monkeypatch.setattr(ChainAccounts, "worded", last_text)
    with pytest.raises(AssertionError):
        check_strange_texts(town)


def test_a_purchase_is_read_once_its_own_text_comes(declaration):
    """A ledger that tells a wrong text first hides no purchase."""
    data = dataset_file.read(declaration)
    question = resolve(AGES, data)
    ledger = TellingLedger()
    ledger.open(data.terms)
    purchases = Purchases(data, ledger, Plans(data, ledger))
    known = []
    for text in ("{}", question.text, "{}"):
        ledger.texts = {question.key: text}
        purchases._look()
        known.append(set(purchases._published.plans))
    assert known == [set(), {question.key}, {question.key}]


class TellingLedger(MemoryLedger):
    """A ledger that tells the given texts."""

    def worded(self, account, after=0):
        return Worded(self.texts, 0)
