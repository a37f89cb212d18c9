"""Several numbers at once.

`VectorDuchi` reports d numbers of declared bounds under epsilon-LDP with d bits, `Codebook` a vector of
bounded length with a few. `VectorLaplace` reports a point of R^n under metric privacy: the loss grows with
the distance.
"""

from reticent.mechanisms.vector.codebook import Codebook
from reticent.mechanisms.vector.duchi import VectorDuchi, central_binomial_share
from reticent.mechanisms.vector.laplace import VectorLaplace

__all__ = ["Codebook", "VectorDuchi", "VectorLaplace", "central_binomial_share"]
