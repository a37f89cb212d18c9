"""Coarser answers from finer ones, for the policy `degrade`: a price tier, no privacy feature.

A request for less than is bought gets the recorded answer plus noise, so that it is worth what was requested.
The draws are nested: an answer at information t is any finer one plus independent noise, a Brownian
motion in 1/t. So many coarser answers together reveal nothing that the finest of them does not, and the
finest paid one bounds them all (mathematics 4.9). A draw is stored before it is shown, and shown again when
the request is repeated.

The privacy of everything here is that of the recorded answer: this is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query.measure import LARGEST, Plan
from reticent.query.notebook import Notebook
from reticent.query.shared_notebook import SharedNotebook
from reticent.randomness import Stream, secure_or


def degraded(
    plan: Plan,
    best: Sequence[Fraction],
    bought: int,
    wanted: int,
    notebook: Notebook | SharedNotebook,
    rng: Stream | None = None,
) -> list[int]:
    """Return the answer at `wanted` units of mu^2 <= `bought`, in grid units; repeated calls return the same.

    The recorded answer itself is stored as well when it is shown: after a further purchase it is one of the
    coarser answers, and a second draw at its level would reveal more beside it.

    Args:
        plan: Measurement plan of the question.
        best: Recorded vector, worth `bought` units.
        bought: Units that are recorded.
        wanted: Units that the answer shall be worth.
        notebook: Store of the draws.
        rng: Random stream; the secure stream by default.
    """
    with notebook.drawing(plan.question.key) as drawn:
        found = drawn.get(wanted)
        if found is None:
            found = _draw(plan, best, bought, wanted, drawn, secure_or(rng))
            drawn[wanted] = found
    return found


def _draw(
    plan: Plan,
    best: Sequence[Fraction],
    bought: int,
    wanted: int,
    drawn: dict[int, list[int]],
    rng: Stream,
) -> list[int]:
    """Draw a point of the Brownian motion between the next finer and the next coarser known points.

    With v = 1/t and the neighbours at v_f < v < v_c, the point has mean A_f + (v - v_f)/(v_c - v_f)
    (A_c - A_f) and variance D^2 (v - v_f)(v_c - v)/(v_c - v_f); without a coarser one, mean A_f and
    variance D^2 (v - v_f).
    """
    finer = min((one for one in drawn if wanted < one < bought), default=bought)
    coarser = max((one for one in drawn if one < wanted), default=None)
    above: Sequence[Fraction | int] = best if finer == bought else drawn[finer]
    v, v_f = Fraction(UNITS_PER_ONE, wanted), Fraction(UNITS_PER_ONE, finer)
    part, variance = Fraction(0), v - v_f
    below: Sequence[Fraction | int] = above
    if coarser is not None:
        v_c = Fraction(UNITS_PER_ONE, coarser)
        part, variance = (v - v_f) / (v_c - v_f), (v - v_f) * (v_c - v) / (v_c - v_f)
        below = drawn[coarser]
    sigma = plan.sensitivity * math.sqrt(variance)
    noise = _normal(len(above), rng)
    return [
        min(LARGEST, max(-LARGEST, round(a + part * (Fraction(b) - a)) + round(sigma * z)))
        for a, b, z in zip(above, below, noise, strict=True)
    ]


def _normal(size: int, rng: Stream) -> list[float]:
    """Return standard normal numbers from a stream, by the formula of Box and Muller."""
    u = rng.units(2 * size) - 1.0
    return [
        math.sqrt(-2.0 * math.log1p(-float(a))) * math.cos(2.0 * math.pi * float(b))
        for a, b in zip(u[:size], u[size:], strict=True)
    ]
