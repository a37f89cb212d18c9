"""Check-ins in Paris and San Francisco on the documents' grids, and the tables that were printed about them.

Reference: Biswas 2023, Sections 3.4.1 and 3.7, Tables B.1 and B.2. Units of the print, found out: distances,
beta and the earth mover's distance are in cells; a row N = 1 is the uniform guess.

The documents' program loses the first check-in of each city, and so do we: 10,078 and 123,025 remain. Their
files count rows from the north and columns from the east; ours count from the south-west.
"""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reticent.experiments.data import DataMissing, directory
from reticent.mechanisms.base import Floats
from reticent.spaces import Grid
from reticent.spaces.grid import Cells

BETAS = (0.5, 1.0)


@dataclass(frozen=True)
class City:
    """A city of the documents.

    Attributes:
        name: as the figures say it.
        file: the documents' cells of its check-ins.
        rows: of the grid.
        columns: of the grid.
        cycles: the rows of its printed table.
        printed: the table by beta: for each row N the five runs.
    """

    name: str
    file: str
    rows: int
    columns: int
    cycles: int
    printed: dict[float, tuple[tuple[float, ...], ...]]

    def printed_mean(self, beta: float, row: int = -1) -> float:
        """The mean of the five runs in a row of the table, the last by default."""
        return float(np.mean(self.printed[beta][row]))


@dataclass(frozen=True)
class Population:
    """Where the people of a city are: how many in each cell."""

    city: City
    grid: Grid
    counts: Cells

    @property
    def reports(self) -> int:
        """Of a cycle: as many as there are check-ins."""
        return int(self.counts.sum())

    @property
    def shares(self) -> Floats:
        """The distribution that is to be estimated."""
        return np.asarray(self.counts / self.counts.sum())


def load(city: City, given: Path | None = None) -> Population:
    """Read the check-ins of a city.

    Raises:
        DataMissing: the file is not there.
    """
    path = directory(given) / city.file
    if not path.is_file():
        raise DataMissing(f"{city.name} needs {city.file} in the directory of the data; it is not there")
    with gzip.open(path, "rt", encoding="utf-8", newline="") as handle:
        _, _, *rows = csv.reader(handle)  # the header, and the check-in that the documents' program loses
    at = np.array(rows, dtype=np.int64)
    grid = Grid(city.rows, city.columns, 1.0, 1.0, unit="cell")
    cells = (city.rows - 1 - at[:, 0]) * city.columns + city.columns - 1 - at[:, 1]
    return Population(city, grid, grid.histogram(cells))


@dataclass(frozen=True)
class Island:
    """People with an isolated place among them.

    Attributes:
        people: with the mass around `alone` moved onto it.
        alone: the vulnerable place, A in the documents.
        crowded: the strong one, B.
        around: the cells that were emptied.
    """

    people: Population
    alone: int
    crowded: int
    around: tuple[int, ...]


def with_island(people: Population) -> Island:
    """Dump the mass of the eight cells around a place onto it, and call it A.

    Reference: Biswas 2023, Section 3.4.1, which says "in a low-density area", "in the south-west region" and
    "the grids around A". We take the inner cell of the south-western quarter with the least mass in and
    around it. B is the cell with the most people.
    """
    grid, table = people.grid, people.counts.reshape(people.grid.rows, people.grid.columns)
    inner = [(row, column) for row in range(1, grid.rows // 2) for column in range(1, grid.columns // 2)]
    row, column = min(inner, key=lambda at: int(_around(table, *at).sum()))
    moved = table.copy()
    block = _around(moved, row, column)
    total = block.sum()
    block[:] = 0
    moved[row, column] = total
    alone = row * grid.columns + column
    steps = (-grid.columns, 0, grid.columns)
    around = tuple(alone + up + right for up in steps for right in (-1, 0, 1) if (up, right) != (0, 0))
    island = Population(people.city, grid, moved.reshape(-1))
    return Island(island, alone, int(np.argmax(people.counts)), around)


def _around(table: Cells, row: int, column: int) -> Cells:
    return table[row - 1 : row + 2, column - 1 : column + 2]


PARIS = City(
    "Paris",
    "gowalla_paris_grid.csv.gz",
    11,
    15,
    15,
    {  # Biswas 2023, Table B.1
        1.0: (
            (2.02262, 2.02262, 2.02262, 2.02262, 2.02262),
            (0.27104, 0.27796, 0.28247, 0.27758, 0.26276),
            (0.21916, 0.23750, 0.25035, 0.25116, 0.23241),
            (0.19156, 0.21115, 0.21726, 0.20913, 0.20408),
            (0.18241, 0.19264, 0.19570, 0.19747, 0.18728),
            (0.16526, 0.18020, 0.174578, 0.17310, 0.17268),
            (0.14643, 0.18159, 0.16092, 0.17222, 0.17139),
            (0.13860, 0.17605, 0.15938, 0.17078, 0.16192),
            (0.15047, 0.16926, 0.15153, 0.17005, 0.15266),
            (0.14734, 0.14825, 0.14585, 0.15001, 0.15459),
            (0.14227, 0.14135, 0.14326, 0.13797, 0.14507),
            (0.13818, 0.14448, 0.14703, 0.13589, 0.14142),
            (0.16111, 0.13641, 0.14893, 0.14208, 0.13808),
            (0.13894, 0.13111, 0.14094, 0.14199, 0.14192),
            (0.15106, 0.14271, 0.14601, 0.13584, 0.12413),
        ),
        0.5: (
            (2.02262, 2.02262, 2.02262, 2.02262, 2.02262),
            (0.57738, 0.57994, 0.55791, 0.60717, 0.56880),
            (0.51324, 0.48295, 0.47043, 0.51285, 0.45826),
            (0.43184, 0.42398, 0.41040, 0.45230, 0.41119),
            (0.39741, 0.38771, 0.37284, 0.41176, 0.36953),
            (0.37818, 0.35482, 0.36039, 0.36375, 0.38045),
            (0.35044, 0.34383, 0.34818, 0.35760, 0.36804),
            (0.34086, 0.32983, 0.35769, 0.34430, 0.34780),
            (0.33137, 0.31749, 0.34690, 0.33840, 0.34028),
            (0.3170, 0.32975, 0.32772, 0.34529, 0.32670),
            (0.31917, 0.31851, 0.32689, 0.33667, 0.32043),
            (0.32137, 0.32451, 0.31843, 0.32556, 0.34014),
            (0.31224, 0.31219, 0.31380, 0.31515, 0.31159),
            (0.30883, 0.30496, 0.30578, 0.30726, 0.30282),
            (0.29405, 0.31198, 0.30786, 0.31167, 0.30100),
        ),
    },
)

SAN_FRANCISCO = City(
    "San Francisco",
    "gowalla_sf_grid.csv.gz",
    16,
    24,
    8,
    {  # Biswas 2023, Table B.2
        1.0: (
            (7.37595, 7.37595, 7.37595, 7.37595, 7.37595),
            (0.37229, 0.37038, 0.36784, 0.36949, 0.36816),
            (0.29828, 0.298370, 0.30017, 0.29784, 0.29859),
            (0.26091, 0.26029, 0.26231, 0.26180, 0.26518),
            (0.23472, 0.23419, 0.23337, 0.23740, 0.23897),
            (0.21367, 0.21432, 0.21537, 0.21777, 0.21881),
            (0.19612, 0.19761, 0.19904, 0.20120, 0.20067),
            (0.18244, 0.18412, 0.18741, 0.18724, 0.18674),
        ),
        0.5: (
            (7.37595, 7.37595, 7.37595, 7.37595, 7.37595),
            (0.79621, 0.80474, 0.80219, 0.80670, 0.79940),
            (0.64931, 0.66292, 0.65362, 0.65950, 0.65285),
            (0.56896, 0.57378, 0.57338, 0.57125, 0.56618),
            (0.51672, 0.51710, 0.51735, 0.51880, 0.51138),
            (0.48194, 0.48299, 0.47992, 0.48267, 0.47791),
            (0.45531, 0.45861, 0.45122, 0.45732, 0.45450),
            (0.43588, 0.43745, 0.43558, 0.43704, 0.43584),
        ),
    },
)

CITIES = (PARIS, SAN_FRANCISCO)
