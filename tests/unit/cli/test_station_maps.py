"""`reticent location stations check|plan|cost`, as somebody types them: figures, advice, and bad files."""

import gzip
import re

import numpy as np
import pytest

from reticent.apps.stations import map_work, town
from reticent.location.stations import Queries
from reticent.mechanisms.location import TruncatedLaplace
from reticent.spaces.roads import Stations, csv_map, cut, read_map, reading


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """The invented town: its map, and its stations."""
    return town.write(tmp_path_factory.mktemp("town"))


@pytest.fixture
def run(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *args: command("location", "stations", *map(str, args))


def cells(out):
    """The rows of a table."""
    return [re.split(r"\s*│\s*", line.strip("│ ")) for line in out.splitlines() if line.startswith("│")]


# A map


def test_what_a_map_holds_and_what_noise_on_it_promises(run, there):
    code, out, err = run("check", there[0], "--levels", "5", "--radii", "0.5,1")
    assert code == 0, err
    streets = read_map(there[0])
    roads = cut(streets, 100.0)
    told = dict(row for row in cells(out) if len(row) == 2)
    assert told["one way"] == f"{streets.one_way:.1%} of the length"
    assert told["places"].startswith(f"{roads.size:,}, ")
    assert told["a border costs"].startswith(f"{map_work.up(roads.jump, 3)} km")
    (row,) = [row for row in cells(out) if len(row) == 4]
    for text, radius in zip(row[2:], (0.5, 1.0), strict=True):
        channel = TruncatedLaplace(roads, 5.0, radius, most_delta=1.0)
        usual, delta, reach = re.fullmatch(r"delta ([\d.]+) \(([\d.]+)\), reach (\d+) m", text).groups()
        assert channel.delta <= float(delta) <= channel.delta * 1.01
        assert float(delta) < float(usual) <= 1.0
        assert 990.0 * channel.reach_km <= float(reach) <= 1000.0 * channel.reach_km
    assert "Take the pure channel: no noise that ends" in out
    assert "between them the usual delta is 1" in out
    directed = float(re.search(r"\(([\d.]+)\) would be needed, by street", out)[1])
    assert directed > 3.0 * float(re.search(r"\(([\d.]+)\)", row[2])[1]), "one-way streets are no metric"


def test_advice_is_about_this_map(run, tmp_path):
    """Planted: a map without one-way streets, with an island, and noise whose delta is small enough."""
    (tmp_path / "nodes.csv").write_text(
        "node,lat,lon\n"
        + "".join(f"{n},{45 + n * 1e-3},-30\n" for n in range(20))
        + "x,45.5,-30\ny,45.501,-30\n"
    )
    (tmp_path / "edges.csv").write_text(
        "u,v,length_m\n" + "".join(f"{n},{n + 1},112\n" for n in range(19)) + "x,y,112\n"
    )
    code, out, err = run("check", tmp_path / "edges.csv", "--levels", "0.01,40", "--radii", "2")
    assert code == 0, err
    assert "1 streets that cars cannot reach and leave" in out
    assert "People on an island" in out
    assert "no one-way streets" in out
    assert "or noise that ends at the documents' delta up to 0.01: 40 per km at 2 km." in out
    assert "at 40 per km neighbouring places" in out.lower()


# Stations


def test_costs_are_those_of_the_theorems(run, there, tmp_path):
    roads = cut(read_map(there[0]), 100.0)
    points = roads.points[[3, 3, 400]]
    asked = tmp_path / "asked.csv"
    asked.write_text("lat,lon\n" + "".join(f"{north},{east}\n" for north, east in points))
    code, out, err = run("cost", *there, "--asked-from", asked, "--level", "5,20", "--k", "2")
    assert code == 0, err
    prior = np.zeros(roads.size)
    prior[[3, 400]] = 2.0, 1.0
    where = np.genfromtxt(there[1], delimiter=",", skip_header=1, usecols=(2, 3))
    queries = Queries(Stations.at(roads, *where.T), prior, k=2)
    shown = [(row[2], row[3]) for row in cells(out)]
    due = [queries.pure(level / 2.0) for level in (5.0, 20.0)]
    assert shown == [(f"{one.share_free:.1%}", f"{one.mean_detour:.3g}") for one in due]
    assert "queries from 2 places" in out
    code, out, _ = run("cost", *there, "--asked-from", asked, "--radius", "0.5", "--by", "time")
    assert code == 0
    assert "mean detour, s" in out
    assert "noise that ends at 0.5 km leaves delta" in out
    assert "as usually defined" in out


def test_plans_give_what_is_wanted(run, there):
    code, out, err = run("plan", *there, "--free", "0.8", "--k", "1,3", "--radii", "1")
    assert code == 0, err
    rows = cells(out)
    levels = [float(row[1]) for row in rows]
    assert levels == sorted(levels)
    assert {(row[0], row[2]) for row in rows} == {(c, k) for c in ("pure", "radius 1 km") for k in "13"}
    for row in rows:
        assert float(row[5].rstrip("%")) >= 80.0
        assert (row[3] == "0") == (row[0] == "pure"), "only the pure channel leaves nothing over"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["plan"], "one of free and detour must be given"),
        (["plan", "--free", "0.5", "--detour", "1"], "one of free and detour must be given"),
        (["plan", "--free", "1.5"], "free must be > 0 and <= 1, got 1.5"),
        (["plan", "--free", "0.5", "--k", "0"], "k must be >= 1, got 0"),
        (["plan", "--free", "0.5", "--k", "a"], "k must be numbers with commas between, got 'a'"),
        (["plan", "--detour", "1e-9", "--k", "1"], "no level from 0.05 to 200 per km gives that with k = 1"),
        (["cost", "--level", "-5"], "levels must be > 0 and <= 200, got -5.0"),
        (["cost", "--level", "nan"], "levels must be finite, got nan"),
        (["cost", "--level", ",".join("1" * 17)], "levels must be at most 16 numbers, got 17"),
        (["cost", "--radius", "-1"], "radius must be >= 0, got -1.0"),
        (["cost", "--by", "fuel"], "cost must be one of length, time, got 'fuel'"),
        (["cost", "--horizon", "0.01"], "horizon_km must be >= "),
        (["cost", "--segment", "0"], "segment_m must be >= 1"),
        (["cost", "--metric", "driving"], "metric must be one of street, straight, got 'driving'"),
        (["cost", "--asked-from", "none.csv"], "path must be a file, got none.csv"),
    ],
)  # fmt: skip
def test_options_that_cannot_be(run, there, is_one_error_line, given, told):
    code, out, err = run(given[0], *there, *given[1:])
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert told in err


# Bad files

NODES = "node,lat,lon\na,45.0,-30.0\nb,45.001,-30.0\nc,45.001,-30.001\n"
EDGES = "u,v,length_m\na,b,112\nb,c,80\n"


@pytest.mark.parametrize(
    ("nodes", "edges", "told"),
    [
        (NODES, EDGES + "c,d,90\n", "edges, line 4: v must be a node of the map, got d"),
        (NODES, EDGES + "a,c,-5\n", "edges, line 4: length_m must be >= 0, got -5"),
        (NODES, EDGES + "a,c,nan\n", "edges, line 4: length_m must be a finite number, got nan"),
        (NODES, EDGES + "a,c,1e9\n", "length must be between 0 and 1e+06 m, got 1e+09 from a"),
        ("node,lat,lon\na,-120.0,45.0\nb,-120.0,45.001\n", "u,v,length_m\na,b,80\n",
         "lat must be between -85 and 85, got -120 at node a: are latitude and longitude swapped?"),
        ("node,lat,lon\na,-30.0,45.0\nb,-30.0,45.01\n", "u,v,length_m\na,b,500\n",
         "are latitude and longitude swapped?"),
        ("node,lat,lon\na,45,-30\n", "u,v,length_m\na,a,100\n", "streets must join at least 2 nodes, got 1"),
        ("node,lat,lon\n", "u,v,length_m\n", "must have at least one street that cars may use, got none"),
        ("node,lat,lon\na,40,-30\nb,45,-30\n", "u,v,length_m\na,b,556000\n",
         "latitude must span at most 3 degrees in a map, got 40 to 45"),
        (NODES, "u,v,length_m\na,b,999999\nb,a,999999\n", "at most 1,048,576 places, got 1,999,998"),
        (NODES, "u,v,metres\na,b,1\n", "edges must have the columns u, v, length_m, got no length_m"),
        (NODES + "a,45,-30\n", EDGES, "nodes, line 5: node must be listed once, got a again"),
        (NODES, "u,v,length_m,oneway\na,b,112,yes\nb,c,80,yes\n", "at least 2 places that cars reach"),
    ],
)  # fmt: skip
def test_bad_maps_are_refused_in_one_line(run, is_one_error_line, tmp_path, nodes, edges, told):
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "edges.csv").write_text(edges)
    code, out, err = run("check", tmp_path / "edges.csv", "--segment", "1")
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert told in err


def test_the_map_beside_them_is_fine(run, tmp_path):
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)
    code, out, err = run("check", tmp_path / "edges.csv", "--levels", "5", "--radii", "0.5")
    assert code == 0, err
    assert "3 nodes, 2 streets" in out


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"<graphml><graph>", "GraphML"),
        (b'{"elements": 5}', "a map of Overpass must have a list of elements"),
        (b'{"elements": [{"type": "way", "id": 1, "nodes": [1, 2], "tags": {"highway": "road"}}]}', "node"),
        (gzip.compress(b"u,v,length_m\n" * 1000, mtime=0)[:-9], "must be whole: its gzip data is damaged"),
        (b"\xff\xfe", "must be UTF-8 text"),
    ],
)
def test_bad_files_of_every_kind(run, is_one_error_line, tmp_path, content, told):
    (tmp_path / "nodes").write_text(NODES)
    (tmp_path / "edges").write_bytes(content)
    code, _, err = run("check", tmp_path / "edges")
    assert code == 2, err
    assert is_one_error_line(err)
    assert told in err


def test_what_is_too_large(run, there, is_one_error_line, monkeypatch):
    for module, name, most, told in (
        (csv_map, "MOST_NODES", 100, "nodes must have at most 100 rows, got more"),
        (csv_map, "MOST_STREETS", 100, "edges must have at most 100 rows, got more"),
        (reading, "MOST_BYTES", 1000, "town_edges.csv must unpack to at most 1,000 bytes, got more"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, most)
            code, out, err = run("check", there[0])
        assert (code, out) == (2, "")
        assert is_one_error_line(err)
        assert told in err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("lat,lon\n", "there must be 1 to 16,384 stations, got 0"),
        ("lat,lon\n-30.0,45.0\n", "stations must be within 2 km of a street of the map, got 1 "),
        ("lat,lon\n45.01,-29.99\n-30,45\n", "stations must be within 2 km of a street of the map, got 2 "),
        ("lat,lon\n-122,45\n", "lat must be between -85 and 85, got -122 at station 1: are lat and"),
        ("lat,lon\nnan,45\n", "lat must be between -85 and 85, got nan at station 1"),
        ("lat,lon\n45\n", "row 1 of stations must have 2 cells, got 1"),
        ("latitude,longitude\n45,-30\n", "a CSV of stations must have the column lat"),
        ('[{"id": "A"}]', "Location 'A' must have coordinates"),
        ("{}", "stations in JSON must be a list of OCPI Locations"),
    ],
)  # fmt: skip
def test_bad_stations_are_refused_in_one_line(run, there, is_one_error_line, tmp_path, content, told):
    file = tmp_path / "stations"
    file.write_text(content)
    for given in (["cost", there[0], file], ["plan", there[0], file, "--free", "0.5"]):
        code, out, err = run(*given)
        assert (code, out) == (2, "")
        assert is_one_error_line(err)
        assert told in err
