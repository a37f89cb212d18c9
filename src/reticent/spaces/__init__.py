"""Spaces where people can be: grids, finite metric sets, road networks; and sums that fall with distance."""

from reticent.spaces.finite import FiniteSpace
from reticent.spaces.grid import Box, Grid
from reticent.spaces.kernels import Kernel, kernel
from reticent.spaces.roads import RoadMap, Roads, Stations, cut, read_map

__all__ = [
    "Box",
    "FiniteSpace",
    "Grid",
    "Kernel",
    "RoadMap",
    "Roads",
    "Stations",
    "cut",
    "kernel",
    "read_map",
]
