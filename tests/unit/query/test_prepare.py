"""Whatever a cell holds, the engine gives the code that `Column` gives; planted mistakes are noticed."""

import contextlib
import csv
import datetime as dt
import math
import re
from decimal import Decimal

import duckdb
import ibis
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reticent.errors import ParameterError
from reticent.privacy import Budget, Neighbours
from reticent.query.declarations.datasets import DataSet
from reticent.query.rows import prepare, source
from reticent.query.rows.columns import Column, Kind
from reticent.tables import cells

LONG = tuple(f"k{number}" for number in range(90))
WORDS = ("white", "01", "2.50", "it's", 'a\\"b', "é", "no such", "No", "2026-01-02", "12:30:00", "-3 days")
COLUMNS = (
    Column("row", Kind.INTEGER, 0, 1 << 30),
    Column("cents", Kind.NUMBER, -0.575, 1000, 0.01, missing=3.21),
    Column("fine", Kind.NUMBER, -1.5, 2.5),
    Column("coarse", Kind.NUMBER, -2e18, 2e18, 1e9),
    Column("whole", Kind.INTEGER, 0.5, 9.5),
    Column("word", Kind.CATEGORY, values=WORDS, missing="01"),
    Column("key", Kind.CATEGORY, values=LONG, missing="k7"),
    Column("flag", Kind.BOOLEAN, missing=True),
)
TEXTS = [column for column in COLUMNS if column.name != "row"]
WRITTEN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE | re.ASCII)
TIME = r"\d\d:\d\d(:\d\d(\.\d+)?)?"
MOMENTS = [
    re.compile(rf"(\d{{4}}-\d\d-\d\d)([ T]{TIME}( ?(Z|[+-]\d\d(:?\d\d)?))?)?", re.ASCII),
    re.compile(r"(\d\d:\d\d)(:\d\d(\.\d+)?)?", re.ASCII),
    re.compile(rf"(-?\d+ days)( [+]?{TIME})?", re.ASCII),
]
TRUE, FALSE = {"true", "t", "yes"}, {"false", "f", "no", "0j"}


def meaning(cell):
    """What a cell says, in Python and by itself: a double, or a text; None for nothing."""
    if isinstance(cell, (bool, int, float, Decimal)):
        return None if math.isnan(cell) else float(cell)
    if cell is None or cell.lower() in TRUE | FALSE:
        return None if cell is None else float(cell.lower() in TRUE)
    plain = cell.strip(" \t\n\v\f\r")
    if len(cell) <= 200 and (WRITTEN.fullmatch(plain) or INFINITE.fullmatch(plain)):
        return float(plain)
    if (
        len(cell) <= 200
        and cell.endswith(("+0j)", "-0j)"))
        and cell[0] == "("
        and WRITTEN.fullmatch(cell[1:-4])
    ):
        return float(cell[1:-4])
    for pattern in MOMENTS:
        if found := pattern.fullmatch(cell):
            return found[1]
    return cell or None


def reference(column, cell):
    """The code of a cell: what the engines must agree with, whatever the type of its column."""
    said = meaning(cell)
    if column.kind is Kind.CATEGORY:
        codes = {meaning(one): code for code, one in enumerate(column.values)}
        return column.missing_code if said is None else codes.get(said, column.missing_code)
    if not isinstance(said, float) or (column.kind is Kind.BOOLEAN and said not in (0, 1)):
        return column.missing_code
    return int(said) if column.kind is Kind.BOOLEAN else column.code(said)


def data_set(columns=COLUMNS, **options):
    return DataSet("d", "1", columns, Budget(1, 1e-6), **{"rows": 1, **options})


ODD = [
    *("", " ", ".", "inf", "-INF", "+Infinity", "nan", "NaN", "0x10", "1,5", "1_000", "1e5", "-.5", "- 5"),
    *("true", "TRUE", "T", "yes", "NO", "f", "y", "1.0", "white ", "White", "null", "NULL", "0" * 201),
    *(
        "(1+0j)",
        "(-2.5-0j)",
        "(1+1j)",
        "1\r",
        "2026-01-02 00:00:00.000",
        "2026-01-02T10:30Z",
        "2026-01-0",
        "12:30",
    ),
    *(
        "2026-01-02 10:00:00+01:00",
        "12:30:59.5",
        "12:30 14:00",
        "-3 days 00:00:00",
        "-3 days +23:00:00",
        "1 day",
    ),
    *("'; DROP TABLE rows; --", "\\", "%s", "line\nbreak", "1\n", "\t1", "\u0661", "ye\u017f", "\u0130"),
]


def interesting(column):
    """Texts near everything that could go wrong with the column."""
    numbers = st.one_of(
        st.floats(),
        st.integers(-(1 << 64), 1 << 64),
        st.decimals(-2000, 2000, allow_nan=False, places=3),
        st.sampled_from([column.low, column.high, 0.5, 1.5, 2.5, 0.575, 0.145, 1e400, -1e400, 2**53 + 1])
        if column.low is not None
        else st.integers(0, 2),
    ).map(str)
    forms = st.sampled_from(
        ["{}", " {} ", "+{}", "{}.", "{}e2", "{}e-3", "{}e999", "{}e-999", "{}E1000", "{}_0"]
    )
    known = st.sampled_from([*column.values[:7], *ODD])
    wild = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
    return st.one_of(
        st.none(), known, numbers, st.builds(str.format, forms, numbers), wild, st.sampled_from(LONG)
    )


ROWS = st.lists(st.tuples(*(interesting(column) for column in TEXTS)), min_size=1, max_size=15)
MANY = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
FEW = settings(MANY, max_examples=15)


def codes(table):
    found = table.tally(f"SELECT * FROM {table.relation}")
    return sorted(found)


def expected(columns, rows):
    return [(number, *map(reference, columns, row)) for number, row in enumerate(rows)]


def write_csv(path, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow([column.name for column in COLUMNS])
        writer.writerows((number, *row) for number, row in enumerate(rows))


@pytest.fixture(scope="module")
def csv_file(tmp_path_factory):
    """A CSV file and the table of codes that reads it anew at every statement."""
    path = tmp_path_factory.mktemp("csv") / "d.csv"
    write_csv(path, [])
    with source.connect(data_set(source={"csv": path.name}), path.parent) as table:
        yield path, table


class TestText:
    @MANY
    @given(rows=ROWS)
    def test_csv(self, csv_file, rows):
        path, table = csv_file
        write_csv(path, rows)
        assert codes(table) == expected(TEXTS, rows)

    @FEW
    @given(rows=ROWS)
    def test_postgresql(self, server, postgres_texts, rows):
        connection, table = postgres_texts
        connection.execute("TRUNCATE texts")
        cells = [list(range(len(rows))), *map(list, zip(*rows, strict=True))]
        places = ", ".join(["%s::int[]", *["%s::text[]"] * len(TEXTS)])
        connection.execute(f"INSERT INTO texts SELECT * FROM unnest({places})", cells)
        assert codes(table) == expected(TEXTS, rows)


@pytest.fixture(scope="module")
def postgres_texts(server):
    """A table of texts in PostgreSQL, and its codes."""
    with psycopg.connect(server, autocommit=True) as connection:
        names = ", ".join(f"{column.name} text" for column in TEXTS)
        connection.execute(f"CREATE TABLE texts (row int, {names})")
        with source.connect(data_set(source={"url": server, "table": "texts"}), None) as table:
            yield connection, table


EDGES = [0, 1, -1, 5, 10, 1 << 31, 2**53 + 1, (1 << 63) - 1, -(1 << 63), 10**18 + 500_000_000, 1_500_000_000]
DOUBLES = [
    0.0,
    -0.0,
    0.5,
    1.5,
    2.5,
    9.5,
    0.575,
    1e300,
    -1e300,
    5e-324,
    math.inf,
    -math.inf,
    math.nan,
    2.0**63,
]
TYPED = (
    Column("row", Kind.INTEGER, 0, 1 << 30),
    Column("i64", Kind.NUMBER, -9e18, 9e18, 1e10),
    Column("i32", Kind.INTEGER, 0, 100),
    Column("f64", Kind.NUMBER, -100, 100, 0.01, missing=7),
    Column("f32", Kind.NUMBER, -100, 100, 0.01),
    Column("dec", Kind.NUMBER, -1e6, 1e6, 0.5),
    Column("wide", Kind.NUMBER, -1e6, 1e6, 0.001),
    Column("bit", Kind.NUMBER, 0, 1, 0.25, missing=0.75),
    Column("mark", Kind.CATEGORY, values=("1", "7", "-3")),
    Column("truth", Kind.BOOLEAN),
)
SQL_TYPES = {
    "duckdb": "row INTEGER, i64 BIGINT, i32 INTEGER, f64 DOUBLE, f32 FLOAT, dec DECIMAL(12, 2), "
    "wide DECIMAL(38, 10), bit BOOLEAN, mark INTEGER, truth DOUBLE",
    "postgres": "row INTEGER, i64 BIGINT, i32 INTEGER, f64 DOUBLE PRECISION, f32 REAL, dec NUMERIC(12, 2), "
    "wide NUMERIC, bit BOOLEAN, mark INTEGER, truth DOUBLE PRECISION",
}
INT64 = st.sampled_from(EDGES) | st.integers(-(1 << 63), (1 << 63) - 1)
SMALL = st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-5, 110)
FLOATS = st.sampled_from(DOUBLES) | st.floats() | st.floats(-110, 110)
CELLS = {
    "i64": INT64,
    "i32": SMALL,
    "f64": FLOATS,
    "f32": st.floats(width=32),
    "dec": st.decimals(-(10**9), 10**9, allow_nan=False, places=2),
    "wide": st.decimals(-(10**27), 10**27, allow_nan=False, places=10) | st.decimals(-2, 2, places=10),
    "bit": st.booleans(),
    "mark": st.sampled_from([1, 7, -3]) | SMALL,
    "truth": st.sampled_from([0.0, 1.0, 0.5, math.nan]) | st.floats(),
}
TYPED_ROWS = st.lists(
    st.tuples(*(st.none() | CELLS[column.name] for column in TYPED[1:])), min_size=1, max_size=30
)


def typed_expected(rows):
    return [(number, *map(reference, TYPED[1:], row)) for number, row in enumerate(rows)]


@contextlib.contextmanager
def duckdb_codes(sql_types, columns, **options):
    """A typed table in memory, and its codes."""
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE typed ({sql_types})")
    engine = ibis.duckdb.from_connection(connection)
    sql = engine.compile(
        prepare.prepared(engine, source.described(engine, "typed"), data_set(columns, **options))
    )
    yield connection, lambda: sorted(connection.execute(sql).fetchall())
    connection.close()


class TestStored:
    @pytest.fixture(scope="class")
    def in_duckdb(self):
        with duckdb_codes(SQL_TYPES["duckdb"], TYPED) as opened:
            yield opened

    @MANY
    @given(rows=TYPED_ROWS)
    def test_duckdb(self, in_duckdb, rows):
        connection, found = in_duckdb
        connection.execute("DELETE FROM typed")
        places = ", ".join("?" * len(TYPED))
        connection.executemany(
            f"INSERT INTO typed VALUES ({places})", [(number, *row) for number, row in enumerate(rows)]
        )
        assert found() == typed_expected(rows)

    @pytest.fixture(scope="class")
    def in_postgres(self, server):
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE typed ({SQL_TYPES['postgres']})")
            with source.connect(data_set(TYPED, source={"url": server, "table": "typed"}), None) as table:
                yield connection, table

    @FEW
    @given(
        rows=TYPED_ROWS,
        extra=st.sampled_from(["NaN", "Infinity", "-Infinity", "1e2000", "1e-2000", "-1e-400"]),
    )
    def test_postgresql(self, in_postgres, rows, extra):
        connection, table = in_postgres
        connection.execute("TRUNCATE typed")
        rows = [*rows, tuple(Decimal(extra) if column.name == "wide" else None for column in TYPED[1:])]
        places = ", ".join(["%s"] * len(TYPED))
        with connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO typed VALUES ({places})", [(number, *row) for number, row in enumerate(rows)]
            )
        assert codes(table) == typed_expected(rows)


MOOD = Column("mood", Kind.CATEGORY, values=("sad", "glad", "none"))


class TestTypes:
    def test_enumerations_and_padded_texts_in_postgresql(self, server):
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("CREATE TYPE mood AS ENUM ('sad', 'glad', 'odd')")
            connection.execute("CREATE TABLE moods (mood mood, yes char(5))")
            connection.execute("INSERT INTO moods VALUES ('glad', 'true'), ('odd', 'f'), (NULL, NULL)")
        columns = (MOOD, Column("yes", Kind.BOOLEAN))
        with source.connect(data_set(columns, source={"url": server, "table": "moods"}), None) as table:
            assert codes(table) == [(1, 1), (2, 0), (2, 0)]

    def test_enumerations_and_dates_in_duckdb(self):
        columns = (MOOD, Column("day", Kind.CATEGORY, values=("2026-01-02", "later")))
        types = "mood ENUM ('sad', 'glad', 'odd'), day DATE"
        with duckdb_codes(types, columns) as (connection, found):
            connection.execute(
                "INSERT INTO typed VALUES ('glad', '2026-01-02'), ('odd', '2026-01-03'), (NULL, NULL)"
            )
            assert found() == [(1, 0), (2, 1), (2, 1)]

    @pytest.mark.parametrize("held", ["DATE", "INTEGER[]", "BLOB", "INTERVAL", "STRUCT(y INTEGER)", '"NULL"'])
    @pytest.mark.parametrize("kind", Kind)
    def test_no_type_is_refused_since_one_row_may_decide_it(self, held, kind):
        options = {Kind.CATEGORY: {"values": ("a", "b")}, Kind.BOOLEAN: {}}.get(kind, {"low": 0, "high": 9})
        column = Column("x", kind, **options)
        with duckdb_codes(f"x {held}", (column,)) as (connection, found):
            connection.execute("INSERT INTO typed VALUES (NULL)")
            assert found() == [(column.missing_code,)]

    def test_a_missing_column_is_refused_by_name(self):
        with pytest.raises(ParameterError, match=r"^columns.mood: the source has no such column, it has x$"):
            duckdb_codes("x INTEGER", (MOOD,)).__enter__()


# Long lists of days

DAYS = tuple((dt.date(2026, 1, 1) + dt.timedelta(number)).isoformat() for number in range(100))
DAY_COLUMNS = (
    Column("day", Kind.CATEGORY, values=(*DAYS, "never")),
    Column("second_day", Kind.CATEGORY, values=DAYS),
    Column("code", Kind.CATEGORY, values=(*map(str, range(80)), *DAYS[:20])),
)
DAY_CELLS = [
    ("2026-01-05", "2026-02-01", "7"),
    ("2026-01-06 10:00:00", "2026-04-10T00:00Z", "07.0"),
    ("never", None, "2026-01-03 00:00:00"),
    ("2027-01-05", "5", "99"),
]
DAY_CODES = sorted([(4, 31, 7), (5, 99, 7), (100, 99, 82), (100, 99, 99)])


def day_codes_in_duckdb() -> list[tuple[int, ...]]:
    with duckdb_codes("day VARCHAR, second_day VARCHAR, code VARCHAR", DAY_COLUMNS) as (connection, found):
        connection.executemany("INSERT INTO typed VALUES (?, ?, ?)", DAY_CELLS)
        return found()


def test_more_than_64_days_are_categories_in_duckdb():
    assert day_codes_in_duckdb() == DAY_CODES


def test_more_than_64_days_are_categories_in_postgresql(server):
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE TABLE many_days (day text, second_day text, code text)")
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO many_days VALUES (%s, %s, %s)", DAY_CELLS)
    declared = data_set(DAY_COLUMNS, source={"url": server, "table": "many_days"})
    with source.connect(declared, None) as table:
        assert codes(table) == DAY_CODES


def test_planted_a_join_by_expressions_is_ambiguous(monkeypatch):
    """The fault of before: texts and days of one list are equal tables, which ibis cannot tell apart."""
    left_join = ibis.expr.types.Table.left_join

    def by_expressions(table, listed, predicates):
        ((name, key),) = predicates
        return left_join(table, listed, table[name] == listed[key])

    monkeypatch.setattr(ibis.expr.types.Table, "left_join", by_expressions)
    with pytest.raises(ibis.common.exceptions.IbisInputError, match="Ambiguous field reference"):
        day_codes_in_duckdb()


# Persons

OF_PERSONS = (Column("v", Kind.INTEGER, 0, 9), Column("w", Kind.INTEGER, 0, 9))
PERSONS = {"person": "who", "contribution": 2, "relation": Neighbours.ADD_REMOVE_ONE, "rows": None}
PERSON_ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 9), st.integers(0, 9))
)


@pytest.fixture
def of_persons():
    """What is kept of the rows (person, v, w)."""
    with duckdb_codes("who VARCHAR, v INTEGER, w INTEGER", OF_PERSONS, **PERSONS) as (connection, found):

        def kept(rows):
            connection.execute("DELETE FROM typed")
            for row in rows:
                connection.execute("INSERT INTO typed VALUES (?, ?, ?)", row)
            return found()

        yield kept


def least(rows, contribution=2):
    """What must be kept: of each person the rows with the smallest codes, and nothing of nobody."""
    kept = []
    for person in {row[0] for row in rows} - {None}:
        kept += sorted(row[1:] for row in rows if row[0] == person)[:contribution]
    return sorted(kept)


class TestPersons:
    @settings(MANY, max_examples=15)
    @given(rows=PERSON_ROWS, seed=st.randoms())
    def test_a_persons_rows_are_chosen_by_themselves(self, of_persons, rows, seed):
        found = of_persons(rows)
        assert found == least(rows)
        mixed = list(rows)
        seed.shuffle(mixed)
        assert of_persons(mixed) == found, "the order of the source must not matter"

    def test_removing_a_person_removes_at_most_the_contribution(self, of_persons):
        rows = [("a", i, 0) for i in range(9)] + [("b", 3, 3), (None, 1, 1), (None, 2, 2), (None, 3, 3)]
        others = [row for row in rows if row[0] != "a"]
        assert len(of_persons(rows)) - len(of_persons(others)) == 2
        assert of_persons([row for row in rows if row[0] is not None]) == of_persons(rows)


# Planted mistakes: each must be noticed by what is tested above


def first_rows(table, names, contribution):
    """The first rows that the source happens to give."""
    window = ibis.window(group_by=table.person)
    ranked = table.mutate(rank=ibis.row_number().over(window))
    return ranked.filter(ranked["rank"] < contribution)


@pytest.fixture
def by_order(monkeypatch):
    """Plant a choice by the order of the source."""
    monkeypatch.setattr(prepare, "_bounded", first_rows)


def test_a_choice_by_the_order_of_the_source_is_noticed(by_order, of_persons):
    rows = [("a", i, i) for i in range(9)]
    assert of_persons(rows) != of_persons(rows[::-1])


def agrees(columns, sql_types, rows):
    with duckdb_codes(sql_types, columns) as (connection, found):
        connection.executemany(f"INSERT INTO typed VALUES ({', '.join('?' * len(columns))})", rows)
        wanted = [
            tuple(reference(column, cell) for column, cell in zip(columns, row, strict=True)) for row in rows
        ]
        return found() == sorted(wanted)


HALVES = (Column("x", Kind.INTEGER, 0.5, 9.5, missing=4),)
CENTS = (Column("x", Kind.NUMBER, 0.575, 10, 0.01, missing=4),)
CASES = [(HALVES, "x VARCHAR", [("0.5",), ("9.5",), (None,), ("x",)]), (CENTS, "x DOUBLE", [(0.0,), (None,)])]


def number_code(number, column, engine, *, missing=True, clamp=True):
    clamped = ibis.greatest(ibis.least(number, prepare._literal(column.high)), prepare._literal(column.low))
    steps = (clamped / prepare._literal(column.step)).cast("int64")
    within = ibis.greatest(ibis.least(steps, column.last), column.first) if clamp else steps
    return ibis.ifelse(number.isnull(), column.missing_code, within) if missing else within


@pytest.mark.parametrize("case", CASES, ids=["halves", "cents"])
class TestPlanted:
    def test_nothing_is_planted(self, case):
        assert agrees(*case)

    def test_a_forgotten_last_clamp_is_noticed(self, monkeypatch, case):
        monkeypatch.setattr(prepare, "_number_code", lambda *at: number_code(*at, clamp=False))
        assert not agrees(*case)

    def test_a_forgotten_missing_value_is_noticed(self, monkeypatch, case):
        monkeypatch.setattr(prepare, "_number_code", lambda *at: number_code(*at, missing=False))
        assert not agrees(*case)

    def test_dropped_nulls_are_noticed(self, monkeypatch, case):
        whole = prepare._written
        monkeypatch.setattr(prepare, "_written", lambda engine, table: whole(engine, table.drop_null()))
        assert not agrees(*case)


def test_a_cast_without_the_grammar_is_noticed(monkeypatch):
    column = (Column("x", Kind.INTEGER, 0, 100, missing=4),)
    case = (column, "x VARCHAR", [("1_0",), ("12",)])
    assert agrees(*case)
    monkeypatch.setattr(cells, "NUMBER", "")
    assert not agrees(*case)
