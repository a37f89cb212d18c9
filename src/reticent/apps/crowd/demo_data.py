"""The records of the demonstration: digits of MNIST where they are installed, invented ones elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from reticent.errors import ReticentError
from reticent.experiments.biswas_2023.chapter_5.writers import pixels_of
from reticent.federated.softmax import Labels
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream

SIDE, CLASSES = 14, 10
INPUTS = SIDE * SIDE
_SEED = 21


def digits(train: int, test: int) -> tuple[str, tuple[Floats, Labels], tuple[Floats, Labels]]:
    """What they are, and so many records to learn from and to tell the accuracy by."""
    try:
        found = [pixels_of(split) for split in ("train", "test")]
    except ReticentError:
        return "invented digits", *_invented(train, test)
    sizes = (train, test)
    first, second = (
        (_small(pixels[:size]), labels[:size]) for (pixels, labels), size in zip(found, sizes, strict=True)
    )
    return "digits of MNIST", first, second


def _small(pixels: np.ndarray) -> Floats:
    """Means of four pixels, in [0, 1]."""
    blocks = pixels.reshape(len(pixels), SIDE, 2, SIDE, 2).astype(np.float64)
    return np.asarray(blocks.mean(axis=(2, 4)).reshape(len(pixels), INPUTS) / 255.0)


def _invented(train: int, test: int) -> tuple[tuple[Floats, Labels], tuple[Floats, Labels]]:
    """A shape for each class, and pixels off it."""
    stream = SimulationStream(_SEED)
    shapes = stream.units(CLASSES * INPUTS).reshape(CLASSES, INPUTS) < 1.25
    labels = (np.arange(train + test) % CLASSES).astype(np.int64)
    noise = stream.units((train + test) * INPUTS).reshape(-1, INPUTS) - 1.0
    rows = np.where(noise < 0.3, noise, 0.8 * shapes[labels])
    return (rows[:train], labels[:train]), (rows[train:], labels[train:])


def write_homes(folder: Path, features: Floats, labels: Labels, homes: int) -> Sequence[Sequence[Path]]:
    """A home for each part of the records, with the files of two appliances, CSV and npz."""
    found = []
    for home, (rows, classes) in enumerate(
        zip(np.array_split(features, homes), np.array_split(labels, homes), strict=True)
    ):
        half = len(classes) // 2
        table, arrays = folder / f"home-{home}-kitchen.csv", folder / f"home-{home}-garage.npz"
        np.savetxt(table, np.column_stack([rows[:half], classes[:half]]), fmt="%.4g", delimiter=",")
        np.savez(arrays, features=rows[half:], labels=classes[half:])
        found.append((table, arrays))
    return found
