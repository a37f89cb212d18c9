"""What of a question's text may be accepted, and how far neighbours move what is."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from reticent.errors import ParameterError
from reticent.query.kinds.listed import Measured
from reticent.query.language import conditions, questions, tree
from reticent.query.language.conditions import columns_of
from reticent.query.language.questions import Question, parse, resolve
from reticent.query.measure import plan

from .question_texts import accepted, check_asked, forgeries
from .tables import RELATIONS, Pairs
from .test_measure import QUERIES, furthest

# ibis 12 calls what DuckDB 2 calls old.
pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")


# What may be accepted


def check_forgeries(count, seed):
    rng, refused, taken = random.Random(seed), Counter(), 0
    for text, question in accepted(forgeries(rng, count), refused):
        check_asked(text, question)
        taken += 1
    return taken, refused


def test_a_forged_text_is_a_question_that_somebody_could_ask_or_nothing():
    taken, refused = check_forgeries(12_000, 3)
    assert taken > 1_000
    assert sum(refused.values()) > 5_000
    assert len(refused) > 15  # for many reasons


@pytest.mark.slow
def test_fifty_thousand_forged_texts_are_questions_or_nothing():
    check_forgeries(50_000, 4)


class Lenient(str):
    """Equal to everything: with it, `parse` compares no text."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __ne__(self, other):
        return False


def unjoined(kind, given, data):
    """Parts taken as they come."""
    parts = tuple(given)
    return kind(parts) if len(parts) > 1 and not any(isinstance(one, bool) for one in parts) else parts[0]


def cuts_as_they_come(given, data):
    column, cuts = data.column(given["column"]), given["cuts"]
    cells = column.last - column.first + 1 if cuts is None else len(cuts) + 1
    return questions.Grouping(column.name, None if cuts is None else tuple(cuts), cells)


def any_kind(kind, *, whole):
    """Each of KINDS measures another thing, so that all are among them."""
    return dict(zip(tree.KINDS, [*Measured, Measured.COUNT], strict=True))[kind]


def codes_as_they_come(column, given, name):
    return tuple((low, high) for low, high in given)


FAULTS = {
    "no text is compared": None,
    "of is not looked at": (questions, "both", lambda of, where, data: of),
    "conditions as they come": (conditions, "_join", unjoined),
    "codes as they come": (conditions, "_checked_ranges", codes_as_they_come),
    "cuts as they come": (questions, "_stated_grouping", cuts_as_they_come),
    "groupings as they come": (questions, "_in_order", tuple),
    "anything measured": (questions, "_measured", any_kind),
    "any column summed": (questions, "_summed", lambda kind, column: column),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_parser_without_a_check_is_caught(fault, monkeypatch):
    given = list(forgeries(random.Random(5), 4_000))
    if FAULTS[fault] is None:
        given = [(data, Lenient(text)) for data, text in given]
    taken = []
    with monkeypatch.context() as patch:
        if FAULTS[fault] is not None:
            patch.setattr(*FAULTS[fault])
        for data, text in given:
            try:
                taken.append((str(text), parse(text, data)))
            except Exception:  # without the check, anything may come
                continue

    def is_caught(text, question):
        try:
            check_asked(text, question)
        except Exception:  # no query says it, or one that says it says something else
            return True
        return False

    caught = [text for text, question in taken if is_caught(text, question)]
    assert caught
    for data, text in given:
        if str(text) in caught:
            with pytest.raises(ParameterError):
                parse(str(text), data)


# How far neighbours move what is accepted


PAIRS = 100


def accepted_of(data, count, most, seed):
    """Questions that somebody forged, other than those that were asked."""
    rng, found = random.Random(seed), {}
    asked = {resolve(one, data).key for one in QUERIES.values()}
    for _, question in accepted(forgeries(rng, count, data, list(QUERIES.values()))):
        read = {question.column, *columns_of(question.where), *columns_of(question.of)}
        read |= {one.column for one in question.by}
        if question.key not in asked and "table" not in read and question.cells <= 40:
            found[question.key] = question
    return rng.sample(list(found.values()), min(most, len(found)))


def check_sensitivity(relation, count, most, seed):
    data = RELATIONS[relation].data()
    chosen = accepted_of(data, count, most, seed)
    coded = Pairs(RELATIONS[relation], PAIRS, seed).coded(data)
    for question in chosen:
        measured = plan(question)
        assert furthest(coded, measured, PAIRS) <= measured.sensitivity**2, question.text
    return Counter(question.measured for question in chosen)


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_neighbour_moves_a_forged_question_further_than_declared(relation):
    seen = check_sensitivity(relation, 4_000, 60, 6)
    assert seen.total() == 60
    assert set(seen) >= set(Measured) - {Measured.SQUARES}


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_no_neighbour_moves_any_forged_question_further_than_declared(relation):
    assert check_sensitivity(relation, 12_000, 250, 7).total() == 250


def test_a_planted_share_of_a_column_is_caught():
    """A parser that lets a share have a column: its plan takes x for a code, and the bound is too small."""
    relation = RELATIONS["replace a row"]
    right = resolve(QUERIES["share where"], relation.data())
    wrong = Question(right.measured, "far", right.of, right.where, right.by, right.data)
    coded = Pairs(relation, PAIRS, 8).coded(right.data)
    assert furthest(coded, plan(wrong), PAIRS) > plan(wrong).sensitivity ** 2
    assert furthest(coded, plan(right), PAIRS) <= plan(right).sensitivity ** 2
    with pytest.raises(
        ParameterError, match=r"^column must be given for all but counts and shares, got 'far'$"
    ):
        parse(wrong.text, right.data)
