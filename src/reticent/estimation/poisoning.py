"""The shift of each estimate that a share of lying reporters could cause.

Two kinds of liar. One follows the protocol on a false input: no test can tell, and the harm is that
of any survey. The other sends the output of his choice: legal, and amplified by the factor by
which reports are scaled to undo the noise. The smaller epsilon, the larger that factor.

The shifts are of the expectation, for the estimators of `means` and `frequencies` before any
projection or clipping, where a share of the reports is replaced by lies. Noise comes on top.

Reference: Cheu, Smith and Ullman 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from reticent.arguments import real
from reticent.estimation.inputs import checked_support
from reticent.estimation.means import checked_channel
from reticent.mechanisms.numeric.base import NumericChannel


@dataclass(frozen=True)
class Shift:
    """The largest shift of an estimate, up or down, in its own units.

    `by_outputs`: liars choose what is sent. `by_inputs`: liars choose what the mechanism is fed.
    """

    by_outputs: float
    by_inputs: float


def mean_shift(
    channel: NumericChannel, share: float, scale: float = 1.0, *, honest: float | None = None
) -> Shift:
    """Return the largest shift of a mean by a share of liars.

    Args:
        channel: Mechanism of the reports.
        share: Share of liars among all reporters, in [0, 1].
        scale: Factor of a report about the middle of the bounds: d/k if k of d attributes are sampled and a
            liar may choose which.
        honest: Mean that the liars would have reported truthfully; None for the worst.
    """
    checked_channel(channel)
    share = real("share", share, low=0.0, high=1.0)
    scale = real("scale", scale, low=1.0)
    lower, upper = channel.bounds
    lowest, highest = lower, upper
    if honest is not None:
        lowest = highest = real("honest", honest, low=lower, high=upper)
    middle = lower / 2.0 + upper / 2.0
    top = middle + scale * (float(channel.alphabet.max()) - middle)
    bottom = middle + scale * (float(channel.alphabet.min()) - middle)
    return Shift(
        by_outputs=share * max(top - lowest, highest - bottom),
        by_inputs=share * max(upper - lowest, highest - lower),
    )


def frequency_shift(p: float | Fraction, q: float | Fraction, share: float) -> Shift:
    """Return the largest shift of one frequency by a share of liars.

    A report counts (support - q)/(p - q), where an honest one expects 0 or 1. A lie moves it up from
    0 by (1 - q)/(p - q) or down from 1 by p/(p - q).

    Args:
        p: Probability that a report supports the reporter's own value.
        q: Probability that a report supports another given value.
        share: Share of liars among all reporters, in [0, 1].
    """
    own, other = checked_support(p, q)
    share = real("share", share, low=0.0, high=1.0)
    return Shift(by_outputs=share * max(1.0 - other, own) / (own - other), by_inputs=share)
