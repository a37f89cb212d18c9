"""The suites in use: P-256 and Edwards25519 as RFC 9381 has them, and the same for secp256k1.

The first two meet the published vectors and so show that the code is right; the third is what a miner's key
of an Ethereum chain can prove, and a contract can check. Its byte 0xfe is from the range for private use.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import cache

from reticent.federated.crowd.lottery.edwards import Edwards25519, Extended
from reticent.federated.crowd.lottery.vrf import Vrf
from reticent.federated.crowd.lottery.weierstrass import P256, SECP256K1, Affine, Coincurve


@cache
def p256() -> Vrf[Affine]:
    """Return the suite ECVRF-P256-SHA256-TAI."""
    return Vrf(P256, b"\x01", _sha256, int.from_bytes, _nonce_of(P256.order), b"\2", "big")


@cache
def secp256k1() -> Vrf[bytes]:
    """Return the suite of `p256` on the curve of Ethereum's keys."""
    return Vrf(Coincurve(), b"\xfe", _sha256, int.from_bytes, _nonce_of(SECP256K1.order), b"\2", "big")


@cache
def edwards25519() -> Vrf[Extended]:
    """Return the suite ECVRF-EDWARDS25519-SHA512-TAI."""
    return Vrf(Edwards25519(), b"\x03", _sha512, _pruned, _nonce_edwards, b"", "little")


def _sha256(given: bytes) -> bytes:
    return hashlib.sha256(given).digest()


def _sha512(given: bytes) -> bytes:
    return hashlib.sha512(given).digest()


def _pruned(secret: bytes) -> int:
    """Return the secret scalar of an Edwards key (RFC 8032, 5.1.5)."""
    low = int.from_bytes(_sha512(secret)[:32], "little")
    return low & ~7 & ((1 << 254) - 1) | 1 << 254


def _nonce_edwards(secret: bytes, h: bytes) -> int:
    """Return the nonce of an Edwards proof (RFC 9381, 5.4.2.2)."""
    return int.from_bytes(_sha512(_sha512(secret)[32:] + h), "little") % Edwards25519.order


class _Nonce:
    """A nonce by RFC 9381, 5.4.2.1: RFC 6979, 3.2, with SHA-256 and an order of 256 bits."""

    def __init__(self, order: int) -> None:
        self.order = order

    def __call__(self, secret: bytes, h: bytes) -> int:
        hashed = (int.from_bytes(_sha256(h)) % self.order).to_bytes(32)
        value, key = b"\1" * 32, b"\0" * 32
        for mark in (b"\0", b"\1"):
            key = hmac.digest(key, value + mark + secret + hashed, "sha256")
            value = hmac.digest(key, value, "sha256")
        while True:
            value = hmac.digest(key, value, "sha256")
            if 0 < (k := int.from_bytes(value)) < self.order:
                return k
            key = hmac.digest(key, value + b"\0", "sha256")
            value = hmac.digest(key, value, "sha256")


def _nonce_of(order: int) -> _Nonce:
    return _Nonce(order)
