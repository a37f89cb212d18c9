"""Local mechanisms for one category out of a declared list, and the choice between them.

What is named here is loaded when it is first used: a device loads the mechanism that its survey names.
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from reticent.mechanisms.categorical.base import Categories, FrequencyOracle
    from reticent.mechanisms.categorical.choose import best
    from reticent.mechanisms.categorical.krr import KRR
    from reticent.mechanisms.categorical.olh import OLH
    from reticent.mechanisms.categorical.oue import OUE

__all__ = ["KRR", "OLH", "OUE", "Categories", "FrequencyOracle", "best"]

_HOMES = {
    "KRR": "krr",
    "OLH": "olh",
    "OUE": "oue",
    "Categories": "base",
    "FrequencyOracle": "base",
    "best": "choose",
}


def __getattr__(name: str) -> _typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'reticent.mechanisms.categorical' has no attribute {name!r}")
    return getattr(_import_module(f"reticent.mechanisms.categorical.{_HOMES[name]}"), name)
