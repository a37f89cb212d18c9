"""The sessions of an edge, kept in a folder between requests: killed anywhere, it goes on with equal bytes.

A session is a name that the phone draws at random: everybody who knows it can go on with it. Its files appear
whole. Of a step the answer is kept before the half moves on, so a step that was asked twice is made once.
"""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import numpy as np

from reticent import files
from reticent.errors import ParameterError
from reticent.federated.softmax import Labels
from reticent.federated.split.documented import Documented, Edge, Singles
from reticent.federated.split.noised import NoisedTask, Vectors
from reticent.mechanisms.base import Floats
from reticent.store import tensors

MOST_SESSIONS = 1024
STALE_S = 86_400  # after which a session gives way to others
LARGEST = 1e6  # of a number
_LOCKS = 64

EdgeTask = NoisedTask | Documented


class EdgeFull(ParameterError):
    """An edge has no room for another session."""


class Sessions:
    """The sessions of one edge.

    Args:
        folder: Folder of the sessions, the edge's own.
        capacity: bytes of all of them together.
    """

    def __init__(self, folder: Path, capacity: int) -> None:
        self._folder, self._capacity = files.secluded(folder), capacity
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        self._opening = threading.Lock()

    def keep_vectors(self, task: NoisedTask, name: str, vectors: Vectors) -> None:
        """Keep noisy vectors; they take the place of those that were there."""
        data = tensors.packed({"vectors": vectors})
        with self._lock(name):
            place = self._opened(name, len(data))
            for old in place.glob("vectors.*"):
                old.unlink()
            _write(place / f"vectors.{len(vectors)}", data)

    def slopes(self, task: NoisedTask, name: str, theta: Floats) -> Floats:
        """The slopes of a session's vectors at a model."""
        _check_size("theta", theta)
        with self._lock(name):
            file = next((self._folder / name).glob("vectors.*"), None)
            if file is None:
                raise ParameterError("the session must have vectors first")
            data, count = file.read_bytes(), int(file.name.partition(".")[2])
        return task.slopes(theta, tensors.unpacked(data, task.looks(count))["vectors"])

    def begin(self, task: Documented, name: str, theta: Singles) -> None:
        """Start a session anew with the edge's half of a model."""
        _check_size("theta", theta)
        with self._lock(name):
            place = self._opened(name, 3 * theta.nbytes)
            self._moved(place, 0, theta, np.zeros_like(theta))

    def step(self, task: Documented, name: str, number: int, features: Singles, labels: Labels) -> Singles:
        """Make a step, or tell again what the last one gave."""
        _check_size("features", features)
        if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < task.classes:
            raise ParameterError(f"labels must be >= 0 and < {task.classes}")
        with self._lock(name):
            place = self._folder / name
            steps, theta, speed = self._half(task, name)
            if number == steps - 1:
                return self._told(place, number, features)
            if number != steps:
                raise ParameterError(f"the step must be {steps}, got {number}")
            edge = Edge(task, theta.astype(np.float64), speed.astype(np.float64))
            with np.errstate(all="ignore"):
                slopes = edge.slopes(features, labels)
            moved = edge.theta
            if not np.isfinite(slopes).all() or not np.isfinite(moved).all() or np.abs(moved).max() > LARGEST:
                raise ParameterError("the step must keep the model finite: take a smaller rate or start")
            _write(place / f"slopes.{number}", tensors.packed({"slopes": slopes}))
            self._moved(place, number + 1, moved, edge.speed)
        return slopes

    def half(self, task: Documented, name: str) -> tuple[int, Singles]:
        """Return the number of steps that were made, and the edge's half of the model."""
        with self._lock(name):
            steps, theta, _ = self._half(task, name)
        return steps, theta

    def end(self, name: str) -> None:
        """Forget a session; also one that there is not."""
        with self._lock(name):
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def _lock(self, name: str) -> threading.Lock:
        return self._locks[int(name[-2:], 16) % _LOCKS]

    def _opened(self, name: str, size: int) -> Path:
        """The folder of a session, if there is room."""
        place = self._folder / name
        with self._opening:
            others = [one for one in self._folder.iterdir() if one.name != name]
            held = {one: sum(part.stat().st_size for part in _parts(one)) for one in others}
            if len(held) >= MOST_SESSIONS or sum(held.values()) + size > self._capacity:
                for one in [one for one in held if _is_stale(one)]:
                    del held[one]
                    shutil.rmtree(one, ignore_errors=True)
            if len(held) >= MOST_SESSIONS or sum(held.values()) + size > self._capacity:
                raise EdgeFull("the edge takes no more sessions now")
            return files.secluded(place)

    def _moved(self, place: Path, steps: int, theta: Singles, speed: Singles) -> None:
        data = tensors.packed({"theta": theta, "speed": speed, "steps": np.array([steps], dtype=np.int64)})
        _write(place / "half", data)
        for old in place.glob("slopes.*"):
            if old.name != f"slopes.{steps - 1}":
                old.unlink()

    def _half(self, task: Documented, name: str) -> tuple[int, Singles, Singles]:
        size = task.back_dimensions
        looks: tensors.Looks = {
            "theta": ("F32", (size,)), "speed": ("F32", (size,)), "steps": ("I64", (1,)),
        }  # fmt: skip
        try:
            found = tensors.unpacked((self._folder / name / "half").read_bytes(), looks)
        except FileNotFoundError as error:
            raise ParameterError("the session must begin with the edge's half first") from error
        return int(found["steps"][0]), found["theta"], found["speed"]

    def _told(self, place: Path, number: int, features: Singles) -> Singles:
        looks: tensors.Looks = {"slopes": ("F32", features.shape)}
        data = (place / f"slopes.{number}").read_bytes()
        if len(data) != tensors.size_of(looks):
            raise ParameterError("a step that is repeated must have as many records as before")
        return np.asarray(tensors.unpacked(data, looks)["slopes"])


def _write(path: Path, data: bytes) -> None:
    with files.appearing(path, mode=0o600) as file:
        file.write(data)


def _parts(place: Path) -> list[Path]:
    return [one for one in place.iterdir() if one.is_file()] if place.is_dir() else []


def _is_stale(place: Path) -> bool:
    try:
        return time.time() - place.stat().st_mtime > STALE_S
    except FileNotFoundError:
        return False


def _check_size(name: str, numbers: Singles | Floats) -> None:
    if numbers.size and float(np.abs(numbers).max()) > LARGEST:
        raise ParameterError(f"{name} must hold numbers of at most {LARGEST:g}")
