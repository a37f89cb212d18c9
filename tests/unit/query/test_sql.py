"""SQL: what is read means what it says to DuckDB; everything else is refused, with the reason."""

from __future__ import annotations

import random
import re
import subprocess
import sys

import duckdb
import numpy as np
import pytest

from reticent.errors import MissingExtra, ParameterError, ParameterTypeError
from reticent.query.language import tree
from reticent.query.language.conditions import holds, resolve_condition
from reticent.query.language.sql import DEEPEST, LONGEST, read, read_condition
from reticent.query.language.tree import And, By, Comparison, In, Not, Or, Query
from reticent.query.rows.columns import Kind

from .matching import predicate_sql
from .mutants import broken_texts
from .random_queries import COLOURS, SCALE, World, predicate, random_schema

A = Comparison("a", ">", 1)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT COUNT(*) FROM c", tree.count()),
        ("select count ( * ) as n from c ;", tree.count()),
        ('SELECT COUNT(*) FROM "c" -- a comment\n', tree.count()),
        ("SELECT COUNT(*) FROM c WHERE a > 1", tree.count(where=A)),
        ("SELECT COUNT(*) FROM c WHERE c.a > 1", tree.count(where=A)),
        ("SELECT COUNT(*) FILTER (WHERE a > 1) FROM c", tree.count(where=A)),
        ("SELECT COUNT(*) FILTER (WHERE a > 1) FROM c WHERE b", tree.count(where="b and a > 1")),
        ("SELECT COUNT_IF(a > 1) FROM c", tree.count(where=A)),
        ("SELECT SUM(CASE WHEN a > 1 THEN 1 ELSE 0 END) FROM c", tree.count(where=A)),
        ("SELECT SUM((a > 1)::INT) FROM c", tree.count(where=A)),
        ("SELECT SUM(x) FROM c", tree.total("x")),
        ("SELECT AVG(c.x) AS m FROM c", tree.mean("x")),
        ("SELECT AVG(x) FILTER (WHERE a > 1) FROM c", tree.mean("x", where=A)),
        ("SELECT VAR_POP(x) FROM c", tree.variance("x")),
        ("SELECT AVG(CASE WHEN a > 1 THEN 1 ELSE 0 END) FROM c WHERE b", tree.proportion(A, where="b")),
        ("SELECT AVG(CASE WHEN a > 1 THEN 1.0 ELSE 0.0 END) FROM c", tree.proportion(A)),
        ("SELECT AVG(CAST(a > 1 AS DOUBLE)) FROM c", tree.proportion(A)),
        ("SELECT MEDIAN(x) FROM c", tree.median("x")),
        ("SELECT QUANTILE_CONT(x, 0.25) FROM c", tree.quantile("x", 0.25)),
        ("SELECT QUANTILE_CONT(x, [0.25, 0.5]) FROM c", tree.quantile("x", [0.25, 0.5])),
        ("SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x) FROM c", tree.median("x")),
        ("SELECT s, COUNT(*) FROM c GROUP BY s", tree.count(by="s")),
        ("SELECT AVG(x), s AS sex, c.t FROM c GROUP BY c.s, t", tree.mean("x", by=["s", "t"])),
        ("SELECT COUNT(*) FROM c GROUP BY year", tree.count(by="year")),
        ("SELECT BIN(a, 12), COUNT(*) FROM c GROUP BY BIN(a, 12)", tree.count(by=By("a", bins=12))),
        ("SELECT COUNT(*) FROM c GROUP BY bin(c.a, 2), s", tree.count(by=[By("a", bins=2), "s"])),
        ("SELECT AVG(x) FROM c GROUP BY WIDTH_BUCKET(a, 0, 1, 4)",
         tree.mean("x", by=By("a", edges=(0.0, 0.25, 0.5, 0.75, 1.0)))),
        ('SELECT SUM("my ""col""") FROM c', tree.total('my "col"')),
    ],
)  # fmt: skip
def test_statements(text, wanted):
    assert read(text, "c") == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a > 1", A),
        ("1 < a", A),
        ("(a) > (1)", A),
        ("40 <= a", Comparison("a", ">=", 40)),
        ("40 >= a", Comparison("a", "<=", 40)),
        ("'x' <> a", Comparison("a", "!=", "x")),
        ("a == -1", Comparison("a", "=", -1)),
        ("a = - -1", Comparison("a", "=", 1)),
        ("a = -1.5e-3", Comparison("a", "=", -0.0015)),
        ("a = 1e3", Comparison("a", "=", 1000.0)),
        ("a = .5", Comparison("a", "=", 0.5)),
        ("a = 1_000", Comparison("a", "=", 1000)),
        ("a = 123456789012345678901", Comparison("a", "=", 123456789012345678901)),
        ("a = 'it''s'", Comparison("a", "=", "it's")),
        ("a = TRUE", Comparison("a", "=", True)),
        ("a IS TRUE", Comparison("a", "=", True)),
        ("a IS NOT FALSE", Not(Comparison("a", "=", False))),
        ("a", Comparison("a", "=", True)),
        ("NOT a", Not(Comparison("a", "=", True))),
        ("true", And(())),
        ("false", Or(())),
        ("a IN (1, -2, 'x')", In("a", (1, -2, "x"))),
        ("a NOT IN (1)", Not(In("a", (1,)))),
        ("a BETWEEN 1 AND 2", And((Comparison("a", ">=", 1), Comparison("a", "<=", 2)))),
        ("a > 1 AND b AND NOT b", And((A, Comparison("b", "=", True), Not(Comparison("b", "=", True))))),
        ("b OR a > 1 AND b", Or((Comparison("b", "=", True), And((A, Comparison("b", "=", True)))))),
        ("date = 1 /* quoted by nobody */", Comparison("date", "=", 1)),
    ],
)
def test_conditions(text, wanted):
    assert read_condition(text) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT COUNT(*) FROM c JOIN d ON c.a = d.a", "sql: JOIN is not answered: one data set at a time"),
        (
            "SELECT COUNT(*) FROM c, d",
            "sql: a second table in SELECT is not answered: one data set at a time",
        ),
        ("SELECT COUNT(*) FROM c WHERE d.a = 1", "sql: 'd' is not answered: one data set at a time"),
        ("SELECT COUNT(*) FROM (SELECT * FROM c)", "sql: FROM must be c, got SELECT within SELECT"),
        ("SELECT COUNT(*) FROM d", "sql: FROM must be c, got 'd'"),
        (
            "SELECT COUNT(*) FROM 'c'",
            "sql: cannot be read: a name or a constant stands where it means nothing",
        ),
        ("SELECT COUNT(*) FROM read_csv('c')", "sql: FROM must be c, got"),
        (
            "SELECT COUNT(*) FROM main.c",
            "sql: a schema in FROM is not answered: call the data set by its name",
        ),
        (
            "SELECT COUNT(*) FROM c x",
            "sql: another name in FROM is not answered: call the data set by its name",
        ),
        ("SELECT COUNT(*)", "sql: FROM must be c, got nothing"),
        ("SELECT COUNT(*) FROM c UNION SELECT COUNT(*) FROM c", "sql: UNION is not answered: one SELECT"),
        ("WITH d AS (SELECT 1) SELECT COUNT(*) FROM c", "sql: WITH is not answered: one SELECT at a time"),
        ("SELECT COUNT(*) FROM c; SELECT COUNT(*) FROM c", "sql must be one statement, got 2"),
        (
            "SELECT COUNT(*) FROM c WHERE a IN (SELECT a FROM c)",
            "sql: SELECT in IN is not answered: one SELECT",
        ),
        (
            "SELECT COUNT(*) FROM c WHERE EXISTS (SELECT 1)",
            "sql: EXISTS is not answered: one SELECT at a time",
        ),
        ("SELECT (SELECT 1) FROM c", "sql: SELECT within SELECT is not answered: one SELECT at a time"),
        (
            "SELECT COUNT(*) FROM c ORDER BY 1",
            "sql: ORDER BY in SELECT is not answered: every group is answered",
        ),
        ("SELECT COUNT(*) FROM c LIMIT 1", "sql: LIMIT is not answered: every group is answered"),
        (
            "SELECT COUNT(*) FROM c GROUP BY a HAVING COUNT(*) > 1",
            "sql: HAVING is not answered: whether a group",
        ),
        ("SELECT DISTINCT COUNT(*) FROM c", "sql: DISTINCT is not answered: rows are counted"),
        ("SELECT COUNT(DISTINCT a) FROM c", "sql: DISTINCT is not answered: rows are counted"),
        ("SELECT SUM(a) OVER () FROM c", "sql: OVER is not answered: rows have no order"),
        ("SELECT COUNT(*) FROM c GROUP BY 1", "sql: a constant is not answered: GROUP BY takes columns"),
        ("SELECT COUNT(*) FROM c GROUP BY lower(a)", "sql: LOWER is not answered: GROUP BY takes columns"),
        ("SELECT COUNT(*) FROM c GROUP BY BIN(a)", r"sql: BIN must be BIN\(column, number of bins\), got 1"),
        ("SELECT COUNT(*) FROM c GROUP BY BIN(a, 2.5)", "sql: BIN must have a whole number of bins"),
        ("SELECT COUNT(*) FROM c GROUP BY BIN(a, a)", "sql: a column is not answered: a constant is wanted"),
        ("SELECT COUNT(*) FROM c GROUP BY BIN(a + 1, 3)", r"sql: PLUS|sql: \+ is not answered"),
        ("SELECT BIN(a, 3), COUNT(*) FROM c GROUP BY BIN(a, 4)", "sql: column 'a' must stand in GROUP BY"),
        (
            "SELECT COUNT(*) FROM c GROUP BY WIDTH_BUCKET(a, 1, 0, 3)",
            "sql: WIDTH_BUCKET must be .* low below",
        ),
        ("SELECT COUNT(*) FROM c GROUP BY WIDTH_BUCKET(a, [1, 2])", "sql: "),
        ("SELECT COUNT(*) FROM c GROUP BY ROLLUP (a)", "sql: ROLLUP is not answered: GROUP BY takes columns"),
        ("SELECT COUNT(a) FROM c", "sql: COUNT of a column is not answered: missing values are replaced"),
        ("SELECT VAR_SAMP(a) FROM c", "sql: VARIANCE is not answered: it divides by one row less; VAR_POP"),
        ("SELECT STDDEV(a) FROM c", "sql: STDDEV is not answered: take the root of VAR_POP"),
        ("SELECT MAX(a) FROM c", "sql: MAX is not answered: one row decides it; ask QUANTILE_CONT"),
        (
            "SELECT QUANTILE_DISC(a, 0.5) FROM c",
            "sql: QUANTILE_DISC is not answered: quantiles are read off",
        ),
        ("SELECT f(a) FROM c", r"sql: f is not answered: COUNT\(\*\), SUM, AVG, VAR_POP, MEDIAN and"),
        ("SELECT AVG(a) * 2 FROM c", "sql: \\* is not answered: there is no arithmetic"),
        ("SELECT AVG(a + 1) FROM c", r"sql: \+ is not answered: there is no arithmetic"),
        ("SELECT AVG(a - 1) FROM c", "sql: - is not answered: there is no arithmetic"),
        ("SELECT AVG(a::INT) FROM c", "sql: CAST is not answered: columns are what they are declared to be"),
        ("SELECT AVG((a > 1)::DATE) FROM c", "sql: CAST is not answered"),
        ("SELECT AVG(CASE WHEN a THEN 0 ELSE 1 END) FROM c", "sql: CASE must be CASE WHEN condition THEN 1"),
        (
            "SELECT AVG(CASE WHEN a THEN 1 END) FROM c",
            "sql: CASE must be CASE WHEN condition THEN 1 ELSE 0 END",
        ),
        ("SELECT AVG(CASE a WHEN 1 THEN 1 ELSE 0 END) FROM c", "sql: a value in CASE is not answered"),
        ("SELECT COUNT(*), SUM(a) FROM c", "sql: SELECT must hold one aggregate, got 2"),
        ("SELECT a FROM c GROUP BY a", "sql: SELECT must hold one aggregate, got 0"),
        ("SELECT a, COUNT(*) FROM c", "sql: column 'a' must stand in GROUP BY or an aggregate"),
        ("SELECT * FROM c", r"sql: \* is not answered"),
        ("SELECT c.* FROM c", "sql: a column is not answered"),
        (
            "SELECT MEDIAN(a) FROM c GROUP BY b",
            "sql: GROUP BY beside a quantile is not answered: ask for each",
        ),
        ("SELECT QUANTILE_CONT(a, 0.5, 3) FROM c", "sql: cannot be read: a name or a constant stands where"),
        ("SELECT QUANTILE_CONT(a) FROM c", "sql: nothing is not answered: a constant is wanted here"),
        ("SELECT QUANTILE_CONT(a, 2) FROM c", "levels must be > 0 and < 1, got 2"),
        ("SELECT QUANTILE_CONT(a, 'x') FROM c", "levels must be a number, got 'x'"),
        (
            "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a, b) FROM c",
            "sql: WITHIN GROUP must be ORDER BY",
        ),
        (
            "SELECT PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY a) FROM c",
            "sql: QUANTILE_DISC is not answered",
        ),
        ("DROP TABLE c", "sql: 'DROP' is not answered: SELECT one aggregate FROM the data set"),
        ("UPDATE c SET a = 1", "sql must be SELECT one aggregate FROM the data set, .*, got 'UPDATE c SET"),
        ("SELECT COUNT(*) INTO d FROM c", "sql: 'INTO' is not answered"),
        ("SELECT COUNT( FROM c", r"sql: cannot be read near 'c': \) is missing"),
        ("SELECT COUNT(*) FROM c WHERE", "sql: cannot be read near 'WHERE'"),
        ("SELECT COUNT(*) FROM c WHERE a = 'x", "sql: cannot be read"),
        ("", "sql must be a text of 1 to 20000 characters, got 0 characters"),
        (" ", "sql must be SELECT one aggregate"),
        (3, "sql must be a text of 1 to 20000 characters, got 3"),
    ],
)
def test_statements_that_are_refused(text, message):
    with pytest.raises((ParameterError, ParameterTypeError), match=f"^{message}"):
        read(text, "c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a IS NULL", "sql: NULL is not answered: missing values are replaced as declared"),
        ("a ISNULL", "sql: ISNULL is not answered: missing values are replaced as declared"),
        ("a = NULL", "sql: NULL is not answered: missing values are replaced as declared"),
        ("a IS b", "sql: IS is not answered: missing values are replaced as declared"),
        ("a LIKE 'x%'", "sql: LIKE is not answered: categories are compared as a whole, by = or IN"),
        ("a > b", "sql: a comparison must be of a column and a constant, got a column and a column"),
        ("1 = 1", "sql: a comparison must be of a column and a constant, got a constant and a constant"),
        (
            "20 <= a <= 40",
            "sql: a comparison must be of a column and a constant, got a comparison and",
        ),
        ("lower(a) = 'x'", "sql: a comparison must be of a column and a constant, got LOWER and a constant"),
        ("a + 1 > 2", r"sql: \+ is not answered: there is no arithmetic"),
        ("- a > 2", "sql: a comparison must be of a column and a constant, got a minus sign and a constant"),
        ("a = -'x'", "sql: a minus sign is not answered: a constant is wanted here"),
        ("a = DATE '2020-01-01'", "sql: cannot be read near"),
        ("a = ?", r"sql: '\?' is not answered: a condition is made of"),
        ("a = $$x$$", "sql: 'x' is not answered: a condition is made of"),
        ("a IN (b)", "sql: a column is not answered: a constant is wanted here"),
        ("a IN ()", "sql: IN takes a list of constants, got nothing"),
        ("a IN", "sql: IN takes a list of constants, got nothing"),
        ("a IN b", "sql: a column in IN is not answered: IN takes a list of constants"),
        ("a BETWEEN b AND 3", "sql: a column is not answered: a constant is wanted here"),
        ("a BETWEEN SYMMETRIC 3 AND 1", "sql: SYMMETRIC in BETWEEN is not answered"),
        ("f(a)", "sql: f is not answered: a condition is made of AND, OR, NOT"),
        ("CASE WHEN a THEN b END", "sql: CASE is not answered: a condition is made of"),
        ("a = 0.1000000000000000055", "sql: a number must be finite and have at most 17 digits, got '0.1000"),
        ("a = 1e999999999", "sql: a number must be finite and have at most 17 digits, got '1e999999999'"),
        ("a = 1e-999999999", "sql: a number must be finite and have at most 17 digits"),
        ("a = " + "1" * 400, "sql: a number must be finite and have at most 17 digits"),
        ("a = '" + "x" * 201 + "'", "where.value must be at most 200 characters, got 201"),
        ("a > 1; b", "sql must be one condition, got 2"),
        ("a > 1 GROUP BY a", "sql: cannot be read near 'GROUP BY'"),
        ("c.a > 1", "sql: 'c' is not answered: one data set at a time"),
        ("a.b.c > 1", "sql: a schema in a column is not answered"),
        ("a[1] = 2", "sql: a comparison must be of a column and a constant, got \\[...\\] and a constant"),
        ("(SELECT TRUE)", "sql: SELECT within SELECT is not answered: one SELECT at a time"),
        (";", "sql"),
    ],
)
def test_conditions_that_are_refused(text, message):
    with pytest.raises((ParameterError, ParameterTypeError), match=f"^{message}"):
        read_condition(text)


# Size


@pytest.mark.parametrize(
    ("start", "end"),
    [("(", ")"), ("NOT ", ""), ("NOT (", ")"), ("(b AND ", ")"), ("CASE WHEN ", " THEN b END")],
)
def test_depth_is_limited_and_never_a_recursion_error(start, end):
    each = start.count("(") + start.count("NOT") + start.count("CASE")
    for depth in (1, DEEPEST // each, DEEPEST // each + 1, 40, 500, 2000):
        text = start * depth + "a > 1" + end * depth
        if depth * each > DEEPEST:
            message = "must be (nested at most 16 deep|a text of 1 to 20000)"
            with pytest.raises(ParameterError, match=f"^sql {message}"):
                read_condition(text)
        elif start.startswith("CASE"):
            with pytest.raises(ParameterError, match=r"^sql: CASE is not answered"):
                read_condition(text)
        else:
            read_condition(text)


def test_a_caller_with_little_room_gets_a_refusal():
    def further(depth):
        return read_condition("(" * 16 + "a" + ")" * 16) if depth == 0 else further(depth - 1)

    room = sys.getrecursionlimit() - 300
    with pytest.raises(ParameterError, match=r"^sql must be nested"):
        further(room)


@pytest.mark.parametrize("word", ["AND", "OR"])
def test_long_chains_are_read(word):
    text = f" {word} ".join(f"a = {i}" for i in range(900))
    assert len(read_condition(text).parts) == 900
    with pytest.raises(ParameterError, match=r"^where must have at most 1000 parts"):
        read_condition(f" {word} ".join(["a"] * 1200))
    with pytest.raises(ParameterError, match=r"^sql: cannot be read|^sql: - is not"):
        read_condition("a" + " - a" * 4000)
    with pytest.raises(ParameterError, match=f"^sql must be a text of 1 to {LONGEST} characters, got 25"):
        read_condition(f" {word} ".join(["a = 1"] * 3000)[:25_000])


# Meaning


def test_conditions_mean_what_they_mean_to_duckdb():
    """Random conditions, run by DuckDB on the values as they stand, and by us on codes."""
    rng = random.Random(1)
    types = {
        Kind.NUMBER: "DECIMAL(9, 3)",
        Kind.INTEGER: "INTEGER",
        Kind.CATEGORY: "VARCHAR",
        Kind.BOOLEAN: "BOOLEAN",
    }
    with duckdb.connect() as connection:
        for _ in range(15):
            declared = random_schema(rng)
            data, world = declared.data(), World(rng, declared)
            codes, values = {}, []
            for spec in declared.specs:
                prepared = world.prepared(declared, spec.name)[-300:]
                grid = list(spec.grid)
                first = data.column(spec.name).first
                codes[spec.name] = np.array([first + grid.index(one) for one in prepared])
                values.append([meant(spec, int(one)) for one in prepared])
            names = ['"' + spec.name.replace('"', '""') + '"' for spec in declared.specs]
            columns = [f"{name} {types[spec.kind]}" for name, spec in zip(names, declared.specs, strict=True)]
            connection.execute(f"CREATE OR REPLACE TABLE census (id INTEGER, {', '.join(columns)})")
            listed = [list(range(len(values[0]))), *values]
            connection.execute(f"INSERT INTO census SELECT unnest(?){', unnest(?)' * len(names)}", listed)
            for _ in range(40):
                text = predicate_sql(rng, predicate(rng, declared, 3)).replace("==", "=")
                found = connection.execute(f"SELECT id FROM census WHERE {text}").fetchall()
                condition = resolve_condition(read_condition(text), data)
                assert sorted(row for (row,) in found) == np.flatnonzero(holds(condition, codes)).tolist(), (
                    text
                )


def meant(spec, prepared):
    if spec.kind is Kind.CATEGORY:
        return COLOURS[prepared]
    if spec.kind is Kind.BOOLEAN:
        return bool(prepared)
    return prepared / SCALE


# What may go wrong


def test_broken_texts_are_refused_in_one_line():
    check_broken(1500)


@pytest.mark.slow
def test_20000_broken_texts_are_refused_in_one_line():
    check_broken(20_000)


def refusal(text):
    try:
        read(text, "census") if text[:6].upper() == "SELECT" else read_condition(text)
    except (ParameterError, ParameterTypeError) as err:
        return str(err)
    return None


FIELD = re.compile(r"(sql|levels|(where|of|by)(\.[a-z]+)?|column)\b")


def check_broken(count):
    found = [refusal(text) for text in broken_texts(random.Random(3), count)]
    assert count / 100 < found.count(None) < count * 3 / 4  # neither all nonsense nor all fine
    for message in filter(None, found):
        assert FIELD.match(message), message
        assert "\n" not in message
        assert len(message) < 500


def test_sqlglot_is_imported_late_and_its_absence_is_said(monkeypatch):
    code = (
        "import sys; from reticent.query.language import questions, sql; sys.exit('sqlglot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(MissingExtra, match=r"SQL needs an optional part: pip install 'reticent\[query\]'"):
        read("SELECT COUNT(*) FROM c", "c")


def test_groups_come_in_the_order_of_group_by():
    assert read("SELECT b, a, COUNT(*) FROM c GROUP BY a, b", "c") == Query("count", by=(By("a"), By("b")))


INNER = [
    *(
        "*",
        "AVG(*)",
        "APPROX_DISTINCT(a)",
        "ARRAY_AGG(a)",
        "JSON_EXTRACT(a, 'b')",
        "TRUE",
        "UNNEST(a)",
        "a.b.c",
    ),
    *(
        "STRING_AGG(a, ',')",
        "INTERVAL '1' day",
        "[1, 2]",
        "(a, b)",
        "a << 1",
        "IF(a > 1, 1, 0)",
    ),
    *("COUNT(*) FROM c WHERE (a, b) = (1, 2)", "COUNT(*) FROM c WHERE a COLLATE x > 1", "SUM(a) FROM c x"),
    *(
        "COUNT(*) FROM c WHERE a > (1",
        "COUNT(*) FROM c WHERE a > 1)",
        "COUNT(*) FROM c, d",
        "COUNT(*) FROM m.c",
    ),
]


@pytest.mark.parametrize("text", INNER)
def test_no_message_has_a_word_of_the_parsers_own(text):
    from sqlglot import TokenType, exp

    with pytest.raises(ParameterError) as refused:
        read(f"SELECT {text}" if "FROM" in text else f"SELECT {text} FROM c", "c")
    said = str(refused.value)
    own = {one.name for one in TokenType if "_" in one.name} | {
        name.upper() for name in dir(exp) if sum(map(str.isupper, name)) > 1 and name != name.upper()
    }
    words = set(re.findall(r"[A-Z_]{3,}", said)) - {"VAR_POP", "QUANTILE_CONT", "GROUP_BY"}
    assert not words & (own | {"STAR", "TUPLE", "BOOLEAN", "DB", "JOINS"}), said
    assert not re.search("Expecting|Unexpected|<class|Token", said)


def test_a_mistyped_function_is_recognised():
    with pytest.raises(ParameterError, match=r"sql: MEDAN is not answered: .*: did you mean MEDIAN\?$"):
        read("SELECT MEDAN(a) FROM c", "c")


def test_a_text_in_the_wrong_quotes_is_recognised():
    with pytest.raises(ParameterError, match=r"a text stands in single quotes$"):
        read('SELECT COUNT(*) FROM c WHERE a = "white"', "c")
