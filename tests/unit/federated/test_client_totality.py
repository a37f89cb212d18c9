"""Clients report whatever they hold: nobody is silent over an odd gradient or record; mathematics 4.1."""

import decimal
import math
from fractions import Fraction

import numpy as np
import pytest

from reticent.federated import payload
from reticent.federated.client import Client
from reticent.federated.models import SVM, Axes, Linear, Logistic
from reticent.federated.payload import Outcome
from reticent.federated.server import Round

from ..operating import operator
from . import people
from .people import GRADIENT, taken


class Raises:
    """Nothing can be made of it."""

    def _no(self, *_):
        raise RuntimeError("no")

    __float__ = __int__ = __index__ = __str__ = __repr__ = __hash__ = __eq__ = __bool__ = __iter__ = _no
    __len__ = __getitem__ = __array__ = __gt__ = __lt__ = __format__ = _no


ODD = [
    None,
    [],
    [math.nan] * 6,
    [math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0],
    [10**400, -(10**400), 0, 0, 0, 0],
    [1.0] * 5,
    [1.0] * 7,
    [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
    [[1.0], [2.0, 3.0]],
    ["9" * 5000, "fast", None, b"\xff", object(), {}],
    [1j] * 6,
    np.full(6, 1j),
    np.ma.masked_all(6),
    np.array([np.datetime64("NaT")] * 6),
    np.arange(6, dtype=np.int8),
    np.full(6, 1e4, dtype=np.float16),
    np.zeros((6, 1)),
    np.zeros((0, 6)),
    [decimal.Decimal("sNaN"), Fraction(1, 3), True, np.float32("inf"), Raises(), 1],
    3.0,
    "gradient",
    Raises(),
    iter([1.0] * 6),
    {0: 1.0},
]


def silent(one, task, report=Client.report, values=ODD):
    """Which values are told apart by whether, or how long, a report is; each is about another round."""
    usual, found = payload.size(task), []
    for number, value in enumerate(values):
        try:
            sent = report(one, task, number, value)
        except Exception:
            sent = None
        if not isinstance(sent, bytes) or len(sent) != usual:
            found.append(number)
    return found


@pytest.mark.parametrize(("kind", "k"), [("OneBit", 3), ("PM", 1)])
def test_every_gradient_is_reported(client, kind, k):
    one = client()
    task = taken(one, people.task(kind, sample_size=k, rounds=99, participations=99))
    assert silent(one, task) == []
    assert one.spent == len(ODD)
    for number, value in enumerate(ODD):  # and counted like any other
        report = one.report(task, number, value)
        assert Round(task, number, operator(people.MASTER)).add([report]) == [Outcome.COUNTED]


class SilentOnOverflow(Client):
    """Planted: nothing to say where there is no finite gradient."""

    def report(self, task, number, gradient):
        if not np.isfinite(np.asarray(gradient, dtype=float)).all():
            return None
        return super().report(task, number, gradient)


class RaisesOnOverflow(Client):
    """Planted: an error where there is no finite gradient."""

    def _symbols(self, task, number, gradient, stream):
        found = np.asarray(gradient, dtype=float)
        if not np.isfinite(found).all():
            raise OverflowError("gradient")
        return super()._symbols(task, number, gradient, stream)


class ShortOnOverflow(Client):
    """Planted: a shorter report of the coordinates that are finite."""

    def report(self, task, number, gradient):
        sent = super().report(task, number, gradient)
        return sent if np.isfinite(np.asarray(gradient, dtype=float)).all() else sent[:-1]


@pytest.mark.parametrize("planted", [SilentOnOverflow, RaisesOnOverflow, ShortOnOverflow])
def test_planted_silence_is_found(client, planted):
    one = client(planted)
    task = taken(one, people.task(rounds=9, participations=9))
    assert silent(one, task, planted.report, ODD[2:5]) == [0, 1, 2]
    assert silent(one, task, planted.report, [GRADIENT]) == []


ODD_RECORDS = [
    ([], []),
    (np.zeros((0, 5)), []),
    ([[math.nan] * 5], [1.0]),
    ([[math.inf] * 5], [1.0]),
    ([[1e308] * 5] * 3, [1e308] * 3),
    ([[1.0] * 4], [1.0]),
    ([[1.0] * 5] * 2, [1.0] * 3),
    ([[1.0] * 5], []),
    ([["a"] * 5], ["b"]),
    ([[10**400] * 5], [10**400]),
    (None, None),
    (Raises(), Raises()),
    (np.full((2, 5), 1j), [1.0, 1.0]),
    ([1.0] * 10, [1.0, -1.0]),
]


@pytest.mark.parametrize("kind", [Linear, Logistic, SVM])
def test_all_records_are_reported(client, kind):
    one = client()
    task = taken(one, people.task(model=kind(5), rounds=99, participations=99))

    def train(one, task, number, records):
        return one.train(task, number, np.full(6, 1e200), *records)

    assert silent(one, task, train, ODD_RECORDS) == []


def test_odd_numbers_are_clamped_not_dropped(client, monkeypatch):
    """NaN and what is no number is zero, infinities and huge numbers are the bound."""
    one, seen = client(), []
    task = taken(one, people.task(rounds=99, participations=99))

    def spy(self, units, stream):
        seen.append(units)
        return np.zeros(units.size, dtype=np.int64)

    monkeypatch.setattr(type(task.mechanism), "sample", spy)
    monkeypatch.setattr(type(task), "asked", lambda *_: np.arange(6)[None])
    given = [10**400, -math.inf, "fast", math.nan, 0.5, -7.0]
    one._symbols(task, 0, given, None)
    one._symbols(task, 0, [1.0] * 5, None)
    assert [units.tolist() for units in seen] == [[1.0, -1.0, 0.0, 0.0, 0.5, -1.0], [0.0] * 6]


AXES = Axes.fitted(np.random.default_rng(4).normal(size=(50, 5)) + 1.0, 5)


def test_a_client_prepares_records_by_the_axes_of_the_signed_task(client, monkeypatch):
    """Planted: a client that forgets the centre. Odd records are reported like any other."""
    one, rng = client(), np.random.default_rng(3)
    task = taken(one, people.task(model=Logistic(5, l2=0.1, axes=AXES), rounds=99, participations=99))
    train = lambda one, task, number, records: one.train(task, number, np.full(6, 1e200), *records)  # noqa: E731
    assert silent(one, task, train, ODD_RECORDS) == []
    theta, features, targets = rng.normal(size=6), rng.normal(size=(8, 5)), rng.choice([-1.0, 1.0], 8)
    x = np.column_stack([(features - AXES.centre) @ AXES.matrix, np.ones(8)])
    wanted = (-targets / (1.0 + np.exp(targets * (x @ theta)))) @ x / 8 + 0.1 * theta
    monkeypatch.setattr(Client, "report", lambda self, task, number, gradient: gradient)
    assert one.train(task, 0, theta, features, targets) == pytest.approx(wanted, rel=1e-12)
    monkeypatch.setattr(Axes, "of", lambda self, features: features @ self.matrix)
    assert one.train(task, 0, theta, features, targets) != pytest.approx(wanted, rel=1e-2)


def test_records_become_their_mean_gradient(client, monkeypatch):
    one, model, rng = client(), Logistic(5, l2=0.1), np.random.default_rng(3)
    task = taken(one, people.task(model=model))
    theta, features, targets = rng.normal(size=6), rng.normal(size=(8, 5)), rng.choice([-1.0, 1.0], 8)
    monkeypatch.setattr(Client, "report", lambda self, task, number, gradient: gradient)
    sent = one.train(task, 0, theta, features.tolist(), targets.tolist())
    assert sent == pytest.approx(model.gradients(theta, features, targets).mean(axis=0), rel=1e-12)
