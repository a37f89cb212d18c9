"""A server that chooses the model reads most of a batch out of one gradient, unless there is noise."""

import numpy as np
import pytest

from reticent.audit.reconstruction import imprinted, measures, read_imprint, updates
from reticent.errors import ParameterError
from reticent.randomness import SimulationStream

SIDE, ROWS, BATCH = 6, 128, 16
PUBLIC = np.random.default_rng(1).uniform(size=(4000, SIDE, SIDE)) ** 2
RECORDS = np.random.default_rng(2).uniform(size=(BATCH, SIDE, SIDE)) ** 2
LABELS = np.arange(BATCH) % 3


@pytest.fixture(scope="module")
def bait():
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
    torch.set_num_threads(1)
    nn = torch.nn
    module = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 8), nn.ReLU(), nn.Linear(8, 3))
    return imprinted(module, PUBLIC, ROWS)


def share(network, update):
    found = read_imprint(network, update, (SIDE, SIDE), ROWS)
    if len(found) < BATCH:
        found = np.concatenate([found, np.zeros((BATCH - len(found), SIDE, SIDE))])
    pairs = zip(RECORDS, found[measures.matched(RECORDS, found)], strict=True)
    return np.mean([measures.psnr(mine, other) > 30.0 for mine, other in pairs])


def test_most_of_a_batch_is_read(bait):
    network, theta = bait
    gradient = network.mean_gradient(theta, RECORDS, LABELS)
    # alone in a cell of 128 among 16: (127/128)^15 = 0.89
    assert share(network, gradient) >= 0.7
    assert share(network, updates.clipped(gradient, 1e-2).update) >= 0.7  # clipping hides nothing


def test_noise_with_a_guarantee_stops_it(bait):
    network, theta = bait
    gradient = network.mean_gradient(theta, RECORDS, LABELS)
    assert share(network, updates.gaussian(gradient, 1.0, 1.0, SimulationStream(1)).update) == 0.0


def test_an_honest_theta_tells_little(bait):
    """Planted: the server sends an ordinary theta, whose rows seldom hold a record alone."""
    network, _ = bait
    honest = network.start(5)
    assert share(network, network.mean_gradient(honest, RECORDS, LABELS)) < 0.4


def test_refusals_are_one_line(bait):
    network, theta = bait
    with pytest.raises(ParameterError, match=r"^update must be \d+ finite numbers, as the network has$"):
        read_imprint(network, theta[:-1], (SIDE, SIDE), ROWS)
    with pytest.raises(ParameterError, match=r"^network must have an imprint layer of 4096 rows"):
        read_imprint(network, theta, (SIDE, SIDE), 4096)
    with pytest.raises(ParameterError, match=r"^public must be two or more records"):
        imprinted(network, PUBLIC[0, 0])
