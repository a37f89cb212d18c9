from collections.abc import Callable

import mpmath
import numpy as np
import pytest

FALSE_ALARM = 1e-6


def chi_square_p(observed: np.ndarray, expected: np.ndarray) -> float:
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return float(mpmath.gammainc((observed.size - 1) / 2, statistic / 2, mpmath.inf, regularized=True))


@pytest.fixture
def fits() -> Callable[[np.ndarray, np.ndarray], bool]:
    """Whether counts fit a law, by a chi-square test with a false-alarm rate of one in a million."""

    def fit(observed: np.ndarray, law: np.ndarray) -> bool:
        observed, law = np.asarray(observed, dtype=float), np.asarray(law, dtype=float)
        return chi_square_p(observed, law * observed.sum()) > FALSE_ALARM

    return fit
