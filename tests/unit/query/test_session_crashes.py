"""Sessions that crash, race and try again: nothing is lost, and nothing is charged twice."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from reticent.errors import (
    IdempotencyConflict,
    ParameterError,
    SourceError,
)
from reticent.ledger import MemoryLedger, SqlLedger
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query import Case, Policy, Session
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.language.tree import Comparison
from reticent.query.notebook import Notebook
from reticent.randomness import SimulationStream

from .asked_sessions import FORK, OLD, SUMS, declared, opened
from .tables import Tallied

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


# Crashes and races


def stop(*_, **__):
    os._exit(9)


def stop_after(call):
    def stopping(*args, **kwargs):
        call(*args, **kwargs)
        os._exit(9)

    return stopping


POINTS = {
    "before paying": lambda session: setattr(session, "_opened", stop),
    "after paying": lambda session: setattr(session._ledger, "request", stop_after(session._ledger.request)),
    "while reading rows": lambda session: setattr(session._rows, "tally", stop),
    "before recording": lambda session: setattr(session._ledger, "fulfil", stop),
    "after recording": lambda session: setattr(session._ledger, "fulfil", stop_after(session._ledger.fulfil)),
    "before noting": lambda session: setattr(session._notebook, "remember", stop),
    "before answering": lambda session: setattr(session._teller, "answer", stop),
}


def in_child(work):
    child = FORK.Process(target=work)
    child.start()
    child.join()
    return child.exitcode


@pytest.mark.parametrize("idempotency", [None, "a-retry"])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_loses_nothing_and_charges_once(point, idempotency, tmp_path):
    data = declared()

    def session():
        ledger, notebook = SqlLedger(tmp_path / "ledger.db"), Notebook(tmp_path / "notebook.db")
        return opened(data, ledger=ledger, notebook=notebook, seed=None)

    def doomed():
        with session() as crashing:
            POINTS[point](crashing)
            crashing.mean("age", where=OLD, information=0.5, idempotency=idempotency)

    assert in_child(doomed) == 9
    with session() as reopened:
        paid = 0 if point == "before paying" else UNITS_PER_ONE // 2
        assert reopened.balance().spent == paid
        recorded = point in ("after recording", "before noting", "before answering")
        assert len(reopened._ledger.pending("d")) == (0 if recorded or not paid else 1)
        price = reopened.price(tree.mean("age", where=OLD), information=0.5)
        assert price.cost == UNITS_PER_ONE // 2 - paid
        answer = reopened.mean("age", where=OLD, information=0.5, idempotency=idempotency)
        assert answer.information == UNITS_PER_ONE // 2
        assert reopened.balance().spent == UNITS_PER_ONE // 2
        assert reopened._ledger.pending("d") == []
        assert reopened.mean("age", where=OLD, information=0.1).cells == answer.cells


def together(work, processes):
    """Run work(number) in forked children that start at once."""
    barrier, answers = FORK.Barrier(processes), FORK.SimpleQueue()

    def child(number):
        try:
            barrier.wait()
            answers.put(work(number))
        except BaseException as error:
            answers.put(error)

    children = [FORK.Process(target=child, args=(number,)) for number in range(processes)]
    for process in children:
        process.start()
    found = [answers.get() for _ in children]
    for process in children:
        process.join()
    assert not [one for one in found if isinstance(one, BaseException)]
    return found


def test_racing_sessions_pay_once_and_agree(tmp_path):
    """Six processes ask the same three questions, at levels of their own, of one ledger."""
    data = declared()
    queries = (tree.count(where=OLD), tree.mean("age", where=OLD), tree.histogram("sex"))
    SqlLedger(tmp_path / "ledger.db").close()

    def work(number):
        chance, told = random.Random(number), []
        ledger, notebook = SqlLedger(tmp_path / "ledger.db"), Notebook(tmp_path / "notebook.db")
        with opened(data, ledger=ledger, notebook=notebook, seed=None) as session:
            for _ in range(10):
                place, wanted = chance.randrange(3), chance.randrange(1, 100) * 10**10
                answer = session.ask(queries[place], information=wanted / UNITS_PER_ONE, reuse="key")
                told.append((place, wanted, answer.information, answer.cells))
        return told

    told = [one for answers in together(work, 6) for one in answers]
    most = [max(wanted for place, wanted, *_ in told if place == one) for one in range(3)]
    with SqlLedger(tmp_path / "ledger.db") as ledger:
        assert ledger.pending("d") == []
        assert ledger.balance("d").spent == pytest.approx(
            sum(most), abs=100
        )  # 0.1 is not a tenth, to a unit or so
        assert ledger.balance("d").spent == sum(
            ledger.reading("d", resolve(q, data).key).information for q in queries
        )
    shown = {}
    for place, wanted, information, cells in told:
        assert information >= wanted - 1
        assert shown.setdefault((place, information), cells) == cells


@pytest.mark.parametrize(("policy", "reuse"), [("share", "key"), ("share", "span"), ("degrade", "key")])
def test_threads_of_one_session_pay_once_and_agree(tmp_path, policy, reuse):
    data = declared(policy=Policy(policy))
    queries = (tree.count(where=OLD), tree.mean("age", where=OLD), tree.histogram("sex"))
    ledger, notebook = SqlLedger(tmp_path / "ledger.db"), Notebook(tmp_path / "notebook.db")
    with opened(data, ledger=ledger, notebook=notebook, seed=None) as session, ThreadPoolExecutor(6) as pool:
        asked = [(query, mu2) for mu2 in (0.1, 0.2, 0.5, 0.3, 0.2, 0.1) for query in queries] * 2
        answers = list(pool.map(lambda one: session.ask(one[0], information=one[1], reuse=reuse), asked))
        spent = 3 * UNITS_PER_ONE // 2
        # of the two cells the public number of rows says one, and of the mean the count says a part
        least = 0.7 * spent if reuse == "span" else spent
        assert least <= session.balance().spent <= spent
        assert ledger.pending("d") == []
    shown = {}
    for (query, mu2), answer in zip(asked, answers, strict=True):
        assert answer.information >= mu2 * UNITS_PER_ONE * (1 - 1e-8)
        assert shown.setdefault((query, answer.information), answer.cells) == answer.cells


class Nested(Tallied):
    """Rows during whose reading somebody else asks the same."""

    def __init__(self, data, sums, other):
        super().__init__(data, sums)
        self.other = other

    def tally(self, sql):
        self.between = self.other()
        return super().tally(sql)


def test_a_measurement_that_another_recorded_first_stands():
    data, ledger = declared(), MemoryLedger()
    quick = opened(data, ledger=ledger, seed=5)
    rows = Nested(data, SUMS, lambda: quick.mean("age", where=OLD, information=0.5))
    slow = Session(data, rows, ledger, rng=SimulationStream(6))
    answer = slow.mean("age", where=OLD, information=0.5)
    assert answer.cells == rows.between.cells
    assert (answer.cost, rows.between.cost) == (UNITS_PER_ONE // 2, 0)
    assert ledger.balance("d").spent == UNITS_PER_ONE // 2


def test_a_source_out_of_reach_costs_nothing():
    def gone():
        raise SourceError

    with Session(declared(), gone, MemoryLedger()) as session:
        with pytest.raises(SourceError):
            session.mean("age", information=0.5)
        assert session.balance().spent == 0


def test_a_source_that_fails_after_paying_is_read_later():
    data = declared()
    rows = Tallied(data, SUMS)
    with Session(data, rows, MemoryLedger(), rng=SimulationStream(1)) as session:
        rows.tally, right = lambda sql: quit_reading(), rows.tally
        for _ in range(3):
            with pytest.raises(SourceError):
                session.mean("age", information=0.5)
            assert session.balance().spent == UNITS_PER_ONE // 2
        rows.tally = right
        answer = session.mean("age", information=0.5)
        assert (answer.cost, answer.case, answer.information) == (0, Case.EQUAL, UNITS_PER_ONE // 2)
        assert session.balance().spent == UNITS_PER_ONE // 2


def quit_reading():
    raise SourceError


def test_a_connection_is_made_once_and_only_to_measure():
    data, made = declared(), []

    def connecting():
        made.append(1)
        return Tallied(data, SUMS)

    with Session(data, connecting, MemoryLedger(), rng=SimulationStream(1)) as session:
        session.price(tree.mean("age"), error=1.0)
        assert made == []
        session.mean("age", error=1.0)
        session.mean("age", error=0.5)
        assert made == [1]


# Retries


def test_a_retry_is_charged_once():
    with opened(declared()) as session:
        first = session.mean("age", information=0.5, idempotency="one")
        again = session.mean("age", information=0.5, idempotency="one")
        assert (again.cost, again.cells) == (first.cost, first.cells), "as the first try was told"
        assert session.balance().spent == first.cost
        with pytest.raises(IdempotencyConflict):
            session.mean("age", information=0.7, idempotency="one")
        with pytest.raises(IdempotencyConflict):
            session.count(where=OLD, information=0.5, idempotency="one")
        with pytest.raises(ParameterError, match="idempotency must be"):
            session.count(where=OLD, information=0.5, idempotency=7)


def test_a_retry_by_error_asks_what_the_first_try_asked():
    """The first answer shows that the group is smaller than guessed; the retry must not buy more."""
    with opened(declared(), sums=[(0, 40, 4_000, 400_000)]) as session:
        rare = Comparison("age", ">", 100)
        first = session.mean("age", where=rare, error=2.0, idempotency="one")
        assert first.error > 2.0
        for idempotency in ("one", "two", None):
            again = session.mean("age", where=rare, error=2.0, idempotency=idempotency)
            assert (again.cost, again.cells) == (first.cost if idempotency == "one" else 0, first.cells)
