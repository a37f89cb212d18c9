"""Which rows of a person count (format 2): by a secret order, on every engine, by that person's rows alone.

T4 for the contribution bound: pairs of raw tables that differ in one person. The rows that count of everybody
else are the same in both, at most so many of that person's count, and all engines keep the same rows.
"""

from __future__ import annotations

import collections
import math

import ibis
import numpy as np
import pytest

import reticent
from reticent.errors import LedgerError, ParameterError
from reticent.query import Column, DataSet, Kind, histogram
from reticent.query.declarations import dataset_file
from reticent.query.declarations import home as homes
from reticent.query.rows import prepare, row_order, snapshot, source

from . import writers
from .tables import ADD, BUDGET, REPLACE

KEY = "5e" * 32
BOUND = 2
ENGINES = ("frame", "csv", "parquet", "duckdb", "postgresql")
COLUMNS = (
    Column("who_code", Kind.INTEGER, low=0, high=99),
    Column("group", Kind.CATEGORY, values=("a", "b", "c")),
    Column("amount", Kind.NUMBER, low=-5, high=5, step=0.5),
)


def declared(given=None, *, relation=ADD, bound=BOUND, format_number=2):
    return DataSet(
        "d",
        "1",
        COLUMNS,
        BUDGET,
        relation,
        person="who",
        contribution=bound,
        source=given or {},
        format=format_number,
    )


def columns_of(rows):
    """Rows (person, group, amount) as columns; the person stands in a declared column too, to be told."""
    people, groups, amounts = zip(*rows, strict=True)
    return {
        "who": [f"person {one}: {one}" for one in people],
        "who_code": list(people),
        "group": list(groups),
        "amount": list(amounts),
    }


def kept_rows(rows, engine, folder, server=None, *, key=KEY, **declaration):
    """The rows that count, as a multiset of codes."""
    cells = columns_of(rows)
    if engine == "frame":
        data, frame = declared(**declaration), writers.arrow_table(cells)
    elif engine == "postgresql":
        data, frame = declared(writers.postgresql(cells, server, "order"), **declaration), None
    else:
        write = {"csv": write_csv, "parquet": write_parquet, "duckdb": writers.duckdb_of_arrow}[engine]
        data, frame = declared(write(cells, folder), **declaration), None
    with source.connect(data, folder, None, frame, order_key=key) as table:
        listed = ", ".join(table.names.values())
        return collections.Counter(table.tally(f"SELECT {listed} FROM {table.relation}"))


def write_csv(cells, folder):
    writers.frame_of(cells).to_csv(folder / "rows.csv", index=False)
    return {"csv": "rows.csv"}


def write_parquet(cells, folder):
    import pyarrow.parquet

    pyarrow.parquet.write_table(writers.arrow_table(cells), folder / "rows.parquet")
    return {"parquet": "rows.parquet"}


def random_rows(rng, person):
    """A few rows of one person, some of them equal."""
    return [
        (person, str(rng.choice(["a", "b", "c"])), float(rng.integers(-2, 3)))
        for _ in range(int(rng.integers(1, 6)))
    ]


def random_tables(seed):
    """Two tables in which every second person comes or has other rows, and the order of rows differs."""
    rng = np.random.default_rng(seed)
    people = range(60)
    first = {person: random_rows(rng, person) for person in people if person % 4 != 1}
    second = {person: first[person] if person % 2 == 0 else random_rows(rng, person) for person in people}
    tables = []
    for rows_of_people in (first, second):
        rows = [row for rows in rows_of_people.values() for row in rows]
        tables.append([rows[i] for i in rng.permutation(len(rows))])
    return tables


def check_neighbours(engine, folder, server=None, *, relation=ADD):
    """Check that the rows that count of a person depend on nobody else's, and how many they are.

    Many people change at once: if nobody's rows move those of others, then no single person does.
    """
    tables = random_tables(seed=1)
    kept = [kept_rows(rows, engine, folder, server, relation=relation) for rows in tables]
    same = [collections.Counter({row: n for row, n in one.items() if row[0] % 2 == 0}) for one in kept]
    assert same[0] == same[1], "rows of others depend on one person"
    for rows, counted in zip(tables, kept, strict=True):
        having = collections.Counter(person for person, _, _ in rows)
        counts = collections.Counter(row[0] for row in counted.elements())
        assert counts == {person: min(BOUND, count) for person, count in having.items()}


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("engine", ENGINES)
def test_no_person_moves_the_rows_of_others(engine, relation, tmp_path, server):
    check_neighbours(engine, tmp_path, server, relation=relation)


def test_planted_an_order_over_all_rows_is_caught(tmp_path, monkeypatch):
    """Planted: what is hashed of a row says how many rows of everybody come before it."""
    right = row_order._row_text

    def numbered_by_all(table, codes, key):
        everybody = ibis.row_number().over(ibis.window(order_by=[table[name] for name in codes]))
        return right(table, codes, key) + everybody.cast("string")

    monkeypatch.setattr(row_order, "_row_text", numbered_by_all)
    with pytest.raises(AssertionError, match="depend on one person"):
        check_neighbours("frame", tmp_path)


def check_engines_agree(folder, server, **keys):
    rng = np.random.default_rng(3)
    rows = [row for person in range(60) for row in random_rows(rng, person)]
    kept = {engine: kept_rows(rows, engine, folder, server, key=keys.get(engine, KEY)) for engine in ENGINES}
    different = [engine for engine in ENGINES if kept[engine] != kept["frame"]]
    assert not different


def test_all_engines_keep_the_same_rows(tmp_path, server):
    check_engines_agree(tmp_path, server)


def test_planted_an_engine_without_the_key_is_caught(tmp_path, server):
    with pytest.raises(AssertionError, match="postgresql"):
        check_engines_agree(tmp_path, server, postgresql="00" * 32)
    for engine in ENGINES:
        with pytest.raises(ParameterError, match="the key that orders the rows of each person is missing"):
            kept_rows([(1, "a", 0.0)], engine, tmp_path, server, key=None)


# Which rows: every one with the same chance


def categories_of_pairs(people, folder, *, key=KEY, **declaration):
    """Counts of a, b and c where each person has a row of a and one of c, and one of them counts."""
    rows = [(person, group, 0.0) for person in range(people) for group in ("a", "c")]
    kept = kept_rows(rows, "frame", folder, key=key, bound=1, **declaration)
    return [sum(n for row, n in kept.items() if row[1] == code) for code in range(3)]


def check_shares(counts):
    """Check that half of the people count for each, within 6 standard errors; the key is fixed."""
    a, b, c = counts
    assert b == 0
    assert abs(a - c) < 6 * math.sqrt(a + c)


def test_a_category_keeps_its_share(tmp_path):
    """As told: with one row of each person that counts, a category fell from 96 rows to none."""
    counts = categories_of_pairs(96, tmp_path)
    assert sum(counts) == 96
    check_shares(counts)
    assert categories_of_pairs(96, tmp_path, format_number=1) == [96, 0, 0]  # which keeps its meaning


def test_planted_an_order_by_value_is_caught(tmp_path, monkeypatch):
    def by_value(table, codes, contribution, engine, order_key):
        return prepare._bounded(table, list(codes), contribution)

    monkeypatch.setattr(prepare, "keep_rows", by_value)
    with pytest.raises(AssertionError):
        check_shares(categories_of_pairs(96, tmp_path))


def test_equal_rows_count_as_often_as_they_are_there(tmp_path):
    """A person with nine rows of a and one of c: c counts for a tenth of the people, not for half."""
    rows = [(person, group, 0.0) for person in range(100) for group in "aaaaaaaaac"]
    kept = kept_rows(rows, "frame", tmp_path, bound=1)
    c = sum(n for row, n in kept.items() if row[1] == 2)
    assert 1 <= c <= 28  # 10 expected, 3 a standard error; the key is fixed


def test_another_key_is_another_order(tmp_path):
    rows = [(person, group, 0.0) for person in range(40) for group in ("a", "b", "c")]
    assert kept_rows(rows, "frame", tmp_path) != kept_rows(rows, "frame", tmp_path, key="77" * 32)


def test_numbers_and_texts_say_the_same_person(tmp_path):
    """A column of numbers and one of texts that say these numbers keep the same rows."""
    rng = np.random.default_rng(8)
    rows = [row for person in range(30) for row in random_rows(rng, person)]
    cells = columns_of(rows)
    kept = []
    for people in (cells["who_code"], [str(one) for one in cells["who_code"]]):
        frame = writers.arrow_table({**cells, "who": people})
        with source.connect(declared(), tmp_path, None, frame, order_key=KEY) as table:
            listed = ", ".join(table.names.values())
            kept.append(collections.Counter(table.tally(f"SELECT {listed} FROM {table.relation}")))
    assert kept[0] == kept[1]


# The key


DECLARATION = """
name: visits
version: "1"
format: 2
source: {{csv: {file}}}
unit: {{person: who, rows: 1}}
relation: add or remove one
budget: {{epsilon: 50, delta: 1e-6}}
columns:
  group: {{type: category, values: [a, b, c]}}
  who_code: {{type: integer, low: 0, high: 99}}
"""


@pytest.fixture
def visits(tmp_path):
    rows = [(person, group, 0.0) for person in range(96) for group in ("a", "c")]
    write_csv(columns_of(rows), tmp_path)
    path = tmp_path / "visits.yaml"
    path.write_text(DECLARATION.format(file="rows.csv"))
    return path


def test_the_key_is_made_once_and_kept_at_home(visits):
    data = dataset_file.read(visits)
    with pytest.raises(LedgerError, match="was never opened"):
        homes.order_key(visits, data)
    with reticent.open(visits) as session:
        first = session.ask(histogram("group"), epsilon=20)
    key = homes.order_key(visits, data)
    home = homes.of_rows(visits)
    assert key == home.order_key
    assert key not in repr(home)
    assert key not in visits.read_text()
    assert (homes.folder(visits) / "home.json").stat().st_mode & 0o077 == 0
    with reticent.open(visits) as session:
        again = session.ask(histogram("group"), epsilon=20)
    assert homes.order_key(visits, data) == key
    assert [cell.estimate for cell in first.cells] == [cell.estimate for cell in again.cells]
    values = [cell.estimate.value for cell in first.cells]
    assert 20 < values[0] < 76
    assert 20 < values[2] < 76


def test_answers_say_that_rows_are_left_out(visits):
    with reticent.open(visits) as session:
        answer = session.ask(histogram("group"), epsilon=20)
    note = "at most 1 row of each person are counted, chosen by a secret key; further rows are left out"
    assert answer.notes == (note,)
    assert note in str(answer)
    assert note in answer._repr_html_()
    assert type(answer).from_json(answer.to_json()) == answer
    with pytest.raises(ParameterError, match="notes must be printable texts"):
        type(answer).from_json({**answer.to_json(), "notes": ["\x1b[2J"]})


def test_declarations_of_the_same_rows_share_the_key(visits):
    with reticent.open(visits):
        pass
    other = visits.with_name("others.yaml")
    other.write_text(visits.read_text().replace("name: visits", "name: others"))
    with reticent.open(other):
        pass
    keys = {homes.order_key(path, dataset_file.read(path)) for path in (visits, other)}
    assert len(keys) == 1


def test_rows_of_format_1_need_no_key(visits):
    visits.write_text(visits.read_text().replace("format: 2\n", ""))
    with reticent.open(visits) as session:
        answer = session.ask(histogram("group"), epsilon=20)
    assert homes.order_key(visits, dataset_file.read(visits)) is None
    assert not homes.of_rows(visits).order_key
    assert answer.notes == (
        "at most 1 row of each person are counted, those with the least values; further rows are left out",
    )


def test_a_snapshot_holds_the_same_rows(visits, tmp_path):
    with reticent.open(visits):
        pass
    data = dataset_file.read(visits)
    key = homes.order_key(visits, data)
    snapshot.make(data, visits.parent, tmp_path / "s.duckdb", order_key=key)
    counts = []
    for kept in (tmp_path / "s.duckdb", None):
        with source.connect(data, visits.parent, kept, order_key=key) as table:
            counts.append(sorted(table.tally(f"SELECT c0, c1 FROM {table.relation}")))
    assert counts[0] == counts[1]
    with pytest.raises(ParameterError, match="the key that orders the rows"):
        snapshot.make(data, visits.parent, tmp_path / "t.duckdb")


def test_formats_have_different_questions():
    from reticent.query.language.questions import resolve

    texts = {resolve(histogram("group"), declared(format_number=one)).text for one in (1, 2)}
    assert len(texts) == 2
