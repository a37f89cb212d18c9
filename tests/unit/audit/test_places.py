"""Channels for places in the gate: exact levels, points of the globe, and what no level shows."""

import importlib
import inspect
import pkgutil

import numpy as np
import pytest

import reticent.mechanisms
from reticent.audit import audit
from reticent.audit.places import MOST_PLACES, check_places, check_points, rows_of, telling_places
from reticent.audit.planted import places as planted
from reticent.audit.subjects import CATALOGUE, MAP, made
from reticent.mechanisms.location import (
    ElasticChannel,
    TableChannel,
    TruncatedLaplace,
    exponential,
    planar_laplace,
)
from reticent.privacy import ApproximateMetricDP
from reticent.randomness import SimulationStream
from reticent.spaces import Box, FiniteSpace, Grid

BY_DELTA = {
    "TruncatedLaplace"
}  # its rows are checked with its delta in test_exact: `audit all` is of pure claims
NAMES = ("BlahutArimoto", "Exponential", "LinearProgram", "PlanarLaplace", "Privic")


def test_every_class_that_claims_something_is_audited():
    """`reticent audit all` measured no place: whatever has a guarantee joins the catalogue, or this fails."""
    claiming = set()
    for found in pkgutil.walk_packages(reticent.mechanisms.__path__, "reticent.mechanisms."):
        for _, kind in inspect.getmembers(importlib.import_module(found.name), inspect.isclass):
            if kind.__module__.startswith("reticent.mechanisms") and hasattr(kind, "guarantee"):
                claiming.add(kind)
    audited = {type(make(1.0)) for make in CATALOGUE.values()}
    assert {ElasticChannel, TableChannel} <= audited
    assert {kind.__name__ for kind in claiming - audited if not inspect.isabstract(kind)} == BY_DELTA


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", [0.5, 4.0])
def test_a_report_on_places_says_everything(name, level):
    report = audit(made(name, level), quick=True, rng=SimulationStream(3))
    assert report.passed, report.verdict
    assert report.notion == "epsilon per km"
    assert report.claimed == pytest.approx(level, rel=0.01)
    assert report.black_box.lower <= report.exact.loss <= report.claimed
    assert [found.check for found in report.findings] == [
        "exact", "fit", "black box", "support", "points", "total", "streams",
    ]  # fmt: skip


def test_the_loss_of_places_is_measured_and_not_only_bounded():
    """The bound from outputs alone is near the level: the contrasts are the places that differ most."""
    report = audit(made("LinearProgram", 1.0), quick=True, rng=SimulationStream(3))
    assert 0.9 < report.black_box.lower <= 1.0


@pytest.mark.parametrize(
    ("bug", "checks"),
    [
        (planted.HalfTheLevel, {"exact", "black box"}),
        (planted.OneNormaliser, {"exact", "black box"}),
        (planted.CellsForKilometres, {"exact", "black box"}),
        (planted.CutOff, {"exact", "black box", "support"}),
        (planted.OtherCrowds, {"fit"}),
    ],
)
def test_the_gate_refuses_wrong_channels(bug, checks):
    report = audit(bug(), quick=True)
    assert {found.check for found in report.findings if not found.passed} == checks


def test_a_torn_map_is_refused_by_its_points_alone():
    torn = planted.TornGrid.over(MAP.box, MAP.rows, MAP.columns)
    report = audit(exponential(torn, 1.0), quick=True)
    assert {found.check for found in report.findings if not found.passed} == {"points"}


def test_places_without_a_map_have_no_points():
    line = FiniteSpace.of_points([[0.0], [1.0], [3.0]])
    report = audit(ElasticChannel(line, [1.0, 2.0, 3.0], 0.5), quick=True, rng=SimulationStream(1))
    assert report.passed, report.verdict
    assert "points" not in [found.check for found in report.findings]


def test_large_maps_and_closed_cells():
    large = planar_laplace(Grid.over(Box(48.81, 48.91, 2.22, 2.46), 12, 10), 1.0)
    assert len(telling_places(large)) <= MOST_PLACES
    assert check_places(large).passed
    assert check_points(large, pairs=2_000).passed
    torn = planted.TornGrid.over(Box(48.81, 48.91, 2.22, 2.46), 12, 10)
    assert not check_points(exponential(torn, 1.0), pairs=2_000).passed
    grid = Grid.over(MAP.box, 4, 4, closed=(0, 5, 6))
    channel = ElasticChannel(grid, grid.open * np.arange(1.0, 17.0), 0.7)
    assert telling_places(channel) == np.flatnonzero(grid.open).tolist()
    assert all(sum(row) == 1 and row[5] == 0 for row in rows_of(channel))
    report = audit(channel, quick=True, rng=SimulationStream(2))
    assert report.passed, report.verdict


# On roads


def test_the_channel_of_a_vehicle_is_audited():
    report = audit(made("Roads", 1.0), quick=True, rng=SimulationStream(3))
    assert report.passed, report.verdict
    assert report.notion == "epsilon per km"
    assert 0.3 < report.black_box.lower <= report.exact.loss <= report.claimed
    assert [one.check for one in report.findings] == [
        "exact", "fit", "black box", "support", "total", "streams",
    ]  # fmt: skip


def truncated(level=2.0):
    return TruncatedLaplace(made("Roads", 1.0).space, level, 0.8, most_delta=1.0)


def test_a_truncated_channel_is_audited_with_its_delta():
    """Supports differ, which its delta covers: so they are not compared, and sets are."""
    report = audit(truncated(), quick=True, rng=SimulationStream(3))
    assert report.passed, report.verdict
    assert 0.0 < report.exact.delta <= truncated().delta
    assert "support" not in [one.check for one in report.findings]


@pytest.mark.parametrize(("level", "delta"), [(1.0, 0.2), (0.2, 1.0)])
def test_planted_a_smaller_delta_or_level_on_roads_is_found(level, delta):
    """Claims a fifth of its delta, or a fifth of its level."""

    class Planted(TruncatedLaplace):
        @property
        def guarantee(self):
            return ApproximateMetricDP(level * self.level, delta * self.delta, "km")

    report = audit(Planted(truncated().space, 6.0, 0.8, most_delta=1.0), quick=True, rng=SimulationStream(3))
    assert not report.exact.passed
    assert not report.passed
