"""Check-ins of files: every row becomes a cell, and no error is about a row."""

import datetime as dt
import gzip
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent.errors import ParameterError, SourceError
from reticent.location import checkins
from reticent.spaces import Box, Grid
from reticent.tables import records

GRID = Grid.over(Box(48.0, 49.0, 2.0, 4.0), 2, 4)
MIDDLE = 6  # row 1, column 2: where a row goes that says nothing
GOOD = "lat,lon\n48.1,2.1\n48.9,3.9\n"
ODD = [
    ("48.1", MIDDLE),  # a short row
    ("", None),  # an empty line is none
    (",", MIDDLE),
    ("x,y", MIDDLE),
    ("nan,None", MIDDLE),
    ("1e400,-1e400", MIDDLE),  # at a pole all longitudes are one
    ("200,-700", MIDDLE),
    ("2.1,48.1", 3),  # swapped: projected like any other point outside
    ("48.1,2.1,and,more", 0),
    ('"48.1","2.1"', 0),
    ("\udcff\udcfe,\udcfd", MIDDLE),  # no UTF-8
    ("\x00,\x00", MIDDLE),
    ("9" * 200_000 + ",2.1", None),  # a field that the csv module refuses; whatever it is, it is counted
]


def written(tmp_path, text, name="a.csv"):
    path = tmp_path / name
    data = text.encode("utf-8", "surrogateescape")
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "A.CSV"])
def test_cells_of_a_csv(tmp_path, name):
    path = written(tmp_path, "\ufeff" + GOOD, name)
    assert checkins.cells(path, GRID).tolist() == [0, 7]
    assert checkins.histogram(path, GRID).tolist() == [1, 0, 0, 0, 0, 0, 0, 1]


def test_columns_by_name_and_unit(tmp_path):
    path = written(tmp_path, "who,lon_e5,lat_e5\n7,210000,4810000\n")
    found = checkins.cells(path, GRID, latitude="lat_e5", longitude="lon_e5", degrees=1e-5)
    assert found.tolist() == [0]


@pytest.mark.parametrize(("row", "cell"), ODD, ids=lambda value: repr(value)[:12])
def test_no_row_stops_the_reading(tmp_path, row, cell):
    found = checkins.cells(written(tmp_path, GOOD + row + "\n48.1,2.1\n"), GRID)
    assert found[:2].tolist() == [0, 7]
    assert found[-1] == 0
    if cell is not None:
        assert found[2:-1].tolist() == [cell]


def test_a_long_file_is_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "BLOCK", 20)
    path = written(tmp_path, "lat,lon\n" + "48.1,2.1\n" * 10)
    assert checkins.histogram(path, GRID)[0] == 10
    assert checkins.histogram(written(tmp_path, "lat,lon\n"), GRID).sum() == 0


def test_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    broken = pa.array([b"48.1", b"\xff\xfe", None, b"48.9"]).view(pa.string())
    pq.write_table(pa.table({"lat": broken, "lon": [2.1, 2.1, float("inf"), None]}), path)
    assert checkins.cells(path, GRID).tolist() == [0, MIDDLE, MIDDLE, MIDDLE]
    with pytest.raises(ParameterError, match=r"a\.parquet must have a column 'x'"):
        checkins.cells(path, GRID, latitude="x")
    for odd in (True, b"x", [1], dt.date(2026, 1, 2), dt.timedelta(1)):  # one row may decide the type
        pq.write_table(pa.table({"lat": [odd, None], "lon": [2.1, 2.1]}), path)
        assert checkins.cells(path, GRID)[1] == MIDDLE
    path.write_bytes(b"PAR1 48.8566 PAR1")
    with pytest.raises(SourceError, match=r"a\.parquet cannot be read to its end") as refused:
        checkins.cells(path, GRID)
    assert "48.8566" not in str(refused.value)


def refusal(path, **columns):
    with pytest.raises((ParameterError, SourceError)) as refused:
        checkins.cells(path, GRID, **columns)
    return str(refused.value)


def test_errors_are_about_the_file(tmp_path):
    assert "path must be a file" in refusal(tmp_path / "none.csv")
    assert "path must end in .csv, .csv.gz, .parquet, got a.txt" in refusal(tmp_path / "a.txt")
    assert refusal(written(tmp_path, GOOD), longitude="x") == "a.csv must have a column 'x'"
    assert "degrees must be > 0" in refusal(written(tmp_path, GOOD), degrees=0.0)
    whole = written(tmp_path, GOOD, "a.csv.gz")
    whole.write_bytes(whole.read_bytes()[:-9])
    assert (
        refusal(whole)
        == "a.csv.gz must be whole: its gzip data is damaged, cut off or followed by something else"
    )


def quotes(message, position="48.8566"):
    """Whether an error tells a position; the check of the next two."""
    return position in message


def test_a_file_without_a_header_is_not_quoted(tmp_path):
    assert not quotes(refusal(written(tmp_path, "48.8566,2.3522\n")))


def test_planted_an_error_that_lists_the_columns_is_seen(tmp_path, monkeypatch):
    def listing(names, *_):
        raise ParameterError(f"columns must be some of {', '.join(names)}")

    monkeypatch.setattr(checkins, "_check_names", listing)
    assert quotes(refusal(written(tmp_path, "48.8566,2.3522\n")))


def test_planted_dropping_odd_rows_is_seen(tmp_path, monkeypatch):
    """Whether a check-in counts would depend on where it is."""
    text = GOOD + "x,y\n"
    assert checkins.histogram(written(tmp_path, text), GRID).sum() == 3
    kept = checkins._batches

    def dropping(*given):
        return (batch.filter(pa.compute.not_equal(batch.column(0), "x")) for batch in kept(*given))

    monkeypatch.setattr(checkins, "_batches", dropping)
    assert checkins.histogram(written(tmp_path, text), GRID).sum() != 3


def test_one_odd_check_in_leaves_the_others_where_they_are(tmp_path):
    """Whatever type it makes of their columns, and however many lines its text seems to have."""
    others = [48.1, 48.9]
    for odd in (None, "x", "a\rb\r1,2\r", 5, True, Decimal("48.125"), dt.date(2026, 1, 2), b"48", [1], 2**60):
        frame = pd.DataFrame({"lat": [*others, odd], "lon": [2.1, 3.9, 2.0], "who": ["me", "you", odd]})
        frame.to_csv(tmp_path / "a.csv", index=False, lineterminator="\n")
        found = checkins.cells(tmp_path / "a.csv", GRID)
        assert (found[:2].tolist(), found.size) == ([0, 7], 3), odd
        try:
            table = pa.table({"lat": [*others, odd], "lon": [2.1, 3.9, 2.0]})
        except pa.ArrowException:
            continue
        pq.write_table(table, tmp_path / "a.parquet")
        assert checkins.cells(tmp_path / "a.parquet", GRID)[:2].tolist() == [0, 7], odd


def test_cells_are_numbers_of_cells(tmp_path):
    assert checkins.cells(written(tmp_path, GOOD), GRID).dtype == np.int64
