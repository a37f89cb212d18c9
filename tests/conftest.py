"""What unit tests and tests of the service share."""

import atexit
import gc
import itertools
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from reticent import processes

from .support import seeded_draws

os.environ.setdefault("POT_BACKEND_DISABLE_PYTORCH", "1")  # POT would import torch beside numpy
# On a busy machine everything takes long. That a change passes is no matter of luck: examples are the same.
settings.register_profile(
    "steady", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")
# Hypothesis would try constants of all modules that happen to be loaded: examples would depend on which tests
# a worker ran before.
providers._get_local_constants = lambda: providers._local_constants

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


MORE_FILES = {test.partition("::")[0] for test in MORE}
ROOT = Path(__file__).parents[1]
QUICK_ONLY, MORE_ONLY = "not slow and not more", "more and not slow"  # as the Makefile selects tests

# Files that take longest come first, so that no worker is left with one at the end.
LONG_FILES = (
    "tests/unit/test_docs.py",
    "tests/unit/mechanisms/numeric/test_tailored.py",
    "tests/service/test_stalls.py",
    "tests/service/test_apart.py",
    "tests/service/test_kills.py",
    "tests/service/test_one_ledger.py",
    "tests/service/test_fuzz.py",
    "tests/contracts/test_task_planted.py",
)


def pytest_ignore_collect(collection_path, config):
    """Leave out files of which no test is selected: importing all of them takes half a minute."""
    if collection_path.suffix != ".py":
        return None
    path = collection_path.relative_to(ROOT).as_posix()
    if config.option.markexpr == QUICK_ONLY and path in MORE:
        return True
    if config.option.markexpr == MORE_ONLY and path not in MORE_FILES:
        return True
    return None


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_collection():
    """Collect no garbage among tests and modules, which all stay: that takes a quarter of the time."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


_DRAWS = seeded_draws.install()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Give each test, with the fixtures that it makes, secure draws that are the same each time."""
    _DRAWS.start(None if item.get_closest_marker("secure_draws") else item.nodeid)
    return (yield)


def pytest_collection_modifyitems(items):
    """Mark what `make test` leaves to `make test-more`: whole files, or tests with all their parameters."""
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        test = f"{path}::{item.originalname if hasattr(item, 'originalname') else item.name}"
        if path in MORE or test in MORE:
            item.add_marker("more")
    items.sort(key=lambda item: item.path.relative_to(ROOT).as_posix() not in LONG_FILES)


@pytest.fixture(autouse=True)
def own_marks(monkeypatch):
    """A place for marks of devices that no other test knows."""
    monkeypatch.setenv("XDG_STATE_HOME", str(_STATE / str(next(_TESTS))))


@pytest.fixture
def seeded_noise(monkeypatch):
    """Draw Gaussian noise that OpenDP would draw from a stream with a fixed seed.

    OpenDP takes no seed. That its noise follows the law is tested in `mechanisms/test_gaussian.py`.
    """
    from reticent.mechanisms import gaussian
    from reticent.randomness import SimulationStream

    stream = SimulationStream(2026)
    monkeypatch.setattr(
        gaussian,
        "_by_opendp",
        lambda values, sigma: gaussian._saturating_sum(
            values, gaussian.simulated(sigma, values.size, stream)
        ),
    )


@pytest.fixture(scope="session")
def anvil():
    """A chain of its own: each transaction gets a block at once. Tests share it, not its contracts."""
    from reticent.chain.anvil import Anvil, find_anvil

    if find_anvil() is None:
        pytest.skip("no anvil on this machine (npm installs it)")
    with Anvil() as running:
        yield running
