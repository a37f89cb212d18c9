"""Clients whose every byte is known: a signer, enrolments, tasks, and many reports at once."""

import hashlib

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.collect import instruments
from reticent.federated import payload
from reticent.federated.steps import Steps
from reticent.federated.tasks import UNIT, Task, signed
from reticent.fleet.enrolment import Enrolment, device_key
from reticent.mechanisms.numeric import OneBit
from reticent.mechanisms.sampling import epsilon_each

MASTER = bytes(range(32))
SIGNING = Ed25519PrivateKey.from_private_bytes(bytes(range(100, 132)))
SIGNER = SIGNING.public_key().public_bytes_raw()
KEY = bytes(range(200, 232))
NUMERIC = {
    "Duchi": {},
    "ThreeOutputs": {},
    "PM": {"levels": 31},
    "PMOpt": {"levels": 101},
    "PMSub": {"levels": 101},
    "HM": {"levels": 101},
    "HMTP": {"levels": 101},
    "OneBit": {"rho": 0.5, "dither_levels": 16},
    "Window": {"window": 2, "y": [-2.5, -1.0, 0.0, 1.0, 2.5]},
}


def task(kind="Duchi", dimensions=6, sample_size=1, *, epsilon=1.0, **changes):
    """A task with a mechanism of a kind; the clients bring gradients of their own."""
    if "mechanism" not in changes:
        each = {"kind": kind, "epsilon": epsilon_each(epsilon, sample_size)}
        changes["mechanism"] = instruments.made(UNIT, each | NUMERIC[kind])
    fields = {
        "name": kind,
        "version": "1",
        "purpose": "to test",
        "model": None,
        "dimensions": dimensions,
        "bounds": 1.0,
        "epsilon": epsilon,
        "sample_size": sample_size,
        "rounds": 10,
        "group": 100,
        "participations": 1,
        "steps": Steps(0.5),
        "key": KEY,
    }
    return Task(**fields | changes)


def file_of(of):
    return signed(of, SIGNING)


def enrolment(number):
    identity = hashlib.sha256(f"client {number}".encode()).digest()[:8]
    return Enrolment(identity, device_key(MASTER, identity))


def drawn(of, ids, number, gradient, stream):
    """What clients of these ids are asked for and draw, all of one gradient."""
    asked = of.asked(ids, number)
    units = of.clipped(gradient)[asked]
    if isinstance(of.mechanism, OneBit):
        return asked, of.mechanism.sample(units, stream, dither=of.dither(ids, number, asked))
    return asked, of.mechanism.sample(units, stream)


def report(of, enrolled, number, gradient, stream):
    """The payload of one client, without its ledger."""
    symbols = drawn(of, payload.client_number(enrolled), number, gradient, stream)[1]
    return payload.written(of, enrolled, number, of.mechanism.pack(symbols))


def taken(one, task):
    """A task that a client took, signed."""
    return one.take(file_of(task))


ENROLLED = enrolment(7)
GRADIENT = np.array([0.5, -1.0, 0.0, 2.0, -0.25, 0.125])
