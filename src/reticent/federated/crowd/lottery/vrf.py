"""ECVRF: a hash that only the holder of a key can compute and everybody can check (RFC 9381, section 5).

One code for every group; the differences between suites (how bytes are numbers, how a nonce is drawn) are
parameters. Points are encoded by try-and-increment. A proof has one right form: any changed bit is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from reticent.errors import ParameterError

P = TypeVar("P")

_CHALLENGE = 16  # bytes, cLen
_SCALAR = 32  # bytes, qLen


class Group(Protocol[P]):
    """The operations of a group that the proofs need; see `weierstrass.Curve`."""

    @property
    def order(self) -> int:
        """The order of the subgroup of the generator."""

    @property
    def cofactor(self) -> int:
        """The order of the whole group divided by that of the generator's subgroup."""

    def base(self, k: int) -> P:
        """Return the generator multiplied by k."""

    def multiply(self, k: int, point: P) -> P:
        """Return a point multiplied by k."""

    def add(self, one: P, other: P) -> P:
        """The sum of two points."""

    def negate(self, point: P) -> P:
        """Return the inverse of a point."""

    def encode(self, point: P) -> bytes:
        """Return a point as bytes."""

    def decode(self, given: bytes) -> P:
        """Return the point of an encoding. Raises ValueError if there is none."""

    def coordinates(self, point: P) -> tuple[int, int]:
        """Return the coordinates x and y of a point."""


class Steps(NamedTuple, Generic[P]):
    """The points that a verifier meets, which are sent to a contract so that it need not compute them."""

    h: P  # alpha on the curve
    gamma: P
    c: int
    s: int
    s_h: P  # s H
    c_gamma: P  # c Gamma
    u: P  # s B - c Y
    v: P  # s H - c Gamma


@dataclass(frozen=True)
class Vrf(Generic[P]):
    """A suite of RFC 9381, 5.5.

    Attributes:
        group: Group of the points.
        suite: Byte of the suite.
        digest: Hash function.
        scalar: the secret scalar of a secret key.
        nonce: a number below the order from secret key and encoded point, the same each time.
        tag: Prefix that makes a hash the encoding of a point.
        order_of_bytes: Byte order of numbers.
    """

    group: Group[P]
    suite: bytes
    digest: Callable[[bytes], bytes]
    scalar: Callable[[bytes], int]
    nonce: Callable[[bytes, bytes], int]
    tag: bytes
    order_of_bytes: Literal["little", "big"]

    def public_key(self, secret: bytes) -> bytes:
        """The public key of a secret one."""
        return self.group.encode(self.group.base(self._secret_scalar(secret)))

    def prove(self, secret: bytes, alpha: bytes) -> bytes:
        """Return the proof for `alpha` (5.1), the same each time; `output` reads the hash off it."""
        group, x = self.group, self._secret_scalar(secret)
        public = group.encode(group.base(x))
        h = self.encoded(public, alpha)
        gamma = group.multiply(x, h)
        k = self.nonce(secret, group.encode(h))
        c = self._challenge([public, *map(group.encode, (h, gamma, group.base(k), group.multiply(k, h)))])
        s = (k + c * x) % group.order
        return group.encode(gamma) + self._bytes(c, _CHALLENGE) + self._bytes(s, _SCALAR)

    def verify(self, public: bytes, alpha: bytes, proof: bytes) -> bytes | None:
        """Return the output, or None if the proof is wrong for key and `alpha` (5.3, validating keys)."""
        steps = self.steps(public, alpha, proof)
        return None if steps is None else self._output(steps.gamma)

    def output(self, proof: bytes) -> bytes:
        """The hash of a proof that is known to be right (5.2).

        Raises:
            ParameterError: it is no proof at all.
        """
        try:
            return self._output(self._decoded(proof)[0])
        except ValueError as error:
            raise ParameterError("proof must be a point, a challenge and a number of this suite") from error

    def steps(self, public: bytes, alpha: bytes, proof: bytes) -> Steps[P] | None:
        """The points of a right proof; None if it is wrong.

        Departure: a challenge or an answer of zero is refused. An honest proof has one with a chance of
            2**-128, and neither a contract nor a library can multiply by it.
        """
        group = self.group
        try:
            y = group.decode(public)
            if group.cofactor > 1 and self._is_identity(group.multiply(group.cofactor, y)):
                return None
            gamma, c, s = self._decoded(proof)
            if c == 0 or s == 0:
                return None
            h = self.encoded(public, alpha)
            u = group.add(group.base(s), group.negate(group.multiply(c, y)))
            s_h, c_gamma = group.multiply(s, h), group.multiply(c, gamma)
            v = group.add(s_h, group.negate(c_gamma))
        except ValueError:  # no points, or infinity
            return None
        right = self._challenge([public, *map(group.encode, (h, gamma, u, v))])
        return Steps(h, gamma, c, s, s_h, c_gamma, u, v) if c == right else None

    def encoded(self, public: bytes, alpha: bytes) -> P:
        """Return `alpha` as a point, salted with the key, by try-and-increment (5.4.1.1)."""
        for found in self._tries(public, alpha):
            try:
                point = self.group.decode(self.tag + found)
            except ValueError:
                continue
            if self.group.cofactor > 1:
                point = self.group.multiply(self.group.cofactor, point)
                if self._is_identity(point):
                    continue
            return point
        raise ValueError("no point in 256 tries")  # a chance of 2**-256

    def tries(self, public: bytes, alpha: bytes) -> Iterator[int]:
        """Return the candidates that `encoded` tries, one after the other, as numbers."""
        return map(self._number, self._tries(public, alpha))

    def _tries(self, public: bytes, alpha: bytes) -> Iterator[bytes]:
        for counter in range(256):
            yield self.digest(self.suite + b"\1" + public + alpha + bytes([counter]) + b"\0")[:32]

    def _output(self, gamma: P) -> bytes:
        if self.group.cofactor > 1:
            gamma = self.group.multiply(self.group.cofactor, gamma)
        return self.digest(self.suite + b"\3" + self.group.encode(gamma) + b"\0")

    def _decoded(self, proof: bytes) -> tuple[P, int, int]:
        """Return the three parts of a proof (5.4.4). Raises ValueError."""
        point = len(proof) - _CHALLENGE - _SCALAR
        if point <= 0:
            raise ValueError("too short")
        gamma = self.group.decode(proof[:point])
        c, s = self._number(proof[point:-_SCALAR]), self._number(proof[-_SCALAR:])
        if s >= self.group.order:
            raise ValueError("not below the order")
        return gamma, c, s

    def _challenge(self, points: list[bytes]) -> int:
        """Return the challenge of the five points (5.4.3)."""
        return self._number(self.digest(self.suite + b"\2" + b"".join(points) + b"\0")[:_CHALLENGE])

    def _secret_scalar(self, secret: bytes) -> int:
        if not isinstance(secret, bytes) or len(secret) != _SCALAR:
            raise ParameterError("secret must be 32 bytes")
        x = self.scalar(secret)
        if not 0 < x < self.group.order * self.group.cofactor:
            raise ParameterError("secret must be a number above 0 and below the order of the curve")
        return x

    def _is_identity(self, point: P) -> bool:
        return self.group.coordinates(point) == (0, 1)

    def _bytes(self, number: int, length: int) -> bytes:
        return number.to_bytes(length, self.order_of_bytes)

    def _number(self, given: bytes) -> int:
        return int.from_bytes(given, self.order_of_bytes)


AnyVrf = Vrf[Any]
