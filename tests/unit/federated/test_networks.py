"""The small networks in numpy: their numbers, their gradients, their public start."""

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.federated.networks import TwoLayerClasses, TwoLayers, public_start
from reticent.randomness import SimulationStream


def numbers(seed, *shape):
    return (2.0 * SimulationStream(seed).units(int(np.prod(shape))) - 3.0).reshape(shape)


def finite_differences(losses, theta, step=1e-6):
    """d losses / d theta by central differences, shape (records, d)."""
    steps = step * np.eye(theta.size)
    return np.stack([(losses(theta + h) - losses(theta - h)) / (2.0 * step) for h in steps], axis=1)


def gradient_error(network, seed):
    """The largest deviation of `gradients` from finite differences."""
    theta, y = numbers(seed, network.dimensions), numbers(seed + 2, 20)
    x = numbers(seed + 1, 20, network.inputs)
    expected = finite_differences(lambda t: network.losses(t, x, y), theta)
    return np.abs(network.gradients(theta, x, y) - expected).max()


def test_the_documents_network_has_11_numbers_and_no_other_width_has():
    assert TwoLayers(3, 2).dimensions == 11
    assert [hidden for hidden in range(1, 20) if TwoLayers(3, hidden).dimensions == 11] == [2]
    without_biases = {hidden * (3 + 1) for hidden in range(1, 20)}
    assert 11 not in without_biases


@pytest.mark.parametrize("shape", [(3, 2), (1, 1), (5, 7)])
def test_gradients_are_finite_differences(shape):
    assert max(gradient_error(TwoLayers(*shape), seed) for seed in range(10, 60, 10)) < 1e-7


def test_the_check_sees_a_relu_without_its_slope(monkeypatch):
    class Wrong(TwoLayers):
        def gradients(self, theta, features, targets):
            found = super().gradients(theta, features, targets)
            _, _, v, _ = self._layers(theta)
            found[:, 6:8] = found[:, -1:] * v  # the biases of the first layer, as if it were linear
            return found

    assert max(gradient_error(Wrong(3, 2), seed) for seed in range(10, 60, 10)) > 0.1


def test_clients_with_networks_of_their_own_are_computed_together():
    network = TwoLayers(3, 2)
    thetas, x, y = numbers(1, 6, 11), numbers(2, 6, 4, 3), numbers(3, 6, 4)
    together = network.gradients(thetas, x, y), network.losses(thetas, x, y)
    for client in range(6):
        one = thetas[client], x[client], y[client]
        np.testing.assert_allclose(together[0][client], network.gradients(*one), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(together[1][client], network.losses(*one), rtol=1e-12)
    mean = network.mean_gradient(thetas, x, y)
    np.testing.assert_allclose(mean, together[0].mean(axis=1))
    np.testing.assert_array_equal(network.predict(thetas[0], x[0]), network.scores(thetas[0], x[0]))
    assert network.error(thetas[0], x[0], y[0]) == pytest.approx(together[1][0].mean())


def test_the_start_is_public_and_the_same_for_everybody():
    network = TwoLayers(3, 2)
    key = bytes(range(32))
    np.testing.assert_array_equal(network.start(key), network.start(int.from_bytes(key, "big")))
    assert not np.array_equal(network.start(1), network.start(2))
    assert np.abs(network.start(1)[:8]).max() <= 1 / np.sqrt(3)
    assert np.abs(network.start(1)[8:]).max() <= 1 / np.sqrt(2)
    np.testing.assert_allclose(  # the same numbers on any machine
        network.start(7)[:3], [-0.5084656328657301, -0.45943993862796484, 0.45420884278338386], rtol=1e-15
    )


def test_the_start_fills_its_range():
    """Uniform in +-1/2: the mean of 10,000 is within 6 standard deviations (false alarms 2e-9)."""
    found = public_start([(10_000, 4)], 5)
    assert abs(found.mean()) < 6 * 0.5 / np.sqrt(3 * 10_000)
    assert 0.499 < np.abs(found).max() <= 0.5


@pytest.mark.parametrize("given", [(0, 2), (3, 0), (3, 1 << 22)])
def test_sizes_are_checked(given):
    with pytest.raises(ParameterError, match=r"(inputs|hidden) must be"):
        TwoLayers(*given)


class TestTwoLayerClasses:
    NETWORK = TwoLayerClasses(5, 3, 4)
    X, Y = numbers(1, 20, 5), np.arange(20) % 4

    def error(self, network):
        """The largest deviation of `gradients` from finite differences, of a few thetas."""
        worst = 0.0
        for seed in range(10, 60, 10):
            theta = numbers(seed, network.dimensions)
            expected = finite_differences(lambda t: network.losses(t, self.X, self.Y), theta)
            worst = max(worst, np.abs(network.gradients(theta, self.X, self.Y) - expected).max())
        return worst

    def test_gradients_are_finite_differences(self):
        assert self.NETWORK.dimensions == 3 * 6 + 4 * 4
        assert self.error(self.NETWORK) < 1e-7

    def test_planted_a_slope_of_another_unit_is_seen(self):
        wrong = TwoLayerClasses(5, 3, 4)
        wrong._slope = np.roll(wrong._slope, 1)
        assert self.error(wrong) > 0.01

    def test_means_and_coordinates_are_those_of_the_gradients(self):
        theta = self.NETWORK.start(3)
        whole = self.NETWORK.gradients(theta, self.X, self.Y)
        np.testing.assert_allclose(self.NETWORK.mean_gradient(theta, self.X, self.Y), whole.mean(axis=0))
        asked = np.stack([np.arange(20), 33 - np.arange(20)], axis=1)
        some = self.NETWORK.coordinates(theta, self.X, self.Y, asked)
        np.testing.assert_array_equal(some, np.take_along_axis(whole, asked, axis=1))

    def test_it_says_the_class_of_the_largest_score(self):
        theta = self.NETWORK.start(3)
        said = self.NETWORK.predict(theta, self.X)
        np.testing.assert_array_equal(said, self.NETWORK.scores(theta, self.X).argmax(axis=1))
        assert self.NETWORK.error(theta, self.X, said) == 0.0
        assert np.abs(theta[:18]).max() <= 1 / np.sqrt(5)

    @pytest.mark.parametrize("given", [(0, 2, 2), (3, 0, 2), (3, 2, 1), (1 << 16, 1 << 16, 2)])
    def test_sizes_are_checked(self, given):
        with pytest.raises(ParameterError, match=r"(inputs|hidden|classes|dimensions) must be"):
            TwoLayerClasses(*given)
