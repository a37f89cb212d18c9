"""Local mechanisms for one category out of a declared list, and the choice between them."""

from reticent.mechanisms.categorical.base import Categories, FrequencyOracle
from reticent.mechanisms.categorical.choose import best
from reticent.mechanisms.categorical.krr import KRR
from reticent.mechanisms.categorical.olh import OLH
from reticent.mechanisms.categorical.oue import OUE

__all__ = ["KRR", "OLH", "OUE", "Categories", "FrequencyOracle", "best"]
