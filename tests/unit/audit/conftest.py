"""What the tests of the audit share."""

import pytest

from reticent.randomness import SimulationStream


@pytest.fixture
def rng():
    return SimulationStream(20261115)
