"""Whatever a cell holds, Spark gives the code that `Column` gives, fails on none, and drops no row.

The cells are those of `test_prepare`, and what Spark is known to read otherwise than others do.
"""

import datetime as dt
import math
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent.errors import ParameterError, SourceError
from reticent.privacy import Neighbours
from reticent.query.rows import prepare, source
from reticent.query.rows import spark as ours
from reticent.query.rows.columns import Column, Kind

from ..unit.query.test_prepare import (
    DOUBLES,
    EDGES,
    LONG,
    ODD,
    TEXTS,
    TYPED,
    codes,
    data_set,
    expected,
    typed_expected,
)
from .running import MASTER

pytestmark = pytest.mark.usefixtures("spark")

# Ends of lines that Java knows, letters that only Java reads as numbers, what a decimal of 38 digits cannot
# hold, and what SQL or a shell would read.
JAVA = [
    "1\u2028", "2026-01-02\n", "2026-01-02\u2028", "12:30\r", "-3 days\u0085", "yes\u2029", "white\n", "1d",
    "1F", "0x1p3", "+NaN", "1e400", "-1e400", "1e-400", "-0", "-0.0", "9" * 40, "-" + "9" * 39, "1" * 1001,
    "0." + "3" * 50, "1" + "0" * 38, "9223372036854775808", "-9223372036854775809", "\u00a01", "\x0b1\x0c",
    "\x1f1", "\x001", "${env:HOME}", "${spark.app.name}", "\U0001f600", "a" * 999 + "\U0001f600", " " * 2000,
    "\ud7ff", "\ufffd", "white\x00", "\\", "\\u0031", "'", "`", "1L", "1S", "1BD", "infinity ", "\u0130nf",
    "\ufb01", "\u212a", "1e+5", "1E", "1 000", "\u0967", "true\u200b", "2026-1-2", "2026-02-30", "0000-00-00",
    "2026-01-02 10:00:00.123456789", "24:00",
]  # fmt: skip


def written(folder, columns):
    pq.write_table(pa.table(columns), folder / "t.parquet")
    return {"spark": MASTER, "parquet": "t.parquet"}


def drawn(rng, column):
    """A cell near everything that could go wrong with the column."""
    draw = rng.random()
    if draw < 0.1:
        return None
    if draw < 0.45:
        return rng.choice([*JAVA, *ODD, *column.values[:7], *LONG[:3]])
    if draw < 0.6:
        return repr(rng.choice(DOUBLES)) if rng.random() < 0.5 else str(rng.choice(EDGES))
    if draw < 0.85:
        number = rng.choice([f"{rng.uniform(-2000, 2000):.3f}", str(rng.randint(-(1 << 64), 1 << 64)),
                             repr(rng.uniform(-3, 3)), f"{rng.randint(-20, 20) / 2}"])  # fmt: skip
        return rng.choice(["{}", " {} ", "+{}", "{}.", "{}e2", "{}e-3", "{}e999", "{}E1000", "{}_0"]).format(
            number
        )
    letters = [(32, 127), (0x80, 0xD800), (0xE000, 0x110000)]
    return "".join(chr(rng.randrange(*rng.choice(letters))) for _ in range(rng.randrange(12)))


def wrong(folder, many, seed):
    """Cells whose code is another than it must be; how many cells there were."""
    rng = random.Random(seed)
    rows = [tuple(drawn(rng, column) for column in TEXTS) for _ in range(-(-many // len(TEXTS)))]
    given = {"row": list(range(len(rows)))}
    given |= {
        c.name: pa.array(cells, pa.string()) for c, cells in zip(TEXTS, zip(*rows, strict=True), strict=True)
    }
    with source.connect(data_set(source=written(folder, given)), folder) as table:
        found = codes(table)
    assert len(found) == len(rows)
    return [
        (TEXTS[place - 1].name, row[place - 1], one[place], right[place])
        for row, one, right in zip(rows, found, expected(TEXTS, rows), strict=True)
        for place in range(len(one))
        if one[place] != right[place]
    ]


def test_no_hostile_text_has_another_code_or_fails(tmp_path):
    assert wrong(tmp_path, 2_000, 1) == []


@pytest.mark.slow
@pytest.mark.parametrize("many", [20_000])
def test_no_hostile_text_of_twenty_thousand_has_another_code_or_fails(tmp_path, many):
    assert wrong(tmp_path, many, 2) == []


def planted_cells(folder, monkeypatch, name, value):
    monkeypatch.setattr(prepare, name, value)
    return wrong(folder, 1_000, 3)


def test_a_planted_end_of_lines_is_noticed(tmp_path, monkeypatch):
    assert planted_cells(tmp_path, monkeypatch, "_pattern", lambda grammar, engine: grammar)


def test_a_planted_cast_that_cuts_off_is_noticed(tmp_path, monkeypatch):
    assert planted_cells(tmp_path, monkeypatch, "_half_to_even", lambda: lambda number: number)


def test_a_planted_error_of_ansi_is_noticed(tmp_path, monkeypatch):
    """With a plain cast behind the grammar, as for PostgreSQL: 1e400 is no decimal of 38 digits."""
    monkeypatch.setitem(ours._SETTINGS, "spark.sql.ansi.enabled", "true")
    monkeypatch.setattr(prepare, "POSTGRES", "pyspark")
    with pytest.raises(SourceError, match=r"^the data cannot be read$"):
        wrong(tmp_path, 1_000, 3)


# Numbers as they are stored


def typed_rows(rng, many):
    choose = {
        "i64": lambda: rng.choice([rng.choice(EDGES), rng.randint(-(1 << 63), (1 << 63) - 1)]),
        "i32": lambda: rng.choice([rng.randint(-(1 << 31), (1 << 31) - 1), rng.randint(-5, 110)]),
        "f64": lambda: rng.choice([rng.choice(DOUBLES), rng.uniform(-110, 110), rng.randint(-99, 99) / 200]),
        "f32": lambda: float(np.float32(rng.choice([rng.uniform(-110, 110), math.inf, math.nan]))),
        "dec": lambda: Decimal(rng.randint(-(10**11), 10**11)).scaleb(-2),
        "wide": lambda: Decimal(rng.choice([1, -1]) * rng.randrange(10 ** rng.choice([10, 38]))).scaleb(-10),
        "bit": lambda: rng.random() < 0.5,
        "mark": lambda: rng.choice([1, 7, -3, rng.randint(-5, 9)]),
        "truth": lambda: rng.choice([0.0, -0.0, 1.0, 0.5, math.nan]),
    }  # fmt: skip
    return [
        tuple(None if rng.random() < 0.1 else choose[column.name]() for column in TYPED[1:])
        for _ in range(many)
    ]


STORED = {
    "i64": pa.int64(), "i32": pa.int32(), "f64": pa.float64(), "f32": pa.float32(),
    "dec": pa.decimal128(12, 2), "wide": pa.decimal128(38, 10), "bit": pa.bool_(),
    "mark": pa.int16(), "truth": pa.float64(),
}  # fmt: skip


@pytest.mark.parametrize("many", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_stored_numbers(tmp_path, many):
    rows = typed_rows(random.Random(many), many)
    given = {"row": list(range(many))}
    for name, cells in zip([c.name for c in TYPED[1:]], zip(*rows, strict=True), strict=True):
        given[name] = pa.array(cells, STORED[name])
    with source.connect(data_set(TYPED, source=written(tmp_path, given)), tmp_path) as table:
        assert codes(table) == typed_expected(rows)


# Other types


WORD = Column("x", Kind.CATEGORY, values=("f", "2026-01-02", "1677-09-21", "none"))
DAY = dt.datetime(2026, 1, 2, 5)


@pytest.mark.parametrize(
    ("cells", "kind", "said"),
    [
        ([dt.date(2026, 1, 2), dt.date(1, 1, 1), dt.date(1677, 9, 21), None], pa.date32(), [1, 3, 2, 3]),
        ([DAY, dt.datetime(1, 1, 1), None], pa.timestamp("us"), [1, 3, 3]),
        ([DAY, dt.datetime(9999, 12, 31)], pa.timestamp("us", "Europe/Paris"), [1, 3]),
        ([2**62, -(2**62), 2**63 - 1, -(2**63)], pa.timestamp("us"), [3, 3, 3, 3]),
        ([2**31 - 1, -(2**31), 20455], pa.date32(), [3, 3, 1]),
        ([b"f", b"\xff", b"", None], pa.binary(), [0, 3, 3, 3]),
        ([["f"], None], pa.list_(pa.string()), [3, 3]),
        ([{"a": "f"}], pa.struct([("a", pa.string())]), [3]),
        ([[("f", 1)]], pa.map_(pa.string(), pa.int64()), [3]),
        ([None, None], pa.null(), [3, 3]),
    ],
)
def test_days_bytes_and_what_says_nothing(tmp_path, cells, kind, said):
    column = pa.array(cells, pa.int32() if kind == pa.date32() and isinstance(cells[0], int) else
                      pa.int64() if isinstance(cells[0], int) else kind).cast(kind)  # fmt: skip
    row = Column("row", Kind.INTEGER, 0, 100)
    given = written(tmp_path, {"row": list(range(len(cells))), "x": column})
    with source.connect(data_set((row, WORD), source=given), tmp_path) as table:
        assert codes(table) == list(enumerate(said))


@pytest.mark.parametrize(
    "kind",
    [pa.timestamp("ns"), pa.timestamp("ms"), pa.time64("us"), pa.float16(), pa.duration("us"), pa.uuid(),
     pa.decimal256(50, 2)],
)  # fmt: skip
def test_types_that_spark_fails_on_are_refused_by_name(tmp_path, kind):
    given = written(tmp_path, {"x": pa.nulls(2, kind)})
    with pytest.raises(
        ParameterError, match=r"^source.parquet must have types that Spark reads alike, 'x' is "
    ):
        source.connect(data_set((WORD,), source=given), tmp_path)


def test_texts_that_are_no_utf8(tmp_path):
    """A file may say that any bytes are a text: what is none says itself with marks, and is nobody."""
    held = pa.array([b"f", b"f\xff", b"\xc3", b"2026-01-02"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 4, held.buffers())
    given = written(tmp_path, {"row": [0, 1, 2, 3], "x": texts})
    row = Column("row", Kind.INTEGER, 0, 100)
    with source.connect(data_set((row, WORD), source=given), tmp_path) as table:
        assert codes(table) == [(0, 0), (1, 3), (2, 3), (3, 1)]
    options = {"person": "x", "contribution": 9, "relation": Neighbours.ADD_REMOVE_ONE, "rows": None}
    with source.connect(data_set((row,), source=given, **options), tmp_path) as table:
        assert codes(table) == [(0,)]


def test_collations_and_padded_texts(spark, tmp_path):
    spark.sql("DROP TABLE IF EXISTS collated")
    kinds = "x STRING COLLATE UTF8_LCASE, y STRING COLLATE UNICODE_CI, z CHAR(9), w VARCHAR(9)"
    spark.sql(f"CREATE TABLE collated (row INT, {kinds}) USING parquet")
    rows = "(0, 'a', 'a', 'true', 'a '), (1, 'A', 'A', 'f', 'a'), (2, '\u00e1', '\u00e1', NULL, 'A')"
    spark.sql(f"INSERT INTO collated VALUES {rows}")
    x, y, w = (Column(name, Kind.CATEGORY, values=("a", "A", "none")) for name in "xyw")
    columns = (Column("row", Kind.INTEGER, 0, 9), x, y, Column("z", Kind.BOOLEAN), w)
    given = {"spark": MASTER, "table": "collated"}
    with source.connect(data_set(columns, source=given), tmp_path) as table:
        assert codes(table) == [(0, 0, 0, 1, 2), (1, 1, 1, 0, 0), (2, 2, 2, 0, 1)]
    options = {"person": "x", "contribution": 1, "relation": Neighbours.ADD_REMOVE_ONE, "rows": None}
    with source.connect(data_set(columns[:1], source=given, **options), tmp_path) as table:
        assert codes(table) == [(0,), (1,), (2,)]


def test_planted_collations_are_noticed(spark, tmp_path, monkeypatch):
    spark.sql("DROP TABLE IF EXISTS insensitive")
    spark.sql("CREATE TABLE insensitive (x STRING COLLATE UTF8_LCASE) USING parquet")
    spark.sql("INSERT INTO insensitive VALUES ('a'), ('A')")
    column = Column("x", Kind.CATEGORY, values=("a", "A", "none"))
    monkeypatch.setattr(ours, "columns", lambda schema, names: [f"`{name}`" for name in names])
    with source.connect(
        data_set((column,), source={"spark": MASTER, "table": "insensitive"}), tmp_path
    ) as table:
        assert codes(table) == [(0,), (0,)]


def test_a_long_text_fails_nothing(tmp_path):
    given = written(tmp_path, {"x": ["f", "t" * 30_000_000, " " * 5_000_000 + "1", "1" * 5_000_000]})
    with source.connect(data_set((WORD,), source=given), tmp_path) as table:
        assert codes(table) == [(0,), (3,), (3,), (3,)]


def test_moments_as_spark_writes_them(spark, tmp_path):
    """By itself it writes 96 bits, which Arrow takes for nanoseconds."""
    spark.sql("SELECT TIMESTAMP '2026-01-02 05:00:00' AS x").write.mode("overwrite").parquet(
        f"{tmp_path}/rows"
    )
    (part,) = (tmp_path / "rows").glob("*.parquet")
    assert pq.ParquetFile(part).schema.column(0).physical_type == "INT96"
    with source.connect(data_set((WORD,), source={"spark": MASTER, "parquet": "rows"}), tmp_path) as table:
        assert codes(table) == [(1,)]


def test_a_table_over_files_that_spark_fails_on_is_refused(spark, tmp_path):
    """One cell of too many milliseconds would fail every statement, after the charge."""
    (tmp_path / "rows").mkdir()
    given = pa.table({"x": pa.array([2**62], pa.int64()).cast(pa.timestamp("ms")), "y": ["f"]})
    pq.write_table(given, tmp_path / "rows" / "one.parquet")
    spark.sql("DROP TABLE IF EXISTS foreign_files")
    spark.sql(
        f"CREATE TABLE foreign_files (x TIMESTAMP_NTZ, y STRING) USING parquet LOCATION '{tmp_path}/rows'"
    )
    given = {"spark": MASTER, "table": "foreign_files"}
    with pytest.raises(
        ParameterError, match=r"^source.table must have types that Spark reads alike, 'x' is "
    ):
        source.connect(data_set((WORD,), source=given), tmp_path)
    other = Column("y", Kind.CATEGORY, values=("f", "none"))
    with source.connect(data_set((other,), source=given), tmp_path) as table:
        assert codes(table) == [(0,)]
