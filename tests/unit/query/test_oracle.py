"""The oracle: what it measures and refuses, one draw per request, a cap that holds whatever a chain does."""

import threading
from dataclasses import replace
from itertools import count

import pytest

from reticent.errors import (
    ChainError,
    CommitUnknown,
    LedgerDamaged,
    LedgerError,
    NodeUnavailable,
    ParameterError,
    SourceError,
    TransactionRefused,
    WrongChain,
)
from reticent.ledger import Amount, MemoryLedger, SqlLedger, Unit
from reticent.privacy import Budget, Neighbours
from reticent.query import Column, DataSet, Kind, Policy, histogram, mean, total, variance
from reticent.query import count as how_many
from reticent.query.chain import oracle as oracle_module
from reticent.query.chain.oracle import Oracle, State
from reticent.query.language.questions import resolve
from reticent.query.measure import plan
from reticent.randomness import SimulationStream

from .stand_in import Paper, identity
from .tables import Tallied

COLUMNS = (
    Column("income", Kind.INTEGER, low=0, high=1000),
    Column("age", Kind.INTEGER, low=0, high=120),
    Column("sex", Kind.CATEGORY, values=("female", "male")),
)
DATA = DataSet("people", "1", COLUMNS, Budget(epsilon=8.0, delta=1e-4), rows=100)
CAP, MINIMUM = DATA.terms.cap, DATA.terms.minimum
LEAST = 4 * MINIMUM  # no question here has more values
SUMS = [(0, 60, 4000, 3_000_000), (1, 40, 5000, 3_500_000)]
ASKED = mean("income", where="age > 60")


def planned(query=ASKED, data=DATA):
    return plan(resolve(query, data))


class Wary(Tallied):
    """Rows that are looked at only while the own ledger has something that is paid for and not recorded."""

    def __init__(self, data, own):
        super().__init__(data, SUMS)
        self._own, self._account = own, data.name

    def tally(self, sql):
        assert self._own.pending(self._account)
        return super().tally(sql)


@pytest.fixture
def paper():
    return Paper(DATA)


@pytest.fixture
def own(tmp_path):
    with SqlLedger(tmp_path / "own.sqlite") as ledger:
        yield ledger


@pytest.fixture
def lines():
    return []


@pytest.fixture
def oracle(paper, own, lines):
    return Oracle(DATA, Wary(DATA, own), paper, own, rng=SimulationStream(6), say=lines.append)


def spent(own):
    return own.balance(DATA.name).spent


# What is measured


@pytest.mark.usefixtures("seeded_noise")
@pytest.mark.parametrize(
    "query",
    [ASKED, how_many(where="age > 60"), total("income"), histogram("sex"), variance("income", by="sex")],
)
def test_what_waits_is_measured_and_recorded(paper, oracle, own, lines, query):
    prepared = planned(query)
    asked = paper.ask(prepared, CAP // 4)
    (outcome,) = oracle.step()
    assert (outcome.number, outcome.key, outcome.state, outcome.reason) == (0, asked.name, State.RECORDED, "")
    exact, noise = prepared.vector(Tallied(DATA, SUMS)), prepared.noise(CAP // 4)
    assert len(paper.recorded[0]) == len(exact) == asked.dimension
    for drawn, true in zip(paper.recorded[0], exact, strict=True):
        assert drawn != true
        assert abs(drawn - true) < 8 * float(noise.sigma)
    assert spent(own) == CAP // 4
    assert lines == [f"measurement 0, '{asked.name[:57]}...': recorded"]
    assert oracle.step() == []


class Eager(Oracle):
    """Planted: looks at the rows before it has charged."""

    def _order(self, waiting):
        self._plan(waiting).vector(self._opened())
        return super()._order(waiting)


def test_the_check_finds_an_oracle_that_looks_first(paper, own):
    paper.ask(planned(), LEAST)
    with pytest.raises(AssertionError):
        Eager(DATA, Wary(DATA, own), paper, own).step()


def test_refining_is_another_draw_and_every_question_its_own(paper, oracle, own):
    first = paper.ask(planned(), LEAST)
    assert [one.state for one in oracle.step()] == [State.RECORDED]
    second = paper.ask(planned(), 3 * LEAST)
    other = paper.ask(planned(histogram("sex")), LEAST)
    assert second.start == first.information
    assert [one.state for one in oracle.step()] == [State.RECORDED] * 2
    assert spent(own) == first.information + second.information + other.information
    assert paper.recorded[0] != paper.recorded[1]


def test_a_slow_chain_is_sent_the_same_again(paper, oracle, own, lines):
    paper.slow = True
    paper.ask(planned(), LEAST)
    for _ in range(3):
        assert [one.state for one in oracle.step()] == [State.SENT]
    paper.slow = False
    assert [one.state for one in oracle.step()] == [State.RECORDED]
    assert len(paper.seen) == 4
    assert [len(values) for values in paper.draws().values()] == [1]
    assert [line.rpartition(": ")[2] for line in lines] == ["sent, not confirmed yet", "recorded"]
    assert spent(own) == LEAST


def test_noise_is_fresh_and_secure_by_default(paper, own):
    Oracle(DATA, Tallied(DATA, SUMS), paper, own).step()
    for _ in range(2):
        paper.ask(planned(histogram("sex")), CAP // 4)
        Oracle(DATA, Tallied(DATA, SUMS), paper, own).step()
    assert paper.recorded[0] != paper.recorded[1]


# What is refused


OLDER, OTHER = replace(DATA, version="0"), replace(DATA, name="others")
WRONG = {
    "no question": ({"question": "how many"}, "question must be JSON"),
    "no text": ({"question": ""}, "question must be JSON"),
    "another way to write it": ({"question": planned().question.text + " "}, "question must be"),
    "another version": ({"question": planned(data=OLDER).question.text}, "version"),
    "another data set": ({"question": planned(data=OTHER).question.text}, "data"),
    "another name": ({"name": "income"}, "key must be"),
    "the name of another question": ({"name": planned(histogram("sex")).question.key}, "key must be"),
    "a finer grid": ({"grid": planned().shift + 1}, "grid must be"),
    "a coarser grid": ({"grid": planned().shift - 1}, "grid must be"),
    "more values": ({"dimension": 3}, "dimension must be 2 for this question, got 3"),
    "any values": ({"dimension": 0}, "dimension must be 2 for this question, got 0"),
    "less than is sold": ({"information": MINIMUM - 1}, f"information must be at least {2 * MINIMUM}"),
    "less than two values cost": (
        {"information": 2 * MINIMUM - 1},
        f"information must be at least {2 * MINIMUM}, got {2 * MINIMUM - 1}",
    ),
    "odd letters": ({"name": "\x1b[2J\udcff", "question": "\x1b[2J\udcff"}, "question must be"),
    "a huge number": ({"question": '{"form":' + "9" * 5000 + "}"}, "question must be"),
    "deep": ({"question": "[" * 8000}, "question must be"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_question_of_ours_is_refused(paper, oracle, own, lines, case):
    changes, reason = WRONG[case]
    paper.ask(planned(), **{"information": LEAST} | changes)
    good = paper.ask(planned(how_many(where="age > 60")), LEAST)
    for _ in range(3):
        outcome, *rest = oracle.step()
        assert (outcome.number, outcome.state) == (0, State.REFUSED)
        assert reason in outcome.reason
        assert all(one.state is State.RECORDED for one in rest)  # the others are not held up
    assert [identity(waiting) for waiting, _ in paper.seen] == [identity(good)]
    assert spent(own) == LEAST
    refusals = [line for line in lines if "refused" in line]
    assert len(refusals) == 1  # said once
    assert refusals[0].isprintable()


class Trusting(Oracle):
    """Planted: measures whatever the text says, under whatever name, grid and size."""

    def _plan(self, waiting):
        return planned()


def test_the_checks_find_an_oracle_that_trusts(paper, own):
    oracle = Trusting(DATA, Tallied(DATA, SUMS), paper, own)
    for changes, _ in WRONG.values():
        paper.ask(planned(), **{"information": LEAST} | changes)
    assert sum(one.state is State.RECORDED for one in oracle.step()) == len(WRONG) - 1  # one is too little


def test_other_terms_on_the_chain_and_other_policies_are_refused(own):
    for terms in (replace(DATA.terms, cap=CAP + 1), replace(DATA.terms, minimum=1)):
        with pytest.raises(LedgerError, match="account people is on the chain with other terms"):
            Oracle(DATA, Tallied(DATA), Paper(DATA, terms), own)
    shy = replace(DATA, policy=Policy.DEGRADE)
    with pytest.raises(ParameterError, match="policy must be share"):
        Oracle(shy, Tallied(shy), Paper(shy), own)
    assert own.accounts() == []


def test_an_oracle_that_was_replaced_draws_nothing(paper, oracle, own, lines):
    paper.oracle = "0x" + "0b" * 20
    assert oracle.step() == []
    paper.ask(planned(), LEAST)
    with pytest.raises(LedgerError, match=f"the oracle of people is {paper.oracle} on the chain, not"):
        oracle.step()
    oracle.run(Counted(3))
    assert (paper.seen, spent(own), len(lines)) == ([], 0, 1)
    paper.oracle = paper.address
    assert [one.state for one in oracle.step()] == [State.RECORDED]


# The own total


def past_the_cap(paper, oracle):
    """Let a chain forget every charge, again and again; return what left the oracle in all."""
    for number in range(6):
        paper.ask(planned(how_many(where=f"age > {number}")), CAP // 4)
        oracle.step()
        paper.forget(0)
    return sum(waiting.information for waiting, _ in {(w, None) for w, _ in paper.seen})


def test_the_cap_holds_when_the_chain_forgets(paper, oracle, own, lines):
    assert past_the_cap(paper, oracle) == 4 * (CAP // 4) == spent(own)
    assert len(paper.draws()) == 4
    assert [len(values) for values in paper.draws().values()] == [1] * 4
    assert "past the cap" in lines[-1]
    paper.ask(planned(how_many(where="age > 3")), CAP // 4)  # paid before: nothing new is released
    assert [one.state for one in oracle.step()] == [State.RECORDED]
    assert [len(values) for values in paper.draws().values()] == [1] * 4


class Forgetful(Oracle):
    """Planted: ignores its own total. The chain's is all it knows."""

    def _values(self, asked):
        rows = self._opened()
        return [held.measure(held.vector(rows), one.information, self._rng) for one, held in asked]


def test_the_check_finds_an_oracle_without_a_total(paper, own):
    oracle = Forgetful(DATA, Tallied(DATA, SUMS), paper, own)
    assert past_the_cap(paper, oracle) > CAP


def test_what_else_is_in_the_own_ledger_is_not_sent(paper, oracle, own):
    """Nobody but the oracle writes there; if somebody did, nothing leaves."""
    for more in (0, 1):
        asked = paper.ask(planned(), (2 + more) * LEAST)
        name = oracle_module._identity(paper, asked)
        grant = own.request(DATA.name, name, Amount((1 + 3 * more) * LEAST, Unit.MU2, DATA.relation))
        own.fulfil(grant.pending[0].number, [1, 2])
    assert [one.state for one in oracle.step()] == [State.REFUSED] * 2
    assert paper.seen == []


# A draw belongs to its measurement


def reorganised(paper, oracle, changes):
    """A request is measured and sent; then another one stands under its number. Return both."""
    paper.slow = True
    first = paper.ask(planned(), 2 * LEAST)
    oracle.step()
    paper.forget(0)
    second = paper.ask(*changes)
    oracle.step()
    paper.slow = False
    oracle.step()
    return first, second


INSTEAD = {
    "the same": (planned(), 2 * LEAST),
    "another question": (planned(how_many(where="age > 60")), 2 * LEAST),
    "more of it": (planned(), 3 * LEAST),
}


@pytest.mark.parametrize("case", INSTEAD)
def test_a_draw_never_lands_on_another_measurement(paper, oracle, own, case):
    first, second = reorganised(paper, oracle, INSTEAD[case])
    assert first.number == second.number == 0
    draws = paper.draws()
    assert [len(values) for values in draws.values()] == [1] * len(draws)
    assert {paper.recorded[0]} == draws[identity(second)]
    assert (draws[identity(first)] == draws[identity(second)]) == (case == "the same")
    assert spent(own) == sum(information for *_, information in draws)


def test_the_same_request_under_another_number_gets_the_same_draw(paper, oracle, own):
    first, _ = reorganised(paper, oracle, INSTEAD["another question"])
    again = paper.ask(planned(), 2 * LEAST)
    assert again.number == 1
    oracle.step()
    assert {paper.recorded[1]} == paper.draws()[identity(first)]
    assert spent(own) == 4 * LEAST


@pytest.mark.parametrize("case", ["another question", "more of it"])
def test_the_check_finds_draws_keyed_by_number(paper, oracle, case, monkeypatch):
    monkeypatch.setattr(oracle_module, "_identity", lambda chain, waiting: f"{waiting.number}")
    first, second = reorganised(paper, oracle, INSTEAD[case])
    draws = paper.draws()
    if case == "more of it":
        assert identity(second) not in draws  # lost: no draw of that much is under the number
    else:
        assert draws[identity(first)] == draws[identity(second)]


# What can pass


def broken(*_):
    raise SourceError("the data cannot be read")


def test_rows_out_of_reach_cost_nothing(paper, own, lines):
    def missing():
        raise ParameterError("source.csv must be a file, there is none")

    oracle = Oracle(DATA, missing, paper, own, say=lines.append)
    paper.ask(planned(), LEAST)
    for _ in range(2):
        (outcome,) = oracle.step()
        assert (outcome.state, outcome.reason) == (State.DELAYED, "source.csv must be a file, there is none")
    assert (spent(own), paper.seen, len(lines)) == (0, [], 1)
    oracle._rows = lambda: Tallied(DATA, SUMS)
    assert [one.state for one in oracle.step()] == [State.RECORDED]
    assert spent(own) == LEAST


def test_rows_that_cannot_be_read_are_read_later_and_paid_once(paper, oracle, own):
    paper.ask(planned(), LEAST)
    working, oracle._rows = oracle._rows, Tallied(DATA)
    oracle._rows.tally = broken
    assert [one.state for one in oracle.step()] == [State.DELAYED]
    assert (spent(own), paper.seen) == (LEAST, [])
    oracle._rows = working
    assert [one.state for one in oracle.step()] == [State.RECORDED]
    assert spent(own) == LEAST


def test_a_refusal_of_the_chain_is_tried_again(paper, oracle, lines):
    asked = paper.ask(planned(), LEAST)
    paper.requests[0] = replace(asked, start=1)  # at the head it is another one already
    paper.waiting = lambda account: [asked]
    for _ in range(2):
        (outcome,) = oracle.step()
        assert (outcome.state, outcome.reason) == (State.DELAYED, "it was never asked for")
    assert len(lines) == 1
    paper.requests[0] = asked
    assert [one.state for one in oracle.step()] == [State.RECORDED]
    assert [one.state for one in oracle.step()] == [State.RECORDED]  # in a block that is not deep enough


@pytest.mark.parametrize("name", ["record_many", "settle_many"])
@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (TransactionRefused("insufficient funds"), State.DELAYED, "insufficient funds"),
        (TransactionRefused("ledger: fulfilled already"), State.SENT, ""),
        (ChainError("other values were signed before"), State.DELAYED, "other values were signed before"),
    ],
)
def test_what_one_record_meets_holds_up_no_other(paper, oracle, monkeypatch, name, error, state, reason):
    many = getattr(paper, name)

    def failing(given):
        if any(waiting.number == 1 for waiting, _ in given):
            raise error
        return many(given)

    monkeypatch.setattr(paper, name, failing)
    for age in range(3):
        paper.ask(planned(how_many(where=f"age > {age}")), LEAST)
    outcomes = oracle.step()
    assert [one.state for one in outcomes] == [State.RECORDED, state, State.RECORDED]
    assert outcomes[1].reason == reason
    monkeypatch.undo()
    assert [one.state for one in oracle.step()] == [State.RECORDED]
    assert [len(values) for values in paper.draws().values()] == [1] * 3


@pytest.mark.parametrize("name", ["record_many", "settle_many", "waiting"])
@pytest.mark.parametrize("error", [NodeUnavailable("away"), WrongChain("elsewhere"), CommitUnknown("away")])
def test_what_concerns_the_chain_as_a_whole_ends_the_step(paper, oracle, monkeypatch, name, error):
    def failing(given):
        raise error

    for age in range(2):
        paper.ask(planned(how_many(where=f"age > {age}")), LEAST)
    monkeypatch.setattr(paper, name, failing)
    with pytest.raises(type(error)):
        oracle.step()


# The loop


class Counted(threading.Event):
    """Stops after so many pauses, and keeps them."""

    def __init__(self, pauses, then=None):
        super().__init__()
        self.pauses, self._left, self._then = [], pauses, then

    def wait(self, timeout=None):
        self.pauses.append(timeout)
        if self._then is not None:
            self._then(len(self.pauses))
        if len(self.pauses) == self._left:
            self.set()
        return self.is_set()


def test_the_loop_waits_for_a_node_that_is_away_and_says_so_once(paper, oracle, lines):
    def comes_back(pauses):
        paper.away = 2 <= pauses < 9

    paper.ask(planned(), LEAST)
    stop = Counted(11, comes_back)
    oracle.run(stop, poll_s=0.5)
    assert stop.pauses == [0.5, 0.5, 1, 2, 4, 8, 16, 30, 30, 0.5, 0.5]
    assert [line.partition(";")[0] for line in lines[1:]] == [
        "the node at paper does not answer (Away)",
        "it is over, going on",
    ]


def test_the_loop_ends_when_the_own_ledger_is_damaged(paper, oracle, own, monkeypatch):
    def torn(*_, **__):
        raise LedgerDamaged("torn")

    monkeypatch.setattr(own, "request_many", torn)
    paper.ask(planned(), LEAST)
    with pytest.raises(LedgerDamaged):
        oracle.run(Counted(3))


def test_a_node_that_contradicts_itself_is_asked_again(paper, oracle, lines, monkeypatch):
    def contradicting(account):
        raise LedgerDamaged("Fulfilled contradicts the events before")

    paper.ask(planned(), LEAST)
    monkeypatch.setattr(paper, "waiting", contradicting)
    oracle.run(Counted(2, lambda pauses: monkeypatch.undo()), poll_s=1)
    assert "what the node says of the contract cannot be" in lines[0]
    assert lines[1].endswith("recorded")


def test_what_is_stuck_holds_up_no_other(paper, oracle):
    asked = paper.ask(planned(), LEAST)
    paper.requests[0] = replace(asked, start=1)
    stop = Counted(3)
    oracle.run(stop, poll_s=1)
    assert stop.pauses == [1, 1, 1]
    with pytest.raises(ParameterError, match="poll_s must be > 0"):
        oracle.run(stop, poll_s=0)


def test_only_the_first_draw_counts(paper, own):
    """If two should ever measure at once, whatever keeps them apart: both send what was recorded first."""

    class Late(Tallied):
        def tally(self, sql):
            (pending,) = own.pending(DATA.name)
            own.fulfil(pending.number, [1, 2])
            return super().tally(sql)

    paper.ask(planned(), LEAST)
    assert [one.state for one in Oracle(DATA, Late(DATA, SUMS), paper, own).step()] == [State.RECORDED]
    assert paper.recorded == {0: (1, 2)}


def test_a_step_that_fails_is_taken_up_again(paper, oracle, own, monkeypatch):
    """Whichever call fails, and however often, the next step goes on where it stopped."""
    places = [
        (own, "request_many"),
        (own, "fulfil"),
        (own, "reading"),
        (paper, "record_many"),
        (paper, "settle_many"),
    ]
    for place, name in places:
        real, calls = getattr(place, name), count()

        def failing(*given, real=real, calls=calls, **more):
            if next(calls) == 0:
                raise NodeUnavailable("away")
            made = real(*given, **more)
            if next(calls) == 2:
                raise NodeUnavailable("away")
            return made

        paper.ask(planned(how_many(where=f"age > {len(paper.requests)}")), LEAST)
        monkeypatch.setattr(place, name, failing)
        oracle.run(Counted(4))
        monkeypatch.undo()
    assert oracle.step() == []
    assert [len(values) for values in paper.draws().values()] == [1] * len(places)
    assert spent(own) == len(places) * LEAST


def test_lines_and_outcomes_hold_nothing_of_the_rows(paper, own, lines):
    """The same requests on other rows: what is said is the same to the letter."""
    said = []
    for sums in (SUMS, [(0, 0, 0, 0)], [(0, 2**60, 2**62, 2**62), (1, -5, -(2**70), 0)]):
        chain = Paper(DATA)
        with MemoryLedger() as fresh:
            one = []
            oracle = Oracle(DATA, Tallied(DATA, sums), chain, fresh, say=one.append)
            for query in (ASKED, how_many(where="age > 60"), histogram("sex"), variance("income")):
                chain.ask(planned(query), LEAST)
            chain.ask(planned(), LEAST, grid=0)
            said.append((one, oracle.step(), fresh.balance(DATA.name), sorted(chain.recorded)))
            assert all(abs(value) < 1 << 62 for values in chain.recorded.values() for value in values)
    assert said[0] == said[1] == said[2]


def test_amounts_are_in_the_account_s_own_unit(paper, oracle, own):
    paper.ask(planned(), LEAST)
    oracle.step()
    (held,) = own.accounts()
    assert (held.terms, held.terms.unit, held.terms.neighbours) == (
        DATA.terms,
        Unit.MU2,
        Neighbours.REPLACE_ONE,
    )
    again = own.request(DATA.name, "mine", Amount(CAP - LEAST, Unit.MU2, Neighbours.REPLACE_ONE))
    assert again.remaining == 0
