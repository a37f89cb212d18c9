"""Models in files: one form, that of safetensors; nothing else is read."""

import json

import numpy as np
import pytest

from reticent.errors import ContentTooLarge, ParameterError
from reticent.store import Directory, tensors

LOOKS = {"theta": ("F64", (3, 2)), "count": ("I32", (4,))}
ARRAYS = {"theta": np.arange(6.0).reshape(3, 2), "count": np.arange(4, dtype=np.int32)}


def test_arrays_come_back():
    found = tensors.unpacked(tensors.packed(ARRAYS), LOOKS)
    assert set(found) == set(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_the_order_and_layout_of_arrays_change_no_byte():
    turned = {"count": ARRAYS["count"][::-1][::-1], "theta": np.asfortranarray(ARRAYS["theta"])}
    swapped = {"theta": ARRAYS["theta"].astype(">f8"), "count": ARRAYS["count"].astype(">i4")}
    assert tensors.packed(turned) == tensors.packed(ARRAYS) == tensors.packed(swapped)


def test_it_is_the_form_that_safetensors_writes():
    library = pytest.importorskip("safetensors.numpy")
    kinds = (np.float64, np.int64, np.float32, np.int32, np.int16, np.int8, np.uint8)
    draw = np.random.default_rng(1)
    for _ in range(50):
        arrays = {
            f"{letter}é": np.zeros(tuple(draw.integers(0, 4, draw.integers(0, 4))), draw.choice(kinds))
            for letter in draw.permutation(list("abcdefgh"))[: draw.integers(1, 8)]
        }
        assert tensors.packed(arrays) == library.save(arrays)


def headed(head, data):
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


GOOD = tensors.packed(ARRAYS)
ENTRY = {"dtype": "F64", "shape": [3, 2], "data_offsets": [0, 48]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD[:-1],
        GOOD + b"\0",
        tensors.packed({"theta": ARRAYS["theta"]}),
        tensors.packed(ARRAYS | {"theta": ARRAYS["theta"].T}),
        tensors.packed(ARRAYS | {"count": ARRAYS["count"].astype(np.float32)}),
        headed({"theta": ENTRY, "count": {"dtype": "I32", "shape": [4], "data_offsets": [0, 16]}}, bytes(64)),
        headed({"__metadata__": {"a": "b"}, "theta": ENTRY}, bytes(48)),
        (1 << 62).to_bytes(8, "little") + GOOD[8:],
        b"\x80\x04\x95" + GOOD[3:],  # as a pickle begins
        b"PK\x03\x04" + GOOD[4:],  # and an npz
    ],
)
def test_what_looks_otherwise_is_refused(data):
    with pytest.raises(ParameterError, match=r"safetensors file of theta: F64 \[3, 2\]; count: I32 \[4\]"):
        tensors.unpacked(data, LOOKS)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(bad):
    with pytest.raises(ParameterError, match="theta must hold finite numbers"):
        tensors.unpacked(tensors.packed(ARRAYS | {"theta": np.full((3, 2), bad)}), LOOKS)


@pytest.mark.parametrize("dtype", [object, np.complex128, bool, np.float16, "U3"])
def test_what_is_no_number_of_ours_is_not_written(dtype):
    with pytest.raises(ParameterError, match="theta must be of F64"):
        tensors.packed({"theta": np.zeros(3, dtype)})


def test_through_a_store_nothing_larger_is_fetched(tmp_path):
    store = Directory(tmp_path)
    cid = tensors.put(store, ARRAYS)
    np.testing.assert_array_equal(tensors.get(store, cid, LOOKS)["theta"], ARRAYS["theta"])
    with pytest.raises(ContentTooLarge):
        tensors.get(store, tensors.put(store, {"theta": np.zeros(1000)}), LOOKS)
