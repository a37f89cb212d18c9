"""Reports as bytes: the vectors, round trips, batches."""

import contextlib
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.collect import wire
from reticent.collect.wire import HEAD_BYTES, LONGEST, SHORTEST, TAG_BYTES, Layout, Outcome
from reticent.errors import ParameterError
from reticent.mechanisms.categorical import OLH
from reticent.mechanisms.record import Category, Number
from reticent.randomness import SimulationStream

from . import fleet

SURVEYS = [*(fleet.single(kind) for kind in fleet.KINDS), fleet.mixed(), fleet.wide()]


def test_the_vectors_are_what_the_code_makes():
    assert fleet.vectors_text() == fleet.VECTORS.read_text()


@pytest.mark.parametrize("survey", SURVEYS, ids=lambda survey: survey.name)
def test_what_is_written_is_read(survey):
    layout, stream = Layout(survey), SimulationStream(1)
    for number in range(40):
        body, drawn = fleet.body(layout, fleet.enrolment(number), 3, fleet.VALUES, stream)
        read = layout.read(np.frombuffer(body, dtype=np.uint8)[None])
        assert not (read.wrong | read.misfit | read.illegal).any()
        assert np.flatnonzero(read.asked[0]).tolist() == sorted(drawn)
        for place, (rows, symbols) in read.symbols.items():
            instrument = survey.instruments[place]
            sent = drawn[place] & 1 if instrument.name == "OneBit" else drawn[place]
            assert rows.tolist() == [0]
            assert symbols.tolist() == np.asarray(sent).tolist()
        assert HEAD_BYTES + len(body) + TAG_BYTES <= layout.longest


@pytest.mark.parametrize("survey", SURVEYS, ids=lambda survey: survey.name)
def test_every_body_is_read_as_what_writes_it_or_refused(survey):
    """All bodies of short surveys, many of long ones: what is taken is written the same way again."""
    layout = Layout(survey)
    size = layout.longest - HEAD_BYTES - TAG_BYTES
    if size <= 2:
        rows = np.array(list(itertools.product(range(256), repeat=size)), dtype=np.uint8)
    else:
        rows = np.random.default_rng(2).integers(0, 256, (20_000, size), dtype=np.uint8)
        rows[::2, : layout.mask_bytes] = np.packbits(
            np.arange(len(survey.attributes)) < survey.sample_size
        )  # the first attributes
    read = layout.read(rows)
    good = ~(read.wrong | read.misfit | read.illegal)
    assert (read.asked[good].sum(axis=1) == survey.sample_size).all()
    for row in np.flatnonzero(good)[:200]:
        asked = np.flatnonzero(read.asked[row]).tolist()
        drawn = [symbols[rows_ == row] for rows_, symbols in (read.symbols[place] for place in asked)]
        assert layout.body(asked, drawn) == rows[row].tobytes()


@pytest.mark.parametrize("size", [0, 1])
def test_a_body_that_ends_in_its_attributes_is_refused(size):
    read = Layout(fleet.wide()).read(np.zeros((3, size), dtype=np.uint8))
    assert read.wrong.all()
    assert read.misfit.all()


def test_illegal_symbols_are_told():
    def illegal(survey, *body):
        return bool(Layout(survey).read(np.array([body], dtype=np.uint8)).illegal[0])

    three, window, krr = (fleet.single(kind) for kind in ("ThreeOutputs", "Window", "KRR"))
    assert [illegal(three, 0x80, symbol << 6) for symbol in range(4)] == [False, False, False, True]
    assert [illegal(window, 0x80, symbol << 5) for symbol in range(8)] == [False] * 5 + [True] * 3
    assert [illegal(krr, 0x80, symbol << 5) for symbol in range(8)] == [False] * 5 + [True] * 3
    assert illegal(krr, 0x80, 0x01)  # padding
    olh = fleet.single("OLH")
    assert isinstance(olh.instruments[0], OLH)
    most = (2**32 - 6).to_bytes(4, "big")
    over = (2**32 - 5).to_bytes(4, "big")
    assert not illegal(olh, 0x80, *most, *most, 4 << 5)
    assert illegal(olh, 0x80, *over, *most, 4 << 5)
    assert illegal(olh, 0x80, *most, *over, 4 << 5)
    assert illegal(olh, 0x80, *most, *most, 5 << 5)
    assert illegal(olh, 0x80, *most, *most, 4 << 5 | 1)


def test_a_batch_is_split_as_it_was_joined():
    reports = [b"", b"a", bytes(300), bytes(LONGEST)]
    assert wire.split(wire.batch(reports), most=4) == reports
    assert wire.split(b"", most=0) == []
    with pytest.raises(ParameterError, match="at most 3 reports"):
        wire.split(wire.batch(reports), most=3)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_batch_or_refused(data):
    with contextlib.suppress(ParameterError):
        assert wire.batch(wire.split(data, most=100)) == data


def test_no_report_is_longer_than_a_batch_can_say():
    asked = [(Category(f"a{i}", 1024), "OUE") for i in range(256)]
    layout = Layout(fleet.survey(*asked, epsilon=1.0, sample_size=256, name="most"))
    assert SHORTEST < layout.longest <= LONGEST


def test_the_shortest_report():
    layout = Layout(fleet.survey((Number("one"), "OneBit")))
    assert layout.longest == SHORTEST == 47


def test_two_outcomes_are_acknowledged():
    assert {one for one in Outcome if one.is_acknowledged} == {Outcome.COUNTED, Outcome.DUPLICATE}
