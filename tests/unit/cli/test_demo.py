"""`reticent demo`: the story it tells is the one in the ledger."""

import csv
import re
from contextlib import closing

import pytest

from reticent.cli import demo
from reticent.ledger import SqlLedger
from reticent.query import Case, census

ROW = re.compile(r"^(\S.*?)  +(1|2A|2B|2C) +(\S.*?)  +([\d.,]+)? +([\d.]+) +([\d.]+) +([\d.]+)$", re.M)


@pytest.fixture
def at_80(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.usefixtures("at_80")
def test_the_demo_asks_repeats_refines_and_is_refused(command, tmp_path):
    folder = tmp_path / "demo"
    code, out, err = command("demo", "--folder", str(folder))
    assert (code, err) == (0, "")
    rows = ROW.findall(out)
    five = list(census.FIVE)
    assert [row[0] for row in rows[:15]] == 3 * five
    assert [row[1] for row in rows[:16]] == 5 * ["1"] + 5 * ["2A"] + 5 * ["2B"] + ["2C"]
    assert [row[0] for row in rows[16:]] == 2 * ["income of 40 and older"] + [
        "histogram of age",
        "median age",
    ]
    free = [row[4] == "0" for row in rows]
    assert free == [row[1] in ("2A", "2C") for row in rows]
    assert [row[2] for row in rows[5:10]] == [row[2] for row in rows[:5]], "a repeated answer is the same"
    paid, fresh = float(rows[-1][5]), float(rows[-1][6])
    with closing(SqlLedger(folder / "census.reticent" / "ledger.sqlite")) as ledger:
        balance = ledger.balance("census")
    assert paid == pytest.approx(balance.spent / 1e12, abs=0.001)
    assert fresh > balance.terms.cap / 1e12
    assert "refused: census: asked for mu2 " in out
    assert "free now: " in out.replace("\n", " ")
    assert f"Saved: {100 * (1 - paid / fresh):.0f} % of mu2." in out.replace("\n", " ")
    assert "Without reuse the budget would have ended at answer 15." in out
    assert "Ledger verified: 26 entries, 7 questions, 12 measurements" in out
    assert "invented persons" in out
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    exempt = ("Ledger verified", "Plot: ")
    assert max(len(line) for line in out.splitlines() if not line.startswith(exempt)) <= 80


def test_a_folder_with_a_census_is_left_alone(command, tmp_path, is_one_error_line):
    path = census.write(tmp_path, rows=3)
    kept = path.with_name("census.csv").read_text()
    code, out, err = command("demo", "--folder", str(tmp_path))
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert "must not hold a census already" in err
    assert path.with_name("census.csv").read_text() == kept


def test_its_own_folder_is_started_over(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    place = demo.FOLDER
    ledger = place / "census.reticent" / "ledger.sqlite"
    ledger.parent.mkdir(parents=True)
    for path in (*(place / name for name in demo.FILES), ledger, place / "mine.txt"):
        path.write_text("old")
    demo._start_over(place)
    assert [path.name for path in place.iterdir()] == ["mine.txt"]
    demo._start_over(place)


def test_the_truth_is_that_of_the_file(tmp_path):
    path = census.write(tmp_path)
    with path.with_name("census.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    exact = [
        sum(float(row["income"] or 0) for row in rows),
        sum(float(row["family_income"]) for row in rows),
        sum(row["citizenship"] in ("born", "naturalised") for row in rows),
        sum(row["race"] == "white" for row in rows),
        sum(int(row["age"]) > 60 for row in rows),
    ]
    truths = demo.five_truths(census.persons())
    assert list(truths) == list(census.FIVE)
    assert list(truths.values()) == pytest.approx([total / len(rows) for total in exact])


def test_other_words_are_the_same_questions(tmp_path):
    from reticent.query import dataset_file, sql
    from reticent.query.questions import resolve

    data = dataset_file.read(census.write(tmp_path, rows=10))
    for name, text in census.FIVE.items():
        keys = {resolve(sql.read(one, "census"), data).key for one in (text, demo._OTHER_WORDS[name])}
        assert len(keys) == 1


@pytest.mark.parametrize("case", Case)
def test_every_case_has_words(case):
    from reticent.cli.answer_views import CASES

    assert CASES[case]
