"""A public library of journeys, signed and published, from which companions are made.

Journeys are places of one map, equally many seconds apart. They must be public or invented: a journey
that is contributed becomes public. A vehicle takes the text once, with the map.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.fleet import packing
from reticent.fleet.published import WORDS, Published
from reticent.spaces.grid import Cells
from reticent.spaces.roads import Roads

FORMAT = 1
MOST_POINTS = 1 << 20
_LONGEST = 1 << 23
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class JourneyLibrary(Published):
    """A signed library of public journeys on one map.

    Args:
        name: Name of the library; see `Published` for it, `version` and `purpose`.
        map: Digest of the road network (`Roads.digest`).
        seconds: Seconds from one point of a journey to the next.
        journeys: Places of the map, at least two for each journey.
    """

    what = field = "library"
    head = b"reticent-journeys/v1\n"
    names = (*WORDS, "map", "seconds", "count", "lengths", "places")
    longest = _LONGEST
    study = "library"

    map: str
    seconds: int
    journeys: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.map, str) or not _DIGEST.fullmatch(self.map):
            raise ParameterError("map must be the digest of a road network, 64 hexadecimal digits")
        object.__setattr__(self, "seconds", whole("seconds", self.seconds, low=1, high=86_400))
        if not self.journeys:
            raise ParameterError("journeys must hold at least one journey")
        if min(map(len, self.journeys)) < 2:
            raise ParameterError("every journey must have at least 2 places")
        if sum(map(len, self.journeys)) > MOST_POINTS:
            raise ParameterError(f"journeys must have at most {MOST_POINTS:,} places in all")
        if self.points.min() < 0 or self.points.max() >= 1 << 31:
            raise ParameterError("places must be numbers >= 0 below 2^31")

    @classmethod
    def of(
        cls,
        roads: Roads,
        journeys: Iterable[Sequence[int]],
        *,
        seconds: int,
        name: str,
        purpose: str,
        version: str = "1",
    ) -> JourneyLibrary:
        """Build the library of some journeys on a map; journeys of one place are left out."""
        held = tuple(tuple(map(int, one)) for one in journeys if len(one) > 1)
        return cls(name, version, purpose, roads.digest, seconds, held).on(roads)

    def on(self, roads: Roads) -> JourneyLibrary:
        """Return this library if it belongs to that map.

        Raises:
            ParameterError: The library belongs to another map.
        """
        if self.map != roads.digest or self.points.max() >= roads.size:
            raise ParameterError(f"library {self.name} must be about the same map as the vehicle's")
        return self

    @cached_property
    def points(self) -> Cells:
        """The places of all journeys, one after the other."""
        return np.concatenate([np.asarray(one, dtype=np.int64) for one in self.journeys])

    @cached_property
    def starts(self) -> Cells:
        """Position of each journey's begin among `points`, and the end of the last."""
        return np.cumsum([0, *map(len, self.journeys)], dtype=np.int64)

    @cached_property
    def packed(self) -> tuple[str, str]:
        """Lengths and places, compressed; those of a parsed text as they were written."""
        return packing.packed([len(one) for one in self.journeys]), packing.packed(self.points.tolist())

    def _fields(self) -> dict[str, Any]:
        lengths, places = self.packed
        plain = {name: getattr(self, name) for name in (*WORDS[1:], "map", "seconds")}
        return plain | {
            "format": FORMAT,
            "count": len(self.journeys),
            "lengths": lengths,
            "places": places,
        }

    @classmethod
    def _of(cls, given: dict[str, Any]) -> JourneyLibrary:
        if given["format"] != FORMAT:
            raise ParameterError(f"format must be {FORMAT}, got {given['format']!r:.60}")
        count = whole("count", given["count"], low=1, high=MOST_POINTS)
        lengths = packing.unpacked("lengths", given["lengths"], count)
        if sum(lengths) > MOST_POINTS:
            raise ParameterError(f"lengths must be at most {MOST_POINTS:,} in all")
        places = packing.unpacked("places", given["places"], sum(lengths))
        ends = np.cumsum(lengths).tolist()
        journeys = tuple(places[end - length : end] for end, length in zip(ends, lengths, strict=True))
        found = cls(journeys=journeys, **{name: given[name] for name in (*WORDS[1:], "map", "seconds")})
        found.__dict__["packed"] = (given["lengths"], given["places"])
        return found
