"""Cells by arithmetic and by bisection are those that the cuts define, on either engine, for every code."""

import itertools
import random
from bisect import bisect_right
from collections import Counter

import duckdb
import psycopg
import pytest

from reticent.query import By, Column, DataSet, Kind
from reticent.query.kinds.listed import Measured
from reticent.query.language import tree
from reticent.query.language.questions import Grouping, Question, even_cuts, resolve
from reticent.query.measure import plan, statement
from reticent.query.rows import bins
from reticent.query.rows.bins import Line, line

from .tables import BUDGET

LARGEST = 1 << 31
INSERT = "INSERT INTO codes SELECT code, code FROM (SELECT unnest($1) AS code)"
QUICK, FULL = 60, 3000  # random groupings


def data_set(columns):
    return DataSet("d", "1", columns, BUDGET, rows=1)


def defined(code, cuts):
    """The definition: how many cuts are at or below the code."""
    return bisect_right(cuts, code)


class Held:
    """Codes in a table of an engine."""

    relation = "codes"

    def __init__(self, engine, run, fill):
        self.engine, self._run, self._fill = engine, run, fill
        self.names = {"one": "c0", "other": "c1"}

    def hold(self, codes):
        self._run("DELETE FROM codes")
        self._fill(list(codes))

    def tally(self, sql):
        return self._run(sql)


@pytest.fixture(params=["TINYINT", "INTEGER", "BIGINT", "postgresql"])
def held(request):
    """A table of two columns in the types that snapshots, frames and servers have."""
    if request.param != "postgresql":
        connection = duckdb.connect()
        connection.execute(f"CREATE TABLE codes (c0 {request.param}, c1 BIGINT)")
        made = Held("duckdb", lambda sql: connection.execute(sql).fetchall(),
                    lambda rows: connection.execute(INSERT, [rows]))  # fmt: skip
        made.low, made.high = (-128, 127) if request.param == "TINYINT" else (-LARGEST, LARGEST - 1)
        yield made
        return
    with psycopg.connect(request.getfixturevalue("server"), autocommit=True) as connection:
        connection.execute("CREATE TEMP TABLE codes (c0 BIGINT, c1 BIGINT)")

        def run(sql):
            found = connection.execute(sql)
            return found.fetchall() if found.description else []

        def fill(rows):
            with connection.cursor().copy("COPY codes FROM STDIN") as copy:
                for code in rows:
                    copy.write_row((code, code))

        made = Held("postgres", run, fill)
        made.low, made.high = -LARGEST, LARGEST
        yield made


def counted(found):
    return {int(cell): int(count) for cell, count, *_ in found}


def column(first, last, name="one"):
    return Column(name, Kind.INTEGER, low=first, high=last)


def a_column(rng, low, high):
    width = rng.choice([1, 2, 6, 60, 1000, high - low])
    first = rng.randint(low, max(low, high - width))
    return column(first, min(high, first + max(1, width)))


def some_cuts(rng, one):
    """Even bins, edges at equal distances, and edges as they come."""
    codes = one.last - one.first
    size = rng.choice([1, 2, 3, 10, 64, 65, 66, 300])
    kind = rng.randrange(3)
    if kind == 0:
        return even_cuts(one, size + 1)
    if kind == 1:
        step = rng.randint(1, max(1, codes // (size + 1)))
        start = rng.randint(one.first + 1, one.last)
        return tuple(range(start, one.last + 1, step))[:size]
    return tuple(sorted({rng.randint(one.first + 1, one.last) for _ in range(size)}))


def telling(rng, one, cuts):
    """Codes at and beside cuts, at the ends, and anywhere."""
    near = [cut + d for cut in rng.sample(cuts, min(60, len(cuts))) for d in (-1, 0, 1)]
    near += [rng.randint(one.first, one.last) for _ in range(40)] + [one.first, one.last]
    return [code for code in near if one.first <= code <= one.last]


def asked(one, cuts, by=None):
    data = data_set((one, column(-LARGEST, LARGEST, "other")))
    by = by or (Grouping("one", tuple(cuts), len(cuts) + 1),)
    return Question(Measured.COUNT, None, True, True, by, data)


def agrees(held, rounds, seed):
    rng = random.Random(seed)
    for _ in range(rounds):
        one = a_column(rng, held.low, held.high)
        cuts = some_cuts(rng, one)
        codes = telling(rng, one, cuts)
        held.hold(codes)
        found = counted(held.tally(statement(asked(one, cuts), held)))
        if found != Counter(defined(code, cuts) for code in codes):
            return False
    return True


def test_cells_are_those_of_the_definition(held):
    assert agrees(held, QUICK, 1)


@pytest.mark.slow
def test_cells_are_those_of_the_definition_often(held):
    assert agrees(held, FULL, 2)


def test_two_groupings_are_two_digits(held):
    rng = random.Random(3)
    one, cuts = column(-100, 100), tuple(sorted(rng.sample(range(-99, 101), 70)))
    others = tuple(sorted(rng.sample(range(-99, 101), 80)))
    codes = range(-100, 101)
    held.hold(codes)
    by = (Grouping("one", cuts, 71), Grouping("other", others, 81))
    found = counted(held.tally(statement(asked(one, cuts, by), held)))
    assert found == Counter(defined(code, cuts) * 81 + defined(code, others) for code in codes)


# Planted: formulas that are off by one code somewhere


PLANTED = {
    "floor of each edge": lambda one, n: Line(n, -one.first * n, one.last - one.first),
    "one code late": lambda one, n: Line(n, -(one.first + 1) * n, one.last - one.first + 1),
    "width rounded first": lambda one, n: Line(1, -one.first, max(1, (one.last - one.first + 1) // n)),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_line_is_noticed(held, monkeypatch, name):
    true = line
    monkeypatch.setattr(bins, "line", lambda one, cuts: true(one, cuts) and PLANTED[name](one, len(cuts) + 1))
    assert not agrees(held, QUICK, 1)


def test_a_planted_bisection_is_noticed(held, monkeypatch):
    """Cuts strictly below the code, instead of at or below it."""
    true = bins._listed
    monkeypatch.setattr(bins, "_listed", lambda cuts: true([cut + 1 for cut in cuts]))
    assert not agrees(held, QUICK, 1)


# What is a line


@pytest.mark.parametrize(("first", "last", "size"), [(0, 10, 3), (-7, 993, 64), (-LARGEST, LARGEST, 1 << 16)])
def test_equal_bins_are_a_line_through_the_codes(first, last, size):
    one = column(first, last)
    cuts = even_cuts(one, size)
    found = line(one, cuts)
    assert found is not None
    for code in itertools.chain(cuts, (cut - 1 for cut in cuts), (first, last)):
        assert (found.factor * code + found.offset) // found.divisor == defined(code, cuts)
    assert (found.factor * last + found.offset).bit_length() <= 49, "doubles hold it"


def test_equal_steps_are_a_line_and_others_are_not():
    one = column(0, 1000)
    assert line(one, (10, 20, 30)) == Line(1, 0, 10)
    assert line(one, (5,)) == Line(1, -4, 1)
    assert line(one, (10, 20, 31)) is None
    assert line(one, (1, 3, 4)) is None


# Size


def longest(query, data):
    made = plan(resolve(query, data))
    rows = Held("duckdb", None, None)
    rows.names = {"x": "c0"}
    return len(statement(made.question, rows))


def test_a_statement_of_equal_bins_does_not_grow_with_them():
    data = data_set((Column("x", Kind.NUMBER, low=0, high=1e6, step=1),))
    few, many = (longest(tree.histogram(By("x", bins=size)), data) for size in (4, 1 << 16))
    assert many < few + 50


def test_a_statement_of_irregular_bins_holds_each_cut_once():
    data = data_set((Column("x", Kind.NUMBER, low=0, high=1e6, step=1),))
    edges = tuple(float(one * one) for one in range(1, 1000))
    assert longest(tree.histogram(By("x", edges=edges)), data) < 8 * len(edges) + 3000
