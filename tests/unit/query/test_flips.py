"""T4 with flips of storage: one row that changes how its column is stored changes no other row's code.

A column has cells of one kind, and one odd cell: what pandas, numpy, Arrow, DuckDB, `csv` and
`DataFrame.to_sql` then make of the column differs from what they make of it without. Every other row must
keep the code that `Column` gives it, and no question may move further than declared. A pair is a column with
and without its odd cell.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import random
import sys
from decimal import Decimal
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

from reticent.errors import ParameterError
from reticent.privacy import Neighbours
from reticent.query import Column, DataSet, Kind
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.measure import plan
from reticent.query.rows import prepare
from reticent.query.rows.source import connect

from . import writers
from .tables import BUDGET
from .test_prepare import MOMENTS, meaning, reference

pytestmark = [
    pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning"),
]

ROWS = 7
ROW = Column("row", Kind.INTEGER, low=0, high=ROWS)
DAY, LATER = dt.date(2026, 1, 2), dt.date(2026, 1, 3)
PARIS = dt.timezone(dt.timedelta(hours=1))
BIG = 2**53 + 1
# Of each kind: what is declared, and the cells that a column has.
KINDS = {
    "grades": (Kind.CATEGORY, {"values": ("1", "2", "3", "none")}, [1, 2, 3, 4]),
    "spelled": (Kind.CATEGORY, {"values": ("01", "02", "x", "none")}, [1, 2]),
    "shares": (Kind.CATEGORY, {"values": ("0.1", "2.5", "none")}, [0.1, 2.5, 7.0]),
    "prices": (Kind.CATEGORY, {"values": ("1.10", "2.5", "none")}, [Decimal("1.10"), Decimal("2.50")]),
    "ids": (Kind.CATEGORY, {"values": (str(BIG), "5", "none")}, [BIG, 5, 2**60]),
    "truths": (Kind.CATEGORY, {"values": ("True", "maybe", "False", "none")}, [True, False]),
    "words": (Kind.CATEGORY, {"values": ("f", "m", "none")}, ["f", "m", "z"]),
    "letters": (Kind.CATEGORY, {"values": ("f", "m", "none")}, ["f"]),
    "days": (Kind.CATEGORY, {"values": ("2026-01-02", "none")}, [DAY, LATER]),
    "times": (Kind.CATEGORY, {"values": ("2026-01-02 00:00:00", "none")},
              [dt.datetime(2026, 1, 2), dt.datetime(2026, 1, 2, 5), dt.datetime(2026, 1, 3)]),
    "many": (Kind.CATEGORY, {"values": tuple(map(str, range(90)))}, [1, 80, 99]),
    "flags": (Kind.BOOLEAN, {}, [True, False]),
    "bits": (Kind.BOOLEAN, {"missing": True}, [1, 0]),
    "counts": (Kind.INTEGER, {"low": 0, "high": 5}, [0, 3, 5, 9]),
    "wholes": (Kind.NUMBER, {"low": -(2.0**62), "high": 2.0**62, "step": 2.0**33}, [BIG + 2**20, -5, 2**61]),
    "cents": (Kind.NUMBER, {"low": -1, "high": 1, "step": 0.01}, [0.005, 0.57, -0.3, 0.0]),
    "sums": (Kind.NUMBER, {"low": -1, "high": 1, "step": 0.01}, [Decimal("0.005"), Decimal("0.57")]),
    "truth numbers": (Kind.NUMBER, {"low": 0, "high": 2, "step": 0.25}, [True, False]),
}  # fmt: skip
ODD = [
    None, 1.5, 7, -0.0, 0, True, "x", "", "nan", "1e400", "a\rb", "a\nb,c", '"', "01", "true", float("nan"),
    float("inf"), 2**53 + 1, 2**64, 10**30, Decimal("1.005"), Decimal("1e-30"), Decimal("1e30"), DAY,
    dt.datetime(2026, 1, 2, 5, 0, 0, 500_000), dt.datetime(2026, 1, 2, 5, tzinfo=PARIS), dt.time(12, 30, 1),
    dt.timedelta(hours=30), b"f", b"\xff", [1, 2], {"a": 1}, 1j, UUID(int=5), np.float32(0.1), np.int8(3),
    np.datetime64("2026-01-02T05"), pd.Timestamp("2026-01-02 05:00:00.000000001"), pd.NaT, pd.NA,
    "2026-01-02", "12:30", 1e300, 5e-324, "ü", "0x10", "1_0", " 1 ",
]  # fmt: skip


def column(kind, name):
    return Column(name, KINDS[kind][0], **KINDS[kind][1])


class Table:
    """A column of each kind with cells of this kind, and the same with one odd cell each."""

    def __init__(self, rng):
        kinds = rng.sample(list(KINDS), 6)
        self.columns = tuple(column(kind, f"c {kind}") for kind in kinds)
        self.row = rng.randrange(ROWS)
        numbers = list(range(ROWS))
        self.plain, self.odd = {"row": numbers}, {"row": numbers}
        for one, kind in zip(self.columns, kinds, strict=True):
            some = [None] if rng.random() < 0.2 else []  # so that all others may be missing
            cells = rng.choices(some or KINDS[kind][2], k=ROWS)
            self.plain[one.name] = [*cells[: self.row], rng.choice(KINDS[kind][2]), *cells[self.row + 1 :]]
            self.odd[one.name] = [*cells[: self.row], rng.choice(ODD), *cells[self.row + 1 :]]
        self.data = DataSet("flips", "1", (ROW, *self.columns), BUDGET, rows=ROWS)

    def expected(self, number):
        return tuple(reference(one, plain_cell(self.plain[one.name][number])) for one in self.columns)


def plain_cell(cell):
    return cell.isoformat() if isinstance(cell, dt.date) else cell


def opened(data, written, folder):
    frame = written.pop("frame", None)
    return connect(dataclasses.replace(data, source=written), folder, frame=frame)


def read(data, written, folder, plans=()):
    """The codes of each row, by its number, and the vectors."""
    with opened(data, written, folder) as rows:
        found = {row[0]: row[1:] for row in rows.tally(f"SELECT * FROM {rows.relation}")}
        return found, [one.vector(rows) for one in plans]


def asked(data):
    """A question about each column."""
    made = []
    for one in data.columns[1:]:
        if one.kind is Kind.CATEGORY:
            made.append(tree.histogram(one.name))
        else:
            made += [tree.total(one.name), tree.variance(one.name)]
    return [plan(resolve(query, data)) for query in made]


def check(write, folder, pairs, seed):
    """Rows but the odd one that have another code, and the largest step of a question / declared, squared."""
    rng, wrong, largest, done = random.Random(seed), [], 0.0, 0
    while done < pairs:
        table = Table(rng)
        plans = asked(table.data)
        (before, first), (after, second) = (
            read(table.data, write(cells, folder), folder, plans) for cells in (table.plain, table.odd)
        )
        assert sorted(before) == sorted(after) == list(range(ROWS))
        for number in range(ROWS):
            for place, code in enumerate(table.expected(number)):
                name = table.columns[place].name
                if before[number][place] != code:
                    wrong.append((name, table.plain[name], number))
                if number != table.row and after[number][place] != code:
                    wrong.append((name, table.odd[name], number))
        for one, *both in zip(plans, first, second, strict=True):
            squared = sum((a - b) ** 2 for a, b in zip(*both, strict=True))
            largest = max(largest, squared / one.sensitivity**2)
        done += len(table.columns)
    return wrong, largest


ALL = pytest.mark.parametrize("write", [*writers.WRITERS, "postgresql"])


@pytest.fixture
def written(write, request):
    """The writer of that name."""
    if write != "postgresql":
        return writers.WRITERS[write]
    server = request.getfixturevalue("server")
    return lambda cells, _: writers.postgresql(cells, server, "flips")


@ALL
def test_no_odd_cell_changes_another_row(written, tmp_path, write):
    assert check(written, tmp_path, 6, write) == ([], Within(1))


@ALL
@pytest.mark.slow
def test_no_odd_cell_of_ten_thousand_changes_another_row(written, tmp_path, write):
    """15 writers, 10,000 pairs in all."""
    assert check(written, tmp_path, 670, f"all {write}") == ([], Within(1))


class Within:
    """Whatever is at most so much."""

    def __init__(self, most):
        self.most = most

    def __eq__(self, other):
        return other <= self.most

    __hash__ = None


# Persons: who is the same person does not follow from the other rows either

NOON, EVENING = dt.datetime(2026, 1, 2, 12), dt.datetime(2026, 1, 2, 20)
IDS = {
    "numbers": [1, 2, 3],
    "most": [BIG - 2, 2 - BIG, BIG - 3],
    "large": [BIG, BIG - 1, 2**60, 2**60 + 1],
    "doubles": [1.5, 0.1, -0.0],
    "texts": ["a", "b", "01", "1"],
    "truths": [True, False],
    "days": [DAY, LATER],
    "decimals": [Decimal("1.10"), Decimal("2")],
}


def person(cell):
    """Whose a cell is, in Python and by itself; None for nobody's."""
    said = meaning(plain_cell(cell))
    if isinstance(said, float):
        return int(said) if abs(said) < 2**53 and said == int(said) else None
    is_moment = said is not None and any(one.fullmatch(said) for one in MOMENTS)
    return None if is_moment else said


def least_rows(persons):
    """The first row of each person, by what their cells say."""
    first = {}
    for number, cell in enumerate(persons):
        first.setdefault(person(cell), number)
    return sorted(number for one, number in first.items() if one is not None)


def check_persons(write, folder, pairs, seed):
    """Pairs in which a row of another person than the odd one comes or goes."""
    columns = (Column("row", Kind.INTEGER, low=0, high=ROWS),)
    data = DataSet(
        "flips", "1", columns, BUDGET, relation=Neighbours.ADD_REMOVE_ONE, person="who", contribution=1
    )
    rng, wrong = random.Random(seed), []
    for _ in range(pairs):
        others = rng.choices(IDS[rng.choice(list(IDS))], k=ROWS - 1)
        for last in (others[0], rng.choice(ODD)):  # the last row is left out by whoever has another
            cells = {"row": list(range(ROWS)), "who": [*others, last]}
            found, _ = read(data, write(cells, folder), folder)
            if sorted(set(found) - {ROWS - 1}) != least_rows(others):
                wrong.append(cells["who"])
    return wrong


@ALL
def test_no_odd_person_changes_another(written, tmp_path, write):
    assert check_persons(written, tmp_path, 2, write) == []


@ALL
@pytest.mark.slow
def test_no_odd_person_of_a_thousand_changes_another(written, tmp_path, write):
    assert check_persons(written, tmp_path, 67, f"all {write}") == []


# Persons whose cells storage may join: each alone moves no answer further than declared

JOINED = {
    "large": [BIG, BIG - 1, 2**60, 2**60 + 1],
    "missing": [None, None, float("nan"), None],
    "moments": [NOON, EVENING, DAY, dt.datetime(2026, 1, 2, 12, 0, 1)],
    "long": [Decimal(f"0.1234567890123456789{last}") for last in range(4)],
    "words": ["a", "b", "c", "d"],
    "numbers": [1, 2, 3, BIG - 2],
}
STEPS = (Column("x", Kind.INTEGER, low=-5, high=5), Column("g", Kind.BOOLEAN))


def rows_of(rng, who, most):
    """Rows of a person, mostly the same over and over."""
    x, g = rng.choice((-5, 5)), rng.random() < 0.5
    again = rng.random() < 0.7
    return [
        (who, *((x, g) if again else (rng.choice((-5, 0, 5)), rng.random() < 0.5)))
        for _ in range(rng.randint(1, most))
    ]


def neighbours(rng, relation, bound):
    """Two tables that differ in one person: all of their rows, and whose they are."""
    cells = list(JOINED[rng.choice(list(JOINED))])
    rng.shuffle(cells)
    first, second, *others = cells
    stay = [row for who in others for row in rows_of(rng, who, bound + 1)]
    if rng.random() < 0.3:
        second = rng.choice(ODD)  # which changes how all are stored
    with_one = stay + rows_of(rng, first, bound + 1)
    other = stay if relation is Neighbours.ADD_REMOVE_ONE else stay + rows_of(rng, second, bound + 1)
    return [dict(zip(("who", "x", "g"), map(list, zip(*rows, strict=True)), strict=True))
            for rows in (with_one, other)]  # fmt: skip


def largest_step(write, folder, pairs, seed):
    """The largest step of a question / declared, squared."""
    rng, largest = random.Random(seed), 0.0
    for number in range(pairs):
        relation = (Neighbours.ADD_REMOVE_ONE, Neighbours.REPLACE_ONE)[number % 2]
        bound = rng.randint(1, 3)
        data = DataSet("steps", "1", STEPS, BUDGET, relation=relation, person="who", contribution=bound)
        made = [tree.count(), tree.total("x"), tree.mean("x"), tree.total("x", by="g"), tree.histogram("g")]
        plans = [plan(resolve(query, data)) for query in made]
        both = [
            vectors(data, write(cells, folder), folder, plans) for cells in neighbours(rng, relation, bound)
        ]
        for one, *pair in zip(plans, *both, strict=True):
            squared = sum((a - b) ** 2 for a, b in zip(*pair, strict=True))
            largest = max(largest, squared / one.sensitivity**2)
    return largest


def worst_step(folder, first, second):
    """The largest step of the sum of a row each, exactly: of the second person, who comes or goes."""
    data = DataSet("steps", "1", STEPS, BUDGET, relation=Neighbours.ADD_REMOVE_ONE, person="who")
    total, largest = plan(resolve(tree.total("x"), data)), 0.0
    for stays, comes in itertools.product((-5, 5), repeat=2):
        tables = ({"who": [first], "x": [stays], "g": [True]},
                  {"who": [first, second], "x": [stays, comes], "g": [True, True]})  # fmt: skip
        (((one,),), ((other,),)) = (
            vectors(data, writers.objects(cells, folder), folder, [total]) for cells in tables
        )
        largest = max(largest, (one - other) ** 2 / total.sensitivity**2)
    return largest


def vectors(data, written, folder, plans):
    with opened(data, written, folder) as rows:
        return [one.vector(rows) for one in plans]


@ALL
def test_one_person_of_several_in_a_cell_moves_answers_as_declared(written, tmp_path, write):
    assert largest_step(written, tmp_path, 2, write) == Within(1)


@ALL
@pytest.mark.slow
def test_one_person_in_a_thousand_pairs_moves_answers_as_declared(written, tmp_path, write):
    assert largest_step(written, tmp_path, 67, f"all {write}") == Within(1)


@pytest.mark.parametrize(
    ("ids", "persons"),
    [*((ids, len(ids) if name in ("words", "numbers") else 0) for name, ids in JOINED.items()),
     ([b"M\xfcller", b"M\xf6ller", b"Maier"], 1), (["M\udcfcller", "M\udcf6ller", "M?ller"], 1)],
)  # fmt: skip
def test_persons_whose_cells_may_be_anybodys_do_not_count(ids, persons, tmp_path):
    data = DataSet(
        "steps", "1", STEPS, BUDGET, relation=Neighbours.ADD_REMOVE_ONE, person="who", contribution=9
    )
    counting = plan(resolve(tree.count(), data))
    forms = [{"frame": pd.DataFrame({"who": pd.Series(ids, dtype=object), "x": 1, "g": True})}]
    if isinstance(ids[0], bytes):  # of a file that is not in UTF-8
        (tmp_path / "rows.csv").write_bytes(b"who,x,g\n" + b"".join(one + b",1,1\n" for one in ids))
        forms.append({"csv": "rows.csv"})
    for form in forms:
        (((count,),)) = vectors(data, form, tmp_path, [counting])
        assert count >> counting.shift == persons


# Planted: what was there before, and what an engine would do by itself


def by_storage(field, column, number, engine):
    """A category is the text that the engine writes of its type."""
    if column.kind is not Kind.CATEGORY:
        return REAL_READ(field, column, number, engine)
    return {f"t{number}": field.cast("string")}


REAL_READ = prepare._read


def test_a_planted_cast_of_the_storage_is_noticed(monkeypatch, tmp_path):
    monkeypatch.setattr(prepare, "_read", by_storage)
    wrong, largest = check(writers.pandas, tmp_path, 24, 1)
    assert wrong
    assert largest > 1


def test_a_planted_exact_whole_number_is_noticed(monkeypatch, tmp_path):
    """Ids that are compared as they are stored: doubles make one person of two."""
    real = prepare._stored
    exact = lambda number, engine: number if number.type().is_integer() else real(number, engine)  # noqa: E731
    monkeypatch.setattr(prepare, "_stored", exact)
    monkeypatch.setattr(prepare, "_key", lambda table: table.person_x)
    monkeypatch.setattr(sys.modules[__name__], "IDS", {"large": IDS["large"]})
    assert check_persons(writers.pandas, tmp_path, 12, 1)


def test_the_worst_step_of_a_sum_is_the_declared_one(tmp_path):
    assert worst_step(tmp_path, "a", "b") == worst_step(tmp_path, 1, BIG - 2) == 1
    assert worst_step(tmp_path, BIG, BIG - 1) == worst_step(tmp_path, None, None) == 0
    assert worst_step(tmp_path, BIG, "b") == 1


def test_planted_persons_that_share_a_double_are_noticed(monkeypatch, tmp_path):
    """As it was: bounded together, one of them moves a sum by twice what is declared, for 4 times mu^2."""
    monkeypatch.setattr(prepare, "_key", lambda table: table.person_x.coalesce(0.0))
    assert worst_step(tmp_path, BIG, BIG - 1) == worst_step(tmp_path, None, None) == 4


def test_a_planted_refusal_of_a_type_is_noticed(monkeypatch, tmp_path):
    """One person's moment is enough to be told from another where all others are missing."""

    def refusing(field, engine):
        if field.type().is_temporal():
            raise ParameterError("columns.x.type must fit the source")
        return text(field, engine)

    text = prepare._text
    data = DataSet("flips", "1", (column("counts", "x"),), BUDGET, rows=2)
    tables = [{"x": [None, odd]} for odd in (5.0, dt.datetime(2026, 1, 2))]
    assert [len(read(data, writers.pandas(one, tmp_path), tmp_path)[0]) for one in tables] == [2, 1]
    monkeypatch.setattr(prepare, "_text", refusing)
    read(data, writers.pandas(tables[0], tmp_path), tmp_path)
    with pytest.raises(ParameterError):
        read(data, writers.pandas(tables[1], tmp_path), tmp_path)
