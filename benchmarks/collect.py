"""Collection: packing and counting against numpy, ingest against a server that discards, a device's start.

`python -m benchmarks.collect billion` draws, packs, unpacks and counts a thousand million OneBit reports, and
says how long that took, in how much memory, and at which rate beside the secure stream that it draws from.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import Request

from benchmarks.measure import Figure, cpu_ratio
from reticent.collect.design import designed
from reticent.collect.signing import signed
from reticent.collect.survey import Survey
from reticent.mechanisms.numeric import OneBit, Window
from reticent.mechanisms.packing import count_bits
from reticent.mechanisms.record import Number
from reticent.randomness import SECURE

COUNT = 1 << 22
REQUESTS, ROUNDS = 128, 7
BILLION = 1_000_000_000
BLOCK = 1 << 20
DEVICE = """
import sys
from reticent.collect.device import Device
from reticent.fleet.enrolment import Enrolment
with open(sys.argv[1], "rb") as file:
    content = file.read()
enrolment = Enrolment(bytes(8), bytes(32))
with Device(sys.argv[3], enrolment, bytes.fromhex(sys.argv[2]), lifetime=10.0) as device:
    device.report(device.take(content), {"speed": 50.0}, period=0)
"""
PEAK = """
with open("/proc/self/status") as file:
    print(next(line for line in file if line.startswith("VmHWM")).split()[1])
"""


def counted(width: int) -> float:
    """Packed symbols decoded and counted a second / unpacked ones through `numpy.bincount`."""
    symbols = np.random.default_rng(0).integers(0, 1 << width, COUNT)
    packed = np.packbits(((symbols[:, None] >> np.arange(width - 1, -1, -1)) & 1).astype(np.uint8)).tobytes()
    return cpu_ratio(
        lambda: np.bincount(symbols, minlength=1 << width),
        lambda: count_bits(packed, COUNT, width, 1 << width),
    )


def packed(channel) -> float:
    """Values perturbed and packed a second / values perturbed."""
    values, out = np.random.default_rng(0).uniform(-1, 1, COUNT), np.empty(COUNT)
    return cpu_ratio(lambda: channel.perturb(values, out=out), lambda: channel.pack(channel.sample(values)))


def run_server(port: str, folder: str) -> None:
    """The service, with one more call that reads a body and discards it."""
    import uvicorn

    from reticent.apps.service.serving import create_app
    from reticent.service.settings import Settings

    app = create_app(Settings(Path(folder), rate=1e6, burst=10**6))

    @app.post("/discard")
    async def discard(request: Request) -> dict:
        return {"length": len(await request.body())}

    uvicorn.run(app, port=int(port), log_config=None, access_log=False, http="httptools", ws="none")


def ingest(size: int) -> float:
    """Batches of reports counted a second / batches that the same server reads and discards."""
    from benchmarks.query import place
    from benchmarks.service import load, process
    from reticent.apps.collect.collecting import Collecting
    from reticent.collect.wire import Layout, batch
    from reticent.fleet.enrolment import enrolled
    from reticent.service.settings import Settings
    from reticent.service.state import own_folder

    def sent(path: str, body: bytes) -> bytes:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/octet-stream\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    with place() as base:
        own_folder(base).mkdir()
        with contextlib.closing(Collecting(Settings(base))) as collecting:
            survey, master = _designed(), collecting.master
            collecting.collector.collect(signed(survey, collecting.signing_key), collecting.signer)
        layout, symbol = Layout(survey), np.zeros(1, dtype=np.int64)

        def bodies() -> list[bytes]:
            """Batches of devices that never reported."""
            body = layout.body([0], [symbol])
            return [
                batch([layout.report(enrolled(master), 0, bytes(8), body) for _ in range(size)])
                for _ in range(REQUESTS)
            ]

        fresh = iter([[sent("/api/v1/reports/batch", one) for one in bodies()] for _ in range(ROUNDS + 1)])
        peer = [sent("/discard", one) for one in bodies()]
        with process("serve", base, module="benchmarks.collect") as port:
            return cpu_ratio(
                lambda: load(port, peer),
                lambda: load(port, next(fresh)),
                clock=time.perf_counter,
                repetitions=ROUNDS,
            )


def _designed() -> Survey:
    return designed(
        "bench",
        [Number("speed", (0.0, 130.0))],
        epsilon=1.0,
        purpose="x",
        start=int(time.time()),
        period_s=86_400,
        periods=1,
    )


def _survey() -> tuple[str, str]:
    """A signed survey in a file, and its signer."""
    key = Ed25519PrivateKey.generate()
    survey = _designed()
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(signed(survey, key))
    return file.name, key.public_key().public_bytes_raw().hex()


def _seconds(folder: str, program: str, *args: str, marks: str = "") -> float:
    """CPU of a process. Its modules are compiled in a folder, as those of an installed package are.

    `marks` is where a device remembers what has left: another one may not know.
    """
    env = {**os.environ, "PYTHONPYCACHEPREFIX": f"{folder}/compiled"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    if marks:
        env["XDG_STATE_HOME"] = marks
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program, *args], check=True, capture_output=True, env=env)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime


def device_start() -> float:
    """CPU of a process from nothing to one report / of one that only imports numpy and cryptography."""
    survey = _survey()
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(12):
            peer = _seconds(folder, "import numpy, cryptography")
            made = _seconds(folder, DEVICE, *survey, f"{folder}/{number}", marks=f"{folder}/marks{number}")
            ratios.append(made / peer)
    ratios = sorted(ratios[1:])  # the first two compiled
    return ratios[len(ratios) // 2]


def device_memory() -> float:
    """Megabytes of that process at its peak."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", DEVICE + PEAK, *_survey(), f"{folder}/ledger"]
        alone = {**os.environ, "XDG_STATE_HOME": f"{folder}/marks"}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=alone)
    return int(done.stdout) / 1024


def billion(reports: int = BILLION) -> None:
    """Draw, pack, unpack and count; print time, memory and rate."""
    channel = OneBit(epsilon=1.0)
    values = np.random.default_rng(0).uniform(-1, 1, BLOCK)
    counts = np.zeros(channel.size, dtype=np.int64)
    channel.sample(values)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    for done in range(0, reports, BLOCK):
        block = values[: min(BLOCK, reports - done)]
        symbols = channel.sample(block)
        dither = symbols >> 1
        again = channel.unpack(channel.pack(symbols), block.size, dither=dither)
        counts += np.bincount(again, minlength=channel.size)
    passed = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert counts.sum() == reports
    start = time.perf_counter()
    for _ in range(64):
        SECURE.words(BLOCK)
    stream = 64 * BLOCK / (time.perf_counter() - start)
    mean = float(counts @ channel.alphabet / reports)
    print(
        f"{reports:,} reports in {passed:.1f} s, {reports / passed / 1e6:.1f} million a second, "
        f"{reports / passed / stream:.3f} of the secure stream's words; memory grew by "
        f"{(after - before) / 1024:.0f} MB; mean {mean:.6f} for {values.mean():.6f}"
    )


FIGURES = [
    Figure("count packed reports, 4 bits", "numpy bincount, unpacked", 0.5, lambda: counted(4)),
    Figure("count packed reports, 5 bits", "numpy bincount, unpacked", 0.5, lambda: counted(5)),
    Figure("count packed reports, 11 bits", "numpy bincount, unpacked", 0.5, lambda: counted(11)),
    Figure("perturb and pack, OneBit", "perturb", 0.4, lambda: packed(OneBit(epsilon=1.0))),
    Figure("perturb and pack, Window", "perturb", 0.4, lambda: packed(Window(epsilon=2.0))),
    Figure("ingest, batches of 10", "the server discarding", 0.5, lambda: ingest(10)),
    Figure("ingest, batches of 100", "the server discarding", 0.5, lambda: ingest(100)),
    Figure("device, start to report", "import numpy, cryptography", 1.3, device_start, at_most=True),
    Figure("device, peak memory", "80 MB", 80.0, device_memory, at_most=True),
]

if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        run_server(*sys.argv[2:])
    if sys.argv[1:2] == ["billion"]:
        billion(int(sys.argv[2]) if len(sys.argv) > 2 else BILLION)
