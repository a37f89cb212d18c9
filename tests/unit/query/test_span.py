"""Everything in the span: equal to dense least squares, and never dearer than the question's own key."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from reticent.privacy import Neighbours
from reticent.query.span import Joint

from .random_queries import query, random_schema
from .span_worlds import Dense, World, planned

MOST_VALUES = 30  # of a vector, for the dense side's sake


def session(seed, steps=10):
    """Questions about a random declaration, with all that was bought before, and what each shall be worth."""
    rng = random.Random(seed)
    declared = random_schema(rng)
    if rng.random() < 0.4:
        declared = replace(declared, relation=Neighbours.ADD_REMOVE_ONE)
    data = declared.data()
    world, joint, readings = World(data, seed), Joint(data), {}
    for _ in range(steps):
        prepared = planned(query(rng, declared), data)
        if prepared.values > MOST_VALUES:
            continue
        wanted = rng.randrange(10**10, 10**12)
        yield world, joint, prepared, wanted
        units = joint.fresh(prepared, wanted)
        if units:
            key = prepared.question.key
            readings[key] = world.bought(prepared, readings.get(key), units)
            joint.record(prepared, readings[key])
            assert joint.fresh(prepared, wanted) == 0


@pytest.mark.parametrize("sessions", [12, pytest.param(1000, marks=pytest.mark.slow)])
def test_equals_dense_least_squares(sessions):
    compared = 0
    for seed in range(sessions):
        dense = None
        for world, joint, prepared, _ in session(seed):
            dense = dense or Dense(world)
            dense.update(joint)
            found = joint.estimates(prepared)
            best = dense.best(prepared)
            assert (found is None) == any(one is None for one in best)
            for one, right in zip(found or (), best, strict=False):
                assert one.holds()
                if one.rows:
                    value, information = right
                    assert one.information == pytest.approx(information, rel=1e-9, abs=1)
                    near = 1e-9 * prepared.sensitivity
                    assert float(one.value) == pytest.approx(value, rel=1e-9, abs=near)
                    compared += 1
    assert compared > 5 * sessions


@pytest.mark.parametrize("sessions", [12, pytest.param(1000, marks=pytest.mark.slow)])
def test_never_dearer_than_the_own_key(sessions):
    charged = alone = 0
    for seed in range(sessions):
        held = {}
        for _, joint, prepared, wanted in session(seed):
            key = prepared.question.key
            today, now = max(0, wanted - held.get(key, 0)), joint.fresh(prepared, wanted)
            held[key] = max(wanted, held.get(key, 0))
            assert now <= today
            charged, alone = charged + now, alone + today
    assert charged < 0.8 * alone
