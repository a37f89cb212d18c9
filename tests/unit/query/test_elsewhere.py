"""Sessions without rows: somebody else reads what was declared, measures, and records in a shared ledger."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

import reticent
from reticent.errors import (
    AlreadyFulfilled,
    MeasurementVoid,
    NotMeasured,
    ParameterError,
    ParameterTypeError,
    QuestionRefused,
)
from reticent.ledger import MemoryLedger, SqlLedger
from reticent.ledger.base import increment
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query import Case, Policy, Session, census
from reticent.query.kinds.listed import Measured
from reticent.query.language import questions, tree
from reticent.query.language.questions import Question, parse, resolve
from reticent.query.measure import plan
from reticent.query.notebook import Notebook
from reticent.randomness import SimulationStream

from .asked_sessions import FORK, OLD, SUMS, declared, opened
from .tables import Tallied
from .test_session import QUESTIONS, accuracy
from .test_session_crashes import in_child, stop_after

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
HALF = UNITS_PER_ONE // 2


class Telling:
    """A ledger behind which an oracle measures; `told` is what it can read there."""

    measured_by_oracle = True
    told: dict

    def _declare(self, account, key, question, grid, dimension):
        super()._declare(account, key, question, grid, dimension)
        self.told[key] = question, grid, dimension


class Shared(Telling, SqlLedger):
    def __init__(self, where, told):
        super().__init__(where)
        self.told = told


class InMemory(Telling, MemoryLedger):
    def __init__(self):
        super().__init__()
        self.told = {}


def record(ledger, data, told, rng=None):
    """What an oracle does: read the question, check it, measure, record. What nobody stated must wait."""
    for waiting in ledger.pending(data.name):
        if waiting.key not in told:
            continue
        text, grid, dimension = told[waiting.key]
        question = parse(text, data)
        made = plan(question)
        assert (question.key, made.shift) == (waiting.key, grid)
        assert question.cells * made.coordinates == dimension
        exact = made.vector(Tallied(data, SUMS))
        with contextlib.suppress(AlreadyFulfilled):
            ledger.fulfil(waiting.number, made.measure(exact, waiting.information, rng))


@contextlib.contextmanager
def oracle(path, data, told):
    """Somebody who looks every now and then, in a thread, with a connection of their own."""
    done = threading.Event()

    def work():
        with SqlLedger(path) as ledger:
            ledger.open(data.terms)
            while not done.wait(0.01):
                record(ledger, data, told)

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            yield
        finally:
            done.set()
            working.result()


@pytest.fixture
def shared(tmp_path):
    """How to open the ledger that both sides share, and what the oracle can read."""
    told = {}
    return tmp_path / "ledger.db", told


def asking(shared, data=None, **given):
    path, told = shared
    return Session(declared() if data is None else data, None, Shared(path, told), **given)


class Clock:
    """Stands for the module `time` in a session: nobody waits, and others work meanwhile."""

    def __init__(self, meanwhile=lambda: None):
        self.now, self.pauses, self.meanwhile = 100.0, [], meanwhile

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr("reticent.query.recording.time", made)
    return made


# Asking


def test_an_answer_is_paid_for_here_and_measured_elsewhere(shared):
    data = declared()
    with oracle(shared[0], data, shared[1]), asking(shared) as session:
        price = session.price(tree.mean("age", by="sex"), information=0.5)
        answer = session.mean("age", by="sex", information=0.5)
        assert (answer.cost, answer.case, answer.information) == (price.cost, Case.FRESH, HALF)
        assert [cell.estimate.value for cell in answer.cells] == pytest.approx([50, 48.08], abs=1)  # 10 sigma
        assert answer.receipt.measurements == (0,)
        again = session.mean("age", by="sex", information=0.5)
        assert (again.cost, again.case, again.cells) == (0, Case.EQUAL, answer.cells)
        assert session.mean("age", by="sex", information=0.1).case is Case.COARSER
        finer = session.mean("age", by="sex", information=0.75)
        assert (finer.cost, finer.case, finer.information) == (HALF // 2, Case.REFINED, HALF // 2 * 3)
        assert finer.cells != answer.cells
        assert session.balance().spent == HALF // 2 * 3
        assert session.known(tree.mean("age", by="sex"), reuse="key").cells == finer.cells
        assert list(session.questions().values()) == [tree.mean("age", by="sex")]
        assert session._ledger.pending("d") == []


def test_any_ledger_may_be_shared(tmp_path):
    """Without words in the ledger, whoever measures must know the questions by their keys."""
    data, path = declared(), tmp_path / "ledger.db"
    made = plan(resolve(tree.histogram("sex"), data))
    told = {made.question.key: (made.question.text, made.shift, 2)}
    with oracle(path, data, told), Session(data, None, SqlLedger(path)) as session:
        answer = session.histogram("sex", information=0.5)
        assert [cell.estimate.value for cell in answer.cells] == pytest.approx(
            [2400, 2600], abs=20
        )  # 10 sigma
        assert session.histogram("sex", information=0.5).cost == 0


def test_an_oracle_in_another_process(shared):
    path, told = shared
    data = declared()
    for query in QUESTIONS:
        made = plan(resolve(query, data))
        told[made.question.key] = made.question.text, made.shift, made.question.cells * made.coordinates
    SqlLedger(path).close()
    done = FORK.Event()

    def work():
        with SqlLedger(path) as ledger:
            ledger.open(data.terms)
            while not done.wait(0.01):
                record(ledger, data, told)

    measuring = FORK.Process(target=work)
    measuring.start()
    try:
        with asking(shared) as session:
            answers = [session.ask(query, information=0.1, reuse="key") for query in QUESTIONS]
    finally:
        done.set()
        measuring.join()
    assert measuring.exitcode == 0
    assert [answer.cost for answer in answers].count(0) == 3  # of eight, three are the same as others
    assert answers[-1].spent == UNITS_PER_ONE // 2


def test_analysts_who_wait_for_the_same_pay_once_and_agree(shared):
    data = declared()
    sessions = [asking(shared) for _ in range(4)]
    with oracle(shared[0], data, shared[1]), ThreadPoolExecutor(4) as pool:
        asked = [(session, mu2) for mu2 in (0.2, 0.5, 0.3) for session in sessions]
        answers = list(pool.map(lambda one: one[0].mean("age", information=one[1]), asked))
        assert sessions[0].balance().spent == HALF
    shown = {}
    for (_, mu2), answer in zip(asked, answers, strict=True):
        assert answer.information >= mu2 * UNITS_PER_ONE - 1
        assert shown.setdefault(answer.information, answer.cells) == answer.cells
    for session in sessions:
        session.close()


def scripts(count, seed):
    """Sequences of questions and accuracies, some beyond the budget."""
    chance, data = random.Random(seed), declared()
    for _ in range(count):
        asked = chance.choices(QUESTIONS, k=chance.randrange(1, 9))
        yield [(query, accuracy(chance, data)[0]) for query in asked]


def told_by(session, script):
    found = []
    for query, asked in script:
        try:
            found.append(session.ask(query, **asked))
        except QuestionRefused as refusal:
            found.append((refusal.asked, refusal.left, refusal.best, refusal.reachable_error))
    return found


def check_alike(clock, count, seed):
    """With the same noise, both sides of a wall give the same answers at the same prices."""
    data, refused = declared(), 0
    for script in scripts(count, seed):
        ledger, rng = InMemory(), SimulationStream(1)
        clock.meanwhile = lambda ledger=ledger, rng=rng: record(ledger, data, ledger.told, rng)
        with Session(data, None, ledger) as apart, opened(data, seed=1) as beside:
            wanted = told_by(beside, script)
            assert told_by(apart, script) == wanted
        refused += sum(isinstance(one, tuple) for one in wanted)
    return refused


def test_who_measures_makes_no_difference(clock):
    assert check_alike(clock, 150, 1) > 10


def test_a_session_that_pays_again_would_be_noticed(clock, monkeypatch):
    """Planted: each request is made twice, the second time for more."""
    request = InMemory.request

    def twice(ledger, account, key, amount, **given):
        request(ledger, account, key, amount, **given)
        return request(ledger, account, key, dataclasses.replace(amount, units=amount.units + 1), **given)

    monkeypatch.setattr(InMemory, "request", twice)
    with pytest.raises(AssertionError):
        check_alike(clock, 20, 2)


def test_the_same_error_is_free_again_where_an_oracle_measures(clock):
    """The group is a twentieth of what was guessed: what is recorded is wide, and stays what was bought."""
    data, ledger, rng = declared(), InMemory(), SimulationStream(1)
    clock.meanwhile = lambda: record(ledger, data, ledger.told, rng)
    costs = []
    for _ in range(3):
        session = Session(data, None, ledger)
        for query in (tree.mean("age", where=OLD), tree.proportion(OLD, by="sex")):
            answer = session.ask(query, error=0.2, rows=50_000)
            assert answer.error > 0.2
            costs.append(answer.cost)
        session.close(ledger=False)
    assert min(costs[:2]) > 0
    assert costs[2:] == [0] * 4


# Waiting


def test_what_is_not_recorded_in_time_is_paid_for_and_free_later(shared, clock):
    data = declared()
    with asking(shared, wait_s=3.0) as session:
        for _ in range(2):
            with pytest.raises(
                NotMeasured, match=r"^d: paid for, and not recorded within 3 s; asking again is free$"
            ):
                session.mean("age", information=0.5)
            assert session.balance().spent == HALF
        assert session.price(tree.mean("age"), information=0.5).cost == 0
        assert session.known(tree.mean("age")) is None
        assert list(session.questions().values()) == [tree.mean("age")]
        clock.meanwhile = lambda: record(session._ledger, data, shared[1])
        answer = session.mean("age", information=0.5)
        assert (answer.cost, answer.case, answer.information) == (0, Case.EQUAL, HALF)
        assert session.balance().spent == HALF


def test_a_ledger_that_forgets_would_charge_again(clock, monkeypatch):
    """Planted: without what was bought before, the second wait costs as much as the first."""
    monkeypatch.setattr(
        "reticent.ledger.memory.increment", lambda terms, held, units: increment(terms, 0, units)
    )
    with Session(declared(), None, InMemory(), wait_s=0) as session:
        for paid in (HALF, 2 * HALF):
            with pytest.raises(NotMeasured):
                session.mean("age", information=0.5)
            assert session.balance().spent == paid


def test_a_retry_waits_again_and_is_charged_once(shared, clock):
    with asking(shared, wait_s=1.0) as session:
        for _ in range(2):
            with pytest.raises(NotMeasured):
                session.mean("age", information=0.5, idempotency="one")
        clock.meanwhile = lambda: record(session._ledger, session.data, shared[1])
        answer = session.mean("age", information=0.5, idempotency="one")
        assert (answer.cost, answer.spent) == (HALF, HALF)  # what the first try was charged
        assert session.mean("age", information=0.5, idempotency="one").cost == HALF
        assert session.balance().spent == HALF


@pytest.mark.parametrize("idempotency", [None, "a-retry"])
def test_an_analyst_who_dies_after_paying_loses_nothing(shared, tmp_path, idempotency):
    data = declared()

    def doomed():
        with asking(shared, notebook=Notebook(tmp_path / "notebook.db")) as session:
            session._ledger.request = stop_after(session._ledger.request)
            session.mean("age", information=0.5, idempotency=idempotency)

    assert in_child(doomed) == 9
    notebook = Notebook(tmp_path / "notebook.db")
    with asking(shared, notebook=notebook) as session, oracle(shared[0], data, shared[1]):
        assert session.balance().spent == HALF
        answer = session.mean("age", information=0.5, idempotency=idempotency)  # which states it once more
        assert answer.information == session.balance().spent == HALF


def test_every_part_that_is_paid_for_is_waited_for(clock):
    data, ledger = declared(), InMemory()
    with Session(data, None, ledger, wait_s=1.0) as session:
        for mu2 in (0.25, 0.5):
            with pytest.raises(NotMeasured):
                session.mean("age", information=mu2)
        first, second = ledger.pending("d")
        ledger.fulfil(first.number, [10**9])
        with pytest.raises(NotMeasured):
            session.mean("age", information=0.5)
        assert session.known(tree.mean("age")).information == HALF // 2
        assert session.mean("age", information=0.25).cost == 0
        clock.meanwhile = lambda: second in ledger.pending("d") and ledger.fulfil(second.number, [10**9])
        assert session.mean("age", information=0.5).information == HALF
        assert session.balance().spent == HALF


def test_pauses_grow_and_end_with_the_wait(clock):
    with Session(declared(), None, InMemory(), wait_s=4.0) as session:
        with pytest.raises(NotMeasured):
            session.mean("age", information=0.5)
        assert clock.pauses[:-1] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
        assert sum(clock.pauses) == pytest.approx(4.0)
    clock.pauses.clear()
    with Session(declared(), None, InMemory()) as session, pytest.raises(NotMeasured, match=r"within 600 s"):
        session.mean("age", information=0.5)
    assert sum(clock.pauses) == pytest.approx(600.0)


def test_no_waiting_still_looks_once(clock):
    with Session(declared(), None, InMemory(), wait_s=0) as session:
        with pytest.raises(NotMeasured, match=r"within 0 s"):
            session.mean("age", information=0.5)
        record(session._ledger, session.data, session._ledger.told)
        assert session.mean("age", information=0.5).information == HALF
    assert clock.pauses == []


def test_what_a_recovery_closed_is_not_waited_for_in_silence(clock):
    class Closing(InMemory):
        def reading(self, account, key):
            return dataclasses.replace(super().reading(account, key), pending=0)

    with (
        Session(declared(), None, Closing(), wait_s=2.0) as session,
        pytest.raises(MeasurementVoid, match=r"a recovery closed it, ask anew$"),
    ):
        session.mean("age", information=0.5)


# Nothing but the ledger


def test_every_plan_is_declared_before_it_is_asked_for(clock):
    said = []

    class Listening(InMemory):
        def _declare(self, account, key, question, grid, dimension):
            said.append(("declare", key))
            super()._declare(account, key, question, grid, dimension)

        def reading(self, account, key):
            said.append(("look", key))
            return super().reading(account, key)

        def _request(self, terms, key, *given):
            said.append(("request", key))
            return super()._request(terms, key, *given)

    data, ledger = declared(), Listening()
    clock.meanwhile = lambda: record(ledger, data, ledger.told)
    with Session(data, None, ledger) as session:
        for query in (*QUESTIONS, tree.proportion(OLD, by="sex"), tree.median("age", bins=12)):
            session.price(query, error=100.0, rows=100)
            session.ask(query, information=0.05)
            session.ask(query, error=1000.0)
            session.recorded_rows(query)
    first = {}
    for what, key in said:
        assert first.setdefault(key, what) == "declare"
    question = resolve(tree.mean("age", where=OLD), data)
    counting = Question(Measured.COUNT, None, True, question.where, (), data)
    assert ledger.told[question.key] == (question.text, plan(question).shift, 2)
    assert ledger.told[counting.key] == (counting.text, plan(counting).shift, 1)  # looked at for its size
    assert ledger.told[resolve(tree.variance("age", by="sex"), data).key][2] == 6


def test_a_session_beside_the_data_declares_too():
    class Listening(MemoryLedger):
        told: dict = {}  # noqa: RUF012

        def _declare(self, account, key, *given):
            self.told[account, key] = given

    data = declared()
    with opened(data, ledger=Listening()) as session:
        session.mean("age", information=0.5)
    question = resolve(tree.mean("age"), data)
    assert Listening.told == {("d", question.key): (question.text, plan(question).shift, 1)}


def test_nobody_pays_for_what_the_oracle_would_refuse(clock, monkeypatch):
    class Narrow(InMemory):
        def _declare(self, account, key, question, grid, dimension):
            if dimension > 1:
                raise ParameterError("dimension must be 1 here")
            super()._declare(account, key, question, grid, dimension)

    with Session(declared(), None, Narrow(), wait_s=0) as session:
        for _ in range(2):
            with pytest.raises(ParameterError, match=r"^dimension must be 1 here$"):
                session.histogram("sex", information=0.1)
        monkeypatch.setattr(questions, "LONGEST_TEXT", 100)
        with pytest.raises(
            ParameterError, match=r"^question must be a text of at most 100 ASCII characters$"
        ):
            session.mean("age", information=0.1)
        assert session.balance().spent == 0
        monkeypatch.undo()


def test_a_refusal_says_what_is_free(clock):
    ledger = InMemory()
    clock.meanwhile = lambda: record(ledger, declared(), ledger.told)
    with Session(declared(), None, ledger) as session:
        paid = session.mean("age", information=0.5)
        with pytest.raises(QuestionRefused) as refused:
            session.mean("age", information=1000.0)
        assert refused.value.best.cells == paid.cells
        assert session.balance().spent == HALF
        assert session.count(error=1.0).case is Case.PUBLIC
        assert session.rehearse(tree.mean("age"), information=0.5).cost == HALF
        assert session.balance().spent == HALF


# Opening


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (
            {"rows": lambda: None},
            ParameterError,
            r"rows must be None with this ledger: an oracle holds the data",
        ),
        ({"policy": Policy.DEGRADE}, ParameterError, r"policy must be share with this ledger, got degrade"),
        ({"wait_s": -1}, ParameterError, r"wait_s must be >= 0, got -1$"),
        ({"wait_s": float("inf")}, ParameterError, r"wait_s must be finite, got inf$"),
        ({"wait_s": "long"}, ParameterTypeError, r"wait_s must be a number, got 'long'$"),
    ],
    ids=["rows", "policy", "negative", "endless", "text"],
)
def test_what_cannot_be_is_refused_at_opening(given, error, words):
    ledger = InMemory()
    data = declared(policy=given.pop("policy", Policy.SHARE))
    with pytest.raises(error, match=f"^{words}"):
        Session(data, given.pop("rows", None), ledger, **given)
    assert ledger.accounts() == []


def test_a_ledger_beside_the_data_may_degrade_without_rows(clock):
    """It is the chain that shows everything to everybody; a shared file does not."""
    ledger, data = MemoryLedger(), declared(policy=Policy.DEGRADE)
    made = plan(resolve(tree.mean("age"), data))
    told = {made.question.key: (made.question.text, made.shift, 1)}
    clock.meanwhile = lambda: record(ledger, data, told)
    with Session(data, None, ledger) as session:
        session.mean("age", information=0.5)
        assert session.mean("age", information=0.1).information == UNITS_PER_ONE // 10


@pytest.fixture
def declaration(tmp_path):
    return census.write(tmp_path, rows=200)


def test_open_touches_no_source_where_an_oracle_measures(declaration, tmp_path, monkeypatch):
    def touched(*_, **__):
        raise AssertionError("the source was touched")

    declaration.with_suffix(".csv").unlink()
    monkeypatch.setattr("reticent.query.rows.source.connect", touched)
    path, told = tmp_path / "shared.db", {}
    with reticent.open(declaration, ledger=Shared(path, told)) as session:
        session._wait_s = 0
        with pytest.raises(NotMeasured):
            session.mean("income", error=10_000)
        made = plan(parse(*[text for text, _, _ in told.values()], session.data))
        (waiting,) = session._ledger.pending(session.data.name)
        session._ledger.fulfil(waiting.number, [0] * made.coordinates)
        assert session.mean("income", error=10_000).cost == 0
    with (
        reticent.open(declaration, ledger=tmp_path / "other.db") as session,
        pytest.raises(AssertionError, match="touched"),  # so that the test can fail
    ):
        session.mean("income", error=10_000)


def test_what_open_refuses_leaves_nothing_open(declaration, tmp_path):
    class Closing(InMemory):
        closed = False

        def close(self):
            self.closed = True

    for change, frame, words in (
        (
            "",
            pd.DataFrame({"income": [1]}),
            r"^frame must be left out with this ledger: an oracle holds the data$",
        ),
        (
            "policy: degrade\n",
            None,
            r"^policy must be share with this ledger, got degrade: it shows the best",
        ),
    ):
        text = declaration.read_text().replace("policy: share\n", "") + change
        changed = declaration.with_name("changed.yaml")
        changed.write_text(text)
        ledger = Closing()
        with pytest.raises(ParameterError, match=words):
            reticent.open(changed, ledger=ledger, frame=frame)
        assert ledger.closed
        assert ledger.accounts() == []
