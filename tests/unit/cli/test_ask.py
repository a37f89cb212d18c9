"""`reticent ask` and `reticent price`: what is printed, what is charged, what is refused."""

import csv
import dataclasses
import io
import json
import re
import sys
from contextlib import closing

import pytest

from reticent.apps.query import views
from reticent.apps.query.ask_work import wider
from reticent.ledger import SqlLedger
from reticent.query import By, Policy, Query, census
from reticent.query.declarations import dataset_file
from reticent.query.kinds.intervals import Estimate, shown_half_width
from reticent.query.language import tree
from reticent.query.language.tree import And, Comparison, In, Not, Or
from reticent.query.rows.rehearsal import rehearsal

MEAN = census.FIVE["average personal income"]
WHITE = census.FIVE["share of white race"]
OLDER = "SELECT AVG(income) FROM census WHERE age >= 40"
ERROR = ["--error", "20000"]


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def declared(tmp_path):
    """A small census with a ledger of its own."""
    return census.write(tmp_path, rows=500)


@pytest.fixture
def ask(command, declared):
    return lambda *args: command("ask", str(declared), *args)


@pytest.fixture
def price(command, declared):
    return lambda *args: command("price", str(declared), *args)


@pytest.fixture
def spent(declared):
    """What the ledger shows."""

    def look(path=None):
        with closing(SqlLedger(path or declared.with_name("census.reticent") / "ledger.sqlite")) as ledger:
            return ledger.balance("census").spent

    return look


def facts(out):
    """The rows of the table of facts."""
    lines = [line.strip("│\n").split("│") for line in out.splitlines() if line.startswith("│")]
    return {name.strip(): text.strip() for name, text in (line for line in lines if len(line) == 2)}


def done(result):
    code, out, err = result
    assert (code, err) == (0, "")
    return out


# Answers


def test_an_answer_wider_than_asked_says_what_to_do(declared):
    """On made-up rows with seeded noise."""
    data = dataset_file.read(declared)
    with rehearsal(data, 1) as session:

        def told(error, rows):
            return wider(session, session.mean("age", where="age >= 40", error=error, rows=rows), error)

        empty = "wider than asked: as far as is recorded, a group may be empty; asking the same again is free"
        assert told(2.0, 25_000) == told(2.0, 25_000) == empty
        assert told(8.0, 250) == ""
        (least,) = re.findall(r"--rows (\d+) buys more, the same again is free", told(2.0, 25_000))
        assert 200 < int(least) < 400
        assert told(100.0, 100) == ""
        assert wider(session, session.median("age", epsilon=0.1), 0.01) == ""  # a rank, not years
    with rehearsal(dataclasses.replace(data, policy=Policy.DEGRADE), 1) as session:
        answer = session.mean("age", where="age >= 40", error=2.0, rows=25_000)
        assert "; a smaller --error buys more" in wider(session, answer, 2.0)


def test_a_wider_answer_is_printed_with_its_line(ask, spent):
    """With fifty times too many rows guessed it is wider, but for less than one in 1e9."""
    asked = ("SELECT AVG(age) FROM census WHERE age >= 40", "--error", "2", "--rows", "25000")
    assert done(ask(*asked)).count("wider than asked") == 1
    before = spent()
    assert done(ask(*asked)).count("wider than asked") == 1
    assert spent() == before


def test_a_bought_answer_says_everything(ask, spent):
    out = done(ask(MEAN, *ERROR))
    told = facts(out)
    value, error = told["answer"].split(" ± ")
    low, high = told["95 % interval"].split(" .. ")
    assert error == "20,000"
    numbers = [int(text.replace(",", "")) for text in (low, value, high)]
    assert numbers == sorted(numbers)
    assert told["case"] == "1: nothing that was bought before is part of it"
    assert told["cost"] == "1.156 % of the budget, epsilon 0.5947 alone"
    assert told["spent in all"] == "1.156 % of the budget, epsilon 0.5947 of 8 at delta 0.0001"
    assert told["left"].startswith("98.84 % of the budget: for one answer, epsilon 7.9")
    more = facts(done(ask(MEAN, *ERROR, "--mu2")))
    assert more["without reuse"].endswith(f"epsilon 0.5947 alone, mu2 {views.up(spent() / 1e12)}")
    assert "without reuse" not in told
    assert out.startswith("mean of income\n")
    assert "receipt: account census, measurement 0; log of 4 entries, root " in out
    assert "\nquestion sum/" in out


def test_the_same_again_is_free(ask, spent):
    first = facts(done(ask(MEAN, *ERROR)))
    paid = spent()
    out = done(ask("select avg(income) from census where age >= 0", *ERROR))
    assert spent() == paid
    again = facts(out)
    assert again["answer"] == first["answer"]
    assert again["case"] == "2A: bought before as exactly as this: free"
    assert again["cost"] == "nothing"
    assert again["without reuse"] == first["cost"]
    assert "receipt: nothing was charged" in out


def test_a_refinement_pays_the_difference(ask, price, spent):
    done(ask(MEAN, *ERROR))
    paid = spent()
    offered = json.loads(done(price(MEAN, "--error", "10000", "--format", "json")))
    told = facts(done(ask(MEAN, "--error", "10000")))
    assert told["case"].startswith("2B: ")
    assert spent() - paid == int(offered["cost"])
    assert int(offered["bought"]) == paid
    assert spent() == pytest.approx(4 * paid, rel=1e-6)


def test_less_than_bought_is_free(ask, spent):
    done(ask(MEAN, *ERROR))
    paid = spent()
    assert facts(done(ask(MEAN, "--epsilon", "0.1", "--delta", "1e-5")))["case"].startswith("2C: ")
    assert spent() == paid


def test_by_information(ask, spent):
    done(ask(MEAN, "--information", "0.25"))
    assert spent() == 25 * 10**10


def test_without_accuracy_the_recorded_answer_is_shown(ask, spent):
    first = facts(done(ask(MEAN, *ERROR)))
    paid = spent()
    free = facts(done(ask(MEAN)))
    assert (free["answer"], free["cost"], spent()) == (first["answer"], "nothing", paid)


def test_a_public_number_is_free(ask, spent):
    told = facts(done(ask("SELECT COUNT(*) FROM census")))
    assert told["answer"] == "500 ± 0"
    assert told["case"] == "public: the declaration says it: free"
    assert spent() == 0


def test_another_confidence(ask):
    out = done(ask(MEAN, *ERROR, "--confidence", "0.8"))
    assert "80 % interval" in out


def test_rows_are_a_guess_for_the_price(price):
    few, many = (
        json.loads(done(price(OLDER, *ERROR, "--rows", rows, "--format", "json"))) for rows in ("50", "500")
    )
    assert int(few["cost"]) == pytest.approx(100 * int(many["cost"]), rel=1e-6)


def test_another_ledger(ask, spent, tmp_path):
    done(ask(MEAN, *ERROR, "--ledger", str(tmp_path / "mine.db")))
    assert spent(tmp_path / "mine.db") > 0
    assert not (tmp_path / "census.reticent" / "ledger.sqlite").exists()


def test_a_rehearsal_charges_nothing(ask, spent):
    out = done(ask(MEAN, *ERROR, "--rehearse"))
    assert facts(out)["budget"] == "not touched: these are made-up rows"
    assert "receipt" not in out
    assert spent() == 0


# Groups, bars, plots


def test_groups_have_bars(ask):
    out = done(ask("SELECT race, COUNT(*) FROM census GROUP BY race", "--error", "20"))
    rows = {
        cells[0].strip(): cells for line in out.splitlines() if len(cells := line.strip("│").split("│")) == 5
    }
    assert list(rows) == list(census.RACES)
    bars = {name: cells[4].count("█") + cells[4].count("░") for name, cells in rows.items()}
    assert max(bars, key=bars.get) == "white"
    assert bars["white"] > 2 * bars["black"]
    assert {cells[2].strip() for cells in rows.values()} == {"20"}


@pytest.mark.parametrize("width", ["60", "80", "100", "200"])
def test_a_table_keeps_within_the_terminal(ask, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    out = done(ask("SELECT race, sex, COUNT(*) FROM census GROUP BY sex, race", "--error", "20"))
    assert max(len(line) for line in out.splitlines() if not line.startswith(("receipt", "question"))) <= int(
        width
    )


def test_many_groups_are_cut(ask):
    query = {"kind": "histogram", "by": [{"column": "age", "bins": 100}]}
    out = done(ask(json.dumps(query), "--error", "50"))
    assert f"\n{100 - views.MOST_SHOWN} more: --format csv shows all.\n" in out


def test_quantiles(ask):
    out = done(ask("SELECT QUANTILE_CONT(age, [0.25, 0.75]) FROM census", "--error", "0.1"))
    assert "quantiles 25 %, 75 % of age" in out
    assert "│ 0.25 " in out
    assert "█" not in out


def test_csv_is_the_numbers_alone(ask):
    out = done(ask("SELECT sex, COUNT(*) FROM census GROUP BY sex", "--error", "20", "--format", "csv"))
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["sex"] for row in rows] == list(census.SEXES)
    assert all(float(row["low"]) < float(row["value"]) < float(row["high"]) for row in rows)


def test_json_is_everything(ask, spent):
    told = json.loads(done(ask(MEAN, *ERROR, "--format", "json")))
    assert told["query"] == {"kind": "mean", "column": "income"}
    assert (told["case"], told["cost"], told["spent"]) == ("1", str(spent()), str(spent()))
    assert told["cells"][0]["low"] < told["cells"][0]["value"] < told["cells"][0]["high"]
    assert told["receipt"]["measurements"] == [0]


@pytest.mark.parametrize(
    "question",
    [
        MEAN,
        "SELECT race, COUNT(*) FROM census GROUP BY race",
        "SELECT MEDIAN(age) FROM census",
        json.dumps({"kind": "histogram", "by": [{"column": "age", "bins": 60}]}),
    ],
)
def test_a_plot_is_written(ask, tmp_path, question):
    path = tmp_path / "new" / "plot.png"
    out = done(ask(question, "--information", "0.1", "--plot", str(path)))
    assert out.endswith(f"plot: {path}\n")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_nothing_is_paid(ask, monkeypatch, tmp_path, is_one_error_line):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = ask(MEAN, *ERROR, "--plot", str(tmp_path / "plot.png"))
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert "pip install 'reticent[plot]'" in err
    assert not (tmp_path / "census.reticent").exists()


# Ways to ask


def test_sql_and_json_are_the_same_question(ask, tmp_path):
    where = {"column": "age", "op": ">=", "value": 40}
    query = json.dumps({"kind": "mean", "column": "income", "where": where})
    (tmp_path / "question.json").write_text(query)
    keys = {
        json.loads(done(ask(*args, *ERROR, "--format", "json")))["receipt"]["key"]
        for args in ([OLDER], [query], ["--json", str(tmp_path / "question.json")])
    }
    assert len(keys) == 1


# Prices


def test_a_price_is_made_of_public_numbers(price, ask, declared, spent):
    told = facts(done(price(OLDER, *ERROR, "--rows", "200")))
    assert told["± at 95 %"] == "20,000, expected"
    assert (told["bought before"], told["affordable"]) == ("nothing", "yes")
    assert told["left"] == "everything: epsilon 8"
    assert spent() == 0
    declared.with_name("census.csv").write_text("not even a header")
    assert facts(done(price(OLDER, *ERROR, "--rows", "200"))) == told


def test_a_price_that_cannot_be_paid(price):
    assert facts(done(price(MEAN, "--error", "10")))["affordable"].startswith(
        "no: 4623000 % of the budget more"
    )
    assert json.loads(done(price(MEAN, "--error", "10", "--format", "json")))["affordable"] is False


def test_a_price_of_a_quantile_is_by_rank(price):
    assert facts(done(price("SELECT MEDIAN(age) FROM census", "--error", "0.1")))["± at 95 %"] == (
        "0.10 of the rank, expected"
    )


def test_a_price_without_a_guess_where_rows_are_private(price, declared):
    text = declared.read_text().replace("relation: replace one", "relation: add or remove one")
    declared.write_text(text.replace("rows: 500", ""))
    told = facts(done(price(OLDER, "--epsilon", "1")))
    assert told["± at 95 %"] == "not known: guess the number of rows with --rows"


# Refusals


def test_a_refusal_says_what_is_asked_left_and_free(ask, spent, is_one_error_line):
    first = facts(done(ask(WHITE, "--error", "0.02")))
    paid = spent()
    code, out, err = ask(WHITE, "--error", "0.0001")
    assert (code, out, spent()) == (2, "", paid)
    assert is_one_error_line(err)
    assert "census: asked for 45320 % of the budget, epsilon 913.1 alone; left is 98.86 %, epsilon 7.9" in err
    assert f"free now: {first['answer']}; all that is left buys ± 0.0022" in err


def test_a_refusal_of_groups(ask, is_one_error_line):
    groups = "SELECT race, COUNT(*) FROM census GROUP BY race"
    done(ask(groups, "--error", "20"))
    code, out, err = ask(groups, "--error", "0.1")
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert "free now: 4 groups within 20" in err


def test_a_refusal_with_nothing_recorded(ask, is_one_error_line):
    code, _, err = ask(MEAN, "--error", "100")
    assert code == 2
    assert is_one_error_line(err)
    assert "nothing is recorded that is free; all that is left buys ± 2,1" in err


def test_a_refusal_with_nothing_left(ask, declared):
    done(ask(WHITE, "--epsilon", "8"))
    _, _, err = ask(MEAN, *ERROR)
    assert "left is nothing; nothing is recorded that is free\n" in err


def test_nothing_recorded_says_how_to_buy(ask, is_one_error_line, spent):
    code, out, err = ask(MEAN)
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert "nothing is recorded that answers this; buy it with --error" in err
    assert spent() == 0


def test_the_policy_degrade_shows_nothing_without_accuracy(ask, declared, is_one_error_line):
    declared.write_text(declared.read_text().replace("policy: share", "policy: degrade"))
    done(ask(MEAN, *ERROR))
    code, _, err = ask(MEAN)
    assert code == 2
    assert is_one_error_line(err)
    assert "policy degrade" in err


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ([], "give one question"),
        ([MEAN, "--json", "x.json"], "give one question"),
        (["--json", "gone.json"], "gone.json: No such file"),
        (["{", *ERROR], "the question is no JSON (line 1, column 2)"),
        (["{" + '"a":[' * 100_000, *ERROR], "the question is no JSON"),
        (['{"kind": "mode"}', *ERROR], "kind must be one of"),
        (["SELECT AVG(wealth) FROM census", *ERROR], "wealth"),
        (["SELECT AVG(income) FROM other", *ERROR], "other"),
        (["DROP TABLE census", *ERROR], "sql"),
        ([MEAN, "--error", "0"], "error must be > 0"),
        ([MEAN, "--error", "nan"], "error must be"),
        ([MEAN, *ERROR, "--epsilon", "1"], "accuracy must be one of"),
        ([MEAN, "--delta", "1e-5"], "accuracy must be one of"),
        ([MEAN, *ERROR, "--rows", "0"], "rows must be"),
        ([MEAN, *ERROR, "--confidence", "1"], "confidence must be"),
        ([MEAN, *ERROR, "--format", "xml"], "xml"),
    ],
)
def test_bad_input_is_one_line(ask, is_one_error_line, args, part):
    code, out, err = ask(*args)
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert part in err


@pytest.mark.parametrize("text", ["[]", "1", "x" * (1 << 20) + "x"])
def test_a_file_that_is_no_question(ask, tmp_path, is_one_error_line, text):
    (tmp_path / "question.json").write_text(text)
    code, out, err = ask("--json", str(tmp_path / "question.json"), *ERROR)
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert "question" in err


@pytest.mark.parametrize(
    ("args", "part"),
    [([MEAN], "accuracy must be one of"), ([MEAN, *ERROR, "--format", "csv"], "table or json")],
)
def test_bad_prices_are_one_line(price, is_one_error_line, args, part):
    code, out, err = price(*args)
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert part in err


def test_no_data_set_is_one_line(command, is_one_error_line, tmp_path):
    code, out, err = command("ask", str(tmp_path / "gone.yaml"), MEAN, *ERROR)
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert "gone.yaml" in err
    assert list(tmp_path.iterdir()) == []


def test_names_are_never_markup(command, tmp_path):
    path = census.write(tmp_path, rows=50)
    path.write_text(path.read_text().replace("[female, male]", "['[red]female[/red]', ':smile:']"))
    out = done(command("ask", str(path), "SELECT sex, COUNT(*) FROM census GROUP BY sex", "--error", "20"))
    assert "[red]female[/red]" in out
    assert ":smile:" in out


# Words and numbers


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (tree.count(), "number of rows"),
        (tree.total("income", by=["sex", "race"]), "sum of income by sex and race"),
        (tree.variance("age"), "variance of age"),
        (tree.median("age"), "median of age"),
        (tree.quantile("age", [0.1, 0.5]), "quantiles 10 %, 50 % of age"),
        (tree.histogram(By("age", bins=12)), "number of rows by age (in 12 bins)"),
        (tree.histogram(By("age", edges=(20, 40.5))), "number of rows by age (cut at 20, 40.5)"),
        (tree.proportion(Comparison("citizen", "=", True)), "share of citizen = true"),
        (
            tree.mean(
                "income",
                where=And((Or((Comparison("age", ">", 4), In("sex", ("f",)))), Not(In("age", (1,))))),
            ),
            "mean of income where ((age > 4 or sex in ('f')) and not age in (1))",
        ),
    ],
)
def test_questions_in_words(query, words):
    assert views.in_words(query) == words


def test_long_questions_are_cut():
    query = Query("count", where=In("age", tuple(range(900))))
    assert len(views.in_words(query)) == 300
    assert views.in_words(query).endswith("...")


@pytest.mark.parametrize(
    ("number", "error", "shown"),
    [
        (30261.4, 600.0, "30,261 ± 600"),
        (30261.4, 600.00001, "30,261 ± 601"),
        (0.212345, 0.0006, "0.21235 ± 0.00060"),
        (0.212345, 0.1 - 1e-13, "0.21 ± 0.10"),
        (12.34567, 1.05, "12.3 ± 1.1"),
        (1.5e9, 2e8, "1,500,000,000 ± 200,000,000"),
        (500.0, 0.0, "500 ± 0"),
        (float("inf"), 1.0, "inf ± 1.0"),
        (3.0, float("inf"), "3 ± inf"),
    ],
)
def test_numbers_have_the_digits_that_their_error_leaves(number, error, shown):
    assert f"{views.rounded(number, error)} ± {views.error_text(error)}" == shown


def test_costs_are_rounded_up_and_what_is_left_down():
    assert (views.up(0.12341), views.up(1568.2), views.up(1e-7)) == ("0.1235", "1569", "0.0000001")
    assert (views.down(0.12349), views.down(99.999)) == ("0.1234", "99.99")


def test_an_error_is_that_of_the_whole_interval():
    whole, cut = Estimate(10.0, 5.0, 0.2, 19.8), Estimate(-3.0, 5.0, 0.0, 6.8)
    assert shown_half_width(whole) == pytest.approx(9.8, abs=1e-3)
    assert shown_half_width(cut) == pytest.approx(9.8, abs=1e-3)
