"""Chapter 4 of Biswas 2023, redone: the data, and every figure in quick mode on an invented city."""

import gzip

import numpy as np
import pytest

from reticent.experiments import Options, find
from reticent.experiments.biswas_2023.chapter_4 import data, found, updates
from reticent.experiments.data import DataMissing
from reticent.location.stations import demand_of
from reticent.mechanisms.location import TruncatedLaplace

from ..location.stations.town import crowds, town
from ..spaces.roads.networks import lattice
from .test_registry import check_files

FIGURES = ("loc-4.2", "loc-4.5", "loc-4.6", "loc-4.7", "loc-4.8", "loc-4.9")
pytest.importorskip("ot")


def written(path, header, rows):
    with gzip.open(path, "wt") as handle:
        handle.write("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A town of 2 km, five stations, and 90 trips that wander towards its crowds."""
    folder, rng = tmp_path_factory.mktemp("town"), np.random.default_rng(2)
    streets, roads = lattice(13, spacing_m=200.0), town()
    nodes = [(number, *point) for number, point in enumerate(streets.points.tolist())]
    written(folder / "sf_road_nodes.csv.gz", "node,lat,lon", nodes)
    written(
        folder / data.EDGES,
        "u,v,length_m",
        zip(streets.starts.tolist(), streets.ends.tolist(), streets.metres.tolist(), strict=True),
    )
    spots = roads.points[rng.integers(0, roads.size, 5)].tolist()
    written(folder / data.SITES, "lat,lon", spots)
    trips, law = [], crowds(roads) / crowds(roads).sum()
    for trip in range(90):
        ends = roads.points[rng.choice(roads.size, 2, p=law)]
        for step in range(9):
            lat, lon = ends[0] + (ends[1] - ends[0]) * step / 8 + rng.normal(0.0, 2e-4, 2)
            trips.append((trip % 2, trip // 2, trip, 1_000_000 + 55 * step, lat, lon))
    written(folder / data.TRIPS, "sample,cab_id,trip_id,t,lat,lon", trips)
    return folder


def options(made, tmp_path, **more):
    return Options(out=tmp_path, quick=True, data=made, **more)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_in_quick_mode(name, made, tmp_path):
    check_files(name, *find(name).run(options(made, tmp_path)))


def test_the_same_seed_gives_the_same_rows(made, tmp_path):
    one, other = (found.run(options(made, tmp_path, seed=seed)) for seed in (4, 5))
    again = found.run(options(made, tmp_path, seed=4))
    assert (one.rows, one.caption) == (again.rows, again.caption)
    assert one.rows != other.rows


def test_what_is_read(made, tmp_path):
    city = data.load(options(made, tmp_path))
    assert (len(city.journeys), len(city.points), len(city.firsts)) == (90, 90, 45)
    assert {len(one) for one in city.journeys} == {8}  # 440 seconds, a point every minute
    assert city.sparse.size <= 5 < city.dense(data.stream(1)).size
    asked = city.asked(data.stream(2))
    assert asked.shape == (45, 3)
    assert all(
        set(row) <= set(city.points[trip].tolist()) for row, trip in zip(asked, city.firsts, strict=True)
    )
    assert city.shares(asked).sum() == pytest.approx(1.0)


def test_absent_files_are_named(tmp_path):
    with pytest.raises(DataMissing, match=r"San Francisco needs sf_road_edges\.csv\.gz"):
        data.load(Options(out=tmp_path, data=tmp_path))


def test_reports_are_by_the_channel(made, tmp_path):
    """2,000 reports of one place; standard errors of 5 a place, false alarms below 1e-4."""
    city = data.load(options(made, tmp_path))
    channel = TruncatedLaplace(city.roads, 6.0, 0.5, most_delta=1.0)
    drawn = np.bincount(data.reported(channel, np.full(2000, 7), data.stream(1)), minlength=city.roads.size)
    law = channel.probabilities(7)
    assert (np.abs(drawn - 2000 * law) <= 5.0 * np.sqrt(2000 * law) + 5.0).all()
    assert not drawn[law == 0.0].any()


def test_planted_the_channel_alone_is_not_what_a_provider_sees(made, tmp_path):
    """Counting on no dummies, an estimate is as even as they are."""
    of_dummies = [
        one for _, one in updates.collections(options(made, tmp_path)) if one.way == updates.DUMMIES
    ]
    one, start = of_dummies[0], np.ones(len(of_dummies[0].truth))
    told, blind = (
        demand_of(channel, one.counts, updates=60, start=start).distribution
        for channel in (one.channel, one.channel.channel)
    )
    assert np.abs(told - one.truth).sum() < np.abs(blind - one.truth).sum()
