"""Masked entries while another thread loads `numpy.ma`: it is in sys.modules before anything is in it."""

import sys
from types import ModuleType

import numpy as np
import pytest

from reticent.mechanisms import base
from reticent.mechanisms.categorical import KRR
from reticent.mechanisms.numeric import OneBit

VALUES = ([0.5, None, "x"], (1, 2), [1.0], [None], np.array([1, None], dtype=object), np.zeros(3))


def drawn():
    """Draw from all of these by mechanisms of each kind."""
    for values in VALUES:
        for mechanism in (OneBit(epsilon=1.0), KRR(categories=4, epsilon=1.0)):
            mechanism.sample(values)


@pytest.fixture
def half_loaded(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy.ma", ModuleType("numpy.ma"))


def test_mechanisms_draw_while_another_thread_loads_masked_arrays(half_loaded):
    drawn()
    assert not any(map(base.is_masked, (None, 0, "x", np.nan)))


def test_planted_the_module_is_taken_for_whole(half_loaded, monkeypatch):
    monkeypatch.setattr(base, "is_masked", lambda item: item is sys.modules["numpy.ma"].masked)
    with pytest.raises(AttributeError, match="masked"):
        drawn()


def test_masked_entries_are_known_once_it_is_loaded():
    assert base.is_masked(np.ma.masked)
    assert base.is_masked_array(np.ma.masked_array([1, 2], mask=[True, False]))
    assert not base.is_masked_array(np.zeros(2))
