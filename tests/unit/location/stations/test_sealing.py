"""Sealed points: one size, for the provider of one service alone; replies for whoever asked."""

import os

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from reticent.errors import ParameterError
from reticent.location.stations.sealing import (
    POINT_BYTES,
    Kind,
    Point,
    State,
    opened,
    replied,
    reply_bytes,
    told,
)

KEY, OTHER = X25519PrivateKey.generate(), X25519PrivateKey.generate()
SERVICE = b"12345678"


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("number", [0, 7, (1 << 32) - 1])
def test_every_point_is_of_one_size_and_comes_back(kind, number):
    point = Point.made(kind, number)
    sealed = point.sealed(SERVICE, KEY.public_key())
    assert len(sealed) == POINT_BYTES == 85
    assert opened(sealed, SERVICE, KEY) == point
    assert sealed != point.sealed(SERVICE, KEY.public_key())
    assert point.key not in sealed


def test_nobody_else_opens_it():
    sealed = Point.made(Kind.QUERY, 3).sealed(SERVICE, KEY.public_key())
    assert opened(sealed, SERVICE, OTHER) is None
    assert opened(sealed, b"87654321", KEY) is None
    for at in range(POINT_BYTES):
        broken = bytearray(sealed)
        broken[at] ^= 1
        assert opened(bytes(broken), SERVICE, KEY) is None
    for junk in (b"", os.urandom(POINT_BYTES), bytes(POINT_BYTES), sealed + b"x", sealed[:-1]):
        assert opened(junk, SERVICE, KEY) is None


@pytest.mark.parametrize("k", [1, 3, 16])
@pytest.mark.parametrize(
    ("state", "stations"), [(State.TOLD, [5, 0]), (State.TAKEN, []), (State.NOTHING, [])]
)
def test_replies_are_of_one_size_and_for_one_point(k, state, stations):
    point, other = Point.made(Kind.QUERY, 3), Point.made(Kind.QUERY, 3)
    sealed = point.sealed(SERVICE, KEY.public_key())
    reply = replied(point, sealed, state, stations, k)
    assert len(reply) == reply_bytes(k)
    assert told(reply, sealed, point.key, k) == (state, stations[:k])
    for key, to in ((other.key, sealed), (point.key, other.sealed(SERVICE, KEY.public_key()))):
        with pytest.raises(ParameterError, match="must be that of the provider"):
            told(reply, to, key, k)
    with pytest.raises(ParameterError):
        told(reply[:-1], sealed, point.key, k)
