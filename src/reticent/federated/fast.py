"""The reports of many clients as one compiled loop: gradient, bound, mechanism and sum in one pass.

For `simulation`. It does the same IEEE operations on the same words in the same order as the plain path, so
both give the same symbols and the same sums. It needs the optional part `fast`; without it, and for few
numbers, the plain path runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from reticent.federated.models import Model
from reticent.federated.tasks import Task
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric import kernels
from reticent.mechanisms.sampling import sampled_attributes
from reticent.randomness import Stream
from reticent.randomness.streams import Words


def is_worth(task: Task, clients: int) -> bool:
    """Whether the compiled loop can run a round, and has enough to do."""
    return (
        task.codebook is None
        and task.dimensions > 1
        and getattr(type(task.model), "gradients", None) is Model.gradients
        and task.channel._kernel.draws < 2
        and kernels.engine_for(clients * task.sample_size).name == "numba"
    )


def report_sums(task: Task, theta: Floats, blocks: Iterable[tuple[Floats, Floats]], stream: Stream) -> Floats:
    """Return the sums of the private reports of one record each, in units of the bounds.

    Args:
        task: Task to learn.
        theta: the parameters.
        blocks: features, prepared, and targets of some clients after the other.
        stream: Random stream of the mechanism.
    """
    assert task.model is not None
    model, d, k = task.model.plain, task.dimensions, task.sample_size
    loop, law = _loop(task.channel._kernel, k < d), task.channel._law(symbols=False)
    sums, room, penalty = np.zeros(d), np.empty((2, d)), model.l2 * theta
    for features, targets in blocks:
        with np.errstate(all="ignore"):
            slopes = model.slopes(theta, features, targets)
        if k < d:
            asked = sampled_attributes(slopes.size, d, k, stream)
            words = stream.words(slopes.size * k).reshape(-1, k)
            some = np.zeros(d)
            loop(features, slopes, penalty, task.scale, asked, words, law, some)
            sums += some
            continue
        start = 0
        for words in _rows(stream.word_blocks(slopes.size * d), d):
            stop = start + len(words)
            loop(features[start:stop], slopes[start:stop], penalty, task.scale, words, law, room, sums)
            start = stop
    return sums


def _rows(pieces: Iterable[Words], length: int) -> Iterator[Words]:
    """The words of whole rows, shape (rows, length), out of pieces that end anywhere."""
    rest = np.empty(0, dtype=np.uint64)
    for piece in pieces:
        missing = -rest.size % length
        row, piece = np.concatenate([rest, piece[:missing]]), piece[missing:]
        if 0 < row.size < length:
            rest = row
            continue
        if row.size:
            yield row[None]
        whole = piece.size // length * length
        yield piece[:whole].reshape(-1, length)
        rest = piece[whole:].copy()


@lru_cache(maxsize=16)
def _loop(kernel: kernels.Formula, is_sampled: bool) -> Callable[..., None]:
    import numba

    formula, units = kernels.engine("numba").function(kernel), kernel.draws

    @numba.njit(nogil=True)
    def draw(values: Any, drawn: Any, law: Any, out: Any) -> None:
        if units == 1:
            for j in range(out.size):
                drawn[j] = (drawn[j] >> np.uint64(12)) | np.uint64(0x3FF0000000000000)
            f = drawn.view(np.float64)
            for j in range(out.size):
                out[j] = formula(values[j], f[j], law)
        else:
            for j in range(out.size):
                out[j] = formula(values[j], drawn[j], law)

    def every(
        features: Any, slopes: Any, penalty: Any, scale: Any, words: Any, law: Any, room: Any, sums: Any
    ) -> None:
        """Clients who report all coordinates."""
        values, reports = room[0], room[1]
        is_scaled = np.any(scale != 1.0)
        for client in range(features.shape[0]):
            row, slope = features[client], slopes[client]
            for j in range(row.size):
                values[j] = slope * row[j] + penalty[j]
            for j in range(row.size, values.size):  # the intercept
                values[j] = slope + penalty[j]
            if is_scaled:
                for j in range(values.size):
                    values[j] /= scale[j]
            draw(values, words[client], law, reports)
            for j in range(sums.size):  # apart: a sum within the draw is slower
                sums[j] += reports[j]

    def sampled(
        features: Any, slopes: Any, penalty: Any, scale: Any, asked: Any, words: Any, law: Any, sums: Any
    ) -> None:
        """Clients who report the coordinates that they are asked for."""
        values, reports = np.empty(asked.shape[1]), np.empty(asked.shape[1])
        for client in range(features.shape[0]):
            row, mine = features[client], asked[client]
            for place in range(mine.size):
                j = mine[place]
                value = row[j] if j < row.size else 1.0
                values[place] = (slopes[client] * value + penalty[j]) / scale[j]
            draw(values, words[client], law, reports)
            for place in range(mine.size):
                sums[mine[place]] += reports[place]

    compiled: Callable[..., None] = numba.njit(sampled if is_sampled else every, nogil=True)
    return compiled
