"""Local mechanisms for one number: the documents' eight, and ours (`OneBit`, `Window`, `Optimal`).

What is named here is loaded when it is first used: a device loads the mechanism that its survey names.
"""

import typing as _typing
from importlib import import_module as _import_module

from reticent.mechanisms.catalogue import NUMERIC as _NUMERIC

if _typing.TYPE_CHECKING:
    from reticent.mechanisms.numeric.base import (
        NumericChannel as NumericChannel,
    )
    from reticent.mechanisms.numeric.base import (
        NumericRandomiser as NumericRandomiser,
    )
    from reticent.mechanisms.numeric.choose import Optimal as Optimal
    from reticent.mechanisms.numeric.choose import best as best
    from reticent.mechanisms.numeric.hybrid import (
        HM as HM,
    )
    from reticent.mechanisms.numeric.hybrid import (
        HMTP as HMTP,
    )
    from reticent.mechanisms.numeric.hybrid import (
        PM as PM,
    )
    from reticent.mechanisms.numeric.hybrid import (
        Duchi as Duchi,
    )
    from reticent.mechanisms.numeric.hybrid import (
        PMOpt as PMOpt,
    )
    from reticent.mechanisms.numeric.hybrid import (
        PMSub as PMSub,
    )
    from reticent.mechanisms.numeric.hybrid import (
        ThreeOutputs as ThreeOutputs,
    )
    from reticent.mechanisms.numeric.laplace import Laplace as Laplace
    from reticent.mechanisms.numeric.one_bit import OneBit as OneBit
    from reticent.mechanisms.numeric.priors import Prior as Prior
    from reticent.mechanisms.numeric.tailored import Tailored as Tailored
    from reticent.mechanisms.numeric.window import Window as Window

_HOMES = _NUMERIC | {
    "NumericChannel": "base",
    "NumericRandomiser": "base",
    "Optimal": "choose",
    "Prior": "priors",
    "best": "choose",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> _typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'reticent.mechanisms.numeric' has no attribute {name!r}")
    return getattr(_import_module(f"reticent.mechanisms.numeric.{_HOMES[name]}"), name)
