"""Questions as SQL text: what is written is read as the same question."""

import pytest

from reticent.query.language import sql, sql_text, tree
from reticent.query.language.tree import By

COMPARED = {"column": "race", "op": "!=", "value": "o'neill"}
SAID = {
    "SELECT COUNT(*) FROM town": tree.count(),
    "SELECT SUM(income) FROM town WHERE NOT (race != 'o''neill')": tree.total(
        "income", where={"not": COMPARED}
    ),
    'SELECT AVG("a b") FROM town': tree.mean("a b"),
    "SELECT VAR_POP(age) FROM town WHERE citizen = true": tree.variance(
        "age", where={"column": "citizen", "op": "=", "value": True}
    ),
    "SELECT AVG(CASE WHEN age < -1.5 OR race != 'o''neill' THEN 1 ELSE 0 END) FROM town": tree.proportion(
        {"or": [{"column": "age", "op": "<", "value": -1.5}, COMPARED]}
    ),
    "SELECT QUANTILE_CONT(age, [0.25, 0.5]) FROM town": tree.quantile("age", [0.25, 0.5]),
    "SELECT sex, BIN(age, 12), COUNT(*) FROM town GROUP BY sex, BIN(age, 12)": tree.count(
        by=["sex", By("age", bins=12)]
    ),
}


@pytest.mark.parametrize("text", SAID)
def test_a_question_and_its_text(text):
    assert sql_text.written(SAID[text], "town") == text
    assert sql.read(text, "town") == SAID[text]


def test_a_histogram_is_the_count_of_each_group():
    text = sql_text.written(tree.histogram("race"), "town")
    assert text == "SELECT race, COUNT(*) FROM town GROUP BY race"
    assert sql.read(text, "town") == tree.count(by=["race"])


@pytest.mark.parametrize(
    "query",
    [tree.count(by=[By("age", edges=(20.0, 40.0))]), tree.quantile("age", 0.5, bins=16), tree.mean("select")],
    ids=["cuts", "other bins", "a word of the grammar"],
)
def test_what_sql_cannot_say_has_no_text(query):
    assert sql_text.written(query, "town") is None


def test_planted_a_text_that_says_something_else_is_not_given(monkeypatch):
    monkeypatch.setattr(sql_text, "_condition", lambda predicate: "age > 3")
    assert sql_text.written(tree.count(where=COMPARED), "town") is None
