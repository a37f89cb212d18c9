"""Counts of reported places: each point once, whatever comes again; and nothing unless it is asked for."""

import os

import numpy as np
import pytest

from reticent.errors import StorageUnavailable
from reticent.location.stations.sealing import Kind, Point
from reticent.location.stations.tally import FILE, HOUR_S, Tally

from .asking_town import provider


class Clock:
    now = 1_700_000_000.0

    def __call__(self):
        return self.now


def sealed(count):
    return [(os.urandom(85), place % 5) for place in range(count)]


def test_a_point_counts_once_however_often_it_comes(tmp_path):
    clock = Clock()
    points = sealed(23)
    tally = Tally(tmp_path, clock=clock)
    for _ in range(3):
        tally.add(points)
    tally.close()
    tally = Tally(tmp_path, clock=clock)  # after a restart
    tally.add([*points, points[0]])
    assert tally.counts(5, 1).tolist() == [5, 5, 5, 4, 4]
    assert tally.minutes(1) == pytest.approx(clock.now % HOUR_S / 60.0)
    clock.now += 2 * HOUR_S
    tally.add([*points, *sealed(1)])
    assert tally.counts(5, 1).tolist() == [1, 0, 0, 0, 0]
    assert tally.counts(5, 2).tolist() == [6, 5, 5, 4, 4]
    assert tally.minutes(2) == pytest.approx(120.0 + clock.now % HOUR_S / 60.0)
    assert tally.minutes(1) == pytest.approx(clock.now % HOUR_S / 60.0), "the hour before had none"
    tally.close()


def test_planted_without_digests_a_retry_counts_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "reticent.location.stations.tally.hashlib.sha256",
        lambda _: type("Fresh", (), {"digest": staticmethod(lambda: os.urandom(32))}),
    )
    tally, points = Tally(tmp_path), sealed(5)
    for _ in range(2):
        tally.add(points)
    assert tally.counts(5, 1).sum() == 10, "which the test above would see"


def test_a_batch_counts_whole_or_not_at_all(tmp_path):
    tally = Tally(tmp_path)
    with pytest.raises(TypeError):
        tally.add([*sealed(3), (None, 1)])
    assert tally.counts(5, 1).sum() == 0
    tally.close()


def test_places_that_there_are_not_count_nowhere(tmp_path):
    tally = Tally(tmp_path)
    tally.add([(os.urandom(85), place) for place in (0, 4, 5, 2**32 - 1)])
    assert tally.counts(5, 1).tolist() == [1, 0, 0, 0, 1]
    tally.close()


def test_a_file_that_cannot_be_opened_is_said(tmp_path):
    (tmp_path / FILE).mkdir()
    with pytest.raises(StorageUnavailable, match="what was reported cannot be used"):
        Tally(tmp_path)


def asked(held, places):
    points = [Point.made(Kind.QUERY, place) for place in places]
    return [one.sealed(held.service.id, held.service.key) for one in points]


def test_a_provider_counts_only_if_its_owner_wants_it(tmp_path):
    held = provider(tmp_path / "town")
    held.answers(asked(held, [1, 2, 2]))
    held.close()
    assert not (tmp_path / "town" / FILE).exists()
    Tally(tmp_path / "town").close()
    held = provider(tmp_path / "town")
    points = asked(held, [1, 2, 2])
    for _ in range(2):
        held.answers([*points, os.urandom(85)])
    held.answers([Point.made(Kind.BOOKING, 1).sealed(held.service.id, held.service.key)])
    counts = held._tally.counts(held.area.roads.size, 1)
    assert np.flatnonzero(counts).tolist() == [1, 2]
    assert counts[[1, 2]].tolist() == [1, 2]
    held.close()
