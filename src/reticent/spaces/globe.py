"""The globe seen from far above one of its points: kilometres that are never longer than on the ground.

    P(v) = R (v . e, v . n)

v is the unit vector of a point, e and n are those to the east and to the north at the centre c of the view,
and R = 6371.0088 km. This is the orthographic projection, and it is taken of the far hemisphere as well.

**P shortens every great circle, over the whole globe.** e and n are orthonormal, so P is R times an
orthogonal projection of space: |P(v) - P(w)| <= R |v - w|. The chord is 2 R sin(a / 2) <= R a for points at
an angle a, and R a is the great circle between them. There is no seam: not at a pole, not at the date line,
not opposite the centre.

**The nearest point of a rectangle shortens too**, as that of every convex set: for the nearest points p, q of
x, y it is (x - p) . (q - p) <= 0 and (y - q) . (p - q) <= 0, and their sum is |p - q|^2 <= (x - y) . (p - q).
So people outside of a rectangle may be counted at its border (`Grid.cells`).

**Some who are far away are counted within, and that cannot be helped.** A continuous map of the globe into
the rectangle that leaves the rectangle in its place takes all of it a second time, from outside: else the
rest of the globe, a disc, could be drawn onto its own border, which no continuous map does. (To push the far
hemisphere radially to the limb is such an attempt: it tears the point opposite the centre, and a service that
chooses the centre finds people by the tear.) A map that shortens enlarges no area, so at least as much as the
rectangle lands in it. Here it is exactly as much: its mirror image through the centre of the Earth. Everybody
else outside is at the border, on the side of the shortest way.

Rounding: the error of P in doubles is below 1e-10 km. Of an angle: 2^-44 degrees by the subtraction (`fmod`
is exact) and 2^-48 radians by the product, together less than 3e-11 km; of the sines, products and sums: at
most 16 units in the last place of R, less than 2e-11 km.

Departure: the Earth is no sphere. A way on this one is at most 0.56 % longer than on WGS84, whose least
radius of curvature is 6335.44 km, north-south at the equator (docs/limits.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from reticent.spaces.finite import Floats

RADIUS_KM = 6371.0088


@dataclass(frozen=True)
class View:
    """The globe from far above a point.

    Args:
        latitude: Latitude of the centre, in degrees.
        longitude: Longitude of the centre.
    """

    latitude: float
    longitude: float

    def kilometres(self, latitudes: Floats, longitudes: Floats) -> tuple[Floats, Floats]:
        """Return how far east and north of the centre points are seen: P, a total function.

        A latitude beyond a pole is the pole; longitudes go around the world. What has no number for one of
        them, or an infinite longitude, is at the centre.
        """
        with np.errstate(invalid="ignore"):
            north = np.radians(np.clip(latitudes, -90.0, 90.0))
            east = np.radians(np.fmod(longitudes, 360.0) - self.longitude)
        cosine, here = np.cos(north), math.radians(self.latitude)
        across = RADIUS_KM * cosine * np.sin(east)
        up = RADIUS_KM * (math.cos(here) * np.sin(north) - math.sin(here) * cosine * np.cos(east))
        return np.nan_to_num(across, nan=0.0), np.nan_to_num(up, nan=0.0)

    def degrees(self, east: Floats, north: Floats) -> Floats:
        """Return latitudes and longitudes (last axis) of points seen on the near hemisphere.

        Longitudes go on beyond the date line, so that what is seen in one piece stays in one.
        """
        here = math.radians(self.latitude)
        x, y = np.asarray(east) / RADIUS_KM, np.asarray(north) / RADIUS_KM
        z = np.sqrt(np.maximum(0.0, 1.0 - x * x - y * y))
        latitude = np.arcsin(np.clip(y * math.cos(here) + z * math.sin(here), -1.0, 1.0))
        longitude = np.arctan2(x, z * math.cos(here) - y * math.sin(here))
        return np.stack([np.degrees(latitude), self.longitude + np.degrees(longitude)], axis=-1)
