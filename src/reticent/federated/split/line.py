"""The phone's end of the line to an edge: sends what may leave, tries again where the edge was away.

An edge that dies is asked again, with the same bytes, until it answers or `patience_s` have passed.
"""

from __future__ import annotations

import http.client
import secrets
import time
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np

from reticent import peers
from reticent.arguments import real
from reticent.errors import ReticentError
from reticent.federated.robust.grid import Update
from reticent.federated.softmax import Labels
from reticent.federated.split.documented import Documented, Singles, trained
from reticent.federated.split.noised import NoisedTask, Vectors
from reticent.mechanisms.base import Floats
from reticent.randomness import Stream
from reticent.store import tensors

_SECONDS = 120.0  # of one request
_PAUSE_S = 0.2
_MOST_WORDS = 1000  # of a refusal


class EdgeError(ReticentError):
    """An edge cannot be reached, refuses, or answers what is none."""


class Line:
    """A session with an edge.

    Args:
        url: http(s)://HOST:PORT of the edge.
        task: its name there.
        session: 64 hexadecimal digits, drawn if none is given. Everybody who knows it can go on with the
            session.
        patience_s: Seconds for which an edge that is away is asked again.
    """

    def __init__(self, url: str, task: str, session: str | None = None, *, patience_s: float = 60.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise EdgeError("the edge must be http(s)://HOST:PORT")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=_SECONDS)
        self.session = session or secrets.token_hex(32)
        self._path = f"{parts.path.rstrip('/')}/v1/{task}/{self.session}"
        self._patience_s = real("patience_s", patience_s, low=0.0)
        self._steps = 0

    def close(self) -> None:
        """Hang up; the session stays."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def end(self) -> None:
        """Have the edge forget the session, and hang up."""
        self._asked("DELETE", "", None, {})
        self.close()

    # A noised task

    def keep(self, vectors: Vectors) -> None:
        """Send noisy vectors, which a home paid for."""
        self._asked("PUT", f"/vectors?records={len(vectors)}", {"vectors": vectors}, {})

    def noised_slopes(self, task: NoisedTask, theta: Floats) -> Floats:
        """The slopes at a model."""
        size = (task.dimensions,)
        found = self._asked("POST", "/slopes", {"theta": np.asarray(theta, "<f8")}, {"slopes": ("F64", size)})
        return np.asarray(found["slopes"])

    # A documented task

    def begin(self, theta: Floats) -> None:
        """Start with the edge's half of a model."""
        self._asked("PUT", "/half", {"theta": np.asarray(theta, "<f4")}, {})
        self._steps = 0

    def slopes(self, features: Singles, labels: Labels) -> Singles:
        """The slopes of a batch; the edge's half moves by it, once."""
        given = {"features": np.asarray(features, "<f4"), "labels": np.asarray(labels, "<i4")}
        looks: tensors.Looks = {"slopes": ("F32", features.shape)}
        found = self._asked("POST", f"/steps/{self._steps}?records={len(features)}", given, looks)
        self._steps += 1
        return np.asarray(found["slopes"])

    def half(self, task: Documented) -> Singles:
        """The edge's half, after all steps."""
        looks: tensors.Looks = {"theta": ("F32", (task.back_dimensions,)), "steps": ("I64", (1,))}
        found = self._asked("GET", "/half", None, looks)
        if int(found["steps"][0]) != self._steps:
            raise EdgeError(f"the edge must have made {self._steps} steps, got {int(found['steps'][0])}")
        return np.asarray(found["theta"])

    def _asked(
        self, method: str, path: str, given: dict[str, Any] | None, looks: tensors.Looks
    ) -> dict[str, Any]:
        data = None if given is None else tensors.packed(given)
        most = max(tensors.size_of(looks) if looks else 0, _MOST_WORDS)
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                reply, body = peers.exchange(
                    self._connection, method, self._path + path, data, {}, seconds=_SECONDS, most=most
                )
                break
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if time.monotonic() > deadline:
                    raise EdgeError("the edge cannot be reached") from error
                time.sleep(_PAUSE_S)
        if reply.status != 200:
            raise EdgeError(f"the edge refused ({reply.status}): {peers.one_line(body.decode('latin-1'))}")
        return tensors.unpacked(body, looks) if looks else {}


def noised_update(task: NoisedTask, line: Line, vectors: Vectors, theta: Floats) -> Update:
    """The update of a round, by an edge: of vectors that a home paid for, so it costs nothing more."""
    if not len(vectors):  # an edge can do nothing with none
        return task.update(task.slopes(theta, vectors))
    line.keep(vectors)
    return task.update(line.noised_slopes(task, theta))


def documented_theta(
    task: Documented,
    line: Line,
    theta: Floats,
    images: Any,
    labels: Any,
    *,
    rng: Stream | None = None,
    order: Stream | None = None,
) -> Floats:
    """The model of a home after a round, by an edge. Protects no record."""
    line.begin(np.asarray(theta)[task.front_dimensions :])
    phone = trained(task, theta, images, labels, edge=line, rng=rng, order=order)
    return np.concatenate([phone.theta, line.half(task)]).astype(np.float64)
