"""Encryption of points from a vehicle to the provider, each sealed by itself, and of the replies.

    point   kind (1 byte) | place or station (4) | token (16) | reply key (16), by HPKE: 85 bytes
    reply   nonce (12) | state (1) | stations (4 each, k of them), by AES-128-GCM under the reply key

All points are of one size, and all replies to a service: queries, bookings and what only fills up look the
same to every carrier. A point that cannot be opened is answered by random bytes.

Reference: RFC 9180, base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM.
Privacy: a carrier of a sealed point learns nothing of it without the provider's key, by the security of
    HPKE against chosen ciphertexts. Reply keys are drawn for each point and not made from the enrolment: its
    operator knows that.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from enum import IntEnum

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from reticent.errors import ParameterError

KEY_BYTES = TOKEN_BYTES = 16
_LABEL, _REPLY_LABEL = b"reticent-station-point/v1\n", b"reticent-station-reply/v1\n"
_PLAIN = struct.Struct(f">BI{TOKEN_BYTES}s{KEY_BYTES}s")
_NONCE_BYTES, _TAG_BYTES = 12, 16
_NO_STATION = 0xFFFFFFFF
POINT_BYTES = 32 + _PLAIN.size + _TAG_BYTES
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


class Kind(IntEnum):
    """The request that a point carries."""

    NOTHING = 0  # it fills up
    QUERY = 1  # the nearest free stations of a place
    BOOKING = 2  # a connector of a station


class State(IntEnum):
    """The result of a request."""

    NOTHING = 0
    TOLD = 1
    BOOKED = 2
    TAKEN = 3  # there is no free connector


@dataclass(frozen=True)
class Point:
    """One point in the clear.

    Args:
        kind: Request that the point carries.
        number: Number of the place, or of the station.
        token: Random token that identifies a booking if it is sent again.
        key: Key for the reply.
    """

    kind: Kind
    number: int
    token: bytes
    key: bytes

    @classmethod
    def made(cls, kind: Kind, number: int) -> Point:
        """Create a point with a fresh token and a fresh reply key."""
        return cls(kind, number, os.urandom(TOKEN_BYTES), os.urandom(KEY_BYTES))

    def sealed(self, service: bytes, to: X25519PublicKey) -> bytes:
        """Encrypt the point to the provider, as a point of this service."""
        plain = _PLAIN.pack(self.kind, self.number, self.token, self.key)
        return _SUITE.encrypt(plain, to, _LABEL + service)


def opened(sealed: bytes, service: bytes, key: X25519PrivateKey) -> Point | None:
    """Decrypt a point that a vehicle sealed for this service; return None for anything else."""
    try:
        kind, number, token, reply = _PLAIN.unpack(_SUITE.decrypt(sealed, key, _LABEL + service))
        return Point(Kind(kind), number, token, reply)
    except (InvalidTag, ValueError, struct.error):
        return None


def is_sealed_to(key: X25519PublicKey) -> bool:
    """Return whether points can be sealed to a key; keys of small order would make the secret public."""
    try:
        X25519PrivateKey.generate().exchange(key)
    except ValueError:
        return False
    return True


def reply_bytes(k: int) -> int:
    """Return the size of every reply of a service that names up to k stations."""
    return _NONCE_BYTES + 1 + 4 * k + _TAG_BYTES


def replied(point: Point, sealed: bytes, state: State, stations: list[int], k: int) -> bytes:
    """Encrypt the reply to a point under the point's reply key."""
    filled = [*stations[:k], *[_NO_STATION] * k][:k]
    nonce = os.urandom(_NONCE_BYTES)
    plain = struct.pack(f">B{k}I", state, *filled)
    return nonce + AESGCM(point.key).encrypt(nonce, plain, _REPLY_LABEL + sealed)


def told(reply: bytes, sealed: bytes, key: bytes, k: int) -> tuple[State, list[int]]:
    """Decrypt the reply to a point, and return its state and its stations.

    Raises:
        ParameterError: The content is no reply to this point.
    """
    try:
        nonce, rest = reply[:_NONCE_BYTES], reply[_NONCE_BYTES:]
        state, *stations = struct.unpack(f">B{k}I", AESGCM(key).decrypt(nonce, rest, _REPLY_LABEL + sealed))
        return State(state), [one for one in stations if one != _NO_STATION]
    except (InvalidTag, ValueError, struct.error) as error:
        raise ParameterError("a reply must be that of the provider to this point") from error
