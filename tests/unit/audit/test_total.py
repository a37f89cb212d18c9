"""Totality, streams and memory beyond the planted bugs."""

import numpy as np
import pytest

from reticent.audit import check_memory, check_streams, check_total
from reticent.audit.total import check_joint
from reticent.mechanisms.categorical import KRR
from reticent.mechanisms.numeric import Duchi, OneBit
from reticent.mechanisms.vector import VectorDuchi


@pytest.mark.parametrize("mechanism", [Duchi(epsilon=1.0), KRR(epsilon=1.0, categories=5)], ids=repr)
def test_our_mechanisms_are_total(mechanism):
    assert check_total(lambda value: mechanism.perturb([value]), usual=0).passed


def test_what_a_failure_says_holds_no_text_of_the_error():
    def refuses(value):
        if value != value:
            raise ValueError("private 0.73")
        return [0.0]

    found = check_total(refuses, usual=0.0)
    assert not found.passed
    assert found.detail == "input nan raises ValueError"


def test_no_report_at_all_is_seen():
    assert not check_total(lambda value: None if value is None else [1], usual=0).passed


def test_rows_and_texts_have_streams_too(rng):
    vector = VectorDuchi(epsilon=1.0, dimensions=3)
    assert check_streams(
        lambda: lambda value, size: vector.sample(np.zeros((size, 3)) + value), 0.0, draws=2000
    ).passed
    words = np.array(["no", "yes"])
    fine = check_streams(
        lambda: lambda value, size: words[(rng.words(size) & np.uint64(1)).astype(int)], 0, fork=False
    )
    assert fine.passed
    same = check_streams(lambda: lambda value, size: words[np.arange(size) % 3 % 2], 0, draws=999, fork=False)
    assert not same.passed


def test_a_nearly_deterministic_mechanism_cannot_be_judged():
    duchi = Duchi(epsilon=20.0)
    found = check_streams(lambda: lambda value, size: duchi.perturb(np.full(size, 1.0)), 1.0, draws=1000)
    assert found.passed
    assert "cannot be seen" in found.detail


def test_a_period_within_a_batch_is_seen(rng):
    half = rng.words(500)
    pieces = iter([np.tile(half, 2), *np.split(rng.words(9000), 9)])
    assert (
        "repeats itself"
        in check_streams(lambda: lambda v, n: next(pieces).view(np.int64), 0, draws=1000).detail
    )


def test_independent_columns(rng):
    assert check_joint((rng.words(40_000) & np.uint64(3)).reshape(-1, 2)).passed


def test_fresh_noise_has_one_support():
    one_bit = OneBit(epsilon=1.0, dither_levels=4)
    found = check_memory(
        lambda: lambda value: int(one_bit.sample([value])[0]), -1.0, 1.0, epsilon=1.0, devices=1500
    )
    assert found.passed
