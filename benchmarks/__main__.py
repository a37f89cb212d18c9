"""Measure every figure in three fresh processes and show the worst: `python -m benchmarks [name part]`.

A figure that cannot be measured is said to have failed, with the reason, and the others are still measured;
the exit code is 1 then.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

PROCESSES = 3
MODULES = [
    "benchmarks.numeric",
    "benchmarks.frequencies",
    "benchmarks.ledger",
    "benchmarks.ledger_verify",
    "benchmarks.device",
    "benchmarks.query",
    "benchmarks.span",
    "benchmarks.chain",
    "benchmarks.service",
    "benchmarks.stalls",
    "benchmarks.servers",
    "benchmarks.collect",
    "benchmarks.location",
    "benchmarks.roads",
    "benchmarks.stations",
    "benchmarks.codebook",
    "benchmarks.federated",
    "benchmarks.flower",
    "benchmarks.leakage",
    "benchmarks.reconstruction",
    "benchmarks.market",
    "benchmarks.market_service",
    "benchmarks.robust",
    "benchmarks.store",
    "benchmarks.crowd",
]


def figures():
    return {figure.name: figure for module in MODULES for figure in importlib.import_module(module).FIGURES}


class Failed(Exception):
    """A figure that could not be measured."""


def measured(name: str) -> float:
    """One figure, in a process of its own.

    Numpy's products have one thread: idle ones spin, and their CPU would be counted for whatever runs next.
    """
    command = [sys.executable, "-m", "benchmarks", "--one", name]
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    if done.returncode:
        raise Failed((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1])
    return float(done.stdout.strip().splitlines()[-1])


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--one"]:
        print(figures()[arguments[1]].measure())
        return 0
    wanted = " ".join(arguments).lower()  # make passes ARGS="4 servers" as two words
    rows, missed, failed = [], 0, 0
    print(f"{'figure':32} {'against':32} {'worst':>8} {'median':>8} {'target':>8}")
    for name, figure in figures().items():
        if wanted not in name.lower():
            continue
        try:
            ratios = sorted(measured(name) for _ in range(PROCESSES))
        except Failed as error:
            failed += 1
            print(f"{name:32} {figure.peer:32} failed: {error}", flush=True)
            rows.append({"figure": name, "against": figure.peer, "failed": str(error)})
            continue
        worst = ratios[-1] if figure.at_most else ratios[0]
        met = figure.met(worst)
        missed += not met
        sign = "<=" if figure.at_most else ">="
        mark = "" if met else "  missed"
        median = ratios[len(ratios) // 2]
        print(
            f"{name:32} {figure.peer:32} {worst:8.2f} {median:8.2f} {sign:>2}{figure.target:6.2f}{mark}",
            flush=True,
        )
        rows.append(
            {"figure": name, "against": figure.peer, "ratios": ratios, "target": f"{sign} {figure.target}"}
        )
    out = Path("out/bench.json")
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"written to {out}; {missed} missed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
