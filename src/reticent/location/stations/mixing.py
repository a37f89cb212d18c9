"""Batches of sealed points of many vehicles in a fresh random order, filled up with dummy points.

The edge cannot read the points. The provider sees batches of one size. If fewer vehicles ask than a batch
takes, the edge fills it up with dummy points (cover) of invented journeys, through the same channel.

Privacy: against the provider alone, a batch hides the vehicle of a point and which points belong together,
    and its size hides how many vehicles ask. No number is claimed: a provider who sends all other queries of
    a batch knows the remaining ones. Vehicles pay for everything that edge and provider learn together.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import whole
from reticent.errors import ParameterError, SourceError
from reticent.location.stations.area import Area
from reticent.location.stations.sealing import Kind, Point
from reticent.randomness import Stream, secure_or, uniform_below

STOCK = 20_000  # places of cover that are drawn in all; then they come again
_FIRST = 64  # that are drawn before the first batch leaves
_RENEWED = 8  # that are drawn for each batch that was filled up


def permutation(size: int, rng: Stream | None = None) -> NDArray[np.int64]:
    """Sample a uniform permutation of the numbers below a size, by sorting distinct random words."""
    stream = secure_or(rng)
    while True:
        words = stream.words(size)
        order = np.argsort(words, kind="stable")
        if size < 2 or (np.diff(words[order]) != 0).all():
            return np.asarray(order)


@dataclass(frozen=True)
class Batch:
    """The points of several queries in one batch, in a random order.

    Attributes:
        points: Sealed points in the order in which they are sent to the provider.
        order: Original position of each point.
        sizes: Number of points of each query.
    """

    points: list[bytes]
    order: list[int]
    sizes: list[int]

    @classmethod
    def of(
        cls, queries: Sequence[Sequence[bytes]], cover: Sequence[bytes], rng: Stream | None = None
    ) -> Batch:
        """Build a batch from queries and dummy points.

        Args:
            queries: Sealed points of each query.
            cover: Dummy points, whose replies nobody waits for.
            rng: Random stream; None for secure randomness.
        """
        points = [*chain.from_iterable(queries), *cover]
        order = permutation(len(points), rng).tolist()
        return cls([points[place] for place in order], order, [len(query) for query in queries])

    def told(self, replies: Sequence[bytes]) -> list[list[bytes]]:
        """Return the replies to each query, in the order of its points, from the replies to the batch.

        Raises:
            SourceError: The provider did not answer each point.
        """
        if len(replies) != len(self.points):
            raise SourceError("the provider did not answer each point")
        found: list[bytes] = [b""] * len(replies)
        for reply, place in zip(replies, self.order, strict=True):
            found[place] = reply
        ends = list(accumulate(self.sizes, initial=0))
        return [found[start:end] for start, end in pairwise(ends)]


class Cover:
    """A stock of dummy points. A thread samples places ahead, since sampling takes longer than a batch may.

    Args:
        area: Area of the service.
        companions: Source of dummy journeys, see `companions`.
        rng: Random stream; None for secure randomness.
        stock: Number of places to sample in all.
    """

    def __init__(self, area: Area, companions: Any, *, rng: Stream | None = None, stock: int = STOCK) -> None:
        self._area, self._companions, self._stream = area, companions, secure_or(rng)
        self._stock = whole("stock", stock, low=1)
        self._places: list[int] = []
        self._guard, self._ended, self._used = threading.Lock(), threading.Event(), threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start a thread that samples places."""
        self._thread = threading.Thread(target=self._run, name="cover", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop the sampling thread."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        """Sample the first places at once, and further places as they are used."""
        while len(self._places) < self._stock and not self._ended.is_set():
            if not self._is_ready or self._used.acquire(timeout=0.5):
                self._draw()

    @property
    def _is_ready(self) -> bool:
        return len(self._places) >= min(_FIRST, self._stock)

    def _draw(self) -> None:
        journey = np.asarray(self._companions.journeys(1, 1, self._stream))
        if journey.shape != (1, 1):
            raise ParameterError("companions must give as many journeys as are asked for")
        place = int(self._area.channel.sample(journey, self._stream)[0, 0])
        with self._guard:
            self._places.append(place)

    def points(self, count: int) -> list[bytes]:
        """Return so many sealed dummy points."""
        while not self._is_ready:
            self._draw()
        service = self._area.service
        self._used.release(_RENEWED)
        with self._guard:
            chosen = [self._places[at] for at in uniform_below(len(self._places), count, self._stream)]
        return [Point.made(Kind.QUERY, place).sealed(service.id, service.key) for place in chosen]
