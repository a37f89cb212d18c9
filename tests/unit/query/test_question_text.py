"""`parse`: a stranger's text becomes a question that some query asks, with exactly that text, or nothing.

What is accepted is put to two tests that share nothing with the parser: a query made from the question must
resolve to the same text, and neighbouring tables must not move the question's vector further than its plan
declares. Both catch parsers with a check left out.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from reticent.query import By, Column, DataSet, Kind
from reticent.query.kinds.listed import Measured
from reticent.query.language import tree
from reticent.query.language.questions import parse, resolve
from reticent.query.language.tree import DEEPEST, MOST_PARTS, And, Comparison, In, Or

from .question_texts import random_questions
from .tables import BUDGET

# ibis 12 calls what DuckDB 2 calls old.
pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")


# There and back


def check_there_and_back(count, seed):
    seen = Counter()
    for question in random_questions(random.Random(seed), count):
        again = parse(question.text, question.data)
        assert again == question
        assert (again.text, again.key) == (question.text, question.key)
        seen[question.measured, question.data.unit] += 1
    return seen


def test_every_text_that_is_written_is_read():
    seen = check_there_and_back(4_000, 1)
    persons = {measured for measured, unit in seen if unit == "person"}
    assert {measured for measured, _ in seen} == set(Measured)
    assert persons == set(Measured) - {Measured.SQUARES}  # where the number of rows is never public


@pytest.mark.slow
def test_thirty_thousand_texts_are_read():
    check_there_and_back(30_000, 2)


def test_the_largest_predicates_are_read():
    """Whatever a query may be, what it resolves to is within the bounds of what is read."""
    wide = Column("wide", Kind.INTEGER, low=0, high=10**6)
    flags = tuple(Column(f"b{i}", Kind.BOOLEAN) for i in range(DEEPEST + 1))
    data = DataSet("large", "1", (wide, *flags), BUDGET, rows=10)

    def gaps(start):
        return And(tuple(Comparison("wide", "!=", 4 * i + start) for i in range(MOST_PARTS - 1)))

    def deep(part, levels):
        for level in range(levels):
            part = (And, Or)[level % 2]((Comparison(f"b{level}", "=", True), part))
        return part

    assert len(resolve(tree.count(where=gaps(5)), data).where.ranges) == MOST_PARTS
    listed = In("wide", tuple(range(0, 2 * MOST_PARTS - 2, 2)))
    for asked in (
        tree.proportion(gaps(5), where=gaps(7)),
        tree.proportion(deep(Comparison("wide", ">", 5), DEEPEST - 1), where=deep(gaps(5).parts[0], 30)),
        tree.proportion(listed, where=deep(Comparison("wide", ">", 7), DEEPEST - 1)),
        tree.count(where=listed, by=["b0", By("wide", bins=1000)]),
    ):
        question = resolve(asked, data)
        assert parse(question.text, data) == question
