"""What unit tests and tests of the service share."""

import atexit
import itertools
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from reticent import processes

os.environ.setdefault("POT_BACKEND_DISABLE_PYTORCH", "1")  # POT would import torch beside numpy
# On a busy machine everything takes long. That a change passes is no matter of luck: examples are the same.
settings.register_profile(
    "steady", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell has it in the background: tests send it
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What devices remember of what has left belongs to a test, never to whoever runs it.
_STATE = Path(tempfile.mkdtemp(prefix="reticent-state-"))
atexit.register(shutil.rmtree, _STATE, ignore_errors=True)
os.environ["XDG_STATE_HOME"] = str(_STATE / "shared")
_TESTS = itertools.count()

# Workers choose ports from ranges of their own: nobody takes the one that another's program is about to take.
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
processes._PORTS //= _WORKERS
processes._FIRST_PORT += processes._PORTS * int(
    os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
)

MORE = {
    line.strip()
    for line in Path(__file__).with_name("more.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
}


def pytest_collection_modifyitems(items):
    """Mark what `make test` leaves to `make test-more`: whole files, or tests with all their parameters."""
    root = Path(__file__).parents[1]
    for item in items:
        place = item.path.relative_to(root).as_posix()
        test = f"{place}::{item.originalname if hasattr(item, 'originalname') else item.name}"
        if place in MORE or test in MORE:
            item.add_marker("more")


@pytest.fixture(autouse=True)
def own_marks(monkeypatch):
    """A place for marks of devices that no other test knows."""
    monkeypatch.setenv("XDG_STATE_HOME", str(_STATE / str(next(_TESTS))))


@pytest.fixture(scope="session")
def anvil():
    """A chain of its own: each transaction gets a block at once. Tests share it, not its contracts."""
    from reticent.chain.anvil import Anvil, find_anvil

    if find_anvil() is None:
        pytest.skip("no anvil on this machine (npm installs it)")
    with Anvil() as running:
        yield running
