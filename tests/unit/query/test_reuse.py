"""What is charged and reused when answers are combined from everything that was bought, and what is not."""

from __future__ import annotations

import json
import random
from functools import partial

import numpy as np
import pytest

from reticent.errors import IdempotencyConflict, ParameterError
from reticent.ledger import MemoryLedger, SqlLedger
from reticent.ledger.base import increment
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query import Answer, Case, Policy
from reticent.query.combined import any_choice_factor
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.measure import plan
from reticent.query.notebook import Notebook
from reticent.query.purchases import Purchases

from .reusing import Town, asked_among

COUNTS = np.array([[40, 60], [70, 30], [25, 15], [90, 10]])


def made(**changes):
    return Town(COUNTS, **{"seed": 3, **changes})


def requested(session, query):
    found = session._ledger.reading(session.data.account, resolve(query, session.data).key)
    return found.information + found.pending


# What is charged


def test_a_sum_of_bins_that_were_bought_is_free_and_says_so():
    town = made()
    table = town.by_region(information=0.4)
    price = town.session.price(asked_among([0, 2]), information=0.2)
    assert (price.case, price.cost, price.bought) == (Case.SPAN, 0, 0)
    assert price.fresh_cost == UNITS_PER_ONE // 5
    answer = town.among([0, 2], information=0.2)
    assert (answer.case, answer.cost, answer.information) == (Case.SPAN, 0, UNITS_PER_ONE // 5)
    cells = [cell.estimate.unbiased for cell in table.cells]
    assert answer.cells[0].estimate.unbiased == pytest.approx(cells[0] + cells[2])
    (part,) = answer.combined.parts
    assert (answer.combined.title, part.values, part.measurements) == ("combined from 1 purchase", 4, (0,))
    assert (part.least, part.most, answer.combined.reuses_others) == (1.0, 1.0, True)
    assert answer.combined.factor == any_choice_factor(4, 0.95)
    assert Answer.from_json(json.loads(json.dumps(answer.to_json()))) == answer


def test_what_no_row_can_fulfil_is_free_and_names_no_purchase():
    town = made()
    either = tree.Or((tree.Comparison("region", "=", "r1"), tree.Comparison("half", "=", "a")))
    parts = (tree.Comparison("region", "=", "r0"), either, tree.Comparison("half", "=", "b"))
    answer = town.session.ask(tree.count(where=tree.And(parts)), information=0.2)
    assert (answer.case, answer.cost, answer.value, answer.interval) == (Case.SPAN, 0, 0.0, (0.0, 0.0))
    assert answer.combined.title == "known without any purchase, from the declaration"


def test_only_what_the_span_lacks_is_paid():
    town = made()
    town.by_region(information=0.4)
    query = asked_among([0, 2])
    answer = town.among([0, 2], information=0.5)
    assert answer.cost == UNITS_PER_ONE // 2 - UNITS_PER_ONE // 5
    assert requested(town.session, query) == answer.cost
    assert (answer.case, answer.information) == (Case.SPAN, UNITS_PER_ONE // 2)
    again = town.among([0, 2], information=0.5)
    assert (again.case, again.cost, again.cells) == (Case.SPAN, 0, answer.cells)
    more = town.among([0, 2], information=0.6)
    assert more.cost == pytest.approx(UNITS_PER_ONE // 10, abs=1)


def test_what_its_own_purchases_say_rests_on_no_other_noise():
    town = made()
    own = town.among([1], information=0.3)
    town.by_region(information=0.4)
    again = town.among([1], information=0.3)
    assert (again.case, again.combined, again.cells) == (Case.EQUAL, None, own.cells)
    best = town.session.known(asked_among([1]))
    assert (best.case, best.information) == (Case.SPAN, pytest.approx(0.7 * UNITS_PER_ONE, rel=1e-8))
    assert town.session.known(asked_among([1]), reuse="key").cells == own.cells


def test_means_and_tables_are_combined_too():
    town = made()
    town.by_both(information=0.4)
    table = town.by_region(information=0.1)
    assert (table.case, table.cost, len(table.combined.ends)) == (Case.SPAN, 0, 4)
    share = town.session.ask(
        tree.proportion({"column": "half", "op": "=", "value": "a"}, where=asked_among([0]).where),
        information=0.05,
    )
    assert (share.case, share.cost) == (Case.SPAN, 0)


def test_without_it_the_rule_is_that_of_the_own_key():
    town = made()
    town.by_region(information=0.4)
    answer = town.among([0, 2], information=0.2, reuse="key")
    assert (answer.case, answer.cost, answer.combined) == (Case.FRESH, UNITS_PER_ONE // 5, None)


def check_never_dearer(ledger, sessions, seed):
    """At every step the charge is at most that of the own key alone, at the same state of the ledger."""
    chance, saved = random.Random(seed), 0
    for number in range(sessions):
        town = made(ledger=ledger(), seed=seed + number, name=f"town{number}")
        session = town.session
        for _ in range(chance.randrange(2, 7)):
            # with the least purchase among them: what is charged at least counts too
            units = chance.choice((1e-9, 0.05, 0.2, 0.3, 1.0)) * chance.choice((1.0, chance.random() + 0.1))
            regions = chance.sample(range(4), chance.randrange(1, 4))
            query, ask = chance.choice(
                (
                    (asked_among(regions), partial(town.among, regions)),
                    (tree.count(by="region"), town.by_region),
                    (tree.count(by=("half", "region")), town.by_both),
                    (tree.count(), town.whole),
                )
            )
            key, accuracy = resolve(query, town.data).key, {"information": units}
            held = requested(session, query)
            price = session.price(query, **accuracy)
            alone = session.price(query, reuse="key", **accuracy).information
            today = increment(town.data.terms, held, alone)
            answer = ask(**accuracy)
            assert answer.cost == price.cost <= today, (number, key)
            assert answer.information >= price.information * (1 - 1e-8)
            assert requested(session, query) == held + answer.cost
            saved += today - answer.cost
    return saved


def test_no_step_is_dearer_than_by_the_own_key(tmp_path):
    assert check_never_dearer(MemoryLedger, 25, 1) > 0
    shared = SqlLedger(tmp_path / "ledger.sqlite")
    assert check_never_dearer(lambda: shared, 10, 100) > 0


@pytest.mark.slow
@pytest.mark.parametrize("sessions", [1000])
def test_no_step_is_dearer_in_a_thousand_sessions(tmp_path, sessions):
    assert check_never_dearer(MemoryLedger, sessions, 1) > 0
    shared = SqlLedger(tmp_path / "ledger.sqlite")
    assert check_never_dearer(lambda: shared, sessions, 10_000) > 0


def test_charging_for_what_is_bought_would_be_noticed(monkeypatch):
    """Planted: a ledger that forgets what was bought charges in full each time."""
    forgets = lambda terms, held, units: increment(terms, 0, units)  # noqa: E731
    monkeypatch.setattr("reticent.ledger.memory.increment", forgets)
    with pytest.raises(AssertionError):
        check_never_dearer(MemoryLedger, 10, 1)


# What is not reused


def check_pending(town):
    """What others paid for and nobody recorded counts for nothing."""
    table = plan(resolve(tree.count(by="region"), town.data))
    ledger, question = town.session._ledger, table.question
    ledger.declare("town", question.key, question=question.text, grid=table.shift, dimension=table.values)
    grant = ledger.request("town", question.key, town.session._amount(UNITS_PER_ONE))
    price = town.session.price(asked_among([0]), information=0.2)
    assert (price.case, price.cost) == (Case.FRESH, UNITS_PER_ONE // 5)
    ledger.fulfil(grant.pending[0].number, [0] * table.values)
    assert town.session.price(asked_among([0]), information=0.2).cost == 0, "once it is recorded it does"


def test_what_is_pending_is_not_reused():
    check_pending(made())


def test_counting_what_is_pending_would_be_noticed(monkeypatch):
    """Planted: what is requested counts as recorded."""
    from reticent.query.span import Joint

    right = Joint.record

    def planted(self, plan, reading):
        values = reading.sums or (0,) * plan.values
        right(self, plan, type(reading)(reading.account, reading.key, reading.information + reading.pending,
                                        values, 0))  # fmt: skip

    monkeypatch.setattr(Joint, "record", planted)
    with pytest.raises(AssertionError):
        check_pending(made())


def test_own_pending_is_recorded_and_counts():
    """Whoever asks after a crash pays nothing again, and the answer rests on it."""
    town = made()
    town.by_region(information=0.4)
    query = asked_among([0])
    due = town.session.due(query, town_accuracy(0.5))
    town.session._request(due, None)
    assert town.session.price(query, information=0.5).cost == 0
    answer = town.among([0], information=0.5)
    assert (answer.cost, answer.case, answer.information) == (0, Case.SPAN, UNITS_PER_ONE // 2)
    assert {part.measurements for part in answer.combined.parts} == {(0,), (1,)}


def town_accuracy(information, **more):
    from reticent.query.accuracy import Accuracy

    return Accuracy(information=information, **more)


OTHERS = {
    "another version": {"version": "2"},
    "another declaration": {"relation": None},
    "another data set of the account": {"name": "village", "shares": "town"},
}


def others(ledger, **changes):
    """A session about something else, on the account of the town."""
    first = Town(COUNTS, seed=1, ledger=ledger)
    first.by_region(information=0.4)
    if "relation" in changes:
        columns = (*first.data.columns[:1], type(first.data.columns[1])("half", first.data.columns[1].kind,
                                                                        values=("a", "b", "c")))  # fmt: skip
        data = type(first.data)("town", "1", tuple(reversed(columns)), budget=first.data.budget,
                                relation=first.data.relation, person=None)  # fmt: skip
        query = tree.count(where={"column": "half", "op": "=", "value": "a"})
        first.by_both(information=0.4)
        return Town(COUNTS, seed=2, ledger=ledger, data=data).session, query
    return Town(COUNTS, seed=2, ledger=ledger, **changes).session, asked_among([0])


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_another_version_or_declaration_shares_nothing(changes):
    session, query = others(MemoryLedger(), **changes)
    price = session.price(query, information=0.2)
    assert (price.case, price.cost) == (Case.FRESH, UNITS_PER_ONE // 5)


def test_sharing_another_version_would_be_noticed(monkeypatch):
    """Planted: a text of another version is read as one of this."""
    from reticent.query import purchases
    from reticent.query.language import questions

    def planted(text, data):
        found = questions.parse(text.replace('"version":"1"', '"version":"2"'), data)
        object.__setattr__(found, "key", f"count/{__import__('hashlib').sha256(text.encode()).hexdigest()}")
        return found

    monkeypatch.setattr(purchases, "parse", planted)
    with pytest.raises(AssertionError):
        test_another_version_or_declaration_shares_nothing(OTHERS["another version"])


def check_degrade(town):
    town.by_region(information=0.4)
    answer = town.among([0], information=0.1)
    assert (answer.case, answer.cost, answer.combined) == (Case.FRESH, UNITS_PER_ONE // 10, None)
    assert town.session.known(asked_among([1])) is None
    with pytest.raises(ParameterError, match="reuse must be key under the policy degrade"):
        town.among([0], information=0.1, reuse="none")


def test_degrade_combines_nothing():
    check_degrade(made(policy=Policy.DEGRADE))


def test_a_leak_under_degrade_would_be_noticed():
    """Planted: a session under degrade that looks at others' purchases."""
    town = made(policy=Policy.DEGRADE)
    session = town.session
    session._purchases = session._teller._purchases = Purchases(town.data, session._ledger, session._plans)
    with pytest.raises(AssertionError):
        check_degrade(town)


def test_a_text_that_was_tampered_with_is_not_used(tmp_path):
    with SqlLedger(tmp_path / "l.sqlite") as ledger:
        town = made(ledger=ledger)
        town.by_region(information=0.4)
        with ledger._store.writing():
            ledger._store.run("UPDATE question SET wording = replace(wording, 'region', 'half')")
        price = made(ledger=ledger).session.price(asked_among([0]), information=0.2)
        assert (price.case, price.cost) == (Case.FRESH, UNITS_PER_ONE // 5)


def test_old_keys_without_texts_take_part_in_their_own_question_alone(tmp_path):
    with SqlLedger(tmp_path / "l.sqlite") as ledger:
        made(ledger=ledger).among([0], information=0.1)
        with ledger._store.writing():
            ledger._store.run("DELETE FROM question")
        town = made(ledger=ledger)
        assert town.session.price(tree.count(by="region"), information=0.4).case is Case.FRESH
        town.by_region(information=0.15)
        refined = town.among([0], information=0.3)
        assert refined.case is Case.SPAN
        assert refined.cost == pytest.approx(UNITS_PER_ONE // 20, abs=2)
        assert refined.combined.certificate is None, "nobody can tell which measurements it is made of"


# Fresh draws


def test_a_fresh_draw_reuses_nothing():
    town = made()
    town.by_region(information=0.4)
    first = town.among([0], information=0.2)
    assert first.cost == 0
    fresh = [town.among([0], information=0.2, reuse="none") for _ in range(3)]
    assert [one.cost for one in fresh] == [UNITS_PER_ONE // 5] * 3
    assert [(one.case, one.information, one.combined) for one in fresh] == [
        (Case.FRESH, UNITS_PER_ONE // 5, None)
    ] * 3
    assert len({one.value for one in (first, *fresh)}) == 4
    reading = town.session._ledger.reading("town", resolve(asked_among([0]), town.data).key)
    scale = 2.0 ** plan(resolve(asked_among([0]), town.data)).shift
    mean = sum(one.cells[0].estimate.unbiased for one in fresh) / 3
    assert reading.nearest()[0] / scale == pytest.approx(mean), "each answer is its own measurement alone"


def test_a_fresh_draw_is_charged_once_whoever_retries(tmp_path):
    notebook = tmp_path / "notebook.sqlite"
    ledger = MemoryLedger()
    town = made(ledger=ledger, notebook=Notebook(notebook))
    town.among([0], information=0.1)
    first = town.among([0], information=0.2, reuse="none", idempotency="one")
    other = made(ledger=ledger, notebook=Notebook(notebook), seed=9)
    again = other.among([0], information=0.2, reuse="none", idempotency="one")
    assert (again.cost, again.cells) == (first.cost, first.cells), "the ledger answers as it did"
    assert ledger.balance("town").spent == 3 * UNITS_PER_ONE // 10
    with pytest.raises(IdempotencyConflict):
        town.among([1], information=0.2, reuse="none", idempotency="one")


def test_reuse_is_one_of_three():
    with pytest.raises(ParameterError, match="reuse must be one of span, key, none, got 'all'"):
        made().among([0], information=0.2, reuse="all")


# Races and retries


def test_whoever_pays_meanwhile_makes_it_cheaper_and_no_answer_wrong():
    """What was read before paying only grows: the ledger charges what is still missing, if anything is."""
    ledger = MemoryLedger()
    town, other = made(ledger=ledger), made(ledger=ledger, seed=8)
    town.by_region(information=0.4)
    due = town.session.due(asked_among([0]), town_accuracy(0.5))
    assert other.among([0], information=0.45).cost == pytest.approx(0.05 * UNITS_PER_ONE, abs=2)
    town.session._request(due, None)
    assert requested(town.session, asked_among([0])) == due.amount
    answer = town.among([0], information=0.5)
    assert (answer.cost, answer.information) == (0, UNITS_PER_ONE // 2)


def test_a_retry_is_charged_once_though_others_bought_meanwhile():
    ledger = MemoryLedger()
    town, other = made(ledger=ledger), made(ledger=ledger, seed=8)
    town.by_region(information=0.1)
    due = town.session.due(asked_among([0]), town_accuracy(0.5))
    town.session._request(due, "text")
    spent = ledger.balance("town").spent
    other.by_both(information=0.2)
    other.among([0], information=0.6)
    after = ledger.balance("town").spent
    answer = town.session.ask(asked_among([0]), information=0.5, idempotency="text")
    assert answer.information >= UNITS_PER_ONE // 2
    assert ledger.balance("town").spent == after > spent


def test_a_repeated_combined_answer_is_kept_ready_until_something_is_bought():
    town = made()
    town.by_region(information=0.4)
    query = asked_among([0])
    assert town.session.reused(query, information=0.2) is None, "nothing of its own is recorded"
    answer = town.session.free(query, information=0.2)
    assert town.session.reused(query, information=0.2) is answer
    town.by_both(information=0.5)
    assert town.session.reused(query, information=0.2) is None
    assert town.session.free(query, information=0.2).information > answer.information
