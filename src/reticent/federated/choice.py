"""The choice of a task's mechanism for a coordinate, and of the number of coordinates in a report.

What n clients make of a coordinate x in [-1, 1] has the variance ((d/k) E[Y^2 | x] - x^2) / n. The worst x
is what counts when nothing is known. But clipped gradients are mostly small against their bounds, and other
mechanisms are best there (mathematics 1.2): with `typical`, the mean over x uniform in [-typical, typical]
counts. At d 100, epsilon 4 and typical 0.1 that is a tenth of what the worst-case choice has there.

With `prior`, a public guess of where clipped coordinates lie ("small gradients", or the histogram of a pilot
on public rows, see `pilot`), the mean over it counts, and a `Tailored` is solved for each k: whatever k is,
it has the least mean of E[Y^2 | x] that there is.

Where it is known how long gradients are, a `Codebook` of whole gradients may have less noise than any sampled
coordinates. What counts there is the sum of the variances of all coordinates.

Privacy: nothing here matters to it. Every choice keeps epsilon/k for each of k coordinates, whatever
    they are, or epsilon for a whole gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.mechanisms.base import checked_epsilon
from reticent.mechanisms.catalogue import NUMERIC, loaded, travelling
from reticent.mechanisms.numeric import NumericChannel, OneBit, Optimal, Prior, Tailored, Window
from reticent.mechanisms.numeric.priors import Guess, as_prior
from reticent.mechanisms.sampling import best_sample_size, epsilon_each, sample_sizes
from reticent.mechanisms.vector.codebook import Codebook, fewest_bits

KINDS: dict[str, type[NumericChannel]] = {name: loaded(name) for name in travelling(NUMERIC)}
CODEBOOK = "Codebook"
_POINTS = 64
_BINS = 1000


def chosen(
    epsilon: float,
    dimensions: int,
    *,
    kind: str | None = None,
    sample_size: int | None = None,
    typical: float | None = None,
    prior: Guess | None = None,
) -> tuple[NumericChannel, int]:
    """Return the mechanism of one coordinate and the sample size k that have the least variance.

    Args:
        epsilon: Epsilon of a whole report.
        dimensions: d.
        kind: one of `KINDS`, if it is settled.
        sample_size: k, if it is settled.
        typical: see above; None for the worst case.
        prior: see above; instead of `typical`.
    """
    epsilon = checked_epsilon(epsilon)
    if prior is not None and typical is not None:
        raise ParameterError("typical and prior must not be given together")
    if kind is not None and kind not in tuple(KINDS):
        raise ParameterError(f"mechanism must be one of {', '.join(KINDS)}, got {kind!r:.60}")
    if sample_size is not None:
        sample_size = whole("sample_size", sample_size, low=1, high=dimensions)
    sizes: Sequence[int] = [sample_size] if sample_size else sample_sizes(epsilon, dimensions)
    if prior is not None:
        guess = as_prior(prior)
        guessed = (
            (channel, k)
            for k in sizes
            for channel in _for_guess(kind, epsilon_each(epsilon, k), k / dimensions, guess)
        )
        return min(guessed, key=lambda one: guessed_variance(one[0], one[1] / dimensions, guess))
    if typical is None:
        k = sample_size or best_sample_size(epsilon, dimensions)
        return _of_worst_case(kind, epsilon_each(epsilon, k), k / dimensions), k
    typical = real("typical", typical, low=0.0, high=1.0, open_low=True)
    found = (
        (channel, k)
        for k in sizes
        for channel in candidates(kind, epsilon_each(epsilon, k), k / dimensions, typical)
    )
    return min(found, key=lambda one: typical_variance(one[0], one[1] / dimensions, typical))


def typical_variance(channel: NumericChannel, rate: float, typical: float) -> float:
    """The mean of (d/k) E[Y^2 | x] - x^2 over x uniform in [-typical, typical], with k/d = rate."""
    x = typical * (np.arange(1 - _POINTS, _POINTS, 2) / _POINTS)
    return float(np.mean((channel.variance(x) + x * x) / rate - x * x))


def guessed_variance(channel: NumericChannel, rate: float, prior: Prior) -> float:
    """The mean of (d/k) E[Y^2 | x] - x^2 over a guess, with k/d = rate; linear between 257 points."""
    x = np.linspace(-1.0, 1.0, _POINTS * 4 + 1)
    return float(prior.on(x) @ (channel.variance(x) + x * x)) / rate - prior.second_moment


def pilot(gradients: Any, bounds: Any) -> Prior:
    """Return the histogram of clipped coordinates of public rows' gradients, in units of their bounds."""
    units = np.clip(np.nan_to_num(np.asarray(gradients, dtype=np.float64) / bounds), -1.0, 1.0)
    return Prior.histogram(np.histogram(units, bins=_BINS, range=(-1.0, 1.0))[0])


def _for_guess(kind: str | None, epsilon: float, rate: float, prior: Prior) -> Iterator[NumericChannel]:
    """A `Tailored`, which has the least variance there, unless another kind is settled."""
    if kind in (None, "Tailored"):
        yield Tailored(epsilon=epsilon, prior=prior)
    else:
        yield from candidates(kind, epsilon, rate)


def codebook(epsilon: float, dimensions: int) -> Codebook:
    """A codebook of the fewest bits that cost next to nothing."""
    return Codebook(epsilon=epsilon, dimensions=dimensions, bits=fewest_bits(epsilon, dimensions))


def is_better(
    other: Codebook,
    length: float,
    channel: NumericChannel,
    sample_size: int,
    bounds: Any,
    typical: float | None,
    prior: Guess | None = None,
) -> bool:
    """Return whether a codebook for gradients up to a length has less noise than sampled coordinates.

    Args:
        other: the codebook.
        length: Largest length of a gradient.
        channel: Channel of a coordinate.
        sample_size: k.
        bounds: Bounds of the coordinates, one or d.
        typical: see `chosen`.
        prior: see `chosen`.
    """
    d = other.dimensions
    rate = sample_size / d
    if prior is not None:
        each = guessed_variance(channel, rate, as_prior(prior))
    elif typical is None:
        x = np.linspace(-1.0, 1.0, 257)
        each = float(np.max((channel.variance(x) + x * x) / rate - x * x))
    else:
        each = typical_variance(channel, rate, typical)
    squares = float(np.square(np.broadcast_to(np.asarray(bounds, dtype=np.float64), (d,))).sum())
    return real("length", length, low=0.0, open_low=True) ** 2 * other.worst_case_error < each * squares


def _of_worst_case(kind: str | None, epsilon: float, rate: float) -> NumericChannel:
    if kind is None and rate > 0.5:
        return Optimal(epsilon=epsilon)
    if kind in (None, "OneBit"):  # nothing reported rarely has less worst-case variance (mathematics 1.2)
        return OneBit(epsilon=epsilon, rho=rate)
    return KINDS[str(kind)](epsilon=epsilon)


def candidates(
    kind: str | None, epsilon: float, rate: float, typical: float = 1.0
) -> Iterator[NumericChannel]:
    """Every mechanism that may be best for a coordinate of which a share `rate` of reports tells.

    A `Tailored` is made for coordinates in [-typical, typical], where it was asked for by name.
    """
    for name in KINDS if kind is None else [kind]:
        if name == "OneBit":
            yield from (OneBit(epsilon=epsilon, rho=rho) for rho in (rate, rate**0.5, 1.0))
            continue
        if name == "Tailored":  # solved where it was asked for by name: it takes a while for each k
            if kind is not None:
                inside = np.abs(np.arange(1 - _BINS, _BINS, 2)) <= typical * _BINS
                yield Tailored(epsilon=epsilon, prior=inside.astype(np.float64))
            continue
        yield KINDS[name](epsilon=epsilon)
        if name == "Window":  # of all windows this has the least E[Y^2 | 0], from epsilon ln 2 on
            yield Window(epsilon=epsilon, window=1, y=(-1.0, 0.0, 1.0))
