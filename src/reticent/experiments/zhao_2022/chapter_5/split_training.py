"""Trainings of the documents' split, as Figs. 5.3 to 5.8 need them: homes, rounds, accuracy after each.

Reference: Zhao 2022, Section 5.3.1. Images are halved to 14 x 14 pixels (720 features a record), three homes
have 1,000 images each and make 10 local epochs: the printed size (ten homes, 6,000 images, 28 x 28 pixels, 40
epochs) would take hours here. Accuracies are of 5,000 images of MNIST that nobody trained on, without
noise at the end; simulation only. No record is protected in any of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from reticent.experiments.base import Options
from reticent.experiments.biswas_2023.chapter_5 import writers
from reticent.federated import torch_models
from reticent.federated.softmax import Labels
from reticent.federated.split.documented import Documented, Singles, trained
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream

SIDE, HOMES, IMAGES, EPOCHS, RATE = 14, 3, 1000, 10, 0.03
JUDGED = 5000  # images of others
QUICK_HOMES, QUICK_IMAGES, QUICK_EPOCHS = 2, 64, 1
EPSILON, BATCH = 2.0, 64  # the documents' default
NOT_PRIVATE = "No record is protected: epsilon is that of one of 720 features in one of its passes."


@dataclass(frozen=True)
class Pictures:
    """Images of homes, and of others to judge by."""

    images: Singles
    digits: Labels
    seen: Singles
    right: Labels


@cache
def pictures(homes: int, each: int, judged: int) -> Pictures:
    """The first images of MNIST, dealt out in order; they are in random order already."""
    images, digits = writers.pixels_of("train")
    seen, right = writers.pixels_of("test")
    count = homes * each
    return Pictures(
        halved(images[:count]).reshape(homes, each, SIDE, SIDE), digits[:count].reshape(homes, each),
        halved(seen[:judged]), right[:judged],
    )  # fmt: skip


def halved(images: NDArray[np.uint8]) -> Singles:
    """Images of 28 x 28 bytes as means of four, in [0, 1]."""
    blocks = images.reshape(len(images), SIDE, 2, SIDE, 2).astype(np.float32)
    return np.asarray(blocks.mean(axis=(2, 4)) / np.float32(255.0))


class Course:
    """A training that can be gone on with: round by round, each home on its own stream."""

    def __init__(self, task: Documented, given: Pictures, seed: int) -> None:
        torch_models.torch_or_error().set_num_threads(1)
        self._task, self._given, self._seed = task, given, seed
        self.theta: Floats = task.start(seed)
        self.accuracies: list[float] = []

    def until(self, rounds: int) -> list[float]:
        """The accuracy after each of so many rounds."""
        while len(self.accuracies) < rounds:
            self._round(len(self.accuracies))
        return self.accuracies[:rounds]

    def _round(self, number: int) -> None:
        task, given = self._task, self._given
        found = []
        for home, (images, digits) in enumerate(zip(given.images, given.digits, strict=True)):
            stream = SimulationStream(self._seed, path=(8, number, home))
            edge = task.edge(self.theta)
            phone = trained(
                task, self.theta, images, digits,
                edge=edge, rng=stream.spawn(0), order=stream.spawn(1),
            )  # fmt: skip
            found.append(np.concatenate([phone.theta, edge.theta]).astype(np.float64))
        self.theta = np.asarray(np.mean(found, axis=0))
        self.accuracies.append(float(np.mean(task.predicted(self.theta, given.seen) == given.right)))


@cache
def _course(task: Documented, homes: int, each: int, judged: int, seed: int) -> Course:
    return Course(task, pictures(homes, each, judged), seed)


def task_of(
    options: Options,
    *,
    normalisation: str,
    epsilon: float | None = EPSILON,
    batch: int = BATCH,
    epochs: int = EPOCHS,
) -> Documented:
    """The task of a setting."""
    if options.quick:
        batch, epochs = min(batch, QUICK_IMAGES), QUICK_EPOCHS
    return Documented(SIDE, 10, 64, normalisation, epsilon, batch, epochs, RATE)


def accuracies(options: Options, task: Documented, rounds: int) -> list[float]:
    """The accuracy after each round of a setting; the same setting is trained once in a process."""
    homes, each, judged = (QUICK_HOMES, QUICK_IMAGES, 200) if options.quick else (HOMES, IMAGES, JUDGED)
    return _course(task, homes, each, judged, options.seed).until(rounds)


def setting(options: Options) -> str:
    """What all captions of these figures say first."""
    homes, each = (QUICK_HOMES, QUICK_IMAGES) if options.quick else (HOMES, IMAGES)
    return (
        f"The documents' split on MNIST ({SIDE} x {SIDE}): {homes} homes of {each} images, rate {RATE:g} "
        f"with momentum, one run of seed {options.seed}; printed: 10 homes of 6,000, 28 x 28. {NOT_PRIVATE}"
    )
