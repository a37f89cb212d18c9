"""Keyed pseudo-random choices that a survey makes for its reporters, so that none can choose for itself.

The dither level of a bit, the attributes that are reported where the survey assigns them, the group of a
reporter, and the first wave of a survey that learns (`collect.waves`) are drawn by a keyed hash of the
reporter's id: AES-256 under the survey's key, one block for each draw,

    id (8 bytes) | period (4) | purpose (1) | number (3)        all big-endian,

of which the first eight bytes are the draw. The key is public: the draws hide nothing, but the sender cannot
choose them. Nor can a reporter choose an id, since ids come with enrolment.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEY_BYTES = 32
DITHER, ATTRIBUTES, GROUP, SUBSET, CODEBOOK, WAVE = 0, 1, 2, 3, 4, 5
_BLOCK = np.dtype([("id", ">u8"), ("period", ">u4"), ("rest", ">u4")])

Ids = NDArray[np.uint64]


class Lots:
    """The pseudo-random draws of one survey.

    Args:
        key: Key of the survey, 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    @cached_property
    def _cipher(self) -> Any:
        """Cipher of the survey, built on first use: a device whose survey draws nothing does not load it."""
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import AES
        from cryptography.hazmat.primitives.ciphers.modes import ECB

        # ECB of distinct single blocks is a keyed hash here, not encryption of a message.
        return Cipher(AES(self._key), ECB())  # noqa: S305

    def _draws(self, ids: Ids, period: Any, purpose: int, number: Any) -> Ids:
        blocks = np.empty(ids.shape, dtype=_BLOCK)
        blocks["id"], blocks["period"] = ids, period
        blocks["rest"] = purpose << 24 | number
        encryptor = self._cipher.encryptor()  # one per call: threads cannot share an encryptor
        drawn = np.frombuffer(encryptor.update(blocks.tobytes()), dtype=">u8")[::2]
        return drawn.astype(np.uint64)

    def dither(self, ids: Ids, period: Any, attribute: Any, levels: int) -> NDArray[np.int64]:
        """Return the dither level of each reporter's bit; `levels` is a power of two."""
        return (self._draws(ids, period, DITHER, attribute) & np.uint64(levels - 1)).astype(np.int64)

    def attributes(self, ids: Ids, period: Any, size: int, of: int) -> NDArray[np.bool_]:
        """Return a mask of the `size` of `of` attributes that each reporter is asked for (lowest draws)."""
        draws = np.stack([self._draws(ids, period, ATTRIBUTES, number) for number in range(of)], axis=-1)
        order = np.argsort(draws, axis=-1, kind="stable")
        asked = np.zeros(draws.shape, dtype=np.bool_)
        np.put_along_axis(asked, order[..., :size], True, axis=-1)
        return asked

    def subset(self, ids: Ids, period: Any, size: int, of: int) -> NDArray[np.int64]:
        """Return the `size` of `of` coordinates that each reporter is asked for, in increasing order.

        The result has shape (reporters, size).

        Draws `size` numbers where `attributes` draws `of`: for thousands of coordinates.
        Reference: Floyd's algorithm (Bentley and Floyd 1987); each draw is off uniform by less than of/2^64.
        """
        taken = np.empty((ids.size, size), dtype=np.int64)
        for column, j in enumerate(range(of - size, of)):
            drawn = (self._draws(ids, period, SUBSET, column) % np.uint64(j + 1)).astype(np.int64)
            again = (taken[:, :column] == drawn[:, None]).any(axis=1)
            taken[:, column] = np.where(again, j, drawn)
        taken.sort(axis=1)
        return taken

    def codebook(self, ids: Ids, period: Any) -> Ids:
        """Return the seed of each reporter's directions, see `mechanisms.vector`."""
        return self._draws(ids, period, CODEBOOK, 0)

    def group(self, ids: Ids, groups: int) -> NDArray[np.int64]:
        """Return the group that each reporter counts in, in every period; `groups` is a power of two."""
        if groups == 1:
            return np.zeros(ids.shape, dtype=np.int64)
        return (self._draws(ids, 0, GROUP, 0) & np.uint64(groups - 1)).astype(np.int64)

    def first_wave(self, ids: Ids, period: Any, share: float) -> NDArray[np.bool_]:
        """Return a mask of the reporters that report first in a period: draws below a share of 2^64."""
        if share <= 0.0:
            return np.zeros(ids.shape, dtype=np.bool_)
        limit = np.uint64(min(int(Fraction(share) * (1 << 64)), (1 << 64) - 1))
        return np.asarray(self._draws(ids, period, WAVE, 0) < limit)
