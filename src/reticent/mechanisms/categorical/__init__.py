"""Local mechanisms for one category out of a declared list, and the choice between them.

What is named here is loaded when it is first used: a device loads the mechanism that its survey names.
"""

import typing as _typing
from importlib import import_module as _import_module

from reticent.mechanisms.catalogue import CATEGORICAL as _CATEGORICAL

if _typing.TYPE_CHECKING:
    from reticent.mechanisms.categorical.base import (
        Categories as Categories,
    )
    from reticent.mechanisms.categorical.base import (
        FrequencyOracle as FrequencyOracle,
    )
    from reticent.mechanisms.categorical.choose import best as best
    from reticent.mechanisms.categorical.krr import KRR as KRR
    from reticent.mechanisms.categorical.olh import OLH as OLH
    from reticent.mechanisms.categorical.oue import OUE as OUE
    from reticent.mechanisms.categorical.subset import Subset as Subset

_HOMES = _CATEGORICAL | {
    "Categories": "base",
    "FrequencyOracle": "base",
    "best": "choose",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> _typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'reticent.mechanisms.categorical' has no attribute {name!r}")
    return getattr(_import_module(f"reticent.mechanisms.categorical.{_HOMES[name]}"), name)
