"""The file of a map: what was cut comes back bit for bit, and nothing else is taken."""

import struct
import zlib

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.location.stations import road_file
from reticent.randomness import SimulationStream, uniform_below
from reticent.spaces.roads import Graph, Roads

from .asking_town import town


@pytest.mark.parametrize("one_way", [False, True])
def test_a_network_comes_back_as_it_was(one_way):
    roads = town(one_way=one_way)
    file = road_file.written(roads.within(2.0))
    found = road_file.read(file)
    assert found.digest == roads.digest
    assert np.array_equal(found.points, roads.points)
    for name in ("street", "driving", "seconds"):
        before, after = getattr(roads, name), getattr(found, name)
        assert np.array_equal(before.starts, after.starts)
        assert np.array_equal(before.ends, after.ends)
        assert np.array_equal(before.lengths, after.lengths)
    assert road_file.written(found) == file
    if one_way:
        assert not roads.driving.is_symmetric


def test_what_cars_drive_must_be_streets():
    roads = town()
    longer = Graph(roads.driving.starts, roads.driving.ends, roads.driving.lengths * 2.0)
    with pytest.raises(ParameterError, match="as long as the streets"):
        road_file.written(Roads(roads.points, roads.street, longer, roads.seconds))


def rewritten(change):
    """A file whose body was changed."""
    body = bytearray(zlib.decompress(road_file.written(town())[len(road_file.HEAD) :]))
    change(body)
    return road_file.HEAD + zlib.compress(bytes(body))


def _asymmetric(body):
    places, arcs = struct.unpack_from("<II", body)
    struct.pack_into("<I", body, 8 + 16 * places + 8 * arcs, 1 << 20)  # one direction of one street is 1 km


def _missing(body):
    (places,) = struct.unpack_from("<I", body)
    struct.pack_into("<i", body, 8 + 16 * places, places)


def _lost(body):
    struct.pack_into("<d", body, 8, float("nan"))


def _far_away(body):
    struct.pack_into("<d", body, 16, 1e300)  # so are others, and their digests the same


def _endless(body):
    struct.pack_into("<d", body, len(body) - 8, 1e300)


@pytest.mark.parametrize(
    ("file", "told"),
    [
        (b"", "must begin as one"),
        (b"reticent-roads/v2\n", "must begin as one"),
        (road_file.HEAD, "must be whole"),
        (road_file.HEAD + b"x", "must be whole"),
        (road_file.HEAD + zlib.compress(b"short"), "must be whole"),
        (road_file.HEAD + zlib.compress(bytes(1 << 20))[:-9], "must be whole"),
        (road_file.HEAD + zlib.compress(struct.pack("<II", 1 << 30, 0)), "as many places and arcs"),
        (rewritten(_asymmetric), "as long there as back"),
        (rewritten(_missing), "must join places below"),
        (rewritten(_lost), "points must be latitudes"),
        (rewritten(_far_away), "points must be latitudes"),
        (rewritten(_endless), "seconds must be at most"),
    ],
)
def test_other_files_are_refused(file, told):
    with pytest.raises(ParameterError, match=told):
        road_file.read(file)


def test_mutated_files_are_refused_or_the_same():
    file, rng = road_file.written(town()), SimulationStream(5)
    points = town().points
    for at, byte in zip(uniform_below(len(file), 300, rng), uniform_below(255, 300, rng), strict=True):
        broken = bytearray(file)
        broken[at] ^= int(byte) + 1
        try:
            found = road_file.read(bytes(broken))
        except ParameterError:
            continue
        assert np.array_equal(found.points, points)  # a byte of zlib's head, which says nothing
