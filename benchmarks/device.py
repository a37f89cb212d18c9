"""Ledgers of devices: whether a report takes longer after many; a start and a charge beside bare bytes.

CPU time, but for charges, which wait for the disk: that of `benchmarks.ledger`.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.measure import Figure, cpu_ratio
from reticent.collect.design import designed as designed_survey
from reticent.collect.device import ACCOUNT, Device
from reticent.collect.signing import signed as signed_survey
from reticent.federated import Client, Logistic
from reticent.federated.tasks import designed, signed
from reticent.fleet.enrolment import enrolled
from reticent.ledger import Marks
from reticent.ledger.base import Amount, Unit
from reticent.ledger.device.records import records
from reticent.mechanisms.record import Number
from reticent.privacy import Neighbours

FEW, MANY, MANY_ROUNDS = 10, 10_000, 3_500
TOGETHER = 10  # reports in one measurement
KEY = Ed25519PrivateKey.generate()
SIGNER = KEY.public_key().public_bytes_raw()
LOCAL = Neighbours.ANY_TWO_VALUES


@contextmanager
def _folder() -> Iterator[Path]:
    base = Path(os.environ.get("RETICENT_BENCH_DIR", "out"))
    base.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=base))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _no_waiting() -> AbstractContextManager[object]:
    """While earlier reports are made, the disk is not waited for."""
    return mock.patch.object(os, "fsync", return_value=None)


def _survey() -> bytes:
    day = 86_400
    survey = designed_survey(
        "bench",
        [Number("speed", (0.0, 130.0))],
        epsilon=0.01,
        purpose="x",
        start=0,
        period_s=day,
        periods=20_000,
    )
    return signed_survey(survey, KEY)


def _device(folder: Path, file: bytes, earlier: int) -> Device:
    """A device that has reported so many periods."""
    path, marks = folder / f"{earlier}.ledger", Marks(folder / "marks")
    device = Device(path, enrolled(bytes(32)), SIGNER, lifetime=1e5, marks=marks)
    taken = device.take(file)
    with _no_waiting():
        for period in range(earlier):
            device.report(taken, {}, period=period)
    return device


def report() -> float:
    """Reports a second after 10,000 others / after 10."""
    file = _survey()
    with _folder() as folder, ExitStack() as held:
        sides = []
        for earlier in (FEW, MANY):
            device = held.enter_context(_device(folder, file, earlier))
            sides.append(_reports(device, file, iter(range(earlier, 20_000))))
        return cpu_ratio(*sides)


def _reports(device: Device, file: bytes, periods: Iterator[int]) -> Callable[[], None]:
    taken = device.take(file)

    def run() -> None:
        for _ in range(TOGETHER):
            device.report(taken, {"speed": 50.0}, period=next(periods))

    return run


def client_report() -> float:
    """Reports of a training's client a second after 3,500 others / after 10."""
    task = designed(
        "bench", Logistic(9), epsilon=0.01, purpose="x", rounds=4_000, group=1, rate=1.0, participations=4_000
    )
    with _folder() as folder, ExitStack() as held:
        sides = []
        for earlier in (FEW, MANY_ROUNDS):
            path, marks = folder / f"{earlier}.ledger", Marks(folder / "marks")
            client = held.enter_context(Client(path, enrolled(bytes(32)), SIGNER, lifetime=1e5, marks=marks))
            sides.append(_rounds(client, signed(task, KEY), earlier))
        return cpu_ratio(*sides)


def _rounds(client: Client, file: bytes, earlier: int) -> Callable[[], None]:
    taken, numbers, gradient = client.take(file), iter(range(4_000)), np.zeros(10)

    def run(count: int = TOGETHER) -> None:
        for _ in range(count):
            client.report(taken, next(numbers), gradient)

    with _no_waiting():
        run(earlier)
    return run


def start() -> float:
    """Starts a second of a device with 10,000 reports / its bytes hashed and parsed a second."""
    file = _survey()
    with _folder() as folder:
        device = _device(folder, file, MANY)
        enrolment, path, marks = device._enrolment, folder / f"{MANY}.ledger", Marks(folder / "marks")
        device.close()

        def bare() -> None:
            for body, _, _ in records(path.read_bytes()):
                json.loads(body)

        def ours() -> None:
            Device(path, enrolment, SIGNER, lifetime=1e5, marks=marks).close()

        return cpu_ratio(bare, ours, repetitions=5)


def charge() -> float:
    """Charges a second / appends of as many bytes a second, each on the disk before the next."""
    file = _survey()
    with _folder() as folder, _device(folder, file, FEW) as device:
        numbers, size, price = iter(range(1 << 30)), 140, Amount(10**6, Unit.EPSILON, LOCAL)
        bare_file = os.open(folder / "bare", os.O_RDWR | os.O_CREAT, 0o600)

        def bare() -> None:
            for _ in range(TOGETHER):
                os.pwrite(bare_file, b"x" * size, size * next(numbers))
                os.fsync(bare_file)

        def ours() -> None:
            for _ in range(TOGETHER):
                device.ledger.request(ACCOUNT, f"{'a' * 33}/{next(numbers)}", price)

        ratio = cpu_ratio(bare, ours, clock=time.perf_counter)
        os.close(bare_file)
        return ratio


FIGURES = [
    Figure("device, report after 10,000", "after 10", 0.8, report),
    Figure("client, report after 3,500", "after 10", 0.8, client_report),
    Figure("device, start after 10,000", "hashing and parsing its bytes", 0.2, start),
    Figure("device, single charges", "appends, each on the disk", 0.5, charge),
]
