"""One round of PRIVIC as it is published: geometry, beta and the marginal, in kilobytes; never a matrix.

A round is a text, JSON with sorted fields and no spaces, signed like a survey. The marginal c of its channel
is whole numbers that sum to 2^31, compressed. What the text claims (the cell's size, the level per kilometre)
a device works out again from the box and beta and compares; distances are Euclidean between the centres of
cells, and there is no field that could say otherwise. `geometry` names the map from the globe to the cells
(`spaces.globe`); a round without it was signed for kilometres per degree, a map with a tear opposite the box,
and is refused. Any such c keeps the level (see `mechanisms.location.elastic`), so the check is structural; on
small grids the worst pair of cells is looked at as well.

Privacy: one report keeps 2 beta per kilometre between the centres of any two cells, against everybody, the
    service included. A person who answers several rounds spends the sum. Two near points across a border
    differ by up to 2 beta times a cell, more where cells are closed (`Grid.jump`, a bound over the whole
    globe); with a border of its choice in each round a service could find a point by bisection, so devices
    refuse rounds of large jumps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.errors import GuaranteeError, ParameterError
from reticent.fleet import packing, signing
from reticent.fleet.published import WORDS, Published
from reticent.fleet.signing import signed as signed
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location import ElasticChannel
from reticent.privacy import MetricDP
from reticent.privacy.budget import cost_units
from reticent.spaces import Box, Grid

FORMAT = 1
GEOMETRY = "orthographic"
TOTAL = 1 << 31  # of the marginal
MOST_CELLS = 1 << 20
MOST_ROUNDS = 1 << 16
MOST_WORK = 1 << 31  # cells times the exponent from corner to corner: half a gigabyte of weights
CHECKED_EXACTLY = 200  # cells up to which every pair is looked at
_LONGEST = 1 << 23
_MAP = ("geometry", "box", "rows", "columns", "closed", "cell_km")


@dataclass(frozen=True)
class PlaceRound(Published):
    """A round: the question that devices are asked.

    Args:
        name: Name of the campaign; for this, `version` and `purpose` see `Published`.
        number: Number of the round, from 0.
        rounds: Number of rounds.
        grid: Grid over a box.
        beta: Loss parameter of the channel, in 1/km.
        marginal: c, whole numbers that sum to 2^31, none of them zero in an open cell.
    """

    what = field = "round"
    head = b"reticent-places/v1\n"
    names = (*WORDS, "number", "rounds", *_MAP, "beta", "level", "marginal")
    optional = ("geometry",)
    longest = _LONGEST
    study = "campaign"

    number: int
    rounds: int
    grid: Grid
    beta: float
    marginal: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "rounds", whole("rounds", self.rounds, low=1, high=MOST_ROUNDS))
        object.__setattr__(self, "number", whole("number", self.number, low=0, high=self.rounds - 1))
        object.__setattr__(self, "beta", real("beta", self.beta, low=0.0, open_low=True))
        grid = self.grid
        if grid.box is None or grid != Grid.over(grid.box, grid.rows, grid.columns, grid.closed):
            raise ParameterError("grid must cut its box into equal cells, in km")
        if not 1 < grid.size <= MOST_CELLS:
            raise ParameterError(f"grid must have 2 to {MOST_CELLS} cells, got {grid.size}")
        if len(self.marginal) != grid.size:
            raise ParameterError(f"marginal must have {grid.size} numbers, got {len(self.marginal)}")
        depth = self.beta * grid.diameter
        if grid.size * (depth + 100.0) > MOST_WORK:
            raise ParameterError(
                f"beta must be at most {(MOST_WORK / grid.size - 100.0) / grid.diameter:g} on this grid, "
                f"got {self.beta:g}: a device could not draw"
            )
        masses = np.array(self.marginal, dtype=np.int64)
        if masses.min() < 0 or int(masses.sum()) != TOTAL:
            raise GuaranteeError(f"marginal must hold numbers >= 0 that sum to {TOTAL}")
        if ((masses > 0) != grid.open).any():
            raise GuaranteeError("marginal must be positive in open cells and zero in closed ones")

    @classmethod
    def made(
        cls,
        channel: ElasticChannel,
        *,
        name: str,
        purpose: str,
        number: int,
        rounds: int,
        version: str = "1",
    ) -> PlaceRound:
        """Return the round that publishes a channel, its marginal rounded to whole numbers."""
        grid = channel.space
        if not isinstance(grid, Grid):
            raise ParameterError("channel must be one of a grid")
        return cls(
            name, version, purpose, number, rounds, grid, channel.beta, _whole(channel.marginal, grid.open)
        )

    @cached_property
    def channel(self) -> ElasticChannel:
        """The channel, as devices and the service compute it."""
        return ElasticChannel(self.grid, np.array(self.marginal, dtype=np.float64), self.beta)

    @property
    def guarantee(self) -> MetricDP:
        """The guarantee of one report between any two points of the globe: cells take them farther apart."""
        return replace(self.channel.guarantee, slack=self.grid.jump)

    @cached_property
    def units(self) -> int:
        """The cost of one report to a device's ledger, in units of 1e-12 per km, rounded up."""
        return cost_units(self.channel.level)

    @cached_property
    def most_units(self) -> int:
        """The largest cost of a report of any round on this grid with this beta, whatever c is."""
        masses = self.grid.open.astype(np.float64)
        masses[np.argmax(masses)] += TOTAL - masses.sum()
        return cost_units(ElasticChannel(self.grid, masses, self.beta).level)

    @cached_property
    def packed(self) -> str:
        """The marginal, compressed; of a round that was read, as it was written: compressors differ."""
        return packing.packed(self.marginal)

    def _fields(self) -> dict[str, Any]:
        assert self.grid.box is not None
        box = self.grid.box
        plain = {name: getattr(self, name) for name in (*WORDS[1:], "number", "rounds", "beta")}
        return plain | {
            "format": FORMAT,
            "geometry": GEOMETRY,
            "box": [box.south, box.north, box.west, box.east],
            "rows": self.grid.rows,
            "columns": self.grid.columns,
            "closed": list(self.grid.closed),
            "cell_km": [self.grid.height, self.grid.width],
            "level": self.channel.level,
            "marginal": self.packed,
        }

    @classmethod
    def _of(cls, given: dict[str, Any]) -> PlaceRound:
        if given["format"] != FORMAT:
            raise ParameterError(f"format must be {FORMAT}, got {given['format']!r:.60}")
        if (geometry := given.get("geometry", "kilometres per degree")) != GEOMETRY:
            raise ParameterError(
                f"geometry must be {GEOMETRY}, got {geometry!r:.60}: near points could be cells far apart, "
                "so the round is not answered; begin a new campaign"
            )
        rows, columns = (whole(name, given[name], low=1, high=MOST_CELLS) for name in ("rows", "columns"))
        if rows * columns > MOST_CELLS:
            raise ParameterError(f"rows x columns must be at most {MOST_CELLS}, got {rows * columns}")
        closed = given["closed"]
        if not isinstance(closed, list) or len(closed) >= rows * columns:
            raise ParameterError("closed must be a list of cells that leaves one open")
        grid = Grid.over(Box(*_four(given["box"])), rows, columns, tuple(closed))
        plain = {name: given[name] for name in (*WORDS[1:], "number", "rounds", "beta")}
        found = cls(grid=grid, marginal=packing.unpacked("marginal", given["marginal"], grid.size), **plain)
        if given["cell_km"] != [grid.height, grid.width]:
            raise GuaranteeError(
                "cell_km must be the size of a cell of the box: distances would not be in km"
            )
        if given["level"] != found.channel.level:
            raise GuaranteeError(f"level must be {found.channel.level!r} for this beta, 2 beta and rounding")
        found.__dict__["packed"] = given["marginal"]
        return found

    @property
    def title(self) -> str:
        """The campaign and the number of the round."""
        return f"{self.name} {self.number}"

    @property
    def series(self) -> str:
        """The campaign: one report for each of its rounds, whatever text a round is published under."""
        return self.name

    def check(self) -> None:
        """Look at the worst pair of cells, where there are few enough.

        Raises:
            GuaranteeError: it is worse than the level.
        """
        if self.grid.size <= CHECKED_EXACTLY and self.channel.exact_level() > self.channel.level * (1 + 1e-9):
            raise GuaranteeError("the channel does not keep its level")


def verified(file: bytes, signer: bytes) -> PlaceRound:
    """Return the round of a signed file, if this signer signed it and it keeps what it claims."""
    return signing.verified(PlaceRound, file, signer)


def round_of(file: bytes) -> PlaceRound:
    """Return the round of a signed file, without checking the signer."""
    return signing.unverified(PlaceRound, file)


def _whole(marginal: Floats, is_open: Any) -> tuple[int, ...]:
    """Whole numbers that sum to `TOTAL`, at least one in every open cell; the largest takes what is left."""
    masses = np.where(is_open, np.maximum(np.rint(marginal * TOTAL), 1.0), 0.0).astype(np.int64)
    while (over := int(masses.sum()) - TOTAL) != 0:
        place = int(np.argmax(masses))
        masses[place] = max(1, int(masses[place]) - over)
    return tuple(masses.tolist())


def _four(given: Any) -> tuple[float, float, float, float]:
    if not isinstance(given, list) or len(given) != 4:
        raise ParameterError("box must be south, north, west, east")
    south, north, west, east = (real(f"box[{place}]", one) for place, one in enumerate(given))
    return south, north, west, east
