"""Answers of the query engine about invented tables keep their claim; planted ones are in `test_planted`."""

import csv
import inspect
import math

import pytest

import reticent
from reticent.audit.paths import messages
from reticent.audit.paths.queries import CELLS, MU2, RELATIONS, Tables, audit_queries, question
from reticent.query.kinds.listed import KIND
from reticent.query.opening import open as opened


@pytest.mark.usefixtures("seeded_noise")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", KIND)
def test_right_answers_pass_every_check(kind, relation):
    """A fixed seed. Every kind that is listed has a question here."""
    report = audit_queries(kind, relation, quick=True)
    assert report.passed, report.verdict
    assert [found.check for found in report.findings] == ["black box", "repeat", "streams", "ledger"]
    assert (
        report.black_box.lower > 0.5
    )  # of 2; that little for sums, whose rows do not move as far as they may
    assert report.claimed == math.sqrt(MU2)


@pytest.mark.parametrize("relation", RELATIONS)
def test_tables_are_neighbours_in_every_cell(relation):
    tables = Tables(relation)
    there, gone, odd = ([tuple(row) for row in tables.rows(number)] for number in range(3))
    assert (len(there) == len(gone)) == tables.is_moved
    for first, second, apart in [(there, gone, 1), (gone, odd, 1), (there, odd, 1 if tables.is_moved else 2)]:
        size = 2 if tables.is_moved else 1
        for group in range(0, CELLS, size):
            mine = [[row for row in table if group <= row[2] < group + size] for table in (first, second)]
            left = [row for row in mine[0] if mine[0].count(row) > mine[1].count(row)]
            came = [row for row in mine[1] if mine[1].count(row) > mine[0].count(row)]
            changed = max(len(set(left)), len(set(came))) if tables.is_moved else len({*left, *came})
            assert changed == apart


def test_the_tables_are_invented_and_there_is_no_way_to_give_others(tmp_path):
    assert set(inspect.signature(audit_queries).parameters) == {"kind", "relation", "quick", "opener"}
    path = Tables(RELATIONS[0]).written(tmp_path / "one", 2)
    with (path.parent / "rows.csv").open() as file:
        assert {row["x"] for row in csv.DictReader(file)} == {"0", "not a number"}
    with reticent.open(path) as session:
        answer = session.ask(question("count", 1), information=MU2)
        assert len(answer.cells) == CELLS


def test_only_invented_tables_are_opened_and_none_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(messages, "_SHARED_MEMORY", tmp_path)
    seen = []

    def watched(path, **options):
        seen.append(path)
        return opened(path, **options)

    monkeypatch.setattr("reticent.audit.paths.queries.QUICK_SAMPLES", 128)
    audit_queries("count", RELATIONS[0], quick=True, opener=watched)
    assert len(seen) == 4
    assert all(path.name == "invented.yaml" and tmp_path in path.parents for path in seen)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", KIND)
def test_full_counts(kind, relation):
    report = audit_queries(kind, relation)
    print(f"{report.name}: mu {report.black_box.lower:.3f} of 2 proved, {report.seconds:.0f} s")
    assert report.passed, report.verdict
