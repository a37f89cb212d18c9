"""Short Weierstrass curves of prime order, y^2 = x^3 + ax + b: P-256 and secp256k1.

`Curve` is plain Python: it is right on any such curve, and its time depends on what it multiplies by.
`Coincurve` is secp256k1 by libsecp256k1, 50 times faster; products by secrets are not in constant time there
either. An attacker who can measure a miner's clock cycles is outside of what this defends against.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Affine = tuple[int, int]
Jacobian = tuple[int, int, int]

_INFINITY: Jacobian = (1, 1, 0)
_WIDTH = 32  # bytes of a coordinate


@dataclass(frozen=True)
class Curve:
    """A curve modulo `p` (p = 3 modulo 4) with the generator (x, y), whose `order` is prime."""

    p: int
    a: int
    b: int
    x: int
    y: int
    order: int
    cofactor: int = 1

    def base(self, k: int) -> Affine:
        """Return the generator multiplied by k."""
        return self.multiply(k, (self.x, self.y))

    def multiply(self, k: int, point: Affine) -> Affine:
        """Return a point multiplied by k. Raises ValueError at infinity."""
        result, factor = _INFINITY, (point[0], point[1], 1)
        for bit in bin(k % self.order)[2:]:
            result = self._double(result)
            if bit == "1":
                result = self._add(result, factor)
        return self._affine(result)

    def add(self, one: Affine, other: Affine) -> Affine:
        """The sum of two points. Raises ValueError at infinity."""
        return self._affine(self._add((*one, 1), (*other, 1)))

    def negate(self, point: Affine) -> Affine:
        """The point that added gives infinity."""
        return point[0], -point[1] % self.p

    def encode(self, point: Affine) -> bytes:
        """Return the 33 bytes of a compressed point (SEC 1, 2.3.3)."""
        return bytes([2 + point[1] % 2]) + point[0].to_bytes(_WIDTH)

    def decode(self, given: bytes) -> Affine:
        """The point of 33 bytes (SEC 1, 2.3.4). Raises ValueError if there is none."""
        if len(given) != 1 + _WIDTH or given[0] not in (2, 3):
            raise ValueError("no compressed point")
        x = int.from_bytes(given[1:])
        if x >= self.p:
            raise ValueError("no coordinate")
        square = (pow(x, 3, self.p) + self.a * x + self.b) % self.p
        y = pow(square, (self.p + 1) // 4, self.p)
        if y * y % self.p != square:
            raise ValueError("no point of the curve")
        return x, y if y % 2 == given[0] % 2 else self.p - y

    def coordinates(self, point: Affine) -> Affine:
        """Return the coordinates x and y of a point."""
        return point

    def _affine(self, point: Jacobian) -> Affine:
        x, y, z = point
        if z == 0:
            raise ValueError("infinity")
        inverse = pow(z, -1, self.p)
        return x * inverse**2 % self.p, y * inverse**3 % self.p

    def _double(self, point: Jacobian) -> Jacobian:
        x, y, z = point
        p = self.p
        s = 4 * x * y * y % p
        m = (3 * x * x + self.a * pow(z, 4, p)) % p
        out = (m * m - 2 * s) % p
        return out, (m * (s - out) - 8 * pow(y, 4, p)) % p, 2 * y * z % p

    def _add(self, one: Jacobian, other: Jacobian) -> Jacobian:
        if one[2] == 0:
            return other
        if other[2] == 0:
            return one
        p = self.p
        (x, y, z), (x2, y2, z2) = one, other
        zz, zz2 = z * z % p, z2 * z2 % p
        u, u2, s, s2 = x * zz2 % p, x2 * zz % p, y * zz2 * z2 % p, y2 * zz * z % p
        if u == u2:
            return self._double(one) if s == s2 else _INFINITY
        h, r = u2 - u, s2 - s
        hh = h * h % p
        hhh, v = hh * h % p, u * hh % p
        out = (r * r - hhh - 2 * v) % p
        return out, (r * (v - out) - s * hhh) % p, z * z2 * h % p


P256 = Curve(
    p=2**256 - 2**224 + 2**192 + 2**96 - 1,
    a=-3,
    b=0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B,
    x=0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    y=0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
    order=0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
)
SECP256K1 = Curve(
    p=2**256 - 2**32 - 977,
    a=0,
    b=7,
    x=0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    y=0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
    order=0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141,
)


class Coincurve:
    """secp256k1 by libsecp256k1. Points are its compressed bytes; the methods are those of `Curve`."""

    order = SECP256K1.order
    cofactor = 1

    @cached_property
    def _library(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        from coincurve import PrivateKey, PublicKey  # late: only who draws lots has it

        return PrivateKey, PublicKey

    def base(self, k: int) -> bytes:
        """See `Curve.base`."""
        private, _ = self._library
        return bytes(private((k % self.order).to_bytes(_WIDTH)).public_key.format())

    def multiply(self, k: int, point: bytes) -> bytes:
        """See `Curve.multiply`."""
        _, public = self._library
        return bytes(public(point).multiply((k % self.order).to_bytes(_WIDTH)).format())

    def add(self, one: bytes, other: bytes) -> bytes:
        """See `Curve.add`."""
        _, public = self._library
        return bytes(public(one).combine([public(other)]).format())

    def negate(self, point: bytes) -> bytes:
        """See `Curve.negate`."""
        return bytes([point[0] ^ 1]) + point[1:]

    def encode(self, point: bytes) -> bytes:
        """See `Curve.encode`."""
        return point

    def decode(self, given: bytes) -> bytes:
        """See `Curve.decode`."""
        _, public = self._library
        if len(given) != 1 + _WIDTH:
            raise ValueError("no compressed point")
        return bytes(public(given).format())

    def coordinates(self, point: bytes) -> Affine:
        """Return the coordinates x and y of a point."""
        _, public = self._library
        x, y = public(point).point()
        return int(x), int(y)
