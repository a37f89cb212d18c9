"""Channels for places: a true cell in, a reported cell out, private by distance.

`elastic` is the form that all published channels of PRIVIC have, `blahut_arimoto` finds the best of that
form, `tables` holds channels given by a matrix: planar Laplace cut into cells, and linear programs.
`truncated_laplace` is noise on a road network that ends at a radius, `exposure` what it gives away.
"""

from reticent.mechanisms.location.blahut_arimoto import blahut_arimoto, for_distortion
from reticent.mechanisms.location.elastic import ElasticChannel, exponential, keeping
from reticent.mechanisms.location.planar_laplace import planar_laplace
from reticent.mechanisms.location.tables import TableChannel, linear_program
from reticent.mechanisms.location.truncated_laplace import TruncatedLaplace

__all__ = [
    "ElasticChannel",
    "TableChannel",
    "TruncatedLaplace",
    "blahut_arimoto",
    "exponential",
    "for_distortion",
    "keeping",
    "linear_program",
    "planar_laplace",
]
