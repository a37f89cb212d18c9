"""The integers of the ledger: 1 unit = 1e-12 of mu^2, of epsilon, or of epsilon per unit of distance.

Costs round up (and are at least one unit), caps round down, and both are exact: every number goes
through `Fraction`, never through float arithmetic. In JSON amounts are decimal strings of units,
since 2^62 does not fit the numbers of a browser.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.arguments import real, whole
from reticent.errors import MixedGuarantees, ParameterError, ParameterTypeError

if TYPE_CHECKING:
    from reticent.privacy.guarantees import Guarantee

UNITS_PER_ONE = 10**12
MAX_UNITS = 2**62 - 1

Amount = int | float | Fraction | Decimal

_UNITS = re.compile(r"0|[1-9][0-9]{0,18}")
_DECIMAL = re.compile(r"(?:0|[1-9][0-9]{0,29})(?:\.[0-9]{1,30})?")


def cost_units(amount: Amount) -> int:
    """`amount` in ledger units, rounded up exactly: a cost. A positive cost is at least one unit.

    >>> cost_units(0.1)  # the float 0.1 is a little more than a tenth
    100000000001
    """
    return _in_range("cost", math.ceil(_exact("cost", amount) * UNITS_PER_ONE))


def cap_units(amount: Amount) -> int:
    """`amount` in ledger units, rounded down exactly: a cap.

    >>> cap_units(0.1)
    100000000000
    """
    return _in_range("cap", math.floor(_exact("cap", amount) * UNITS_PER_ONE))


def mu2_cost(guarantee: Guarantee) -> int:
    """Return the cost of a release to an account in mu^2: mu^2 of a GDP release, or of a pure one by its mu.

    Raises:
        MixedGuarantees: The kind has no sound place in a mu^2 account. rho-zCDP is not GDP (mathematics 4.4),
            and local and metric guarantees have accounts of their own.
    """
    from reticent.privacy.conversions import pure_to_mu  # devices need none of it
    from reticent.privacy.guarantees import GaussianDP, PureDP

    if isinstance(guarantee, GaussianDP):
        return cost_units(Fraction(guarantee.mu) ** 2)
    if isinstance(guarantee, PureDP):
        return cost_units(Fraction(pure_to_mu(guarantee.epsilon)) ** 2)
    raise MixedGuarantees(f"an account in mu2 takes GaussianDP or PureDP, got {type(guarantee).__name__}")


def pure_mu2_units(epsilon_units: int) -> int:
    """Return the cost of a pure release to an account in mu^2, in its units, rounded up.

    The release is given by its units of epsilon.
    """
    from reticent.privacy.conversions import pure_to_mu
    from reticent.privacy.rounding import float_up

    units = whole("epsilon_units", epsilon_units, low=1, high=MAX_UNITS)
    return cost_units(Fraction(pure_to_mu(float_up(Fraction(units, UNITS_PER_ONE)))) ** 2)


def spent_epsilon(mu2_units: int, delta: float) -> float:
    """Return the epsilon at `delta` of everything spent in a mu^2 account, rounded up: shown to people."""
    from reticent.privacy.gaussian_curve import epsilon_of
    from reticent.privacy.rounding import sqrt_up

    units = whole("mu2_units", mu2_units, low=0, high=MAX_UNITS)
    return epsilon_of(sqrt_up(Fraction(units, UNITS_PER_ONE)), delta)


@dataclass(frozen=True)
class Budget:
    """A budget as people state it, and the cap in mu^2 that keeps it.

    >>> Budget(epsilon=1.0, delta=1e-5).mu2_cap
    71851404654
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        epsilon = real("epsilon", self.epsilon, low=0.0, open_low=True)
        delta = real("delta", self.delta, low=0.0, high=1.0, open_low=True, open_high=True)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)

    @property
    def mu2_cap(self) -> int:
        """floor(mu^2 * 1e12), mu the largest that keeps (epsilon, delta): rounded down twice.

        Reference: Balle and Wang 2018, Theorem 8, inverted.
        """
        from reticent.privacy.gaussian_curve import mu_of

        return cap_units(Fraction(mu_of(self.epsilon, self.delta)) ** 2)


def parse_units(text: str) -> int:
    """Units from JSON: digits only, no sign, exponent, space or leading zero, at most 2^62 - 1."""
    if not isinstance(text, str):
        raise ParameterTypeError(f"units must be a decimal string, got {_brief(text)}")
    if not _UNITS.fullmatch(text):
        raise ParameterError(f"units must be digits, no sign, exponent or leading zero, got {_brief(text)}")
    return _in_range("units", int(text))


def format_units(units: int) -> str:
    """Units for JSON: the inverse of `parse_units`."""
    return str(whole("units", units, low=0, high=MAX_UNITS))


def parse_decimal(text: str) -> Fraction:
    """Return a number that a person typed, exactly: "0.5". No sign, exponent, space or leading zero.

    At most 30 digits on either side of the point, so that no input is slow to read.
    """
    if not isinstance(text, str):
        raise ParameterTypeError(f"number must be a decimal string, got {_brief(text)}")
    if not _DECIMAL.fullmatch(text):
        raise ParameterError(f"number must be plain digits such as 0.5, got {_brief(text)}")
    return Fraction(text)


def _exact(name: str, amount: Any) -> Fraction:
    """Return the exact value of a non-negative amount."""
    if isinstance(amount, (bool, np.bool_)):
        raise ParameterTypeError(f"{name} must be a number, got {amount!r}")
    if isinstance(amount, Decimal):
        exact = _from_decimal(name, amount)
    elif isinstance(amount, (int, Fraction, np.integer)):
        exact = Fraction(int(amount)) if isinstance(amount, np.integer) else Fraction(amount)
    elif isinstance(amount, (float, np.floating)):
        exact = Fraction(real(name, amount))
    else:
        raise ParameterTypeError(f"{name} must be a number, got {_brief(amount)}")
    if exact < 0:
        raise ParameterError(f"{name} must be >= 0, got {_brief(amount)}")
    return exact


def _from_decimal(name: str, amount: Decimal) -> Fraction:
    """Return the exact value, without building a huge power of ten: far exponents round outwards safely."""
    if not amount.is_finite():
        raise ParameterError(f"{name} must be finite, got {amount}")
    if amount == 0 or -60 <= amount.adjusted() <= 60:
        return Fraction(amount)
    if amount.adjusted() > 60:
        raise ParameterError(f"{name} must be <= {MAX_UNITS} units of 1e-12, got {_brief(amount)}")
    tiny = Fraction(1, 10**60)  # above the amount and far below one unit: up is one unit, down is zero
    return tiny if amount > 0 else -tiny


def _in_range(name: str, units: int) -> int:
    if units > MAX_UNITS:
        raise ParameterError(f"{name} must be <= {MAX_UNITS} units of 1e-12, got {_brief(units)}")
    return units


def _brief(given: Any) -> str:
    """Return a short one-line rendering; long integers by their size, since printing them can be slow."""
    if isinstance(given, (int, Fraction)):
        bits = max(given.numerator.bit_length(), given.denominator.bit_length())
        if bits > 200:
            return f"a number of {bits} bits"
    text = " ".join((given if isinstance(given, str) else str(given))[:61].split())
    shown = repr(text) if isinstance(given, str) else text
    return shown if len(shown) <= 60 else shown[:57] + "..."
