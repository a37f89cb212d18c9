"""Combined answers on a chain: the same charges as beside the data, and an oracle that measures them."""

from __future__ import annotations

import threading

import pytest

from reticent.ledger import MemoryLedger
from reticent.query import By, Case, Session, census, histogram
from reticent.query import count as how_many
from reticent.query.chain.oracle import open_oracle
from reticent.query.declarations import dataset_file
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


@pytest.fixture(scope="module")
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
