"""Owners and their files, for the tests of registering over the network."""

import json

import pytest


def text(name="town", source="town.csv", epsilon=1, delta=1e-6, **changes):
    """A declaration over the network, in JSON, which is YAML too."""
    fields = {
        "name": name, "version": "1", "source": source, "unit": "row", "relation": "replace one",
        "rows": 2000, "budget": {"epsilon": epsilon, "delta": delta},
        "columns": {"age": {"type": "integer", "low": 0, "high": 120}},
    }  # fmt: skip
    return json.dumps(fields | changes)


@pytest.fixture
def olga(desk):
    return desk.state.named("olga")


@pytest.fixture
def otto(desk):
    return desk.state.named("otto")
