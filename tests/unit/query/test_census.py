"""The synthetic census: within its declaration, plausible, the same for the same seed."""

import csv
import math
from collections import Counter

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.privacy import Neighbours
from reticent.query import census
from reticent.query.declarations import dataset_file
from reticent.query.language import sql
from reticent.query.language.questions import resolve
from reticent.query.measure import plan
from reticent.query.rows import source

ROWS = 600


@pytest.fixture(scope="module")
def people():
    return census.persons(5000)


@pytest.fixture(scope="module")
def declaration(tmp_path_factory):
    return census.write(tmp_path_factory.mktemp("census"), rows=ROWS, seed=7)


@pytest.fixture(scope="module")
def data(declaration):
    return dataset_file.read(declaration)


def test_the_seed_decides(people):
    again, other = census.persons(5000), census.persons(5000, seed=1)
    for name, column in people.items():
        assert np.array_equal(column, again[name], equal_nan=column.dtype.kind == "f")
    assert not np.array_equal(people["age"], other["age"])


def test_values_are_within_the_declared_bounds(people, data):
    for name, column in people.items():
        declared = data.column(name)
        if declared.values:
            assert set(column) == set(declared.values)
        else:
            known = column[~np.isnan(column.astype(float))]
            assert declared.low <= known.min()
            assert known.max() <= declared.high
            assert np.array_equal(known, np.round(known))


def test_nobody_asks_children_about_income_and_hours(people):
    child = people["age"] <= census.CHILD
    assert child.any()
    assert np.array_equal(np.isnan(people["income"]), child)
    assert np.array_equal(np.isnan(people["hours"]), child)
    assert not np.isnan(people["family_income"]).any()


def test_incomes_are_skewed_and_hang_together(people):
    adult = people["age"] > census.CHILD
    income, family, hours = (people[name][adult] for name in ("income", "family_income", "hours"))
    assert income.mean() > 1.2 * np.median(income)
    assert income.min() < 0
    assert np.corrcoef(income, family)[0, 1] > 0.4
    assert income[hours >= 35].mean() > 1.5 * income[hours == 0].mean()
    middle, young = (people["age"][adult] > 40) & (people["age"][adult] < 60), people["age"][adult] < 25
    assert income[middle].mean() > 1.5 * income[young].mean()


@pytest.mark.parametrize(
    ("name", "least", "most"), [("citizenship", 0.85, 0.99), ("race", 0.65, 0.85), ("age", 0.15, 0.3)]
)
def test_shares_are_plausible(people, name, least, most):
    held = {"citizenship": people["citizenship"] != "foreign", "race": people["race"] == "white"}
    assert least < held.get(name, people["age"] > 60).mean() < most


def test_the_declaration_is_that_of_the_documents(data):
    assert (data.name, data.rows, data.relation) == ("census", ROWS, Neighbours.REPLACE_ONE)
    assert (data.budget.epsilon, data.budget.delta) == (8.0, 1e-4)
    income, family = data.column("income"), data.column("family_income")
    assert (income.low, income.high) == (-10_000, 1_000_000)
    assert (family.low, family.high) == (-20_000, 2_000_000)


def test_the_declaration_says_that_eight_is_weak(declaration):
    (line,) = [line for line in declaration.read_text().splitlines() if line.startswith("budget:")]
    assert "weak" in line


def test_the_file_holds_the_persons(declaration, data):
    made = census.persons(ROWS, seed=7)
    with declaration.with_name("census.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [column.name for column in data.columns] == list(made)
    assert Counter(row["race"] for row in rows) == Counter(made["race"].tolist())
    assert [float(row["income"] or "nan") for row in rows] == pytest.approx(
        made["income"].tolist(), nan_ok=True
    )


def test_the_source_reads_what_was_written(declaration, data):
    made = census.persons(ROWS, seed=7)
    with source.connect(data, declaration.parent) as table:
        names = table.names
        told = table.tally(
            f"SELECT COUNT(*), SUM({names['income']}), SUM({names['age']}), SUM({names['citizenship']}) "
            f"FROM {table.relation}"
        )
    codes = [census.CITIZENSHIP.index(one) for one in made["citizenship"]]
    assert told == [(ROWS, int(np.nansum(made["income"])), int(made["age"].sum()), sum(codes))]


@pytest.mark.parametrize(
    ("name", "sensitivity"), zip(census.FIVE, [202, 404, 0.0002, 0.0002, 0.0002], strict=True)
)
def test_the_five_questions_have_the_documents_sensitivities(tmp_path, name, sensitivity):
    """Zhao et al. 2021, section V-A: 5,000 records."""
    data = dataset_file.read(census.write(tmp_path))
    found = plan(resolve(sql.read(census.FIVE[name], "census"), data))
    assert math.ldexp(found.sensitivity, -found.shift) / data.rows == pytest.approx(sensitivity, rel=1e-9)


@pytest.mark.parametrize("name", ["census.csv", "census.yaml"])
def test_a_census_is_never_overwritten(tmp_path, name):
    (tmp_path / name).write_text("kept")
    with pytest.raises(ParameterError, match="must not hold a census already"):
        census.write(tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "kept")]


@pytest.mark.parametrize("rows", [0, -1, 10_000_001])
def test_a_wrong_number_of_rows_writes_nothing(tmp_path, rows):
    with pytest.raises(ParameterError, match="rows must be"):
        census.write(tmp_path / "new", rows=rows)
    assert not (tmp_path / "new").exists()


def test_one_person_is_a_census(tmp_path):
    path = census.write(tmp_path / "deep" / "folder", rows=1)
    assert dataset_file.read(path).rows == 1
    assert len(path.with_name("census.csv").read_text().splitlines()) == 2
