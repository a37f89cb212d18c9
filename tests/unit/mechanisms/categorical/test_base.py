import numpy as np
import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.categorical import KRR, Categories


class Hostile:
    """A value that fails whatever is asked of it."""

    def __eq__(self, other):
        raise RuntimeError

    def __hash__(self):
        raise RuntimeError

    def __int__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 4, 5, -1], [0, 4, 2, 2]),
        (np.array([0, 4, 255], dtype=np.uint8), [0, 4, 2]),
        (np.array([2**64 - 1, 3], dtype=np.uint64), [2, 3]),
        ([1.0, 1.5, np.nan, np.inf, -np.inf, -0.0], [1, 2, 2, 2, 2, 0]),
        (np.array([1.0, 7.0], dtype=np.float16), [1, 2]),
        ([True, False], [1, 0]),
        ([None, "1", 3, 10**400, 3.0, Hostile()], [2, 2, 3, 2, 3, 2]),
        ([[1, 2], [3]], [2, 2]),
        ([1, [1, 2]], [1, 2]),
        (np.array([1 + 2j, 3 + 0j]), [2, 2]),
        (["a", "b"], [2, 2]),
        ([10**30, 1], [2, 1]),
    ],
)
def test_whatever_is_no_category_becomes_the_fallback(values, expected):
    categories = Categories(5, fallback=2)
    assert categories.indices(categories.array(values)).tolist() == expected


def test_a_fallback_beyond_a_narrow_type_is_kept():
    categories = Categories(1000, fallback=999)
    assert categories.indices(categories.array(np.array([200, 3], dtype=np.int16))).tolist() == [200, 3]
    assert categories.indices(categories.array(np.array([-1, 3], dtype=np.int8))).tolist() == [999, 3]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["red", "blue", "pink", None, 7, 8, 7.0], [0, 1, 1, 1, 2, 1, 2]),
        (np.array(["red", "blue", "x"]), [0, 1, 1]),
        (np.array([7, 8]), [2, 1]),
        ([["red"], ["blue"]], [[0], [1]]),
        (["red", ["blue"], {}, Hostile(), float("nan")], [0, 1, 1, 1, 1]),
        ("red", 0),
    ],
)
def test_labels(values, expected):
    categories = Categories(["red", "blue", 7], fallback="blue")
    assert categories.indices(categories.array(values)).tolist() == expected


def test_alphabet():
    assert Categories(3).alphabet.tolist() == [0, 1, 2]
    assert Categories(["a", "bc"]).alphabet.dtype.kind == "U"
    assert Categories(["a", 3]).alphabet.tolist() == ["a", 3]
    assert Categories(np.array([5, 3])).alphabet.tolist() == [5, 3]


@pytest.mark.parametrize(
    ("categories", "fallback", "error", "message"),
    [
        (1, None, ParameterError, "categories must be >= 2, got 1"),
        (2**20 + 1, None, ParameterError, "categories must be <= 1048576, got 1048577"),
        (2.5, None, ParameterTypeError, "categories must be a whole number, got 2.5"),
        (True, None, ParameterTypeError, "categories must be a whole number, got True"),
        (
            "ab",
            None,
            ParameterTypeError,
            "categories must be a whole number or a sequence of labels, got str",
        ),
        (
            None,
            None,
            ParameterTypeError,
            "categories must be a whole number or a sequence of labels, got None",
        ),
        (["a"], None, ParameterError, "categories must be >= 2 and <= 1048576, got 1"),
        (["a", "a"], None, ParameterError, "categories must be distinct, got 'a' twice"),
        ([1, True], None, ParameterError, "categories must be distinct, got True twice"),
        (["a", 1.5], None, ParameterTypeError, r"categories\[1\] must be text or a whole number, got 1.5"),
        (5, 5, ParameterError, "fallback must be <= 4, got 5"),
        (5, "a", ParameterTypeError, "fallback must be a whole number, got 'a'"),
        (["a", "b"], "c", ParameterError, "fallback must be one of the categories, got 'c'"),
        (["a", "b"], [], ParameterError, r"fallback must be one of the categories, got \[\]"),
    ],
)
def test_bad_declarations_are_one_line_errors(categories, fallback, error, message):
    with pytest.raises(error, match=message) as raised:
        KRR(epsilon=1.0, categories=categories, fallback=fallback)
    assert "\n" not in str(raised.value)
