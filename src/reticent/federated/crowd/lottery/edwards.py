"""Edwards25519, -x^2 + y^2 = 1 + d x^2 y^2 (RFC 8032), in plain Python, not for speed."""

from __future__ import annotations

Extended = tuple[int, int, int, int]  # X, Y, Z, T with x = X/Z, y = Y/Z, xy = T/Z

_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)  # of -1
_IDENTITY: Extended = (0, 1, 1, 0)


class Edwards25519:
    """The group of RFC 8032, 5.1: of prime order times the cofactor 8."""

    order = 2**252 + 27742317777372353535851937790883648493
    cofactor = 8

    def base(self, k: int) -> Extended:
        """Return the generator multiplied by k."""
        return self.multiply(k, _BASE)

    def multiply(self, k: int, point: Extended) -> Extended:
        """Return a point multiplied by k. Unlike on the other curves the identity is a point."""
        result = _IDENTITY
        while k:
            if k & 1:
                result = self.add(result, point)
            point = self.add(point, point)
            k >>= 1
        return result

    def add(self, one: Extended, other: Extended) -> Extended:
        """The sum of two points (RFC 8032, 5.1.4)."""
        a = (one[1] - one[0]) * (other[1] - other[0]) % _P
        b = (one[1] + one[0]) * (other[1] + other[0]) % _P
        c, d = 2 * one[3] * other[3] * _D % _P, 2 * one[2] * other[2] % _P
        e, f, g, h = b - a, d - c, d + c, b + a
        return e * f % _P, g * h % _P, f * g % _P, e * h % _P

    def negate(self, point: Extended) -> Extended:
        """The point that added gives the identity."""
        return -point[0] % _P, point[1], point[2], -point[3] % _P

    def encode(self, point: Extended) -> bytes:
        """Return 32 bytes: y, and the lowest bit of x on top (RFC 8032, 5.1.2)."""
        x, y = self.coordinates(point)
        return (y | (x & 1) << 255).to_bytes(32, "little")

    def decode(self, given: bytes) -> Extended:
        """The point of 32 bytes (RFC 8032, 5.1.3). Raises ValueError if there is none."""
        if len(given) != 32:
            raise ValueError("no point of 32 bytes")
        number = int.from_bytes(given, "little")
        y, sign = number & ((1 << 255) - 1), number >> 255
        if y >= _P:
            raise ValueError("no coordinate")
        u, v = (y * y - 1) % _P, (_D * y * y + 1) % _P
        x = u * pow(v, 3, _P) * pow(u * pow(v, 7, _P), (_P - 5) // 8, _P) % _P
        if (v * x * x + u) % _P == 0:
            x = x * _ROOT % _P
        if (v * x * x - u) % _P or (x == 0 and sign):
            raise ValueError("no point of the curve")
        x = x if x & 1 == sign else _P - x
        return x, y, 1, x * y % _P

    def coordinates(self, point: Extended) -> tuple[int, int]:
        """Return the coordinates x and y of a point."""
        inverse = pow(point[2], -1, _P)
        return point[0] * inverse % _P, point[1] * inverse % _P


_BASE = Edwards25519().decode((4 * pow(5, -1, _P) % _P).to_bytes(32, "little"))
