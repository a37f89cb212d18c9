"""The number of seats of an output: sortition by stake, as integers that a contract computes alike.

A miner with `stake` of `total` units sits as often as units are drawn, each with chance p = expected / total.

Reference: Zhao 2022, 5.1.1 (2); mathematics 6.3.
Departure: j is the least with u < CDF(j), that is u in [CDF(j-1), CDF(j)). As printed the intervals are
    shifted by one: [0, CDF(0)) belongs to no j, and 1 of 2.7 seats is lost at 100 units.
    Who leads is the least hash of output and number, not the most seats: those tie.
"""

from __future__ import annotations

from math import comb

from reticent.arguments import whole
from reticent.errors import ParameterError

MOST_UNITS = (1 << 32) - 1  # of stake, of all miners together
MOST_EXPECTED = 765  # seats of a committee; three times 255
MOST_SEATS = 1000  # of one miner in one draw

_BITS = 120  # of a fraction
_ONE = 1 << _BITS
_HALF = _ONE >> 1
_LARGE = 1 << 152
_SHIFT = 32


def seats(output: bytes, stake: int, total: int, expected: int) -> int:
    """Return the number of seats of an output of 32 bytes.

    Fractions have 120 bits and floating exponents, so that no chance vanishes. All are rounded down: CDFs are
    below the true ones by less than (stake + 2 j) 2**-118, which is the chance that a draw is not exact.

    Raises:
        ParameterError: an argument is out of range.
    """
    u = _fraction(output) >> (256 - _BITS)
    _check(stake, total, expected)
    if expected >= total:
        return min(stake, MOST_SEATS)
    term, exponent = _power((total - expected) * _ONE // total, stake)
    below = 0
    for j in range(min(stake, MOST_SEATS)):
        below += term >> exponent  # CDF(j)
        if u < below:
            return j
        term = term * ((stake - j) * expected) // ((j + 1) * (total - expected))  # pmf(j + 1)
        if term >= _LARGE:
            shift = min(exponent, _SHIFT)
            term, exponent = term >> shift, exponent - shift
    return min(stake, MOST_SEATS)


def _power(base: int, times: int) -> tuple[int, int]:
    """Return base**times by squaring: a fraction of at least a half, and how often it is halved."""
    found, halvings, more = _ONE, 0, 0
    while base < _HALF:
        base, more = base << 1, more + 1
    while times:
        if times & 1:
            found, halvings = _times(found, base, halvings + more)
        base, more = _times(base, base, 2 * more)
        times >>= 1
    return found, halvings


def _times(one: int, other: int, halvings: int) -> tuple[int, int]:
    product = one * other >> _BITS
    return (product << 1, halvings + 1) if product < _HALF else (product, halvings)


def seats_exactly(output: bytes, stake: int, total: int, expected: int) -> int:
    """Return `seats` by exact integers of any length; for small stakes, and to check the fast function."""
    u = _fraction(output)
    _check(stake, total, expected)
    if expected >= total:
        return stake
    whole_range, below = total**stake * u, 0
    for j in range(stake):
        below += comb(stake, j) * expected**j * (total - expected) ** (stake - j)
        if whole_range < below << 256:
            return j
    return stake


def priority(output: bytes, count: int) -> int:
    """Return the least hash of an output and its seat numbers; the miner with the least of all leads."""
    from eth_utils.crypto import keccak

    _fraction(output)
    whole("count", count, low=1, high=MOST_SEATS)
    return min(int.from_bytes(keccak(output + number.to_bytes(32))) for number in range(1, count + 1))


def _fraction(output: bytes) -> int:
    if not isinstance(output, bytes) or len(output) != 32:
        raise ParameterError("output must be 32 bytes")
    return int.from_bytes(output)


def _check(stake: int, total: int, expected: int) -> None:
    whole("total", total, low=1, high=MOST_UNITS)
    whole("stake", stake, low=0, high=total)
    whole("expected", expected, low=1, high=MOST_EXPECTED)
