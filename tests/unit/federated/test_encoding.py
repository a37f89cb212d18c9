"""Tables into numbers: by declaration alone, for whatever a row holds."""

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.federated.encoding import Encoding
from reticent.mechanisms.record import Category, Number

SPEED, KIND = Number("speed", (0.0, 130.0)), Category("kind", ["car", "bus", "truck"], fallback="bus")
BRAKED = Category("braked", ["soft", "hard"])


def test_a_category_of_k_values_is_k_minus_1_signs():
    encoding = Encoding([SPEED, KIND], BRAKED)
    table = {
        "speed": [0.0, 65.0, 130.0, 97.5],
        "kind": ["car", "bus", "truck", "car"],
        "braked": ["hard", "soft", "hard", "hard"],
        "other": [1, 2, 3, 4],
    }
    assert encoding.inputs == 3
    assert encoding.columns == ["speed", "kind=car", "kind=bus"]
    assert encoding.encoded(table).tolist() == [
        [-1.0, 1.0, -1.0],
        [0.0, -1.0, 1.0],
        [1.0, -1.0, -1.0],  # the last value is -1 everywhere
        [0.5, 1.0, -1.0],
    ]
    assert encoding.targets(table).tolist() == [1.0, -1.0, 1.0, 1.0]
    assert encoding.is_classifier


def test_every_row_is_encoded_and_no_two_values_alike():
    for size in (2, 3, 7):
        encoding = Encoding([Category("c", size)], SPEED)
        rows = encoding.encoded({"c": np.arange(size), "speed": np.zeros(size)})
        assert rows.shape == (size, size - 1)
        assert len({tuple(row) for row in rows.tolist()}) == size


def test_what_is_missing_or_odd_has_its_place():
    encoding = Encoding([SPEED, KIND], Number("force", (-1.0, 1.0)))
    odd = {
        "speed": [None, np.nan, np.inf, -np.inf, 1e308, "fast"],
        "kind": [None, "plane", np.nan, 3, "", "truck"],
        "force": [None, np.nan, np.inf, -7.0, "x", 0.25],
    }
    rows = encoding.encoded(odd)
    assert rows[:, 0].tolist() == [0.0, 0.0, 1.0, -1.0, 1.0, 0.0]
    assert rows[:5, 1:].tolist() == [[-1.0, 1.0]] * 5  # the fallback
    assert encoding.targets(odd).tolist() == [0.0, 0.0, 1.0, -1.0, 0.0, 0.25]
    assert not encoding.is_classifier


def test_nothing_is_learnt_from_the_data():
    """A row is encoded alike whatever the other rows hold; a scaling by the data would not pass."""
    encoding = Encoding([SPEED, KIND], BRAKED)
    row = {"speed": [50.0], "kind": ["truck"], "braked": ["hard"]}
    beside = {"speed": [50.0, 129.0], "kind": ["truck", "car"], "braked": ["hard", "soft"]}
    assert encoding.encoded(row).tolist() == encoding.encoded(beside)[:1].tolist()

    def by_data(table):  # planted: bounds from the data
        values = np.asarray(table["speed"])
        return (values - values.mean()) / (np.ptp(values) or 1.0)

    assert by_data(row)[0] != by_data(beside)[0]


@pytest.mark.parametrize(
    ("features", "target", "reason"),
    [
        ([], BRAKED, "at least one column"),
        ([SPEED, SPEED], BRAKED, "'speed' twice"),
        ([SPEED], SPEED, "'speed' twice"),
        ([SPEED], KIND, "two values or bounds, got 3 values"),
    ],
)
def test_what_is_no_encoding_is_refused(features, target, reason):
    with pytest.raises(ParameterError, match=reason):
        Encoding(features, target)


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(ParameterError, match="no column 'kind'"):
        Encoding([KIND], BRAKED).encoded({"speed": [1.0]})


def test_it_describes_itself():
    assert Encoding([SPEED, KIND], BRAKED).described() == {
        "features": [
            {"name": "speed", "bounds": [0.0, 130.0]},
            {"name": "kind", "values": ["car", "bus", "truck"], "fallback": "bus"},
        ],
        "target": {"name": "braked", "values": ["soft", "hard"], "fallback": "soft"},
    }
