"""Bad updates: one clear line."""

import numpy as np
import pytest

from reticent.audit.leakage import Layers, Update, invert
from reticent.errors import ParameterError

from .nets import network


@pytest.fixture
def layers():
    return network(np.random.default_rng(1), [6, 5, 4])


@pytest.fixture
def update(layers):
    return layers.update(np.ones((1, 6)), np.array([1.0]))


def test_bad_updates(layers, update):
    for place, bad in ((1, np.nan), (2, np.inf)):
        broken = tuple(w + (bad if p == place - 1 else 0.0) for p, w in enumerate(update.weights))
        with pytest.raises(ParameterError, match=f"layer {place} holds numbers that are not finite"):
            invert(layers, Update(broken, update.biases))
    with pytest.raises(ParameterError, match="of 2 layers, got 1: is it of another model"):
        invert(layers, Update(update.weights[:1], update.biases[:1]))
    turned = (update.weights[0].T, update.weights[1])
    with pytest.raises(ParameterError, match=r"layer 1 has weights of shape \(6, 5\), the model \(5, 6\)"):
        invert(layers, Update(turned, update.biases))
    with pytest.raises(ParameterError, match="layer 2 has biases of shape"):
        invert(layers, Update(update.weights, (update.biases[0], np.zeros(3))))


def test_bad_options(layers, update):
    with pytest.raises(ParameterError, match="records must be >= 1"):
        invert(layers, update, records=0)
    with pytest.raises(ParameterError, match=r"labels must be in 0 \.\. 3"):
        invert(layers, update, labels=[4])
    with pytest.raises(ParameterError, match="labels must be of 2 records, got 1"):
        invert(layers, update, records=2, labels=[1])
    with pytest.raises(ParameterError, match="noise must be >= 0"):
        invert(layers, update, noise=-1.0)


def test_bad_layers():
    good = network(np.random.default_rng(1), [6, 5, 4])
    with pytest.raises(ParameterError, match="loss must be one of"):
        Layers(good.weights, good.biases, "hinges")
    with pytest.raises(ParameterError, match="'hinge' is of one output, got 4"):
        Layers(good.weights, good.biases, "hinge")
    with pytest.raises(ParameterError, match="layer 2: takes 5 numbers"):
        Layers((good.weights[0][:3], good.weights[1]), (good.biases[0][:3], good.biases[1]))
    with pytest.raises(ParameterError, match="layer 1: weights and biases must be finite"):
        Layers((good.weights[0] * np.nan, good.weights[1]), good.biases)


def test_words(layers, update):
    assert str(invert(layers, update)).startswith("everything: one record")
