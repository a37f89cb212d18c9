"""The light core loads numpy and cryptography and nothing heavier."""

import json
import subprocess
import sys

HEAVY = {
    *("dp_accounting", "flwr", "matplotlib", "numba", "opendp", "pandas", "pyarrow", "rich", "safetensors"),
    *("scipy", "torch", "typer", "yaml"),
}

CORE = [
    "reticent.errors",
    "reticent.arguments",
    "reticent.privacy",
    "reticent.randomness",
    "reticent.mechanisms.numeric",
    "reticent.estimation",
    "reticent.collect.device",
    "reticent.federated.client",
    "reticent.location.stations.vehicle",
    "reticent.spaces.roads",
]


def imported(*names):
    """Import in a fresh interpreter; return the top modules loaded and the CPU seconds it took."""
    program = """
import importlib, json, sys, time
start = time.process_time()
for name in sys.argv[1:]:
    importlib.import_module(name)
spent = time.process_time() - start
print(json.dumps([sorted({name.partition(".")[0] for name in sys.modules}), spent]))
"""
    done = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, check=True)
    modules, seconds = json.loads(done.stdout)
    return set(modules), seconds


def test_core_loads_nothing_heavy():
    base, numpy_s = imported("numpy")
    loaded, core_s = imported(*CORE)
    report = f"CPU: numpy {numpy_s:.3f} s, the core {core_s:.3f} s, so {core_s - numpy_s:.3f} s more"
    assert {"numpy", "cryptography"} <= loaded, report
    assert (loaded - base) & HEAVY == set(), report


def test_the_check_sees_a_heavy_import():
    loaded, _ = imported("numpy", "scipy.special")
    assert "scipy" in loaded & HEAVY
