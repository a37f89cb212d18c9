"""Networks of PyTorch as a flat vector: round trip, gradients, steps; the documents' sizes."""

import sys

import numpy as np
import pytest

from reticent.errors import MissingExtra, ParameterError
from reticent.federated import torch_models
from reticent.federated.networks import TwoLayers
from reticent.randomness import SimulationStream


@pytest.fixture(scope="module")
def torch():
    found = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
    found.set_num_threads(1)  # two would fight with the other tests
    return found


def numbers(seed, *shape):
    return (2.0 * SimulationStream(seed).units(int(np.prod(shape))) - 3.0).reshape(shape)


@pytest.fixture
def small(torch):
    """Three classes of images of 6 x 6, in doubles."""
    nn = torch.nn
    layers = nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3)
    ).double()

    def made(loss="cross-entropy"):
        return torch_models.Network(layers, loss=loss)

    return made


IMAGES, CLASSES = numbers(1, 7, 6, 6), np.array([0, 1, 2, 0, 1, 2, 2])


def finite_differences(network, theta, step=1e-6):
    def losses(at):
        return network.losses(at, IMAGES, CLASSES)

    steps = step * np.eye(theta.size)
    return np.stack([(losses(theta + h) - losses(theta - h)) / (2.0 * step) for h in steps], axis=1)


@pytest.mark.parametrize(
    ("classes", "kernel", "count"),
    [(62, 3, 1_206_590), (10, 3, 1_199_882), (62, 2, 1_400_990), (10, 2, 1_394_282)],
)
def test_sizes_of_the_documents_network(torch, classes, kernel, count):
    """Appendix E prints 1206590 and (2,2) kernels; only 3 x 3 has that many."""
    assert torch_models.convolutional(classes, kernel=kernel).dimensions == count


@pytest.mark.usefixtures("torch")
def test_flat_round_trip():
    network = torch_models.convolutional(10)
    theta = network.start(4).astype(np.float32).astype(np.float64)  # what single precision holds
    np.testing.assert_array_equal(network.flat(network.split(theta)), theta)
    shuffled = dict(reversed(network.split(theta).items()))
    np.testing.assert_array_equal(network.flat(shuffled), theta)  # the order is the network's, not the dict's
    with pytest.raises(ParameterError, match=r"theta must be 1199882 numbers, got shape \(3,\)"):
        network.split(np.zeros(3))


@pytest.mark.parametrize("loss", torch_models.LOSSES)
def test_gradients_are_finite_differences(small, loss):
    network = small(loss)
    theta = network.start(9)
    found = network.gradients(theta, IMAGES, CLASSES)
    assert found.shape == (7, network.dimensions)
    np.testing.assert_allclose(found, finite_differences(network, theta), atol=1e-7)
    np.testing.assert_allclose(network.mean_gradient(theta, IMAGES, CLASSES), found.mean(axis=0), atol=1e-12)


def test_the_check_sees_gradients_of_another_point(small):
    network = small()
    theta = network.start(9)
    found = network.gradients(network.start(10), IMAGES, CLASSES)
    assert np.abs(found - finite_differences(network, theta)).max() > 0.01


@pytest.mark.usefixtures("torch")
def test_two_layers_are_those_of_numpy():
    ours, theirs = TwoLayers(3, 2), torch_models.two_layers(precise=True)
    theta, x, y = numbers(5, 11), numbers(6, 30, 3), numbers(7, 30)
    assert theirs.dimensions == ours.dimensions == 11
    np.testing.assert_array_equal(theirs.start(3), ours.start(3))
    for name in ("losses", "gradients", "mean_gradient"):
        got, expected = getattr(theirs, name)(theta, x, y), getattr(ours, name)(theta, x, y)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(theirs.predict(theta, x), ours.predict(theta, x), rtol=1e-12)
    assert theirs.error(theta, x, y) == pytest.approx(ours.error(theta, x, y))


def test_local_steps_are_those_of_gradient_descent(small):
    network = small()
    theta = network.start(2)
    once = theta - 0.1 * network.mean_gradient(theta, IMAGES, CLASSES)
    np.testing.assert_allclose(network.updated(theta, IMAGES, CLASSES, rate=0.1), once, atol=1e-12)
    twice = once - 0.1 * network.mean_gradient(once, IMAGES, CLASSES)
    np.testing.assert_allclose(network.updated(theta, IMAGES, CLASSES, rate=0.1, epochs=2), twice, atol=1e-12)
    by_hand = theta
    for part in (slice(0, 3), slice(3, 6), slice(6, 7)):
        by_hand = by_hand - 0.1 * network.mean_gradient(by_hand, IMAGES[part], CLASSES[part])
    np.testing.assert_allclose(
        network.updated(theta, IMAGES, CLASSES, rate=0.1, batch=3), by_hand, atol=1e-12
    )


def test_it_learns_and_says_classes(small):
    network = small()
    theta = network.start(2)
    before = network.losses(theta, IMAGES, CLASSES).mean()
    rng = SimulationStream(3)
    theta = network.updated(theta, IMAGES, CLASSES, rate=0.5, epochs=80, batch=4, rng=rng)
    assert network.losses(theta, IMAGES, CLASSES).mean() < before / 10
    np.testing.assert_array_equal(network.predict(theta, IMAGES), CLASSES)
    assert network.error(theta, IMAGES, CLASSES) == 0.0


def test_refusals(torch, small):
    with pytest.raises(ParameterError, match="loss must be one of squares, cross-entropy, got 'hinge'"):
        small("hinge")
    for layer in (torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5)):
        with pytest.raises(
            ParameterError, match=r"module must be in evaluation mode, got .* in training mode"
        ):
            torch_models.Network(torch.nn.Sequential(torch.nn.Linear(3, 3), layer))
    with pytest.raises(ParameterError, match="module must have parameters, got none"):
        torch_models.Network(torch.nn.ReLU())


def test_buffers_in_evaluation_mode_stay_as_they_are(torch):
    """Batch normalisation in evaluation mode is a public scale of each unit."""
    nn = torch.nn
    layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
    layers(torch.as_tensor(numbers(4, 20, 3)))  # in training mode: the buffers move
    layers.eval()
    before = {name: held.clone() for name, held in layers.named_buffers()}
    network = torch_models.Network(layers)
    theta, x, y = network.start(1), numbers(5, 6, 3), np.array([0, 1, 0, 1, 1, 0])
    gradient = network.gradients(theta, x, y).mean(axis=0)
    np.testing.assert_allclose(network.mean_gradient(theta, x, y), gradient, atol=1e-12)
    np.testing.assert_allclose(network.updated(theta, x, y, rate=0.1), theta - 0.1 * gradient, atol=1e-12)
    assert all(torch.equal(held, before[name]) for name, held in layers.named_buffers())


def test_gradients_can_be_differentiated_again(torch, small):
    """By the records: against finite differences of the gradient; and local steps as `updated` takes them."""
    for loss in ("cross-entropy", "squares"):
        network = small(loss)
        theta = network.start(2)
        images = torch.as_tensor(IMAGES[:2]).requires_grad_()
        classes = torch.as_tensor(CLASSES[:2])
        found = network.differentiable(network.tensors(theta), images, classes)
        weights = numbers(6, theta.size)
        inner = sum(
            (a.reshape(-1) * b).sum() for a, b in zip(found, _pieces(torch, found, weights), strict=True)
        )
        (slope,) = torch.autograd.grad(inner, images)
        step = np.zeros_like(IMAGES[:2])
        step[1, 2, 3] = 1e-6
        ends = [
            network.mean_gradient(theta, IMAGES[:2] + sign * step, CLASSES[:2]) @ weights for sign in (1, -1)
        ]
        assert float(slope[1, 2, 3]) == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-6)
        soft = torch.nn.functional.one_hot(classes, 3).double()  # probabilities of classes
        again = network.differentiable(network.tensors(theta), images, soft)
        assert all(torch.allclose(a, b) for a, b in zip(found, again, strict=True))


def _pieces(torch, tensors, flat):
    return torch.as_tensor(flat).split([one.numel() for one in tensors])


def test_without_torch_the_part_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"needs an optional part: pip install 'reticent\[torch\]'"):
        torch_models.convolutional()
