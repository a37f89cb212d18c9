"""Structural checks of randomisers that cannot be enumerated whole: unary, hashed, vector and noise.

Each check lets the mechanism verify itself (`check()`), then works the ratio out again from its public
parameters by another road: small cases are enumerated into a full matrix, two-level laws are recomputed
from p and q, noise is compared on exact products of its thresholds.

What it proves: the law that the parameters describe keeps the claim. What it does not: that
the sampler follows the parameters (see `fit`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from reticent.audit.exact import check_matrix, log_ratio
from reticent.audit.findings import ExactFinding
from reticent.errors import GuaranteeError
from reticent.mechanisms.base import exp_below
from reticent.mechanisms.categorical import OLH, OUE, Subset
from reticent.mechanisms.gaussian import DiscreteGaussian
from reticent.mechanisms.geometric import GeometricDigits, TwoSidedGeometric
from reticent.mechanisms.numeric.laplace import Laplace
from reticent.mechanisms.vector import Codebook, VectorDuchi, VectorLaplace, central_binomial_share
from reticent.privacy import delta_of
from reticent.randomness import SimulationStream

_ENUMERATED_BITS = 4
_ENUMERATED_CATEGORIES = 256
_ENUMERATED_DIMENSIONS = 5
_FLOAT_SLACK = 1e-9
_SEEDS = (0, 1, 1 << 63)  # of codebooks that are looked at


def check_structure(mechanism: Any) -> ExactFinding:
    """Run the structural check made for the kind of `mechanism`."""
    checks = (
        (OUE, check_unary),
        (OLH, check_hashed),
        (Subset, check_subsets),
        (VectorDuchi, check_half_spaces),
        (VectorLaplace, check_translated),
        (Codebook, check_codebook),
        (Laplace, check_grid_noise),
        (TwoSidedGeometric, check_geometric),
        (DiscreteGaussian, check_gaussian),
    )
    for kind, check in checks:
        if isinstance(mechanism, kind):
            refusal = _refusal(mechanism)
            return refusal if refusal is not None else check(mechanism)
    raise TypeError(f"no structural check is known for {type(mechanism).__name__}")


def _refusal(mechanism: Any) -> ExactFinding | None:
    """Return the finding of the mechanism's own check, if that check fails."""
    try:
        getattr(mechanism, "check", lambda: None)()
    except GuaranteeError as err:
        return ExactFinding("exact", False, f"its own check fails: {err}")
    return None


def _finding(top: Fraction, low: Fraction, epsilon: float, what: str, inputs: int = 2) -> ExactFinding:
    passed = low > 0 and top <= exp_below(epsilon) * low
    loss = log_ratio(top, low)
    detail = f"{what}: largest log-ratio {loss:.12g}, {'within' if passed else 'exceeds'} {epsilon:g}"
    return ExactFinding("exact", passed, detail, loss=loss, inputs=inputs)


def check_unary(oracle: Any) -> ExactFinding:
    """Check unary encoding from p and q: a full matrix of all bit rows for up to four categories.

    Two inputs differ in two bits only, so the matrix for a few categories has the ratios of all.
    """
    p, q = Fraction(oracle.p), Fraction(oracle.q)
    k = min(oracle.categories.size, _ENUMERATED_BITS)
    rows = []
    for true in range(k):
        chances = [p if bit == true else q for bit in range(k)]
        rows.append(
            [
                Fraction(math.prod(c if bit else 1 - c for c, bit in zip(chances, bits, strict=True)))
                for bits in product((0, 1), repeat=k)
            ]
        )
    return check_matrix(rows, oracle.guarantee.epsilon, names=[f"category {i}" for i in range(k)])


def check_hashed(oracle: Any) -> ExactFinding:
    """Check local hashing: given the public seed, randomised response over g buckets with keep = p."""
    keep, g = Fraction(oracle.p), int(oracle.buckets)
    other = (1 - keep) / (g - 1)
    top, low = max(keep, other), min(keep, other)
    return _finding(top, low, oracle.guarantee.epsilon, f"response over {g} buckets, given the seed", g)


def check_subsets(oracle: Any) -> ExactFinding:
    """Check subsets, given the public seed: all shifts for several seeds, from p and the sets alone.

    Beyond 256 categories the two levels of that matrix alone are compared.
    """
    w, m, p = int(oracle.subset_size), int(oracle.modulus), Fraction(oracle.p)
    inside, outside = p / w, (1 - p) / (m - w)
    epsilon, k = oracle.guarantee.epsilon, oracle.categories.size
    if k > _ENUMERATED_CATEGORIES:
        top, low = max(inside, outside), min(inside, outside)
        return _finding(top, low, epsilon, f"shifts of sets of {w} out of {m}, given the seed", k)
    finding = None
    for seed in sorted({0, oracle.seeds // 2, oracle.seeds - 1}):
        sets = [set(held) for held in oracle.sets(seed * m + np.arange(m)).tolist()]
        rows = [[inside if true in held else outside for held in sets] for true in range(k)]
        finding = check_matrix(rows, epsilon, names=[f"category {true}" for true in range(k)])
        if not finding.passed:
            return finding
    assert finding is not None
    return finding


def check_half_spaces(mechanism: Any) -> ExactFinding:
    """Check Duchi's vector: all corners against all corners for up to five dimensions, exactly.

    Laws of other inputs are mixtures of those of the corners. In more dimensions a sister with
    the same epsilon and the same parity is enumerated, and the chance to agree is worked out from
    `scale` in doubles.
    """
    d, epsilon = mechanism.dimensions, mechanism.guarantee.epsilon
    small = mechanism
    if d > _ENUMERATED_DIMENSIONS:
        small = type(mechanism)(epsilon=epsilon, dimensions=_ENUMERATED_DIMENSIONS - (d + 1) % 2)
    lower, upper = small.bounds
    corners = list(product((lower, upper), repeat=small.dimensions))
    laws = [small.exact_probabilities(corner) for corner in corners]
    rows = [[law[key] for key in sorted(law)] for law in laws]
    finding = check_matrix(rows, epsilon, names=[f"corner {index}" for index in range(len(corners))])
    if small is mechanism or not finding.passed:
        return finding
    half = mechanism.bounds[1] / 2.0 - mechanism.bounds[0] / 2.0
    gain = half / (mechanism.scale * central_binomial_share(d))  # 2 agree - 1
    loss = math.log1p(gain) - math.log1p(-gain)
    passed = loss <= epsilon + _FLOAT_SLACK
    detail = f"{finding.detail} (in {small.dimensions} dimensions); from the scale, in doubles, {loss:.9g}"
    return ExactFinding("exact", passed, detail, loss=max(loss, finding.loss), inputs=finding.inputs)


def check_codebook(mechanism: Any) -> ExactFinding:
    """Check a codebook: given a seed, the chances of all numbers for vectors that are far apart, exactly.

    Along both ends of each of the first axes, of a diagonal, at the middle and of what is no number. Any
    vector gives K numbers one chance and the others the other, so no pair can be worse.
    """
    d, epsilon = mechanism.dimensions, mechanism.guarantee.epsilon
    axes = [sign * row for row in np.eye(d)[:_ENUMERATED_DIMENSIONS] for sign in (1.0, -1.0)]
    vectors = [np.zeros(d), np.full(d, math.nan), np.ones(d), -np.ones(d), *axes]
    names = [f"vector {index}" for index in range(len(vectors))]
    found = []
    for seed in _SEEDS:
        rows = [mechanism.exact_probabilities(vector, seed) for vector in vectors]
        found.append(check_matrix(rows, epsilon, names=names))
    return min(found, key=lambda one: (one.passed, -one.loss))


def check_translated(mechanism: Any, *, reports: int = 512) -> ExactFinding:
    """Check vector noise: one stream gives one noise at every point, near, far, zero and not a number.

    Then the noise is independent of the point, and the loss follows from its law alone, which `fit` compares
    with Gamma(n) / epsilon. Also: the grid costs at most 1/1000 of epsilon times the distance unit.
    """
    n, epsilon = mechanism.dimensions, mechanism.guarantee.epsilon_per_unit
    points = [
        np.zeros(n),
        np.full(n, 1.0),
        np.full(n, -1e-3),
        np.full(n, 1e3 / epsilon),
        np.full(n, math.nan),
    ]
    shifts = []
    for point in points:
        noisy = mechanism.sample(np.tile(point, (reports, 1)), SimulationStream(1))
        shifts.append(noisy - noisy[0])
    same = all(np.array_equal(shift, shifts[0]) for shift in shifts)
    if not same:
        return ExactFinding(
            "exact", False, "the noise depends on the point", loss=math.inf, inputs=len(points)
        )
    slack = epsilon * mechanism.distance_slack
    passed = slack <= 2.0**-9
    detail = f"the noise is the same at {len(points)} points; rounding costs at most {slack:.3g} of loss"
    return ExactFinding("exact", passed, detail, loss=epsilon, inputs=len(points))


def check_geometric(noise: Any) -> ExactFinding:
    """Check two-sided geometric noise: exact products of the thresholds, at many places and shifts.

    P(G = g) is a product over the binary digits of g. The log-ratio of g and g + s, |s| <= sensitivity, is
    formed for g and s around every power of two (carries are where rounding shows); the law
    of Z = G1 - G2 is a mixture of such shifts.
    """
    digits, reach = noise.digits, noise.sensitivity
    powers = [1 << bit for bit in range(len(digits.ones) + 2)]
    places = sorted({0, *powers, *(power - 1 for power in powers), sum(powers) // 3})
    shifts = sorted({1, reach, max(1, reach - 1), *(s for s in powers if s <= reach)})
    top, low, worst = Fraction(1), Fraction(1), Fraction(1)
    for place in places:
        here = _geometric_chance(digits, place)
        for shift in shifts:
            there = _geometric_chance(digits, place + shift)
            ratio = max(here / there, there / here)
            if ratio > worst:
                worst, top, low = ratio, max(here, there), min(here, there)
    what = f"noise at {len(places)} places and {len(shifts)} shifts up to {reach}"
    return _finding(top, low, noise.epsilon, what, len(places))


def _geometric_chance(digits: GeometricDigits, place: int) -> Fraction:
    """Return P(G = place) but for the common factor P(no trial above the digits)."""
    total, chance = 1 << digits.bits, Fraction(1)
    for digit, count in enumerate(digits.ones):
        chance *= Fraction(count if place >> digit & 1 else total - count, total)
    return chance * Fraction(digits.above, total) ** (place >> len(digits.ones))


def check_grid_noise(mechanism: Any) -> ExactFinding:
    """Check Laplace on a grid: the noise covers the whole width of the bounds, and keeps epsilon over it."""
    noise = mechanism._noise
    lower, upper = mechanism.bounds
    width = (Fraction(upper) - Fraction(lower)) / Fraction(mechanism.step)
    if noise.sensitivity < width or noise.epsilon > mechanism.guarantee.epsilon:
        detail = f"the noise covers {noise.sensitivity} steps, the bounds are {float(width):g} apart"
        return ExactFinding("exact", False, detail, loss=float(width) / noise.sensitivity * noise.epsilon)
    return check_geometric(noise)


def check_gaussian(mechanism: Any, *, epsilons: Sequence[float] = (0.1, 0.5, 1.0, 2.0, 4.0)) -> ExactFinding:
    """Check the discrete Gaussian: sigma by mathematics 4.4 in rationals, delta over sets in doubles.

    The sums run over +-12 sigma (what is outside is below 1e-30) and are compared with the Gaussian curve of
    the claimed mu at several epsilons; doubles settle them to 1e-12. Laws with more than 2^21 points
    are only checked by the rationals.
    """
    sigma, reach, mu = Fraction(mechanism.sigma), mechanism.sensitivity, mechanism.guarantee.mu
    enough = sigma**2 >= Fraction(reach) ** 2 / Fraction(mechanism.information) + Fraction(1, 6)
    promised = Fraction(mu) ** 2 >= Fraction(mechanism.information)
    if not (enough and promised and sigma >= 1024):
        return ExactFinding(
            "exact", False, f"sigma {float(sigma):g} is too small for mu {mu:g}", loss=math.inf
        )
    ends = math.ceil(12.0 * mechanism.sigma)
    realised = reach / mechanism.sigma * (1.0 + 1.0 / (24.0 * mechanism.sigma**2))
    detail = f"effective mu {realised:.12g} for a claim of {mu:.12g}"
    if 2 * ends + reach > 1 << 21:
        return ExactFinding("exact", realised <= mu, detail, loss=realised)
    z = np.arange(-ends, ends + reach + 1, dtype=np.float64)
    here = np.exp(-0.5 * (z / mechanism.sigma) ** 2)
    there = np.exp(-0.5 * ((z - reach) / mechanism.sigma) ** 2)
    here, there = here / here.sum(), there / there.sum()
    worst = max(
        float(np.maximum(0.0, there - math.exp(e) * here).sum()) - float(delta_of(mu, e)) for e in epsilons
    )
    detail += f"; delta over sets stays below its curve by {max(0.0, -worst):.2g} or more"
    return ExactFinding("exact", worst <= 1e-12 and realised <= mu, detail, loss=realised)
