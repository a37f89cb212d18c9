r"""Binary file of a road network that a provider publishes and a vehicle reads: numpy and zlib only.

    "reticent-roads/v1\n" | compressed: places (4 bytes), arcs (4) | latitudes and longitudes (8 each)
        | begins, ends (4 each) | street lengths in multiples of 2^-20 km (4) | driving seconds (8)

All numbers are little-endian. Every street arc is there in both directions; where its seconds are 0, cars may
not drive it. So what is driven is as long as the street, as `cut` makes it.

Privacy: a reader of the file relies on none of its claims: `Roads` refuses lengths that are no metric,
    and places that do not reach each other.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.errors import ParameterError
from reticent.spaces.roads.cutting import MOST_PLACES
from reticent.spaces.roads.graph import Graph
from reticent.spaces.roads.network import GRAIN_KM, Roads

HEAD = b"reticent-roads/v1\n"
LONGEST = 1 << 24  # bytes of a file
_ARCS_A_PLACE = 128
_COUNTS = struct.Struct("<II")
_COLUMNS = ("<i4", "<i4", "<u4", "<f8")  # of arcs


def written(roads: Roads) -> bytes:
    """Encode a network that `cut` made as a file.

    Raises:
        ParameterError: The driving graph is no part of the streets, or the file would be too large.
    """
    street = roads.street
    at = _places_of(street, roads.driving)
    back = _places_of(street, roads.seconds)
    if (street.lengths[at] != roads.driving.lengths).any() or not np.array_equal(at, back):
        raise ParameterError("what cars drive must be as long as the streets they drive on")
    seconds = np.zeros(len(street.ends))
    seconds[back] = roads.seconds.lengths
    columns: tuple[NDArray[Any], ...] = (
        street.begins,
        street.ends,
        np.rint(street.lengths / GRAIN_KM),
        seconds,
    )
    body = _COUNTS.pack(roads.size, len(street.ends)) + roads.points.astype("<f8").tobytes()
    body += b"".join(one.astype(kind).tobytes() for one, kind in zip(columns, _COLUMNS, strict=True))
    file = HEAD + zlib.compress(body, 9)
    if len(file) > LONGEST:
        raise ParameterError(f"the file of a map must be at most {LONGEST:,} bytes, got {len(file):,}")
    return file


def read(file: bytes) -> Roads:
    """Decode the network of a file.

    Raises:
        ParameterError: The content is no such file.
    """
    if not isinstance(file, bytes) or not file.startswith(HEAD) or len(file) > LONGEST:
        raise ParameterError(f"the file of a map must begin as one and be at most {LONGEST:,} bytes")
    most = _COUNTS.size + MOST_PLACES * (16 + _ARCS_A_PLACE)
    try:
        unpacking = zlib.decompressobj()
        body = unpacking.decompress(file[len(HEAD) :], most)
    except zlib.error as error:
        raise ParameterError("the file of a map must be whole") from error
    if not unpacking.eof or unpacking.unused_data or len(body) < _COUNTS.size:
        raise ParameterError("the file of a map must be whole")
    places, arcs = _COUNTS.unpack_from(body)
    width = sum(np.dtype(kind).itemsize for kind in _COLUMNS)
    if places > MOST_PLACES or len(body) != _COUNTS.size + 16 * places + width * arcs:
        raise ParameterError("the file of a map must hold as many places and arcs as it says")
    start = _COUNTS.size + 16 * places
    points = np.frombuffer(body[_COUNTS.size : start], dtype="<f8").reshape(-1, 2)
    columns = []
    for kind in _COLUMNS:
        end = start + np.dtype(kind).itemsize * arcs
        columns.append(np.frombuffer(body[start:end], dtype=kind))
        start = end
    begin, to, grains, seconds = columns
    km, driven = grains.astype(np.float64) * GRAIN_KM, seconds != 0.0
    street = Graph.of(places, begin, to, km)
    driving = Graph.of(places, begin[driven], to[driven], km[driven])
    return Roads(points, street, driving, Graph.of(places, begin[driven], to[driven], seconds[driven]))


def _places_of(street: Graph, driven: Graph) -> NDArray[np.int64]:
    """Return the positions of one graph's arcs among those of another, sorted by begin and end."""
    size = street.size
    known = street.begins.astype(np.int64) * size + street.ends
    wanted = driven.begins.astype(np.int64) * size + driven.ends
    at = np.searchsorted(known, wanted)
    if len(known) == 0 or (known[np.minimum(at, len(known) - 1)] != wanted).any():
        raise ParameterError("what cars drive must be a part of the streets")
    return at
