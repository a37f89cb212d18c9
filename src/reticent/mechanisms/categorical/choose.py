"""The choice of a categorical mechanism: the least exact variance, within a number of bits if asked."""

from __future__ import annotations

from collections.abc import Sequence

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.mechanisms.categorical.base import FrequencyOracle, Label
from reticent.mechanisms.categorical.krr import KRR
from reticent.mechanisms.categorical.olh import OLH
from reticent.mechanisms.categorical.oue import OUE
from reticent.mechanisms.categorical.subset import Subset


def best(
    epsilon: float,
    categories: int | Sequence[Label],
    *,
    fallback: Label | None = None,
    bits: int | None = None,
) -> KRR | OUE | OLH | Subset:
    """Return the mechanism whose frequency estimates have the least variance for a rare category.

    From the realised counts: KRR has (k - 2 + e^eps)/(e^eps - 1)^2 and OUE 4 e^eps/(e^eps - 1)^2, as
    has OLH but for the rounding of its number of buckets. Subset has less than any of them, unless its
    sets have one element: then it is KRR. Ties go to the shorter report. Hadamard response and projective
    geometry response are not among them: next to no variance would be won (mathematics 1.3).

    Args:
        epsilon: the LDP level of one report.
        categories: a whole number k >= 2, or a sequence of distinct labels.
        fallback: the category that stands in for unknown and missing values.
        bits: only mechanisms whose report fits (KRR sends log2 k bits, Subset about twice as
            many, OUE k, OLH 64 and a few).

    Reference: Ye and Barg 2018, Section III; Wang et al. 2017, Section 4.5, for the other three.
    """
    candidates: list[FrequencyOracle] = []
    for kind in (KRR, OLH, OUE):
        try:
            candidates.append(kind(epsilon=epsilon, categories=categories, fallback=fallback))
        except ParameterError:
            if kind is not KRR:  # at a tiny epsilon KRR alone can have too many categories
                raise
    subset = Subset(epsilon=epsilon, categories=categories, fallback=fallback)
    if subset.subset_size > 1 or not isinstance(candidates[0], KRR):
        candidates.append(subset)
    if bits is not None:
        most = whole("bits", bits, low=1)
        shortest = min(oracle.bits for oracle in candidates)
        if shortest > most:
            raise ParameterError(f"bits must be >= {shortest} for these categories, got {most}")
        candidates = [oracle for oracle in candidates if oracle.bits <= most]
    chosen = min(candidates, key=lambda oracle: (float(oracle.frequency_variance(0.0)), oracle.bits))
    assert isinstance(chosen, (KRR, OUE, OLH, Subset))
    return chosen
