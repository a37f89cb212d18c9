"""Distances of rebuilt records from the true ones, for simulations: they need the truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import real
from reticent.errors import MissingExtra, ParameterError
from reticent.federated.encoding import Encoding
from reticent.mechanisms.base import Floats

WINDOW, SPREAD = 11, 1.5  # of SSIM: pixels, and the standard deviation of their weights
MOST_PSNR = 200.0  # decibels of two pictures that are equal


def mse(truth: Any, rebuilt: Any) -> float:
    """Return the mean squared error of all features."""
    mine, other = _pair(truth, rebuilt)
    return float(np.mean(np.square(mine - other)))


def psnr(truth: Any, rebuilt: Any, *, span: float = 1.0) -> float:
    """Peak signal to noise in decibels: 10 log10(span^2 / mse), at most 200.

    Args:
        truth: Records.
        rebuilt: Rebuilt records, as many.
        span: Range of the features, high minus low.
    """
    error = mse(truth, rebuilt) / real("span", span, low=0.0, open_low=True) ** 2
    return MOST_PSNR if error < 10.0 ** (-MOST_PSNR / 10.0) else -10.0 * math.log10(error)


def ssim(truth: Any, rebuilt: Any, *, span: float = 1.0) -> float:
    """Structural similarity of two pictures: 1 if they are equal, about 0 if nothing agrees.

    Mean over all places of a window of 11 x 11 pixels with normal weights that lies within the picture.

    Reference: Wang et al. 2004, Eq. 13.
    """
    x, y = _pair(truth, rebuilt)
    if x.ndim != 2 or min(x.shape) < WINDOW:
        raise ParameterError(f"pictures must be {WINDOW} x {WINDOW} or larger, got shape {x.shape}")
    offsets = np.arange(WINDOW) - WINDOW // 2
    line = np.exp(-np.square(offsets) / (2.0 * SPREAD**2))
    line /= line.sum()

    def blurred(picture: Floats) -> Floats:
        rows = np.apply_along_axis(np.convolve, 0, picture, line, mode="valid")
        return np.apply_along_axis(np.convolve, 1, rows, line, mode="valid")

    mean_x, mean_y = blurred(x), blurred(y)
    spread_x, spread_y = blurred(x * x) - mean_x**2, blurred(y * y) - mean_y**2
    both = blurred(x * y) - mean_x * mean_y
    c1, c2 = (0.01 * span) ** 2, (0.03 * span) ** 2
    found = (2.0 * mean_x * mean_y + c1) * (2.0 * both + c2)
    found /= (mean_x**2 + mean_y**2 + c1) * (spread_x + spread_y + c2)
    return float(found.mean())


def matched(truth: Any, rebuilt: Any) -> NDArray[np.int64]:
    """Assign a rebuilt record to each true one, with the least squared error in all.

    A batch's update does not depend on the order of its records, so none is rebuilt.
    """
    mine, other = np.asarray(truth, dtype=np.float64), np.asarray(rebuilt, dtype=np.float64)
    if mine.shape[1:] != other.shape[1:] or len(other) < len(mine):
        raise ParameterError(
            f"rebuilt must be {len(mine)} records or more like the true ones, got {other.shape}"
        )
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise MissingExtra("matching batches", "accounting") from error
    a, b = mine.reshape(len(mine), -1), other.reshape(len(other), -1)
    costs = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2.0 * a @ b.T
    return np.asarray(linear_sum_assignment(costs)[1], dtype=np.int64)


def attributes_right(encoding: Encoding, truth: Any, rebuilt: Any, *, tolerance: float = 0.05) -> Floats:
    """Return the share of attributes of each encoded record that are rebuilt rightly.

    A category is right if its columns are nearest to the code of the true value, a number if it is within
    `tolerance` of its range.

    Args:
        encoding: Encoding of the table.
        truth: Encoded records, shape (records, inputs).
        rebuilt: Rebuilt records, as many.
        tolerance: Tolerance as a share of the range of a number.
    """
    mine, other = _pair(truth, rebuilt)
    if mine.ndim != 2 or mine.shape[1] != encoding.inputs:
        raise ParameterError(f"records must have {encoding.inputs} encoded features, got shape {mine.shape}")
    right, first = [], 0
    for described in encoding.described()["features"]:
        if "bounds" in described:
            right.append(np.abs(mine[:, first] - other[:, first]) <= 2.0 * tolerance)
            first += 1
            continue
        width = len(described["values"]) - 1
        codes = np.vstack([2.0 * np.eye(width) - 1.0, -np.ones(width)])
        block = slice(first, first + width)
        right.append(_nearest(codes, mine[:, block]) == _nearest(codes, other[:, block]))
        first += width
    return np.asarray(np.mean(right, axis=0, dtype=np.float64))


def _nearest(codes: Floats, rows: Floats) -> NDArray[np.int64]:
    return np.asarray(np.square(rows[:, None, :] - codes).sum(axis=2).argmin(axis=1))


def _pair(truth: Any, rebuilt: Any) -> tuple[Floats, Floats]:
    mine, other = np.asarray(truth, dtype=np.float64), np.asarray(rebuilt, dtype=np.float64)
    if mine.shape != other.shape or mine.size == 0:
        raise ParameterError(f"rebuilt must have the shape {mine.shape} of the truth, got {other.shape}")
    return mine, other
