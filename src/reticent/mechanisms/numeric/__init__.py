"""Local mechanisms for one number: the documents' eight, and ours (`OneBit`, `Window`, `Optimal`)."""

from reticent.mechanisms.numeric.base import NumericChannel, NumericRandomiser
from reticent.mechanisms.numeric.choose import Optimal, best
from reticent.mechanisms.numeric.hybrid import HM, HMTP, PM, Duchi, PMOpt, PMSub, ThreeOutputs
from reticent.mechanisms.numeric.laplace import Laplace
from reticent.mechanisms.numeric.one_bit import OneBit
from reticent.mechanisms.numeric.window import Window

__all__ = [
    "HM",
    "HMTP",
    "PM",
    "Duchi",
    "Laplace",
    "NumericChannel",
    "NumericRandomiser",
    "OneBit",
    "Optimal",
    "PMOpt",
    "PMSub",
    "ThreeOutputs",
    "Window",
    "best",
]
