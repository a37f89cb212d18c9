"""Serialisation of mechanisms: the few numbers in a survey from which a device rebuilds each mechanism.

Rebuilding checks the guarantee in exact integers and solves nothing: solved parts (the outputs of a `Window`,
the table of a `Tailored`) are in the survey. `Laplace` has no finite alphabet and cannot travel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms import categorical
from reticent.mechanisms.attributes import Attribute, Category, Number
from reticent.mechanisms.base import Channel
from reticent.mechanisms.catalogue import CATEGORICAL, NUMERIC, loaded, travelling
from reticent.mechanisms.numeric.base import NumericChannel

if TYPE_CHECKING:
    from reticent.mechanisms.categorical import FrequencyOracle

Instrument: TypeAlias = "NumericChannel | FrequencyOracle"

MOST_OUE_CATEGORIES = 1024  # a report of OUE has a bit for each


def described(instrument: Instrument) -> dict[str, Any]:
    """Return the numbers that describe a mechanism, apart from what its attribute declares."""
    kind, kinds = type(instrument).__name__, NUMERIC | CATEGORICAL
    fields = loaded(kind).travels if kind in kinds and type(instrument) is loaded(kind) else None
    if fields is None:
        raise ParameterError(f"mechanism must be one of {', '.join(travelling(kinds))}, got {kind}")
    found: dict[str, Any] = {"kind": kind, "epsilon": instrument.epsilon}
    for field in fields:
        value = getattr(instrument, field, None)
        if value is not None:
            found[field] = value.tolist() if hasattr(value, "tolist") else value
    return found


def made(attribute: Attribute, given: Any) -> Instrument:
    """Build the mechanism of an attribute from its numbers, and check its guarantee exactly.

    Raises:
        ParameterError: a field is missing, unknown or breaks its rule.
        GuaranteeError: the numbers do not keep the epsilon that they claim.
    """
    where = f"mechanism of {attribute.name}"
    if not isinstance(given, Mapping):
        raise ParameterTypeError(f"{where} must be an object, got {type(given).__name__}")
    kinds = CATEGORICAL if isinstance(attribute, Category) else NUMERIC
    kind = given.get("kind")
    fields = loaded(kind).travels if isinstance(kind, str) and kind in kinds else None
    if fields is None:
        raise ParameterError(f"{where}: kind must be one of {', '.join(travelling(kinds))}, got {kind!r:.60}")
    assert isinstance(kind, str)
    unknown = [name for name in given if name not in ("kind", "epsilon", *fields)]
    if unknown or "epsilon" not in given:
        raise ParameterError(f"{where}: fields must be kind, epsilon, {', '.join(fields)}".rstrip(", "))
    options = {name: given[name] for name in ("epsilon", *fields) if name in given}
    if isinstance(attribute, Category):
        options |= {"categories": attribute.values, "fallback": attribute.fallback}
    else:
        options["bounds"] = attribute.bounds
    if kind in ("Window", "Tailored") and "y" not in options:
        raise ParameterError(f"{where}: y must hold the outputs: a device solves nothing")
    try:
        instrument: Instrument = loaded(kind)(**options)
    except (ParameterError, ParameterTypeError) as error:
        raise ParameterError(f"{where}: {error}") from error
    if kind == "OUE" and instrument.bits > MOST_OUE_CATEGORIES:
        raise ParameterError(f"{where}: OUE must have at most {MOST_OUE_CATEGORIES} categories")
    return instrument


def fits(attribute: Attribute, instrument: Instrument) -> bool:
    """Return whether a mechanism has the bounds or values that an attribute declares."""
    if isinstance(attribute, Number):
        return isinstance(instrument, NumericChannel) and instrument.bounds == attribute.bounds
    if isinstance(instrument, NumericChannel):
        return False
    mine, declared = instrument.categories, categorical.Categories(attribute.values, attribute.fallback)
    return (mine.size, mine.labels, mine.fallback) == (declared.size, declared.labels, declared.fallback)


def worst_variance(instrument: Instrument, rate: float) -> float:
    """Return the largest variance that one report adds to an estimate, over all values of devices.

    If a share `rate` of the devices reports an attribute, their selection adds the spread of the values.
    """
    if isinstance(instrument, NumericChannel):
        lower, upper = instrument.bounds
        values = np.linspace(lower, upper, 257)
        noise, spread = instrument.variance(values), (values - (lower / 2.0 + upper / 2.0)) ** 2
    else:
        shares = np.linspace(0.0, 1.0, 257)
        noise, spread = instrument.frequency_variance(shares), shares * (1.0 - shares)
    return float(np.max(noise + (1.0 - rate) * spread))


def columns(instrument: Instrument) -> int:
    """Return the number of symbols, or categories, that are counted."""
    return instrument.size if isinstance(instrument, Channel) else instrument.categories.size
