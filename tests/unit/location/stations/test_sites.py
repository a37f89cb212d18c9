"""Stations in files: what is read, and what is refused with a line that names field, rule and value."""

import gzip
import json

import pytest

from reticent.errors import ParameterError
from reticent.location.stations.sites import MOST_STATIONS, Station, read_stations

LOCATION = {
    "country_code": "BE",
    "id": "LOC1",
    "name": "Gent Zuid",
    "coordinates": {"latitude": "51.047599", "longitude": "3.729944"},
    "evses": [
        {"uid": "3256", "status": "AVAILABLE", "connectors": [{"id": "1"}, {"id": "2"}]},
        {"uid": "3257", "status": "RESERVED"},
        {"uid": "3258", "status": "REMOVED"},
    ],
}


def written(folder, content, name="stations"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_csv(tmp_path):
    text = 'id,Name,lat,lon,connectors\nA,"Mole, north",37.7,-122.4,2\nB,,37.8,-122.5,\n\n'
    found = read_stations(written(tmp_path, text))
    assert found == (
        Station("A", "Mole, north", 37.7, -122.4, 2, 2),
        Station("B", "B", 37.8, -122.5, 1, 1),
    )
    assert read_stations(written(tmp_path, gzip.compress(text.encode()))) == found
    assert read_stations(written(tmp_path, "\ufefflat,lon\n1,2\n"))[0] == Station("1", "1", 1.0, 2.0)


def test_ocpi_counts_what_serves_a_car(tmp_path):
    due = (Station("LOC1", "Gent Zuid", 51.047599, 3.729944, 2, 1),)
    assert read_stations(written(tmp_path, json.dumps([LOCATION]))) == due
    reply = {"data": [LOCATION], "status_code": 1000}
    assert read_stations(written(tmp_path, json.dumps(reply))) == due
    gone = LOCATION | {"id": "LOC2", "evses": [{"uid": "1", "status": "REMOVED"}]}
    assert read_stations(written(tmp_path, json.dumps([gone, LOCATION]))) == due
    silent = {name: LOCATION[name] for name in ("id", "coordinates")}
    assert read_stations(written(tmp_path, json.dumps([silent])))[0].connectors == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "must have the column lat"),
        ("lat,lng\n1,2\n", "must have the column lon"),
        ("lat,lon\n", "1 to 16,384 stations, got 0"),
        ("lat,lon\n-122.4,37.7\n", "lat must be between -85 and 85, got -122.4 at station 1: are"),
        ("lat,lon\nnan,2\n", "lat must be between"),
        ("lat,lon\n1,200\n", "lon must be between -180 and 180, got 200"),
        ("lat,lon\n1,inf\n", "lon must be between"),
        ("lat,lon\nnorth,2\n", "lat must be a number, got 'north' in row 1"),
        ("lat,lon\n1\n", "row 1 of stations must have 2 cells, got 1"),
        ("lat,lon,id\n1,2,a\n1,2,a\n", "id must be that of one station, got 'a' twice"),
        ("lat,lon,connectors\n1,2,-1\n", "connectors must be a whole number, got '-1' in row 1"),
        ("lat,lon,connectors\n1,2,0\n", "connectors must be 1 to 1024"),
        ('lat,lon\n"1,2\n', "must be well formed"),
        (b"lat,lon\n\xff,2\n", "must be UTF-8"),
        ("{", "must be well formed"),
        ("[" * 30 + "]" * 30, "at most 20 deep"),
        ("{}", "must be a list of OCPI Locations"),
        ("[1]", "Location 0 must be an object with an id"),
        (json.dumps([LOCATION | {"coordinates": None}]), "must have coordinates"),
        (json.dumps([LOCATION | {"coordinates": {"latitude": True, "longitude": "1"}}]), "latitude of"),
        (json.dumps([LOCATION | {"evses": [{}]}]), "evses of Location 'LOC1' must be a list of objects"),
        (json.dumps([LOCATION | {"id": "x\ny"}]), "id must be 1 to 80 printable characters"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_in_one_line(tmp_path, content, told):
    with pytest.raises(ParameterError, match=told.replace("(", r"\(")) as refused:
        read_stations(written(tmp_path, content))
    assert "\n" not in str(refused.value)


def test_too_many_and_missing_files(tmp_path):
    rows = "".join(f"1,{number / 1e5}\n" for number in range(MOST_STATIONS + 1))
    with pytest.raises(ParameterError, match="1 to 16,384 stations, got 16,385"):
        read_stations(written(tmp_path, "lat,lon\n" + rows))
    with pytest.raises(ParameterError, match="must be a file that can be read"):
        read_stations(tmp_path / "none")
