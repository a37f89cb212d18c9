"""A graph of places with lengths, by rows: shortest ways from one place, or from many within a limit.

Every way of finding them (compiled loops, scipy, a heap in Python) gives the same doubles: a shortest way is
the least of fl(d(u) + w(u, v)), and rounding keeps order.
"""

from __future__ import annotations

import heapq
import importlib.util
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reticent.errors import MissingExtra, ParameterError
from reticent.spaces.finite import Floats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_ENTRIES = 1 << 28
_BLOCK = 1 << 21  # distances that scipy gives at once
_BUCKETS = 1 << 13  # for places that wait, at most
_SAMPLE = 256  # places by which the number of entries is guessed, and ...
_SPARE = 1.3  # ... how much more there is room for: growing would copy

Starts = NDArray[np.int64]
Places = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Rows:
    """Sparse rows: the places that are near each of some places. Twelve bytes an entry.

    Attributes:
        starts: Index at which each row begins, and at which the last ends.
        places: Places that are near.
        far: Distances, in the order of `places`. The order within a row means nothing.
    """

    starts: Starts
    places: Places
    far: Floats

    def __len__(self) -> int:
        return len(self.starts) - 1

    def row(self, place: int) -> tuple[Places, Floats]:
        """Return the places near a place, and their distances."""
        here = slice(int(self.starts[place]), int(self.starts[place + 1]))
        return self.places[here], self.far[here]


@dataclass(frozen=True, eq=False)
class Graph:
    """Arcs between places 0 .. n - 1, all lengths > 0, sorted by where they begin.

    Attributes:
        starts: Index at which the arcs of each place begin, and at which the last ones end.
        ends: Place to which each arc leads.
        lengths: Length of each arc.
    """

    starts: Starts
    ends: Places
    lengths: Floats

    @classmethod
    def of(cls, size: int, begin: Any, end: Any, lengths: Any) -> Graph:
        """The graph of arcs in any order: the shortest of parallel ones, and none from a place to itself.

        Raises:
            ParameterError: a place that there is not, or a length that is not finite and > 0.
        """
        begin, end = np.asarray(begin, dtype=np.int64), np.asarray(end, dtype=np.int64)
        lengths = np.asarray(lengths, dtype=np.float64)
        if not len(begin) == len(end) == len(lengths):
            raise ParameterError("arcs must have as many begins, ends and lengths")
        if len(begin) and not (min(begin.min(), end.min()) >= 0 and max(begin.max(), end.max()) < size):
            raise ParameterError(f"arcs must join places below {size}")
        if not (np.isfinite(lengths) & (lengths > 0.0)).all():
            raise ParameterError("lengths of arcs must be finite and > 0")
        order = np.lexsort((lengths, end, begin))
        begin, end, lengths = begin[order], end[order], lengths[order]
        first = np.ones(len(begin), dtype=np.bool_)
        first[1:] = (np.diff(begin) != 0) | (np.diff(end) != 0)
        first &= begin != end
        starts = np.zeros(size + 1, dtype=np.int64)
        np.cumsum(np.bincount(begin[first], minlength=size), out=starts[1:])
        return cls(starts, end[first].astype(np.int32), lengths[first])

    @property
    def size(self) -> int:
        """The number of places."""
        return len(self.starts) - 1

    @cached_property
    def begins(self) -> Places:
        """The place where each arc begins."""
        return np.repeat(np.arange(self.size, dtype=np.int32), np.diff(self.starts))

    @cached_property
    def backward(self) -> Graph:
        """Every arc turned round."""
        return Graph.of(self.size, self.ends, self.begins, self.lengths)

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether there are as long arcs back."""
        back = self.backward
        return (
            np.array_equal(self.starts, back.starts)
            and np.array_equal(self.ends, back.ends)
            and np.array_equal(self.lengths, back.lengths)
        )

    @cached_property
    def longest(self) -> float:
        """The longest arc."""
        return float(self.lengths.max()) if self.lengths.size else 0.0

    @cached_property
    def matrix(self) -> Any:
        """The graph as a sparse matrix of scipy."""
        try:
            from scipy.sparse import csr_array
        except ImportError as error:
            raise MissingExtra("rows of a road network", "location") from error
        return csr_array((self.lengths, self.ends, self.starts), shape=(self.size, self.size))

    def distances(self, place: int, limit: float = math.inf) -> Floats:
        """From one place to every place; infinite beyond the limit: by scipy, or by a heap in Python."""
        if importlib.util.find_spec("scipy") is None:
            return self._plain_distances(place, limit)
        from scipy.sparse.csgraph import dijkstra

        return np.asarray(dijkstra(self.matrix, directed=True, indices=place, limit=limit))

    def _plain_distances(self, place: int, limit: float) -> Floats:
        """Return the distances from a place by a heap, 0.1 s for a city."""
        far = [math.inf] * self.size
        far[place] = 0.0
        queue, starts = [(0.0, place)], self.starts.tolist()
        ends, lengths = self.ends.tolist(), self.lengths.tolist()
        while queue:
            way, at = heapq.heappop(queue)
            if way > far[at]:
                continue
            for arc in range(starts[at], starts[at + 1]):
                through = way + lengths[arc]
                if through <= limit and through < far[ends[arc]]:
                    far[ends[arc]] = through
                    heapq.heappush(queue, (through, ends[arc]))
        return np.array(far)

    def rows(self, limit: float, places: Any = None, *, compiled: bool | None = None) -> Rows:
        """Return the places within a limit of each place (of all, or of some): never a full matrix.

        Raises:
            ParameterError: there would be more than 2^28 entries.
            MissingExtra: there is neither numba nor scipy.
        """
        if math.isnan(limit) or limit < 0.0:
            raise ParameterError(f"limit must be >= 0, got {limit:g}")
        chosen = np.arange(self.size) if places is None else np.asarray(places, dtype=np.int64)
        use_loops = is_compiled() if compiled is None else compiled
        return _compiled_rows(self, limit, chosen) if use_loops else _scipy_rows(self, limit, chosen)


def is_compiled() -> bool:
    """Whether numba is there."""
    return importlib.util.find_spec("numba") is not None


def _too_many(entries: int) -> ParameterError:
    return ParameterError(
        f"rows must have at most {MOST_ENTRIES:,} entries, got {entries:,}: a smaller limit"
    )


def _compiled_rows(graph: Graph, limit: float, chosen: NDArray[Any]) -> Rows:
    run, size = _loop(), graph.size
    bound = min(limit, graph.longest * size)  # no shortest way is longer
    shortest = float(graph.lengths.min()) if graph.lengths.size else 1.0
    per_km = 1.0 / max(shortest, bound / _BUCKETS)
    heads = np.full(int(bound * per_km) + 2, -1, dtype=np.int32)
    links = [np.empty(size, dtype=np.int32) for _ in range(4)]
    far = np.full(size, np.inf)

    def rows(
        some: NDArray[Any], first: int, starts: Starts, places: Places, lengths: Floats, end: int
    ) -> Any:
        return run(
            graph.starts, graph.ends, graph.lengths, some, first, bound, per_km, far, heads, *links, starts,
            places, lengths, end,
        )  # fmt: skip

    sample, found = chosen[:: max(1, len(chosen) // _SAMPLE)], 0
    places, lengths = np.empty(size, dtype=np.int32), np.empty(size)
    for place in sample.tolist():
        found += rows(np.array([place]), 0, np.zeros(2, dtype=np.int64), places, lengths, 0)[1]
    guess = found / max(1, len(sample)) * len(chosen)
    if guess > 2 * MOST_ENTRIES:
        raise _too_many(int(guess))
    room = int(_SPARE * guess) + size  # pages are taken as they are used
    places, lengths = np.empty(room, dtype=np.int32), np.empty(room)
    starts, at, end = np.zeros(len(chosen) + 1, dtype=np.int64), 0, 0
    while (begun := rows(chosen, at, starts, places, lengths, end))[0] < len(chosen):
        at, end = begun
        room = end + int(_SPARE * end / max(1, at) * (len(chosen) - at)) + size
        if room > MOST_ENTRIES + 2 * size:
            raise _too_many(room)
        places.resize(room, refcheck=False)
        lengths.resize(room, refcheck=False)
    if begun[1] > MOST_ENTRIES:
        raise _too_many(begun[1])
    return Rows(starts, places[: begun[1]], lengths[: begun[1]])


def _scipy_rows(graph: Graph, limit: float, chosen: NDArray[Any]) -> Rows:
    starts, places, lengths = np.zeros(len(chosen) + 1, dtype=np.int64), [], []
    number = found = 0
    for block in _scipy_blocks(graph, limit, chosen):
        for far in block:
            near = np.flatnonzero(far < np.inf)
            places.append(near.astype(np.int32))
            lengths.append(far[near])
            found += len(near)
            number += 1
            starts[number] = found
        if found > MOST_ENTRIES:
            raise _too_many(found)
    joined = np.concatenate(places) if places else np.empty(0, dtype=np.int32)
    places.clear()
    return Rows(starts, joined, np.concatenate(lengths) if lengths else np.empty(0))


def _scipy_blocks(graph: Graph, limit: float, chosen: NDArray[Any]) -> Iterator[Floats]:
    matrix = graph.matrix
    from scipy.sparse.csgraph import dijkstra

    step = max(1, _BLOCK // max(1, graph.size))
    for start in range(0, len(chosen), step):
        yield dijkstra(matrix, directed=True, indices=chosen[start : start + step], limit=limit)


@lru_cache(maxsize=1)
def _loop() -> Callable[..., Any]:
    """Return the compiled loop from many places into rows."""
    import numba  # type: ignore[import-untyped,unused-ignore]

    @numba.njit(nogil=True)
    def from_many(  # type: ignore[no-untyped-def]  # pragma: no cover
        starts, ends, lengths, chosen, first, limit, per_km, far, heads, after, before, bucket, touched, rows,
        places, found, end,
    ):  # fmt: skip
        """Rows from `first` on, until there is no room for another; `far` is infinite before and after.

        Places wait in buckets as wide as the shortest arc, or wider, by how far they are: within a bucket the
        order does not matter, since a place whose way becomes shorter waits again.
        """
        for number in range(first, len(chosen)):
            if end + len(far) > len(places):
                return number, end
            place = chosen[number]
            far[place] = 0.0
            touched[0], count = place, 1
            heads[0], after[place], before[place], bucket[place] = place, -1, -1, 0
            waiting, now = 1, 0
            while waiting > 0:
                at = heads[now]
                if at < 0:
                    now += 1
                    continue
                heads[now] = after[at]
                if after[at] >= 0:
                    before[after[at]] = -1
                bucket[at] = -1
                waiting -= 1
                way = far[at]
                for arc in range(starts[at], starts[at + 1]):
                    to = ends[arc]
                    through = way + lengths[arc]
                    if through <= limit and through < far[to]:
                        if far[to] == np.inf:
                            touched[count] = to
                            count += 1
                        elif bucket[to] >= 0:
                            if before[to] >= 0:
                                after[before[to]] = after[to]
                            else:
                                heads[bucket[to]] = after[to]
                            if after[to] >= 0:
                                before[after[to]] = before[to]
                            waiting -= 1
                        far[to] = through
                        into = max(now, int(through * per_km))
                        bucket[to], before[to], after[to] = into, -1, heads[into]
                        if heads[into] >= 0:
                            before[heads[into]] = to
                        heads[into] = to
                        waiting += 1
            for one in range(count):
                to = touched[one]
                places[end], found[end] = to, far[to]
                far[to] = np.inf
                end += 1
            rows[number + 1] = end
        return len(chosen), end

    return from_many
