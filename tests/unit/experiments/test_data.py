"""Data sets: found, refused, and scaled to [-1, 1]; the categorical comparison on made people."""

import gzip

import numpy as np
import pytest

from reticent.experiments import DataMissing, Options, data
from reticent.experiments.data import People, Source
from reticent.experiments.zhao_2022.chapter_3 import categories
from reticent.randomness import SimulationStream

SOURCE = Source("Made", "made.csv.gz", {"a": (0.0, 10.0), "b": (-1.0, 1.0)}, ("c",), "nothing")


@pytest.fixture
def folder(tmp_path):
    with gzip.open(tmp_path / "made.csv.gz", "wt") as handle:
        handle.write("a,b,c\n0,0.5,x\n10,,y\n25,?,x\n")
    return tmp_path


def test_load_scales_clips_and_fills(folder):
    people = data.load(SOURCE, folder)
    np.testing.assert_allclose(people.numbers, [[-1.0, 0.5], [1.0, 0.0], [1.0, 0.0]])
    assert people.categories[0].tolist() == [0, 1, 0]
    assert people.numeric_share == pytest.approx(2 / 3)


def test_environment_names_the_directory(folder, monkeypatch):
    monkeypatch.setenv(data.VARIABLE, str(folder))
    assert data.load(SOURCE).dimensions == 2


def test_absent_file_is_named(tmp_path):
    with pytest.raises(DataMissing, match=r"Made needs made\.csv\.gz in --data"):
        data.load(SOURCE, tmp_path)


def test_some_people_are_drawn_without_replacement():
    people = People("made", np.arange(100.0)[:, None] / 100.0, (np.arange(100),))
    some = people.some(10, 1)
    assert len(np.unique(some.numbers)) == 10
    np.testing.assert_allclose(some.numbers[:, 0] * 100.0, some.categories[0])
    assert people.some(100, 1) is people


@pytest.mark.usefixtures("_data")
def test_real_data_have_the_sizes_of_their_description():
    sizes = {people.name: people.numbers.shape for people in data.load_all()}
    assert sizes == {"WISDM": (5418, 3), "Census": (92368, 6), "Vehicle": (1860, 6), "Adult": (48842, 6)}


def test_categories_best_oracle_has_less_error(tmp_path):
    columns = tuple((SimulationStream(4, path=(i,)).units(2000) * 8).astype(np.int64) % 4 for i in range(4))
    people = People("made", np.zeros((2000, 1)), columns)
    options = Options(out=tmp_path, quick=True, repetitions=12)
    rows = categories.run_categories([people], options)
    printed, ours = (
        next(row for row in rows if row["epsilon"] == 4.0 and row["mechanism"] == name)
        for name in (categories.PRINTED, categories.OURS)
    )
    assert ours["mse"] < printed["mse"]
    assert printed["verdict"] == "ours smaller"
