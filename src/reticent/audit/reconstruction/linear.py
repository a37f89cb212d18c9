"""The record behind a noisy gradient of a linear model: the most likely one under a public prior.

Linear regression, logistic regression and support vector machines have gradients s (x, 1) of one record, s
the slope of its loss. Without noise x is a quotient. With noise of standard deviation sigma on each number
and a normal prior N(m, C) of records, the gradient of a record with slope s is N(s m, s^2 C + sigma^2), so
the best x is linear in it, and the likelihood says which s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.arguments import real
from reticent.audit.reconstruction.prior import GaussianPrior
from reticent.errors import ParameterError
from reticent.federated.models import Model
from reticent.mechanisms.base import Floats

_GRID = 400


@dataclass(frozen=True)
class LinearGuess:
    """The most likely record.

    Attributes:
        record: Features of the record.
        slope: Most likely slope of the record's loss: the sign is the label's in classification.
        error: Expected squared error of a feature, if slope and prior are right.
    """

    record: Floats
    slope: float
    error: float


def most_likely_linear(
    model: Model, theta: Any, update: Any, prior: GaussianPrior, noise: float, *, slope: float | None = None
) -> LinearGuess:
    """Return the most likely record of a noisy gradient of `model`.

    Args:
        model: linear, logistic or a support vector machine; the penalty at theta is subtracted.
        theta: Parameters that the client started from.
        update: the gradient of one record, with noise; scaled as a whole by clipping, it does as well.
        prior: Prior of records, from public ones.
        noise: the standard deviation of each number; 0 for none.
        slope: Slope of the record's loss, if it is known: -y/2 for logistic regression at zero.

    Reference: Bishop 2006, Eqs. 2.113 to 2.117 (linear Gaussian models), for each slope.
    """
    if model.axes is not None:
        raise ParameterError("model must have no axes: give `plain`, and a prior of prepared features")
    start = np.asarray(theta, dtype=np.float64)
    given = np.asarray(update, dtype=np.float64)
    if given.shape != (model.dimensions,) or start.shape != given.shape:
        raise ParameterError(f"theta and update must be {model.dimensions} numbers, as the model has")
    if not np.isfinite(given).all():
        raise ParameterError("update must be finite numbers, got NaN or infinite ones")
    if prior.mean.shape != (model.inputs,):
        raise ParameterError(f"prior must be of {model.inputs} features, got {prior.mean.size}")
    given = given - model.l2 * start
    length = float(np.linalg.norm(given))
    if length == 0.0:
        raise ParameterError("update must not be zero: it says nothing about its record")
    sigma = max(real("noise", noise, low=0.0), 1e-9 * length)  # as much as doubles have
    spread = np.sqrt(np.square(prior.factor).sum(axis=0))
    turned = (prior.factor / spread).T
    y, m = turned @ given[: model.inputs], turned @ prior.mean
    bias = given[-1] if model.intercept else None
    if slope is None:
        slope = _slope(y, m, spread, sigma, bias, length)
    shrink = slope * spread**2 / (slope**2 * spread**2 + sigma**2)
    record = prior.mean + (shrink * (y - slope * m)) @ turned
    error = float(np.sum(spread**2 * sigma**2 / (slope**2 * spread**2 + sigma**2)) / model.inputs)
    return LinearGuess(record, slope, error)


def _slope(y: Floats, m: Floats, spread: Floats, sigma: float, bias: float | None, length: float) -> float:
    """The slope of greatest likelihood, of both signs; the intercept's gradient is the slope itself."""
    sizes = np.geomspace(1e-6, 1e2, _GRID) * length
    slopes = np.concatenate([-sizes, sizes])
    if bias is not None:
        slopes = np.concatenate([slopes, bias + sigma * np.linspace(-6.0, 6.0, 121)])
    for _ in range(3):  # finer around the best each time
        variance = np.square(slopes[:, None] * spread) + sigma**2
        fit = np.sum(np.square(y - slopes[:, None] * m) / variance + np.log(variance), axis=1)
        if bias is not None:
            fit += np.square((bias - slopes) / sigma)
        best = float(slopes[fit.argmin()])
        near = np.abs(slopes[slopes != best] - best)
        slopes = best + float(near.min() if near.size else sigma) * np.linspace(-1.0, 1.0, 41)
    return best
