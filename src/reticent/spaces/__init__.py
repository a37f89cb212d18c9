"""Where people can be: grids, finite sets with a metric, and sums over them that fall with distance."""

from reticent.spaces.finite import FiniteSpace
from reticent.spaces.grid import Box, Grid
from reticent.spaces.kernels import Kernel, kernel

__all__ = ["Box", "FiniteSpace", "Grid", "Kernel", "kernel"]
