"""Roads as places: maps read from files, cut into equal segments, searched within limits.

`reading` reads a map, `cutting` makes places of it, `network` is the space that channels are on, `stations`
says which sites are nearest by car.
"""

from reticent.spaces.roads.cutting import cut
from reticent.spaces.roads.graph import Graph, Rows
from reticent.spaces.roads.maps import RoadMap, Street
from reticent.spaces.roads.network import Roads
from reticent.spaces.roads.reading import read_map
from reticent.spaces.roads.stations import Stations

__all__ = ["Graph", "RoadMap", "Roads", "Rows", "Stations", "Street", "cut", "read_map"]
