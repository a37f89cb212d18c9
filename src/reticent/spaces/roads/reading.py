"""Maps in files: CSV (nodes and edges), GraphML as OSMnx writes it, Overpass JSON; gzipped or not.

A file is read as what it holds, not as what it is called. Reading is bounded: an archive that unfolds, a
document with entities, and more nodes or streets than a city has are refused.
"""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

from reticent.errors import ParameterError
from reticent.spaces.roads import csv_map, graphml, overpass
from reticent.spaces.roads.maps import RoadMap

MOST_BYTES = 1 << 29  # unpacked
_GZIP = b"\x1f\x8b"


def read_map(path: str | os.PathLike[str], nodes: str | os.PathLike[str] | None = None) -> RoadMap:
    """Return the streets of a file.

    Args:
        path: a map; for CSV, its edges.
        nodes: the nodes of a CSV map; None for the file beside it whose name says nodes instead of edges.

    Raises:
        ParameterError: it is no map, or too large; the message names field, rule and value.
    """
    edges = Path(path)
    text = file_text(edges)
    start = text.lstrip()[:1]
    if start == b"<":
        return graphml.read(text)
    if start == b"{":
        return overpass.read(text)
    beside = Path(nodes) if nodes is not None else edges.with_name(edges.name.replace("edges", "nodes"))
    if beside == edges:
        raise ParameterError("nodes must be given for a map in CSV whose name does not say edges")
    return csv_map.read(file_text(beside), text)


def file_text(path: Path) -> bytes:
    """Return the contents of a file, unpacked."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            if not packed:
                text = file.read(MOST_BYTES + 1)
            else:
                with gzip.open(file) as unpacked:
                    text = unpacked.read(MOST_BYTES + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ParameterError(f"{path.name} must be whole: its gzip data is damaged") from error
    except OSError as error:
        raise ParameterError(f"{path.name} must be a file that can be read: {error.strerror}") from error
    if len(text) > MOST_BYTES:
        raise ParameterError(f"{path.name} must unpack to at most {MOST_BYTES:,} bytes, got more")
    return text
