"""What the tests of the experiments share."""

import pytest

from reticent.experiments import Options
from reticent.experiments.data import SOURCES, directory


@pytest.fixture
def quick(tmp_path):
    """The options of a quick run with few repetitions."""
    return Options(out=tmp_path, quick=True, repetitions=3, workers=1)


@pytest.fixture
def _data():
    """Skip, and say why, where the data sets are not."""
    absent = [source.file for source in SOURCES if not (directory() / source.file).is_file()]
    if absent:
        pytest.skip(f"data sets not found: {', '.join(absent)}; set RETICENT_DATA")
