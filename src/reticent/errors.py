"""The exception tree, one root, so that callers catch by meaning.

    ReticentError
    |-- ParameterError (also a ValueError)     an argument breaks its rule; nothing was done
    |-- ParameterTypeError (also a TypeError)  an argument is of the wrong type; nothing was done
    |-- GuaranteeError                          a mechanism or channel does not keep its claim
    |-- MixedGuarantees                         guarantees of different kinds cannot be combined
    `-- MissingExtra (also an ImportError)     an optional part is not installed

Messages name the field, the rule and the value of a *parameter*. They never hold private data.
"""

from __future__ import annotations


class ReticentError(Exception):
    """Root of every error that Reticent raises on purpose."""


class ParameterError(ReticentError, ValueError):
    """A parameter has the right type and breaks its rule."""


class ParameterTypeError(ReticentError, TypeError):
    """A parameter has the wrong type."""


class GuaranteeError(ReticentError):
    """A mechanism or channel fails the exact check of the guarantee that it claims."""


class MixedGuarantees(ReticentError):
    """Two guarantees differ in kind, unit of protection or neighbours and do not combine."""


class MissingExtra(ReticentError, ImportError):
    """A feature needs an optional dependency that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional part: pip install 'reticent[{extra}]'")
        self.feature, self.extra = feature, extra
