"""One small task, its signature, and clients whose bytes are known."""

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.federated.models import Linear
from reticent.fleet.enrolment import Enrolment, device_key

MASTER = bytes(range(32))
SIGNING = Ed25519PrivateKey.from_private_bytes(bytes(range(100, 132)))
SIGNER = SIGNING.public_key().public_bytes_raw()
HYPOTHESES = np.array([[5.0, 6.0], [4.0, -4.5]])
FIELDS = {
    "name": "two-laws",
    "version": "1",
    "purpose": "to test",
    "model": Linear(2, l2=0.0, intercept=False),
    "dimensions": 2,
    "hypotheses": 2,
    "clip": 1.0,
    "reach": 12.0,
    "level": 4.0,
    "rounds": 5,
    "group": 10,
    "rate": 0.1,
    "participations": 2,
}
LAPLACE = {"noise": "laplace", "level": 0.4}


def enrolment(number):
    """One whose bytes are known."""
    identity = number.to_bytes(8, "big")
    return Enrolment(identity, device_key(MASTER, identity))
