"""The lottery's proofs against products of libsecp256k1: a proof needs four, a check four and decoding."""

from __future__ import annotations

from benchmarks.measure import Figure, cpu_ratio
from reticent.federated.crowd.lottery import secp256k1

SECRET, ALPHA, TIMES = bytes(range(1, 33)), b"\x5a" * 32, 50


def _product():
    from coincurve import PublicKey

    key, scalar = PublicKey(secp256k1().public_key(SECRET)), bytes(range(32, 0, -1))

    def run() -> None:
        for _ in range(TIMES):
            key.multiply(scalar)

    return run


def proving() -> float:
    """A proof / a product."""

    def run() -> None:
        for _ in range(TIMES):
            secp256k1().prove(SECRET, ALPHA)

    return 1.0 / cpu_ratio(_product(), run)


def verifying() -> float:
    """A check of a proof / a product."""
    vrf = secp256k1()
    public, proof = vrf.public_key(SECRET), vrf.prove(SECRET, ALPHA)

    def run() -> None:
        for _ in range(TIMES):
            vrf.verify(public, ALPHA, proof)

    return 1.0 / cpu_ratio(_product(), run)


FIGURES = [
    Figure("crowd, proof of a lot", "a product of coincurve", 40.0, proving, at_most=True),
    Figure("crowd, check of a lot", "a product of coincurve", 40.0, verifying, at_most=True),
]
