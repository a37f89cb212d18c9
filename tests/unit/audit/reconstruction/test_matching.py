"""DLG, cosine matching, prior and local steps on small networks: what they rebuild, and what stops them."""

import subprocess
import sys

import numpy as np
import pytest

from reticent.audit.reconstruction import (
    GaussianPrior,
    LocalSteps,
    Observed,
    likely_labels,
    measures,
    updates,
)
from reticent.audit.reconstruction.matching import Matcher, cosine, dlg, most_likely
from reticent.errors import ParameterError
from reticent.federated import torch_models
from reticent.federated.encoding import Encoding
from reticent.mechanisms.record import Category, Number
from reticent.randomness import SimulationStream

SIDE = 8


@pytest.fixture(scope="module")
def torch():
    found = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
    found.set_num_threads(1)  # two would fight with the other tests
    return found


@pytest.fixture(scope="module")
def pictures(torch):
    """A convolution, ReLU and two layers: a small brother of the documents' network, in doubles."""
    return torch_models.convolutional(4, side=SIDE, precise=True)


@pytest.fixture(scope="module")
def sigmoid(torch):
    nn = torch.nn
    layers = nn.Sequential(
        nn.Unflatten(1, (1, SIDE)), nn.Conv2d(1, 6, 3, padding=1), nn.Sigmoid(), nn.Flatten(),
        nn.Linear(6 * SIDE * SIDE, 4),
    ).double()  # fmt: skip
    return torch_models.Network(layers)


def blobs(count, seed=1):
    """Smooth pictures in [0, 1]."""
    stream = np.random.default_rng(seed)
    grid = np.arange(SIDE)
    found = []
    for _ in range(count):
        x, y = stream.uniform(1.5, SIDE - 2.5, 2)
        found.append(np.exp(-((grid[:, None] - x) ** 2 + (grid - y) ** 2) / stream.uniform(2.0, 6.0)))
    return np.stack(found)


def observed(network, records, classes, /, **changes):
    theta = network.start(3)
    update = network.mean_gradient(theta, records, classes)
    fields = {"network": network, "theta": theta, "update": update, "shape": records.shape[1:]}
    return Observed(**fields | {"records": len(records)} | changes)


def test_dlg_as_printed_learns_the_label_too(sigmoid):
    truth = blobs(1)
    found = dlg(observed(sigmoid, truth, [2]), rounds=25)
    assert measures.psnr(truth, found.records) > 40.0
    assert found.labels.tolist() == [2]


def test_dlg_fails_under_noise_and_on_another_theta(sigmoid):
    """Planted: the attack is shown an update of another model."""
    truth = blobs(1)
    sound = observed(sigmoid, truth, [2])
    sent = updates.gaussian(sound.update, 1.0, 1.0, SimulationStream(1))
    noisy = dlg(observed(sigmoid, truth, [2], update=sent.update), rounds=10)
    mean = measures.psnr(truth, blobs(200, 9).mean(axis=0, keepdims=True))
    assert measures.psnr(truth, noisy.records) < mean
    other = dlg(observed(sigmoid, truth, [2], theta=sigmoid.start(4)), rounds=10)
    assert measures.psnr(truth, other.records) < mean


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_cosine_matching_does_not_see_the_length(pictures, scale):
    truth = blobs(1)
    sound = observed(pictures, truth, [1])
    sent = updates.clipped(sound.update, scale)
    found = cosine(observed(pictures, truth, [1], update=sent.update), steps=150, variation=1e-3)
    assert measures.psnr(truth, found.records) > 25.0


def test_noise_with_a_guarantee_stops_every_search(pictures):
    """On average no picture is nearer than the mean of public ones; without the noise (planted) it is."""
    public = blobs(200, 9)
    mean, prior, gains = public.mean(axis=0, keepdims=True), GaussianPrior.of(public), []
    for seed in range(4):
        truth = blobs(1, 40 + seed)
        sound = observed(pictures, truth, [1])
        sent = updates.gaussian(sound.update, 1.0, 1.0, SimulationStream(seed))
        seen = observed(pictures, truth, [1], update=sent.update, labels=[1])
        found = cosine(seen, steps=30), most_likely(seen, prior, sent.noise, steps=30), dlg(seen, rounds=2)
        gains.append([measures.psnr(truth, one.records) - measures.psnr(truth, mean) for one in found])
    assert (np.mean(gains, axis=0) < 0.5).all()
    loud = updates.clipped(sound.update, 1.0)
    bare = cosine(observed(pictures, truth, [1], update=loud.update), steps=150)
    assert measures.psnr(truth, bare.records) > measures.psnr(truth, mean) + 10.0


def test_a_prior_helps_where_noise_is_large(pictures):
    public, gains = blobs(400, 9), []
    prior = GaussianPrior.of(public, directions=20)
    for seed in range(3):
        truth = blobs(1, 20 + seed)
        sound = observed(pictures, truth, [1])
        sent = updates.documents(sound.update, 10.0, SimulationStream(seed))
        seen = observed(pictures, truth, [1], update=sent.update, labels=[1])
        with_prior = measures.psnr(truth, most_likely(seen, prior, sent.noise, steps=150).records)
        gains.append(with_prior - measures.psnr(truth, public.mean(axis=0, keepdims=True)))
    assert np.mean(gains) > 3.0


def test_batches_are_rebuilt_up_to_their_order(pictures):
    truth = blobs(3)
    seen = observed(pictures, truth, [0, 1, 3])
    assert likely_labels(seen).tolist() == [0, 1, 3]
    found = cosine(seen, steps=300, variation=1e-4)
    order = measures.matched(truth, found.records)
    mean = measures.psnr(truth, blobs(200, 9).mean(axis=0)[None].repeat(3, axis=0))
    assert measures.psnr(truth, found.records[order]) > mean + 5.0


def test_several_local_steps_are_unrolled(pictures):
    """What FedAvg sends after three steps; an attack that takes it for a gradient sees less (planted)."""
    truth, theta = blobs(1), pictures.start(3)
    local = LocalSteps(rate=0.5, epochs=3)
    moved = theta - pictures.updated(theta, truth, [1], rate=0.5, epochs=3)
    seen = observed(pictures, truth, [1], update=moved, local=local)
    assert likely_labels(seen).tolist() == [1]
    found = measures.psnr(truth, cosine(seen, steps=150, variation=1e-3).records)
    naive = observed(pictures, truth, [1], update=moved, labels=[1])
    assert found > 22.0
    assert found > measures.psnr(truth, cosine(naive, steps=150, variation=1e-3).records)


def test_the_unrolled_update_is_the_one_that_clients_send(pictures):
    truth, theta = blobs(5), pictures.start(3)
    labels = np.array([0, 1, 2, 3, 1])
    moved = theta - pictures.updated(theta, truth, labels, rate=0.1, epochs=2, batch=2)
    seen = observed(
        pictures, truth, labels, update=moved, labels=labels, local=LocalSteps(rate=0.1, epochs=2, batch=2)
    )
    matcher = Matcher(seen)
    again = matcher.update(matcher.tensor(truth), matcher.targets())
    flat = np.concatenate([part.detach().numpy().reshape(-1) for part in again])
    assert np.abs(flat - moved).max() < 1e-12


def test_the_slope_is_the_derivative_of_the_objective(pictures):
    truth = blobs(1)
    matcher = Matcher(observed(pictures, truth, [1]))
    start, targets = blobs(1, 5), matcher.targets()
    for objective in (matcher.cosine, matcher.squares):
        records = matcher.tensor(start).requires_grad_()
        _, (slope,) = matcher.slopes(records, targets, objective, [records])
        for place in ((0, 3, 3), (0, 5, 2)):
            step = np.zeros_like(start)
            step[place] = 1e-5
            ends = []
            for sign in (1.0, -1.0):
                moved = matcher.tensor(start + sign * step).requires_grad_()
                ends.append(matcher.slopes(moved, targets, objective, [moved])[0])
            assert float(slope[place]) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-3, abs=1e-7)


def test_a_row_of_a_table_is_rebuilt(torch):
    encoding = Encoding(
        [
            Number("age", (0.0, 100.0)),
            Number("hours", (0.0, 80.0)),
            Category("work", tuple("abcd")),
            Category("sex", ("f", "m")),
        ],
        Category("rich", ("no", "yes")),
    )
    table = {"age": [33.0], "hours": [41.0], "work": ["c"], "sex": ["m"]}
    row = encoding.encoded(table)
    nn = torch.nn
    network = torch_models.Network(
        nn.Sequential(nn.Linear(encoding.inputs, 16), nn.Sigmoid(), nn.Linear(16, 2)).double()
    )
    seen = observed(network, row, [1], low=-1.0, high=1.0)
    for found in (dlg(seen, rounds=30), cosine(seen, steps=400)):
        assert found.labels.tolist() == [1]
        assert measures.attributes_right(encoding, row, found.records).tolist() == [1.0]
    sent = updates.laplace(seen.update, 0.1, 1.0, SimulationStream(4))
    noisy = observed(network, row, [1], update=sent.update, low=-1.0, high=1.0)
    assert measures.attributes_right(encoding, row, cosine(noisy, steps=100).records)[0] < 1.0


def test_importing_loads_no_torch():
    code = "import reticent.audit.reconstruction, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"update": np.ones(3)}, "as the network has, got shape (3,)"),
        ({"update": "NaN"}, "update must be finite numbers, got NaN"),
        ({"update": "zero"}, "update must not be zero"),
        ({"labels": [7]}, "labels must be classes 0 to 3"),
        ({"labels": [1, 2]}, "labels must be 1, one a record, got shape (2,)"),
        ({"low": 1.0}, "low must be below high"),
        ({"shape": (5, 5)}, "records of shape (5, 5) must go through the network"),
    ],
)
def test_bad_input_is_one_line(pictures, changes, part):
    truth = blobs(1)
    size = pictures.dimensions
    filled = {"NaN": np.full(size, np.nan), "zero": np.zeros(size)}
    changes = {name: filled[value] if isinstance(value, str) else value for name, value in changes.items()}
    with pytest.raises(ParameterError) as raised:
        cosine(observed(pictures, truth, [1], **changes), steps=1)
    assert part in str(raised.value)
    assert "\n" not in str(raised.value)
