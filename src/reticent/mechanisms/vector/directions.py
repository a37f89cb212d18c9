"""Public random directions: who knows a seed and a number knows the direction, and makes no other for it.

A direction is n standard normal numbers, made unit length: uniform on the sphere. The numbers are AES-256
under a fixed key of the blocks

    seed (8 bytes) | direction (4) | place (4)          all big-endian,

each of which gives two pairs of 32-bit words (little-endian), and each pair two numbers by the method of Box
and Muller: all cosines come first, then all sines. Single precision: machines may differ in the last digits,
which costs a few millionths of accuracy, and no privacy, since a `Codebook` keeps its epsilon whatever the
directions are. The key hides nothing; seeds must not be the sender's choice.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Seeds = NDArray[np.uint64]
Singles = NDArray[np.float32]

BLOCK_NUMBERS = 4
_KEY = hashlib.sha256(b"reticent codebook, version 1").digest()
_BLOCK = np.dtype([("seed", ">u8"), ("direction", ">u4"), ("place", ">u4")])
_WORD = np.dtype("<u4")
_UNIT = np.float32((1.0 - 2.0**-24) * 2.0**-32)  # so that no word gives 1, of which the logarithm is 0
_TURN = np.float32(np.pi * 2.0**-31)


@lru_cache(maxsize=1)
def _cipher() -> Any:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import ECB

    # ECB of distinct single blocks is a keyed hash here, not encryption of a message.
    return Cipher(AES(_KEY), ECB())  # noqa: S305


def half(n: int) -> int:
    """Return how many of n numbers are cosines."""
    return 2 * -(-n // BLOCK_NUMBERS)


def normals(seeds: Any, directions: Any, n: int) -> Singles:
    """Return the numbers of directions before they are made unit length: shape (2, ..., half(n)).

    Args:
        seeds: Seeds; their shape and that of `directions` broadcast.
        directions: Numbers of the directions.
        n: Count of numbers of each direction. The last sines may be more than that; leave them out.
    """
    shape = np.broadcast_shapes(np.shape(seeds), np.shape(directions))
    blocks = np.empty((*shape, half(n) // 2), dtype=_BLOCK)
    blocks["seed"], blocks["direction"] = np.asarray(seeds)[..., None], np.asarray(directions)[..., None]
    blocks["place"] = np.arange(half(n) // 2)
    encryptor = _cipher().encryptor()  # of this call: threads cannot share one
    hidden = encryptor.update(blocks.reshape(-1).view(np.uint8).data)
    return gaussian(np.frombuffer(hidden, dtype=_WORD)).reshape(2, *shape, half(n))


def gaussian(words: NDArray[np.uint32]) -> Singles:
    """Standard normal numbers of pairs of uniform words, cosines and sines: shape (2, pairs)."""
    pairs = words.reshape(-1, 2)
    radius = pairs[:, 0].astype(np.float32)
    radius += np.float32(0.5)
    radius *= _UNIT
    np.log(radius, out=radius)
    radius *= np.float32(-2.0)
    np.sqrt(radius, out=radius)
    angle = pairs[:, 1].astype(np.int32).astype(np.float32)
    angle *= _TURN
    found = np.empty((2, radius.size), dtype=np.float32)
    np.cos(angle, out=found[0])
    np.sin(angle, out=found[1])
    found *= radius
    return found


def along(numbers: Singles, x: Singles) -> Singles:
    """Return the component of each direction, made unit length, along a unit vector of n numbers.

    Args:
        numbers: Numbers from `normals`, shape (2, rows, directions, half(n)).
        x: Unit vectors, shape (rows, n).
    """
    cut = numbers.shape[-1]
    rest = x.shape[-1] - cut
    cosines, sines = numbers[0], numbers[1][..., :rest]
    products = np.matmul(cosines, x[:, :cut, None])[..., 0]
    products += np.matmul(sines, x[:, cut:, None])[..., 0]
    squares = np.einsum("...i,...i->...", cosines, cosines) + np.einsum("...i,...i->...", sines, sines)
    return np.asarray(products / np.sqrt(squares))


def unit(numbers: Singles, n: int) -> Singles:
    """Directions of n numbers, unit length: shape (..., n)."""
    found = np.concatenate([numbers[0], numbers[1][..., : n - numbers.shape[-1]]], axis=-1)
    squares = np.einsum("...i,...i->...", found, found)
    found /= np.sqrt(squares)[..., None]
    return found
