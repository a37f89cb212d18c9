"""Levels of channels in exact arithmetic, and laws by doubles: what the tests of all channels share."""

from decimal import Context, Decimal
from fractions import Fraction

import numpy as np

from reticent.mechanisms.base import exp_below


def losses(channel, level=None):
    """How many (x, x', y) lose more than level d(x, x'), by the whole numbers that are drawn by."""
    level = channel.level if level is None else level
    rows = [channel.weights(x) for x in range(channel.space.size)]
    totals, found, exactly = [sum(row) for row in rows], 0, Context(prec=80)
    for x, row in enumerate(rows):
        for other, way in enumerate(channel.space.distances(x).tolist()):
            if other != x:
                most = exp_below(exactly.multiply(Decimal(level), Decimal(way)))
                most *= Fraction(totals[x], totals[other])
                up, down = most.numerator, most.denominator
                found += sum(a * down > up * b for a, b in zip(row, rows[other], strict=True))
    return found


def law(channel, place):
    """The law of the whole numbers, in doubles."""
    weights = channel.weights(place)
    total = sum(weights)
    return np.array([float(Fraction(weight, total)) for weight in weights])


def chi_square(counts, probabilities):
    """The chance of counts as odd as these; rare outputs are counted together."""
    from scipy.special import chdtrc

    expected = counts.sum() * np.asarray(probabilities)
    order = np.argsort(expected)
    few = order[np.cumsum(expected[order]) < 10.0]
    many = np.setdiff1d(order, few)
    counts = np.append(counts[many], counts[few].sum())
    expected = np.append(expected[many], expected[few].sum())
    held = expected > 0.0
    assert not counts[~held].any()
    excess = np.square(counts - expected)[held] / expected[held]
    return float(chdtrc(max(1, held.sum() - 1), excess.sum()))
