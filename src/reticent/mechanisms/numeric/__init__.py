"""Local mechanisms for one number: the documents' eight, and ours (`OneBit`, `Window`, `Optimal`).

What is named here is loaded when it is first used: a device loads the mechanism that its survey names.
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
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

_HOMES = {
    "HM": "hybrid",
    "HMTP": "hybrid",
    "PM": "hybrid",
    "Duchi": "hybrid",
    "Laplace": "laplace",
    "NumericChannel": "base",
    "NumericRandomiser": "base",
    "OneBit": "one_bit",
    "Optimal": "choose",
    "PMOpt": "hybrid",
    "PMSub": "hybrid",
    "ThreeOutputs": "hybrid",
    "Window": "window",
    "best": "choose",
}


def __getattr__(name: str) -> _typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'reticent.mechanisms.numeric' has no attribute {name!r}")
    return getattr(_import_module(f"reticent.mechanisms.numeric.{_HOMES[name]}"), name)
