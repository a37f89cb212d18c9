"""Verification of a ledger of a million entries, proofs out of it, and the memory that takes."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import Figure
from reticent.ledger import SqlLedger, Terms, Unit
from reticent.ledger.merkle import leaf_hash, verify_inclusion
from reticent.ledger.sql.batch import Batch
from reticent.ledger.verify import verify
from reticent.privacy import MAX_UNITS, Neighbours

ENTRIES = 1_000_000
FEW = 100_000
TOGETHER = 20_000  # entries in one transaction
ACCOUNTS = 100


def made(path: Path, entries: int) -> None:
    """A ledger of so many entries: keys asked for once or twice, each measurement recorded."""
    with SqlLedger(path) as ledger:
        terms = [
            Terms(f"account-{n}", Unit.MU2, Neighbours.REPLACE_ONE, "one person", MAX_UNITS)
            for n in range(ACCOUNTS)
        ]
        for one in terms:
            ledger.open(one)
        size, asked = ledger.head().size, 0
        while size < entries:
            with ledger._store.writing():
                batch = Batch(ledger._store)
                while batch.size < min(size + TOGETHER, entries):
                    account, key = terms[asked // 2 % ACCOUNTS], f"question {asked // 2}"
                    grant = batch.request(account, key, 1000 + asked, None)
                    if batch.size < entries:
                        batch.fulfil(grant.pending[-1].number, (asked, -asked))
                    asked += 1
                batch.flush()
                size = batch.size


def ready(entries: int) -> Path:
    """The same ledger for all three processes of a bench, made once in this session."""
    folder = Path(tempfile.gettempdir()) / f"reticent-bench-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{entries}-{os.getppid()}.db"
    if not path.exists():
        for old in folder.glob(f"{entries}-*"):
            old.unlink()
        partial = folder / f"{entries}-{os.getpid()}.part"
        made(partial, entries)
        shutil.move(partial, path)
    return path


def seconds_to_verify() -> float:
    with SqlLedger(ready(ENTRIES)) as ledger:
        start = time.perf_counter()
        report = verify(ledger)
        spent = time.perf_counter() - start
    assert report.size == ENTRIES
    return spent


def milliseconds_of_a_proof() -> float:
    """The slower of inclusion and consistency, median of 101 each, spread over the log."""
    with SqlLedger(ready(ENTRIES)) as ledger:
        root = ledger.head().root

        def timed(work) -> float:
            times = []
            for i in range(101):
                number = i * 9_901 % ENTRIES
                start = time.perf_counter()
                found = work(number)
                times.append(time.perf_counter() - start)
                if work is inclusion:
                    assert verify_inclusion(
                        leaf_hash(ledger.leaf(number).encode()), number, ENTRIES, found, root
                    )
            return statistics.median(times) * 1000

        def inclusion(number):
            return ledger.inclusion_proof(number, ENTRIES)

        return max(timed(inclusion), timed(lambda number: ledger.consistency_proof(number, ENTRIES)))


def memory_of_more_entries() -> float:
    """Peak memory of verifying ten times as many entries / of verifying the few, in fresh processes."""
    return peak(ENTRIES) / peak(FEW)


def peak(entries: int) -> int:
    """Peak memory in kB; not of `getrusage`, which a child inherits from the process that started it."""
    program = f"""
from reticent.ledger import SqlLedger
from reticent.ledger.verify import verify
with SqlLedger({str(ready(entries))!r}) as ledger:
    verify(ledger)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return int(done.stdout)


FIGURES = [
    Figure("ledger: verify, seconds", "a million entries", 30.0, seconds_to_verify, at_most=True),
    Figure("ledger: proof, milliseconds", "a million entries", 5.0, milliseconds_of_a_proof, at_most=True),
    Figure("ledger: memory to verify", "a tenth of the entries", 1.5, memory_of_more_entries, at_most=True),
]
