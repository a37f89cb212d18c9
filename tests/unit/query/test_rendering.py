"""What `print(answer)` and a notebook show: value, interval, cost, and nothing that could be markup."""

import re
from xml.etree import ElementTree

import pytest

from reticent.query import census
from reticent.query import open as open_data_set

COST = r"  95 % intervals; cost [\d.]+ % of the budget \(epsilon [\d.]+ alone\); .* is spent"


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    with open_data_set(census.write(tmp_path_factory.mktemp("census"))) as opened:
        yield opened


def test_a_number_in_words(session):
    answer = session.mean("income", where="age >= 40", error=2500, rows=2000)
    question, value, cost = str(answer).splitlines()
    assert question == "mean of income where age >= 40"
    assert re.fullmatch(r"  -?[\d,]+ ± [\d,]+", value)
    assert re.fullmatch(COST, cost)
    again = session.mean("income", where="age >= 40", error=2500, rows=2000)
    assert "; free; " in str(again).splitlines()[2]


def test_groups_and_their_intervals_in_a_notebook(session):
    answer = session.histogram("race", error=50)
    named = [line.split(":")[0] for line in str(answer).splitlines()[1:-1]]
    assert named == ["  white", "  black", "  asian", "  other"]
    page = ElementTree.fromstring(answer._repr_html_())
    assert len(page.findall(".//tr")) == len(page.findall(".//svg")) == 4
    for bar in page.findall(".//svg"):
        interval, value = bar.findall("rect")
        first, wide = float(interval.get("x")), float(interval.get("width"))
        assert (
            first - 1.0 <= float(value.get("x")) + 1.0 <= first + wide + 1.0
        )  # the value is in its interval


def test_many_groups_are_cut_short(session):
    text = str(session.count(by={"column": "age", "bins": 60}, error=100))
    assert len(text.splitlines()) == 23
    assert "  and 40 more" in text


def test_names_are_never_markup(session):
    page = session.count(where="race = 'white' and age < 3", error=100)._repr_html_()
    assert "age &lt; 3" in page
    assert "age < 3" not in page


def altered(found, *way, to):
    """What an answer or a price tells, with one part of it changed."""
    told = found.to_json()
    *path, last = way
    part = told
    for one in path:
        part = part[one]
    part[last] = to
    return told


@pytest.mark.parametrize(
    ("way", "to"),
    [
        (("cells",), []),
        (("cells", 0, "value"), "<b>"),
        (("cells", 0, "value"), 1e12),
        (("cells", 0, "high"), float("nan")),
        (("cells", 0, "labels"), [["white"]]),
        (("cost",), "-5"),
        (("confidence",), "much"),
        (("delta",), None),
    ],
)
def test_answers_that_another_machine_made_up_are_refused(session, way, to):
    answer = session.histogram("race", error=50)
    assert type(answer).from_json(answer.to_json()) == answer
    with pytest.raises((ValueError, TypeError)):  # which a session behind a service calls a SourceError
        type(answer).from_json(altered(answer, *way, to=to))


class TestPrices:
    @pytest.mark.parametrize(("part", "to"), [("error", "<b>"), ("error", -1.0), ("budget", "-1")])
    def test_prices_that_another_machine_made_up_are_refused(self, session, part, to):
        price = session.price("SELECT AVG(income) FROM census WHERE sex = 'male'", error=3000)
        with pytest.raises((ValueError, TypeError)):
            type(price).from_json(altered(price, part, to=to))

    def test_what_an_error_rests_on_is_said(self, session):
        price = session.price("SELECT AVG(income) FROM census WHERE sex = 'male'", error=3000)
        assert price.assumed.rows == 5000
        assert not price.assumed.guessed
        assert [rows for rows, _ in price.assumed.otherwise] == [500, 50]
        assert [error for _, error in price.assumed.otherwise] == pytest.approx([30_000, 300_000], rel=1e-6)
        assert str(price).splitlines()[-1] == "  if 5,000 rows match; ± 30,000 if 500; ± 300,000 if 50"
        assert type(price).from_json(price.to_json()) == price

    def test_a_guess_is_called_one(self, session):
        price = session.price("SELECT AVG(income) FROM census WHERE sex = 'male'", error=3000, rows=2400)
        assert (price.assumed.rows, price.assumed.guessed) == (2400, True)

    def test_a_count_rests_on_nothing(self, session):
        assert session.price("SELECT COUNT(*) FROM census WHERE sex = 'male'", error=30).assumed is None
        assert session.price("SELECT AVG(income) FROM census", error=3000).assumed is None

    @pytest.mark.parametrize(
        ("question", "error", "rows", "useless"),
        [
            ("SELECT MEDIAN(age) FROM census", 0.6, None, True),
            ("SELECT MEDIAN(age) FROM census", 0.05, None, False),
            ("SELECT AVG(income) FROM census WHERE age > 90", 600_000, 5, True),
            ("SELECT AVG(income) FROM census WHERE age > 90", 60_000, 5, False),
            ("SELECT COUNT(*) FROM census WHERE age > 90", 200, None, False),
        ],
    )
    def test_an_error_that_says_nothing_is_called_useless(self, session, question, error, rows, useless):
        assert session.price(question, error=error, rows=rows).useless is useless
