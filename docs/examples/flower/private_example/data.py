"""The model, and synthetic records: of client N, and public ones to look how the model does."""

import numpy as np

from reticent.federated import Logistic

MODEL = Logistic(4)
TRUTH = np.array([2.0, -1.0, 0.5, 0.0])


def records_of(number: int, count: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """Features in [-1, 1] and targets -1 or 1."""
    draw = np.random.default_rng([2026, number])
    features = draw.uniform(-1.0, 1.0, (count, MODEL.inputs))
    chance = 1.0 / (1.0 + np.exp(-features @ TRUTH))
    return features, np.where(draw.uniform(size=count) < chance, 1.0, -1.0)


def holdout() -> tuple[np.ndarray, np.ndarray]:
    """Public records."""
    return records_of(1_000_000, 2000)
