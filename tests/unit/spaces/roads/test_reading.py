"""One small town in four kinds of files says the same; what is no map is refused by field, rule and value."""

import gzip
import json

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.spaces.roads import Street, cut, read_map
from reticent.spaces.roads import reading as reading_module
from reticent.spaces.roads.maps import RoadMap
from reticent.spaces.roads.tags import directions, is_for_cars, kmh

NODES = (
    "node,lat,lon\na,37.70,-122.50\nb,37.70,-122.499\nc,37.701,-122.499\nd,37.701,-122.50\nz,37.8,-122.3\n"
)
EDGES = (
    "edge,u,v,length_m,geometry,oneway,highway,access,maxspeed\n"
    "1,a,b,90,37.70 -122.50;37.70 -122.499,,residential,,30\n"
    "2,b,c,115,,yes,primary,,30 mph\n"
    "3,c,d,90,,-1,service,,\n"
    "4,d,a,115,,no,tertiary,,\n"
    "5,a,c,150,,,footway,,\n"
    "6,b,d,150,,,residential,private,\n"
    "7,a,b,200,37.70 -122.50;37.6995 -122.4995;37.70 -122.499,,residential,,\n"
)


def csv_files(folder, nodes=NODES, edges=EDGES):
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return folder / "edges.csv"


def graphml(edges, nodes=None, kind="directed", head="<?xml version='1.0' encoding='utf-8'?>\n"):
    keys = ["y", "x", "osmid", "highway", "oneway", "length", "geometry", "maxspeed", "reversed", "junction"]
    said = "".join(
        f'<key id="d{i}" for="all" attr.name="{key}" attr.type="string" />' for i, key in enumerate(keys)
    )
    nodes = nodes or {"1": (37.70, -122.50), "2": (37.70, -122.499), "3": (37.701, -122.499)}
    body = "".join(
        f'<node id="{n}"><data key="d0">{y}</data><data key="d1">{x}</data></node>'
        for n, (y, x) in nodes.items()
    )
    for start, end, data in edges:
        inner = "".join(f'<data key="d{keys.index(k)}">{v}</data>' for k, v in data.items())
        body += f'<edge source="{start}" target="{end}" id="0">{inner}</edge>'
    return (
        f'{head}<graphml xmlns="http://graphml.graphdrawing.org/xmlns">{said}'
        f'<graph edgedefault="{kind}">{body}</graph></graphml>'
    )


TOWN = [
    ("1", "2", {"osmid": "7", "length": "90.0", "oneway": "False", "reversed": "False"}),
    ("2", "1", {"osmid": "7", "length": "90.0", "oneway": "False", "reversed": "True"}),
    ("2", "3", {"osmid": "[8, 9]", "length": "115", "oneway": "True", "maxspeed": "['25 mph', '35 mph']"}),
    (
        "3",
        "1",
        {
            "osmid": "10",
            "length": "150",
            "oneway": "True",
            "highway": "tertiary",
            "geometry": "LINESTRING (-122.499 37.701, -122.4995 37.7004, -122.5 37.7)",
        },
    ),
    ("1", "3", {"osmid": "11", "length": "150", "highway": "footway"}),
]


def overpass(ways, nodes=()):
    return json.dumps({"version": 0.6, "elements": [*nodes, *ways]})


def node(name, lat, lon):
    return {"type": "node", "id": name, "lat": lat, "lon": lon}


def way(name, nodes, **tags):
    return {"type": "way", "id": name, "nodes": nodes, "tags": {"highway": "residential"} | tags}


CROSS = [
    node(1, 37.70, -122.50),
    node(2, 37.70, -122.499),
    node(3, 37.70, -122.498),
    node(4, 37.701, -122.499),
    node(5, 37.699, -122.499),
]


def written(folder, text, name="map"):
    path = folder / name
    path.write_text(text)
    return path


def test_csv(tmp_path):
    town = read_map(csv_files(tmp_path))
    assert town.metres.tolist() == [90, 115, 90, 115, 200]
    assert town.told == {"closed": 2}
    assert list(zip(town.forward.tolist(), town.backward.tolist(), strict=True)) == [
        (True, True),
        (True, False),
        (False, True),
        (True, True),
        (True, True),
    ]
    assert town.kmh.tolist() == [30.0, pytest.approx(48.28032), 20.0, 50.0, 30.0]
    assert town.one_way == pytest.approx((115 + 90) / 610)
    assert town.lines[4].shape == (3, 2)


def test_gzip_is_the_same(tmp_path):
    plain = read_map(csv_files(tmp_path))
    packed = tmp_path / "town_edges.csv.gz"
    packed.write_bytes(gzip.compress(EDGES.encode()))
    (tmp_path / "town_nodes.csv.gz").write_bytes(gzip.compress(NODES.encode()))
    assert read_map(packed).metres.tolist() == plain.metres.tolist()
    assert read_map(tmp_path / "edges.csv", tmp_path / "town_nodes.csv.gz").metres.tolist() == [*plain.metres]


def test_graphml_two_edges_there_and_back_are_one_street(tmp_path):
    town = read_map(written(tmp_path, graphml(TOWN)))
    assert town.metres.tolist() == [90.0, 115.0, 150.0]
    assert town.backward.tolist() == [True, False, False]
    assert town.told == {"closed": 1, "merged": 1}
    assert town.kmh[1] == pytest.approx(25 * 1.609344)
    np.testing.assert_allclose(town.lines[2][1], [37.7004, -122.4995])
    assert cut(town, 50.0).size == 2 + 2 + 3


def test_graphml_undirected(tmp_path):
    town = read_map(written(tmp_path, graphml([TOWN[0], TOWN[2]], kind="undirected")))
    assert town.backward.tolist() == [True, False]


def test_overpass_ways_are_cut_where_they_meet(tmp_path):
    answer = overpass(
        [
            way(10, [1, 2, 3]),
            way(11, [4, 2, 5], oneway="yes", maxspeed="20"),
            way(12, [1, 5], highway="path"),
        ],
        CROSS,
    )
    town = read_map(written(tmp_path, answer))
    assert len(town.metres) == 4
    assert town.forward.all()
    assert sorted(town.backward.tolist()) == [False, False, True, True]
    np.testing.assert_allclose(town.metres.sum(), 176.0 + 222.4, rtol=0.01)


@pytest.mark.parametrize("named", [True, False])
def test_overpass_out_geom(tmp_path, named):
    places = {one["id"]: {"lat": one["lat"], "lon": one["lon"]} for one in CROSS}
    ways = [way(10, [1, 2, 3]), way(11, [4, 2, 5])]
    for one in ways:
        one["geometry"] = [places[n] for n in one["nodes"]]
        if not named:
            del one["nodes"]
    town = read_map(written(tmp_path, overpass(ways)))
    assert len(town.metres) == 4
    assert len(town.points) == 5
    assert cut(town, 50.0).size == 8


def test_overpass_out_geom_cut_by_a_box(tmp_path):
    one = way(10, [1, 2, 9, 3, 5]) | {
        "geometry": [
            {"lat": 37.70, "lon": -122.50},
            {"lat": 37.70, "lon": -122.499},
            None,
            {"lat": 37.70, "lon": -122.498},
            {"lat": 37.699, "lon": -122.499},
        ]
    }
    town = read_map(written(tmp_path, overpass([one])))
    assert len(town.metres) == 2


def test_a_roundabout_is_one_way_and_closes(tmp_path):
    town = read_map(
        written(tmp_path, overpass([way(1, [1, 4, 3, 5, 1], junction="roundabout"), way(2, [1, 2])], CROSS))
    )
    assert town.backward.tolist() == [False, True]
    assert town.starts[0] == town.ends[0]
    places = cut(town, 50.0)
    around = places.driving.distances(0)
    assert np.isfinite(around).all()
    assert (places.driving.distances(0) >= places.street.distances(0)).all()
    assert places.driving.is_symmetric is False


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"oneway": "yes"}, (True, False)),
        ({"oneway": "-1"}, (False, True)),
        ({"oneway": "no", "highway": "motorway"}, (True, True)),
        ({"highway": "motorway"}, (True, False)),
        ({"highway": "motorway_link"}, (True, False)),
        ({"junction": "roundabout"}, (True, False)),
        ({"oneway": "reversible"}, (True, True)),
        ({}, (True, True)),
    ],
)
def test_directions(said, expected):
    assert directions(said) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"highway": "residential"}, True),
        ({"highway": "cycleway"}, False),
        ({"highway": "residential", "access": "private"}, False),
        ({"highway": "residential", "access": "no", "motor_vehicle": "yes"}, True),
        ({"highway": "residential", "motor_vehicle": "no"}, False),
        ({"highway": "service", "access": "customers"}, True),
        ({"highway": "construction"}, False),
        ({}, True),
    ],
)
def test_access(said, expected):
    assert is_for_cars(said) is expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"maxspeed": "50"}, 50.0),
        ({"maxspeed": "30 mph"}, 48.28032),
        ({"maxspeed": "50;30"}, 30.0),
        ({"maxspeed": "none", "highway": "motorway"}, 110.0),
        ({"maxspeed": "DE:urban", "highway": "primary"}, 60.0),
        ({"speed_kph": "41.5", "maxspeed": "90"}, 41.5),
        ({}, 40.0),
    ],
)
def test_speeds(said, expected):
    assert kmh(said) == pytest.approx(expected)


BAD_CSV = [
    (NODES, EDGES.replace("1,a,b", "1,a,x"), "edges, line 2: v must be a node of the map, got x"),
    (NODES, EDGES.replace("b,c,115", "b,c,-115"), "edges, line 3: length_m must be >= 0, got -115"),
    (NODES, EDGES.replace("b,c,115", "b,c,nan"), "edges, line 3: length_m must be a finite number, got nan"),
    (NODES, EDGES.replace("b,c,115", "b,c,inf"), "length_m must be a finite number, got inf"),
    (NODES, EDGES.replace("b,c,115", "b,c,2e6"), "length must be between 0 and 1e\\+06 m, got 2e\\+06"),
    (NODES, EDGES.replace("b,c,115", "b,c,far"), "length_m must be a finite number, got far"),
    (
        NODES.replace("37.70,-122.50\n", "-122.50,37.70\n"),
        EDGES,
        "lat must be between -85 and 85, got -122.5 at node a: are latitude and longitude swapped",
    ),
    (
        NODES.replace("37.70,-122.499", "37.70,-222.499"),
        EDGES,
        "lon must be between -180 and 180, got -222.499",
    ),
    (NODES.replace("b,37.70", "b,nan"), EDGES, "nodes, line 3: lat must be a finite number, got nan"),
    (NODES.replace("b,37.70", "a,37.70"), EDGES, "node must be listed once, got a again"),
    (NODES.replace("lat", "y"), EDGES, "nodes must have the columns node, lat, lon, got no lat"),
    (NODES, EDGES.replace("37.70 -122.50;", "37.70 -122.50 3;"), "geometry must be pairs"),
    (
        NODES,
        EDGES.replace("37.70 -122.50;", "97.70 -122.50;"),
        "points of a street must be finite, lat between",
    ),
    (NODES, "u,v,length_m\na,a,100\n", "streets must join at least 2 nodes, got 1"),
    (NODES, "u,v,length_m\n", "at least one street that cars may use, got none"),
    (NODES, "u,v,length_m\na,b\n", "a row must have a value in u, v, length_m"),
    (NODES, 'u,v,length_m\na,"b,90\n', "edges, after line 1: a row must be CSV"),
    (
        NODES.replace("c,37.701", "c,41.701"),
        EDGES.replace("115,", "500000,").replace("90,", "500000,"),
        "latitude must span at most 3 degrees in a map, got 37.7 to 41.701",
    ),
    (
        "node,lat,lon\na,48.85,2.35\nb,48.85,2.36\n".replace("48.85,2.36", "48.88,2.35"),
        "u,v,length_m\na,b,1000\n",
        "length must be at least the straight line between the ends, 3336 m, got 1000",
    ),
]


@pytest.mark.parametrize(("nodes", "edges", "message"), BAD_CSV)
def test_bad_csv(tmp_path, nodes, edges, message):
    with pytest.raises(ParameterError, match=message):
        read_map(csv_files(tmp_path, nodes, edges))


def test_a_map_with_latitude_and_longitude_swapped_within_range_is_found(tmp_path):
    """East-west in Paris becomes north-south near the equator: longer than the street is."""
    nodes = "node,lat,lon\na,2.35,48.85\nb,2.36,48.85\n"
    with pytest.raises(ParameterError, match=r"1112 m, got 731 m .*swapped"):
        read_map(csv_files(tmp_path, nodes, "u,v,length_m\na,b,731\n"))


BOMB = (
    '<?xml version="1.0"?><!DOCTYPE g [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">'
    '<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]><graphml>&c;</graphml>'
)
BAD_GRAPHML = [
    (BOMB, "must have no document type: entities are not read"),
    (graphml(TOWN, head="<!DOCTYPE graphml SYSTEM 'file:///etc/passwd'>"), "must have no document type"),
    (graphml(TOWN)[:-10], "must be XML, line 2"),
    (graphml([("1", "9", {"length": "90"})]), "every node of a street must be listed, got 9"),
    (graphml([("1", "2", {"length": "-90"})]), "length must be >= 0, got -90 from node 1"),
    (graphml([("1", "2", {"length": "nan"})]), "length must be a finite number, got nan at node 1"),
    (graphml([("1", "2", {})]), "length must be there, got none at node 1"),
    (graphml([("1", "2", {"length": "90", "geometry": "POINT (1 2)"})]), "geometry must be a LINESTRING"),
    (
        graphml(TOWN, {"1": (-122.5, 37.7), "2": (-122.499, 37.7), "3": (-122.4, 37.7)}),
        "are latitude and longitude swapped",
    ),
    ("<graphml></graphml>", "must have nodes, got none"),
]


@pytest.mark.parametrize(("text", "message"), BAD_GRAPHML)
def test_bad_graphml(tmp_path, text, message):
    with pytest.raises(ParameterError, match=message):
        read_map(written(tmp_path, text))


BAD_OVERPASS = [
    ("{", "must be JSON"),
    ('{"elements": 3}', "must have a list of elements"),
    ("{" * 200_000, "must be JSON"),
    (overpass([way(1, [1, 99])], CROSS), "nodes of way 1 must be in the map, got 99"),
    (
        overpass([way(1, [1, 2])], [node(1, 37.7, -122.5), node(2, float("nan"), -122.5)]),
        "lat must be a finite number",
    ),
    (
        overpass([way(1, [1, 2])], [node(1, 37.7, -122.5), node(2, 10**400, -122.5)]),
        "lat must be a finite number",
    ),
    (overpass([way(1, [1, 2])], [node("1", 37.7, -122.5)]), "id must be a whole number, got '1'"),
    (
        overpass([{"type": "way", "id": 3, "tags": {"highway": "road"}}]),
        "way 3 must have nodes or a geometry",
    ),
    (overpass([way(1, [1, 2], highway="path")], CROSS), "at least one street that cars may use"),
    (overpass([], CROSS[:1]), "at least one street"),
]


@pytest.mark.parametrize(("text", "message"), BAD_OVERPASS)
def test_bad_overpass(tmp_path, text, message):
    with pytest.raises(ParameterError, match=message):
        read_map(written(tmp_path, text))


def test_archives_that_unfold_and_damaged_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(reading_module, "MOST_BYTES", 1000)
    bomb = tmp_path / "map.gz"
    bomb.write_bytes(gzip.compress(b" " * 100_000))
    with pytest.raises(ParameterError, match="must unpack to at most 1,000 bytes, got more"):
        read_map(bomb)
    bomb.write_bytes(gzip.compress(b"{}")[:-6])
    with pytest.raises(ParameterError, match="its gzip data is damaged"):
        read_map(bomb)
    with pytest.raises(ParameterError, match="must be a file that can be read"):
        read_map(tmp_path / "none")


def test_too_many_streets_nodes_and_streets_of_a_node(monkeypatch):
    star = {n: (37.7 + n * 1e-6, -122.5) for n in range(100)}
    with pytest.raises(ParameterError, match="a node must join at most 64 streets, got 99 at 0"):
        RoadMap.of(star, [Street(0, n, None, 10.0) for n in range(1, 100)])
    monkeypatch.setattr("reticent.spaces.roads.maps.MOST_STREETS", 3)
    with pytest.raises(ParameterError, match="a map must have at most 3 streets, got 4"):
        RoadMap.of(star, [Street(0, n, None, 10.0) for n in range(1, 5)])


def test_too_small_segments_and_islands():
    nodes = {n: (37.7, -122.5 + n * 0.01) for n in range(4)}
    two = RoadMap.of(nodes, [Street(0, 1, None, 1000.0), Street(2, 3, None, 2000.0)])
    places = cut(two, 100.0)
    assert places.size == 20
    assert places.told["islands"] == 1
    with pytest.raises(ParameterError, match="segment_m must be >= 1"):
        cut(two, 0.5)
    one = RoadMap.of(nodes, [Street(0, 1, None, 1000.0, True, False)])
    with pytest.raises(ParameterError, match="at least 2 places that cars reach from each other"):
        cut(one, 100.0)
    long = RoadMap.of(nodes, [Street(0, 1, None, 999_999.0), Street(1, 2, None, 999_999.0)])
    with pytest.raises(ParameterError, match="segment_m must cut a map into at most"):
        cut(long, 1.0)
