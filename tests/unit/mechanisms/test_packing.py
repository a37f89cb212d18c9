"""Packing at true widths: two engines, one result; what cannot have been packed is refused."""

import numpy as np
import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms import packing
from reticent.mechanisms.packing import count_bits, pack_bits, unpack_bits

WIDTHS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 33, 48, 49, 62]


def by_hand(symbols, width):
    """Bits written one after the other, as the format says."""
    text = "".join(format(int(symbol), f"0{width}b") for symbol in symbols)
    text += "0" * (-len(text) % 8)
    return bytes(int(text[start : start + 8], 2) for start in range(0, len(text), 8))


def drawn(width, count):
    return np.random.default_rng(width).integers(0, 1 << width, count)


@pytest.fixture(params=["numpy", "numba"])
def engine(request, monkeypatch):
    if request.param == "numba":
        pytest.importorskip("numba")
        monkeypatch.setattr(packing, "COMPILE_FROM", 1)
    else:
        monkeypatch.setenv("RETICENT_ENGINE", "numpy")


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1001])
@pytest.mark.parametrize("width", WIDTHS)
def test_bits_lie_as_the_format_says(engine, width, count):
    symbols = drawn(width, count)
    data = pack_bits(symbols, width, 1 << width)
    assert data == by_hand(symbols, width)
    assert (unpack_bits(data, count, width, 1 << width) == symbols).all()
    if width <= 16:
        found = count_bits(data, count, width, 1 << width)
        assert (found == np.bincount(symbols, minlength=1 << width)).all()


@pytest.mark.parametrize("width", [1, 3, 8, 11])
def test_blocks_join(engine, width):
    count = packing._BLOCK * 2 + 5
    symbols = drawn(width, count)
    data = pack_bits(symbols, width, 1 << width)
    assert data == by_hand(symbols, width)
    assert (unpack_bits(data, count, width, 1 << width) == symbols).all()
    assert (count_bits(data, count, width, 1 << width) == np.bincount(symbols, minlength=1 << width)).all()


@pytest.mark.parametrize("read", [unpack_bits, count_bits])
@pytest.mark.parametrize("width", [2, 3, 8, 11])
def test_what_cannot_have_been_packed_is_refused(engine, read, width):
    size = (1 << width) - 1
    data = pack_bits(np.zeros(5, dtype=np.int64), width, size)
    for wrong in (data[:-1], data + b"\0"):
        with pytest.raises(ParameterError, match=f"must be {len(data)} bytes for 5 symbols"):
            read(wrong, 5, width, size)
    if 5 * width % 8:
        with pytest.raises(ParameterError, match="zero padding"):
            read(data[:-1] + bytes([data[-1] | 1]), 5, width, size)
    with pytest.raises(ParameterError, match=f"symbol >= {size}"):
        read(pack_bits(np.full(5, size), width, size + 1), 5, width, size)
    with pytest.raises(ParameterTypeError, match="must be bytes"):
        read("text", 5, width, size)


def test_symbols_are_checked():
    for wrong in ([-1], [4]):
        with pytest.raises(ParameterError, match="symbols must be >= 0 and < 4"):
            pack_bits(np.array(wrong), 2, 4)
    with pytest.raises(ParameterTypeError, match="whole numbers"):
        pack_bits(np.array([0.5]), 2, 4)
