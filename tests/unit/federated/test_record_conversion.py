"""One odd record changes its own row and nothing else, in every home, client, front and column."""

import functools
import math
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from reticent.federated import Softmax, client, on_device, record_conversion
from reticent.federated.encoding import Encoding
from reticent.federated.models import Linear
from reticent.federated.on_device import HomeTask
from reticent.federated.personalised import client as personal_client
from reticent.federated.record_conversion import MAX_MAGNITUDE, convert_classes, convert_records, convert_rows
from reticent.federated.robust import Grid
from reticent.federated.split import front as front_module
from reticent.federated.split import noised
from reticent.federated.split.front import Front
from reticent.federated.split.noised import FINE, NoisedTask
from reticent.mechanisms.record import Category, Number, Record
from reticent.randomness import SimulationStream
from reticent.spaces import grid

from .test_client_totality import Raises

WIDTH, CLASSES, COUNT, CHANGED = 4, 3, 200, 57
ODD_RECORDS = [
    "text",
    b"bytes",
    None,
    3.0,
    [],
    [1.0, 2.0, 3.0],
    [1.0] * 5,
    [1j, 0, 0, 0],
    1j,
    [10**400, 0, 0, 0],
    [-(10**400)] * 4,
    ["a", 1.0, 2.0, 3.0],
    [b"\xff", 1.0, 2.0, 3.0],
    [[1.0], [2.0, 3.0]],
    [[1.0, 2.0], [3.0, 4.0]],
    [math.nan, math.inf, -math.inf, 1e308],
    {"a": 1},
    Raises(),
    [Raises()] * 4,
    np.full(4, 1j),
    np.array(["x"] * 4),
    np.ma.masked_all(4),
    np.array([np.datetime64("NaT")] * 4),
]
ODD_LABELS = ["text", b"x", None, 1j, 10**400, math.nan, [], [1, 2], {}, Raises(), np.array([1j])]


def home_records(count=COUNT):
    draw = np.random.default_rng(1)
    return draw.normal(size=(count, WIDTH)).tolist(), draw.integers(0, CLASSES, count).tolist()


def replace_one(items, value):
    return [*items[:CHANGED], value, *items[CHANGED + 1 :]]


@pytest.mark.parametrize("index", range(len(ODD_RECORDS)))
def test_an_odd_record_changes_its_own_row_alone(index):
    features, labels = home_records()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows, numbers = convert_records(replace_one(features, ODD_RECORDS[index]), labels, WIDTH)
    usual, _ = convert_records(features, labels, WIDTH)
    assert rows.shape == usual.shape
    assert np.isfinite(rows).all()
    assert np.abs(rows).max() <= MAX_MAGNITUDE
    assert np.array_equal(np.delete(rows, CHANGED, axis=0), np.delete(usual, CHANGED, axis=0))
    assert numbers.tolist() == labels


@pytest.mark.parametrize("index", range(len(ODD_LABELS)))
def test_an_odd_label_changes_its_own_record_alone(index):
    features, labels = home_records()
    rows, numbers = convert_records(features, replace_one(labels, ODD_LABELS[index]), WIDTH)
    assert np.array_equal(rows, np.array(features))
    assert np.delete(numbers, CHANGED).tolist() == [*labels[:CHANGED], *labels[CHANGED + 1 :]]
    assert 0 <= convert_classes(numbers, CLASSES)[CHANGED] < CLASSES


def test_cells_are_read_one_by_one():
    rows = convert_rows([[10**400, -math.inf, "2.5", 1j], [1, True, None, b"x"]], WIDTH)
    assert rows.tolist() == [[MAX_MAGNITUDE, -MAX_MAGNITUDE, 2.5, 0.0], [1.0, 1.0, 0.0, 0.0]]


def test_arrays_keep_their_rows():
    pictures = np.arange(24.0).reshape(2, 3, 4)
    assert convert_rows(pictures, 12).tolist() == pictures.reshape(2, 12).tolist()
    assert convert_rows(pictures.reshape(-1), 12).tolist() == pictures.reshape(2, 12).tolist()
    assert convert_rows(np.ones((5, 3)), WIDTH).tolist() == np.zeros((5, WIDTH)).tolist()
    ragged = np.empty(2, dtype=object)
    ragged[0], ragged[1] = [1.0, 2.0, 3.0, 4.0], [1.0]
    assert convert_rows(ragged, WIDTH).tolist() == [[1.0, 2.0, 3.0, 4.0], [0.0] * 4]
    assert convert_rows(ragged, WIDTH, max_rows=1).tolist() == [[1.0, 2.0, 3.0, 4.0]]


class NoColumn:
    """An object with the method of a column, which fails."""

    def to_list(self):
        raise ArithmeticError


def as_object_series(items):
    series = pd.Series(index=range(len(items)), dtype=object)
    for place, item in enumerate(items):
        series.iat[place] = item
    return series


COLUMNS = {
    "series": as_object_series,
    "index": lambda items: pd.Index(as_object_series(items).to_numpy(), tupleize_cols=False),
    "arrow": pa.array,
    "chunked": lambda items: pa.chunked_array([items[:9], items[9:]]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_lists_holds_a_record_in_each_cell(name):
    """A column of lists counted as rows of zeros."""
    features, labels = home_records()
    rows, numbers = convert_records(COLUMNS[name](features), pd.Series(labels), WIDTH)
    assert np.array_equal(rows, np.array(features))
    assert numbers.tolist() == labels
    assert convert_rows(COLUMNS[name](features), WIDTH, max_rows=3).tolist() == features[:3]


@pytest.mark.parametrize("index", range(len(ODD_RECORDS)))
def test_an_odd_cell_of_a_column_changes_its_own_row_alone(index):
    features, _ = home_records()
    odd = replace_one(features, ODD_RECORDS[index])
    assert convert_rows(as_object_series(odd), WIDTH).tolist() == convert_rows(odd, WIDTH).tolist()


def test_what_a_cell_means_does_not_follow_from_the_type_of_its_column():
    numbers = [float(number) for number in range(4 * WIDTH)]
    series = pd.Series(numbers)
    assert convert_rows(series, WIDTH).tolist() == convert_rows(numbers, WIDTH).tolist()
    assert len(convert_rows(series, WIDTH)) == len(
        convert_rows(as_object_series([*numbers[1:], "odd"]), WIDTH)
    )


def test_planted_columns_that_numpy_converts_are_found(monkeypatch):
    monkeypatch.setattr(record_conversion, "_list_column", lambda records: records)
    features, _ = home_records()
    assert not convert_rows(as_object_series(features), WIDTH).any()


@pytest.mark.parametrize("records", [NoColumn(), None, "text", 3.0, {}, Raises(), iter([[1.0] * 4])])
def test_what_is_no_list_of_records_holds_none(records):
    assert convert_rows(records, WIDTH).shape == (0, WIDTH)
    assert convert_records([[1.0] * WIDTH], records, WIDTH)[1].tolist() == [0.0]


def test_a_record_without_a_label_is_of_class_0_and_labels_without_a_record_are_left_out():
    assert convert_records([[1.0] * WIDTH] * 2, [2], WIDTH)[1].tolist() == [2.0, 0.0]
    assert convert_records([[1.0] * WIDTH], [2, 1], WIDTH)[1].tolist() == [2.0]


# Homes: how far one odd record moves what noise is added to, against the sensitivity that is charged.


def home_task():
    grid = Grid((WIDTH + 1) * CLASSES, 1 << 16, 1 << 24)
    return HomeTask("washing", Softmax(WIDTH, CLASSES, l2=0.0), grid, 1.0, COUNT, 0.5, 4, 3, 1.0)


def noised_task():
    return NoisedTask("drying", WIDTH, CLASSES, Grid(WIDTH * CLASSES, 1 << 16, 1 << 24), 1.0, 1.0)


def summed_clips(features, labels):
    """The whole numbers of a step of `HomeTask`, in steps of its grid."""
    task = home_task()
    rows, classes = task._records(features, labels)
    theta = np.linspace(-3.0, 3.0, task.grid.dimensions)
    return np.rint(task.model.clipped_sum(theta, rows, classes, task.clip) * (1 << 20))


def home_distance(odd):
    """How far an odd record moves a home's sum, over the sensitivity that is paid for."""
    features, labels = home_records()
    moved = summed_clips(replace_one(features, odd), labels) - summed_clips(features, labels)
    return float(np.linalg.norm(moved)) / home_task().mechanism.sensitivity


def changed_vectors(odd):
    """How many of a home's vectors are other ones, or missing, with an odd record among them."""
    features, labels = home_records()
    usual, changed = (
        noised_task().placed(records, labels) for records in (features, replace_one(features, odd))
    )
    if len(usual) != len(changed):
        return abs(len(usual) - len(changed))
    return int((usual != changed).any(axis=1).sum())


@pytest.mark.parametrize("index", range(len(ODD_RECORDS)))
def test_a_home_is_charged_for_all_that_an_odd_record_moves(index):
    assert home_distance(ODD_RECORDS[index]) <= 1.0
    assert changed_vectors(ODD_RECORDS[index]) <= 1


def convert_all_at_once(features, labels, width, *, max_records=None):
    """The old conversion: numpy takes all records together, and none where one is odd."""
    try:
        rows = np.asarray(features, dtype=np.float64).reshape(-1, width)[:max_records]
        numbers = np.nan_to_num(np.asarray(labels, dtype=np.float64).reshape(-1)[: len(rows)])
        if len(numbers) == len(rows):
            return rows, numbers
    except (TypeError, ValueError):
        pass
    return np.zeros((0, width)), np.zeros(0)


@pytest.mark.parametrize("odd", ["text", [1.0, 2.0, 3.0], [1j, 0, 0, 0], b"bytes"])
def test_planted_conversion_of_all_records_at_once_is_found(monkeypatch, odd):
    for module in (on_device, noised):
        monkeypatch.setattr(module, "convert_records", convert_all_at_once)
    assert home_distance(odd) > 10.0
    assert changed_vectors(odd) == COUNT


def test_planted_conversion_that_raises_is_found(monkeypatch):
    monkeypatch.setattr(on_device, "convert_records", convert_all_at_once)
    with pytest.raises(OverflowError):
        home_distance([10**400, 0, 0, 0])


def test_odd_records_are_drawn_and_have_the_shape_of_all():
    features, labels = home_records(len(ODD_RECORDS))
    drawn = noised_task().noised(ODD_RECORDS, labels, SimulationStream(1))
    assert drawn.shape == noised_task().noised(features, labels, SimulationStream(1)).shape
    assert np.abs(noised_task().placed(ODD_RECORDS, labels)).max() <= FINE


# Fronts


@functools.cache
def small_front():
    return Front.made(7, 5)


def changed_features(odd):
    front, pictures = small_front(), np.random.default_rng(2).random((20, 7, 7)).tolist()
    usual, changed = front.features(pictures), front.features([*pictures[:3], odd, *pictures[4:]])
    return 20 if len(changed) != 20 else int((usual != changed).any(axis=1).sum())


@pytest.mark.parametrize("index", range(len(ODD_RECORDS)))
def test_a_front_sees_each_picture_alone(index):
    assert changed_features(ODD_RECORDS[index]) <= 1


def test_planted_front_that_converts_all_pictures_at_once_is_found(monkeypatch):
    monkeypatch.setattr(
        front_module, "convert_rows", lambda records, width: convert_all_at_once(records, records, width)[0]
    )
    assert changed_features("text") == 20


# Clients


def mean_gradient(features, targets):
    return client._mean_gradient(Linear(WIDTH), np.linspace(-1.0, 1.0, WIDTH + 1), features, targets)


@pytest.mark.parametrize("odd", ["text", [1.0], [1j, 0, 0, 0], b"bytes", [math.nan] * 4])
def test_a_client_learns_from_its_other_records_too(odd):
    """An unreadable record counts as a record of zeros, in the mean of all."""
    features, labels = home_records()
    zeros = mean_gradient(replace_one(features, [0.0] * WIDTH), labels)
    if isinstance(odd, list) and odd[1:] == [0, 0, 0]:
        assert np.isfinite(mean_gradient(replace_one(features, odd), labels)).all()
    else:
        assert mean_gradient(replace_one(features, odd), labels) == pytest.approx(zeros)


def test_planted_client_that_converts_all_at_once_is_found(monkeypatch):
    features, labels = home_records()
    monkeypatch.setattr(client, "convert_records", convert_all_at_once)
    assert mean_gradient(replace_one(features, "text"), labels) is None


def test_personalised_clients_convert_by_the_same_function():
    assert personal_client.convert_records is client.convert_records is convert_records


# Columns of records and of encodings, and points on a map: a value is not taken apart because others are.


def test_a_column_of_lists_is_a_column():
    record = Record([Number("speed", (0.0, 1.0)), Category("kind", ("a", "b"))], 1.0)
    encoding = Encoding([Number("speed", (0.0, 1.0))], Category("kind", ("a", "b")))
    for values in ([[0.5], [0.5]], [[0.5], 0.5], [[0.5, 1.0], [0.5]], [0.5, "x"]):
        table = {"speed": values, "kind": ["a", "b"]}
        assert record.perturb(table, SimulationStream(1)).people == 2
        assert encoding.encoded(table).shape == (2, 1)
        assert encoding.targets({"speed": [0, 0], "kind": values}).shape == (2,)


def test_planted_columns_that_numpy_takes_apart_are_found(monkeypatch):
    monkeypatch.setattr("reticent.mechanisms.record.as_column", lambda values: values)
    record = Record([Number("speed", (0.0, 1.0))], 1.0)
    assert record.perturb({"speed": [[0.5], 0.5]}, SimulationStream(1)).people == 2
    with pytest.raises(ValueError, match="must hold one value per person"):
        record.perturb({"speed": [[0.5], [0.5]]}, SimulationStream(1))


ODD_POINTS = [[1.0], [1.0, 2.0], "x", None, 1j, b"\xff", 10**400, {}, Raises()]


def test_an_odd_point_leaves_the_others_where_they_are():
    usual = [0.5, 1.5, [1.5]]
    for odd in ODD_POINTS:
        numbers = grid._numbers([*usual, odd])
        assert numbers.shape == (4,)
        assert np.array_equal(numbers[:3], [0.5, 1.5, math.nan], equal_nan=True)
    assert np.isnan(grid._numbers(np.ma.masked_all(2))).all()
    assert np.isnan(grid._numbers(np.full(2, 1j))).all()
    assert grid._numbers(np.array([["1.5"], ["x"]]))[0, 0] == 1.5


def test_planted_points_that_numpy_takes_apart_are_found(monkeypatch):
    monkeypatch.setattr(grid, "_numbers", lambda values: np.asarray(values, dtype=np.float64))
    assert grid._numbers([[1.5], [1.5]]).shape == (2, 1)
    with pytest.raises(ValueError, match="sequence"):
        grid._numbers([[1.5], 1.5])
