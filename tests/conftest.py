"""What unit tests and tests of the service share."""

import os

import pytest

os.environ.setdefault("POT_BACKEND_DISABLE_PYTORCH", "1")  # POT would import torch beside numpy


@pytest.fixture(scope="session")
def anvil():
    """A chain of its own: each transaction gets a block at once. Tests share it, not its contracts."""
    from reticent.chain.anvil import Anvil, find_anvil

    if find_anvil() is None:
        pytest.skip("no anvil on this machine (npm installs it)")
    with Anvil() as running:
        yield running
