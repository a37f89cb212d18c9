"""`reticent.open`: from files, from frames, with any ledger; what lies where, and what a bad call leaves."""

import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import reticent
from reticent.errors import MissingExtra, ParameterError, ParameterTypeError
from reticent.query import By, census, histogram, mean
from reticent.query.language.questions import resolve
from reticent.query.measure import plan


@pytest.fixture
def declaration(tmp_path):
    return census.write(tmp_path, rows=500)


@pytest.fixture
def frame(declaration):
    return pd.read_csv(declaration.with_suffix(".csv"))


def exact(session, query):
    """For the test's eyes only."""
    return plan(resolve(query, session.data)).vector(session._opened())


QUERIES = [mean("income"), mean("hours", where="age >= 40"), histogram(["race", By("age", edges=(20, 60))])]


@pytest.mark.parametrize(
    "form",
    [lambda frame: frame, pa.Table.from_pandas, lambda frame: frame.astype(object)],
    ids=["pandas", "arrow", "objects"],
)
def test_a_frame_is_read_as_the_file_is(declaration, frame, form):
    with reticent.open(declaration) as file:
        wanted = [exact(file, query) for query in QUERIES]
    with reticent.open(declaration, frame=form(frame)) as session:
        assert [exact(session, query) for query in QUERIES] == wanted
        changed = frame.assign(income=frame.income + 1)
    with reticent.open(declaration, frame=changed) as session:
        assert exact(session, QUERIES[0]) != wanted[0]  # so that the comparison can fail


def test_a_column_of_objects_never_decides_its_type(declaration, frame):
    """One text among numbers is a missing value, and leaves the other rows as they are."""
    spoiled = frame.astype(object)
    spoiled.loc[0, "income"] = "twelve"
    missing = frame.copy()
    missing.loc[0, "income"] = np.nan
    with (
        reticent.open(declaration, frame=spoiled) as one,
        reticent.open(declaration, frame=missing) as other,
    ):
        assert exact(one, QUERIES[0]) == exact(other, QUERIES[0])


def test_a_bad_frame_costs_nothing(declaration):
    session = reticent.open(declaration, frame=3)
    with pytest.raises(ParameterTypeError, match="frame must be a data frame or an Arrow table, got int"):
        session.mean("income", error=1000)
    assert session.balance().spent == 0
    session = reticent.open(declaration, frame=pd.DataFrame({"age": [1]}))
    with pytest.raises(ParameterError, match="income"):
        session.mean("income", error=1000)
    assert session.balance().spent == 0


def test_arrays_are_taken_for_lists():
    listed = histogram({"column": "age", "edges": [20, 40]})
    for edges in (np.array([20.0, 40.0]), pd.Index([20, 40]), pa.array([20, 40])):
        assert histogram({"column": "age", "edges": edges}) == listed


def test_answers_come_as_frames(declaration):
    with reticent.open(declaration) as session:
        answer = session.histogram("race", error=50)
    table, shown = answer.to_arrow(), answer.to_pandas()
    assert list(shown.columns) == ["race", "value", "standard_error", "low", "high", "unbiased"]
    assert table.to_pandas().equals(shown) or table.to_pydict() == shown.to_dict("list")
    assert shown.value.tolist() == [cell.estimate.value for cell in answer.cells]


def test_what_is_kept_lies_beside_the_declaration(declaration):
    with reticent.open(declaration) as session:
        session.mean("income", error=4000)
        spent = session.balance().spent
    kept = declaration.with_name("census.reticent")
    assert {path.name for path in kept.iterdir()} >= {"ledger.sqlite", "notebook.sqlite"}
    assert kept.stat().st_mode & 0o077 == 0
    with reticent.open(declaration) as session:
        assert session.mean("income", error=4000).cost == 0
        assert session.balance().spent == spent > 0


def test_what_is_no_path_is_refused():
    with pytest.raises(ParameterTypeError, match="declaration must be a path, got int"):
        reticent.open(3)


@pytest.mark.parametrize("module", ["yaml", "duckdb", "ibis", "opendp", "pyarrow", "sqlglot"])
def test_a_light_installation_says_which_extra_is_missing(declaration, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    line = r"^a data set that lies here needs an optional part: pip install 'reticent\[query\]'$"
    with pytest.raises(MissingExtra, match=line):
        reticent.open(declaration)
    assert not declaration.with_suffix(".reticent").exists(), "nothing was opened"
