"""What is shown of a training: computed on the records it is given, and on no others."""

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.federated.curves import Curves, Origin
from reticent.federated.models import Linear, Logistic
from reticent.federated.simulation import Step, simulate
from reticent.federated.tasks import designed
from reticent.randomness import SimulationStream

PUBLIC = np.array([[0.5], [-0.5], [0.25]]), np.array([1.0, -1.0, -1.0])


def task(model=None, **changes):
    fields = {"epsilon": 2.0, "purpose": "x", "rounds": 4, "group": 10, "rate": 1.0} | changes
    return designed("braking", Logistic(1) if model is None else model, **fields)


def test_loss_and_error_are_those_of_the_model():
    curves = Curves(task(), *PUBLIC, Origin.HOLD_OUT)
    theta = np.array([2.0, 0.0])
    point = curves.add(Step(0, 10, 0.5, 38, 2.0), theta)
    assert point.error == pytest.approx(1 / 3)
    assert point.loss == pytest.approx(np.log1p(np.exp([-1.0, -1.0, 0.5])).mean())
    assert point.described() | {"loss": 0, "error": 0} == {
        **{"number": 1, "clients": 10, "noise": 0.5, "bytes_each": 38, "spent": 2.0},
        **{"loss": 0, "error": 0},
    }
    assert curves.is_classifier


def test_every_round_is_kept():
    curves = Curves(task(participations=2), *PUBLIC, Origin.HOLD_OUT)
    features, targets = np.ones((20, 1)), np.ones(20)
    simulate(curves.task, features, targets, rng=SimulationStream(1), on_round=curves.add)
    assert [point.number for point in curves.points] == [1, 2, 3, 4]
    assert [point.spent for point in curves.points] == [2.0, 2.0, 4.0, 4.0]


def test_private_records_do_not_reach_the_curves():
    """For the same parameters they are the same, whatever the clients hold. Planted: their own records."""
    seen = []
    for private in (-1.0, 1.0):
        records = np.full((10, 1), private), np.ones(10)
        for held in (PUBLIC, records):
            seen.append(
                Curves(task(), *held, Origin.HOLD_OUT).add(Step(0, 10, 0.0, 0, 0.0), np.array([2.0, 0.1]))
            )
    assert seen[0] == seen[2]
    assert seen[1] != seen[3]


def test_a_training_that_runs_away_is_shown():
    curves = Curves(task(Linear(1)), *PUBLIC, Origin.HOLD_OUT)
    assert curves.add(Step(0, 10, 0.5, 38, 2.0), np.array([1e200, 0.0])).loss == np.inf


def test_what_has_no_model_has_no_curves():
    assert not Curves(task(Linear(1)), *PUBLIC, Origin.HOLD_OUT).is_classifier
    with pytest.raises(ParameterError, match="task must have a model"):
        Curves(task(3), *PUBLIC, Origin.HOLD_OUT)
