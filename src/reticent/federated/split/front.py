"""A public front: features of pictures by a fixed map that never saw anybody's data.

Edges by direction in a coarse grid, centred and turned by what pictures of random strokes have in common, to
vectors of length 1. The strokes come from a public seed. A manufacturer makes the front once and publishes
its file: machines that made it again might turn it otherwise in the last digits, and a CID would not agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.federated.record_conversion import convert_rows
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream
from reticent.store import Cid, Store, tensors

CELLS, DIRECTIONS = 7, 8  # places each way, and directions of an edge
RAW = CELLS * CELLS * DIRECTIONS
KEPT = 48  # numbers of a picture that are kept
_STROKES, _SEED, _POINTS = 2000, 7, 24
_RIDGE = 0.02  # of the largest variance
_AT_ONCE = 2000


@dataclass(frozen=True)
class Front:
    """The map: (edges - centre) @ turned, to length 1.

    Attributes:
        side: pixels of a picture each way.
        centre: of the edges.
        turned: shape (RAW, kept).
    """

    side: int
    centre: NDArray[np.float32]
    turned: NDArray[np.float32]

    @property
    def kept(self) -> int:
        """Numbers of a picture that are kept."""
        return int(self.turned.shape[1])

    @classmethod
    def made(cls, side: int, kept: int = KEPT) -> Front:
        """The front for pictures of a size, from strokes of a public seed."""
        whole("side", side, low=CELLS, high=128)
        whole("kept", kept, low=1, high=RAW)
        seen = _edges(strokes(_STROKES, side, _SEED))
        centre = seen.mean(axis=0)
        spread, axes = np.linalg.eigh((seen - centre).T @ (seen - centre) / len(seen))
        spread, axes = np.maximum(spread[::-1][:kept], 0.0), axes[:, ::-1][:, :kept]
        scale = (spread + _RIDGE * spread[0]) ** -0.25  # half way to white
        return cls(side, centre.astype(np.float32), (axes * scale).astype(np.float32))

    def features(self, pictures: Any) -> Floats:
        """Return a vector of length 1 for each picture, or of length 0 or 1 for a record that is no picture.

        Args:
            pictures: Pictures, one per item of a list or one per row of an array. Each vector depends on its
                own picture alone; see `record_conversion.convert_rows`.
        """
        pixels = np.clip(convert_rows(pictures, self.side**2), 0.0, 1.0)
        blocks = [np.zeros((0, self.kept))]
        for start in range(0, len(pixels), _AT_ONCE):
            block = pixels[start : start + _AT_ONCE].reshape(-1, self.side, self.side)
            blocks.append(_unit((_edges(block) - self.centre) @ self.turned.astype(np.float64)))
        return np.concatenate(blocks)

    @staticmethod
    def looks(kept: int) -> tensors.Looks:
        """Return the types and shapes in the file of a front."""
        return {"centre": ("F32", (RAW,)), "turned": ("F32", (RAW, kept))}

    def put(self, store: Store) -> Cid:
        """Publish it."""
        return tensors.put(store, {"centre": self.centre, "turned": self.turned})

    @classmethod
    def get(cls, store: Store, cid: Cid, side: int, kept: int) -> Front:
        """A front that was published.

        Raises:
            StoreError: it cannot be fetched.
            ParameterError: it is another file.
        """
        whole("side", side, low=CELLS, high=128)
        found = tensors.get(store, cid, cls.looks(whole("kept", kept, low=1, high=RAW)))
        if max(float(np.abs(part).max()) for part in found.values()) > 1e6:
            raise ParameterError("the numbers of a front must be at most 1e6")
        return cls(side, found["centre"], found["turned"])


def _unit(rows: Floats) -> Floats:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def _edges(pictures: Floats) -> Floats:
    """Roots of the strength of edges by place and direction, to length 1."""
    side = pictures.shape[1]
    around = np.pad(pictures, ((0, 0), (1, 1), (1, 1)))
    across = around[:, 1:-1, 2:] - around[:, 1:-1, :-2]
    down = around[:, 2:, 1:-1] - around[:, :-2, 1:-1]
    strength = np.hypot(across, down)
    turn = np.mod(np.arctan2(down, across), math.pi) * (DIRECTIONS / math.pi)
    low = np.floor(turn)
    share = turn - low
    first = low.astype(np.int64) % DIRECTIONS
    second = (first + 1) % DIRECTIONS
    at = (np.arange(side) + 0.5) * (CELLS / side) - 0.5
    near = np.maximum(0.0, 1.0 - np.abs(at[None] - np.arange(CELLS)[:, None]))
    found = [
        near @ (strength * ((first == k) * (1.0 - share) + (second == k) * share)) @ near.T
        for k in range(DIRECTIONS)
    ]
    return _unit(np.sqrt(np.stack(found, axis=1).reshape(len(pictures), RAW)))


def strokes(count: int, side: int, seed: int) -> Floats:
    """Pictures of one to three curves, drawn at random: nobody's data."""
    stream = SimulationStream(seed, path=(12,))
    place = np.arange(side) + 0.5
    t = np.linspace(0.0, 1.0, _POINTS)[:, None]
    found = np.empty((count, side, side))
    for at in range(count):
        drawn = stream.units(24) - 1.0
        away, last = np.full((side, side), np.inf), None
        for curve in range(1 + int(3 * drawn[0])):
            given = drawn[2 + 7 * curve : 9 + 7 * curve]
            ends = side * (0.5 + (given[:6].reshape(3, 2) - 0.5) * np.array([0.75, 0.6]))
            if last is not None and given[6] < 0.7:  # go on where the last one ended
                ends[0] = last
            points = (1 - t) ** 2 * ends[0] + 2 * t * (1 - t) * ends[1] + t**2 * ends[2]
            last = ends[2]
            near = (place[:, None] - points[:, 0]) ** 2, (place[:, None] - points[:, 1]) ** 2
            away = np.minimum(away, (near[0][:, None, :] + near[1][None, :, :]).min(axis=2))
        found[at] = np.clip(1.8 - np.sqrt(away) / (side / 28.0 * (1.0 + 0.8 * drawn[1])), 0.0, 1.0)
    return found
