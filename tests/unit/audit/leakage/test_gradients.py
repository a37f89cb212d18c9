"""`audit.gradients`: models of the library, files, and what is wrong with them in one line."""

import numpy as np
import pytest

from reticent.audit import gradients
from reticent.audit.leakage import Kind
from reticent.audit.leakage.sources import read_arrays, subject
from reticent.errors import ParameterError
from reticent.federated.models import SVM, Axes, Linear, Logistic
from reticent.federated.networks import TwoLayers

from .nets import network

RECORD = np.array([[0.3, -1.2, 0.8]])


@pytest.mark.parametrize(
    ("model", "target"),
    [(Linear(3, l2=0.1), 1.3), (Logistic(3), -1.0), (SVM(3, l2=0.5), 1.0), (TwoLayers(), 2.0)],
)
def test_models_of_the_library(model, target):
    theta = np.linspace(-0.3, 0.6, model.dimensions)
    found = gradients((model, theta), (RECORD, [target]), records=1)
    assert found.leak.kind is Kind.EVERYTHING
    assert found.error < 1e-12
    assert np.ravel(found.leak.certain.targets)[0] == pytest.approx(target)
    assert "the server learns everything" in str(found)


@pytest.mark.parametrize("model", [Linear(3), SVM(3)])
def test_two_records_whose_mean_looks_like_one_are_not_called_one(model):
    """Planted: as it was, the number taken for 1, they are one record for certain, and that is neither."""
    theta = np.linspace(-0.3, 0.6, model.dimensions)
    two = np.concatenate([RECORD, 0.5 - RECORD])
    found = gradients((model, theta), (two, [1.0, 1.0]))
    assert (found.leak.kind, found.leak.certain, found.leak.records) == (Kind.FAMILY, None, None)
    assert "a mean of several" in str(found)
    planted = gradients((model, theta), (two, [1.0, 1.0]), records=1)
    assert planted.leak.kind is Kind.EVERYTHING
    assert planted.error > 0.1


def test_of_a_model_with_axes_the_server_learns_what_is_along_them():
    axes = Axes([0.5, 0.0, -1.0], [[1.0, 0.0], [0.0, 0.5], [0.0, 0.5]])
    found = gradients((Logistic(3, axes=axes), np.array([0.1, -0.2, 0.3])), (RECORD, [1.0]))
    assert found.leak.kind is Kind.EVERYTHING
    assert found.leak.certain.records == pytest.approx(np.array([[-0.2, 0.3]]))


def test_planted_the_penalty_that_is_not_taken_off():
    """With lambda theta left in the gradient, another record would come out."""
    model = Linear(3, l2=0.5)
    theta = np.array([0.5, -0.2, 0.1, 0.3])
    sent = model.mean_gradient(theta, RECORD, np.array([1.0]))
    wrong = gradients((Linear(3, l2=0.0), theta), update={"theta": sent}, records=1)
    right = gradients((model, theta), update={"theta": sent}, records=1)
    assert np.abs(wrong.leak.certain.records - RECORD).max() > 0.01
    assert np.abs(right.leak.certain.records - RECORD).max() < 1e-12


@pytest.mark.parametrize(
    ("model", "target", "kind", "number"),
    [
        (Linear(3, intercept=False), 0.7, Kind.FAMILY, 1),
        (Logistic(3, intercept=False), 1.0, Kind.CANDIDATES, 2),
        (SVM(3, intercept=False), 1.0, Kind.CANDIDATES, 2),
    ],
)
def test_without_an_intercept(model, target, kind, number):
    theta = np.array([-0.3, 0.2, 0.1])
    found = gradients((model, theta), (RECORD, [target]))
    assert (found.leak.kind, found.leak.number) == (kind, number)
    if kind is Kind.CANDIDATES:
        assert found.error < 1e-9


def test_a_record_that_a_support_vector_machine_has_learnt_says_nothing():
    found = gradients((SVM(3), np.array([10.0, -10.0, 10.0, 0.0])), (RECORD, [1.0]))
    assert (found.leak.kind, found.leak.number, found.found) == (Kind.NOTHING, 3, False)


def test_steps_instead_of_gradients_and_only_a_part_of_them():
    generator = np.random.default_rng(1)
    layers = network(generator, [12, 20, 6])
    batch = generator.standard_normal((3, 12)), [0, 2, 5]
    for send in (
        None,
        lambda sent: {name: sent[name] for name in sent if name.endswith("weight")},
        lambda sent: {name: -0.1 * array for name, array in sent.items()},
    ):
        rate = 0.1 if send is not None and send({"0.weight": np.ones(1)})["0.weight"][0] < 0.0 else None
        found = gradients(layers, batch, send=send, rate=rate)
        assert found.leak.kind is Kind.EVERYTHING
        assert found.error < 1e-9


def test_noise_hides_the_record():
    generator = np.random.default_rng(2)
    layers = network(generator, [12, 20, 6])
    batch = generator.standard_normal((1, 12)), [2]

    def send(arrays):
        return {name: array + 0.3 * generator.standard_normal(array.shape) for name, array in arrays.items()}

    assert gradients(layers, batch).found
    assert not gradients(layers, batch, send=send).found


def test_what_is_not_finite_leaves_the_layers_above():
    generator = np.random.default_rng(3)
    layers = network(generator, [12, 20, 16, 6])
    batch = generator.standard_normal((1, 12)), [2]

    def broken(place):
        def send(arrays):
            return {
                name: np.full_like(array, np.nan) if name == f"{place}.weight" else array
                for name, array in arrays.items()
            }

        return send

    found = gradients(layers, batch, send=broken(0))
    assert found.leak.kind is Kind.EVERYTHING
    assert found.enters == "what enters the layer of 1.weight"
    assert found.notes == ("0.weight holds numbers that are not finite: only what is above was inverted",)
    inside = layers.forward(batch[0])[0][1]
    assert np.abs(found.leak.certain.records - inside).max() < 1e-9
    with pytest.raises(
        ParameterError, match=r"2\.weight holds numbers that are not finite, and nothing is above"
    ):
        gradients(layers, batch, send=broken(2))


def test_bad_updates_in_one_line():
    layers = network(np.random.default_rng(4), [5, 4, 3])
    good, _ = subject(layers).measured(np.ones((1, 5)), [0])
    for sent, message in (
        (
            {**good, "7.weight": np.ones(3)},
            "update has '7.weight', the model has not: is it of another model",
        ),
        ({**good, "0.weight": np.ones((2, 2))}, r"0.weight has shape \(2, 2\), the model \(4, 5\)"),
        ({"0.weight": good["0.weight"]}, "update lacks '1.weight': is it of another model"),
        ({**good, "0.weight": np.ones((4, 5), dtype=np.int64)}, "floating point numbers, got int64"),
        ({}, "update lacks '0.weight'"),
    ):
        with pytest.raises(ParameterError, match=message):
            gradients(layers, update=sent)
    with pytest.raises(ParameterError, match="give a batch or an update"):
        gradients(layers)
    with pytest.raises(ParameterError, match="batch must hold records of 5 numbers"):
        gradients(layers, (np.ones((1, 4)), [0]))
    with pytest.raises(ParameterError, match="model must be a module of PyTorch, Layers, or a pair"):
        gradients("net", update=good)
    with pytest.raises(ParameterError, match="theta must be 4 numbers"):
        gradients((Linear(3), np.zeros(3)), update={})


def test_files(tmp_path):
    numpy_files = pytest.importorskip("safetensors.numpy")
    layers = network(np.random.default_rng(4), [5, 4, 3])
    good, _ = subject(layers).measured(np.ones((1, 5)), [1])
    numpy_files.save_file(good, tmp_path / "update.safetensors")
    again = read_arrays(tmp_path / "update.safetensors")
    assert set(again) == set(good)
    assert gradients(layers, update=again).leak.labels == (1,)
    for name, content in (("pickle", b"\x80\x04N."), ("zip", b"PK\x03\x04archive/data.pkl")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ParameterError, match=f"{name} is a pickle, which runs code when read"):
            read_arrays(tmp_path / name)
    (tmp_path / "text").write_bytes(b"hello")
    with pytest.raises(ParameterError, match="text must be a file in the form of safetensors"):
        read_arrays(tmp_path / "text")
    with pytest.raises(ParameterError, match="absent cannot be read"):
        read_arrays(tmp_path / "absent")
