"""A service that chooses the box of every round, against a device with a lifetime of 2.9 per km.

The promise: two points d km apart keep lifetime x (d + most_jump_km) in all, whatever is asked. Before the
map was one that shortens (`spaces.globe`), a longitude was found to 0.4 mm: the side of the meridian opposite
the box was reported as an end of the box.
"""

import hashlib
import math

import numpy as np
import pytest

from reticent.location import LocationDevice
from reticent.location.rounds import PlaceRound
from reticent.mechanisms.location import ElasticChannel
from reticent.randomness import SimulationStream
from reticent.spaces import Box, Grid
from reticent.spaces.globe import RADIUS_KM

from ..spaces.test_globe import moved, on_the_ground, wrapped
from . import campaign

LIFETIME, JUMP, ROUNDS = 2.9, 0.25, 29
BETA = LIFETIME / ROUNDS / 2.0 * (1.0 - 1e-6)
KYIV = (50.45, 30.5)
DEGREE = math.pi * RADIUS_KM / 180.0


@pytest.fixture
def phone(tmp_path):
    opened = []

    def open_phone(number=0):
        made = LocationDevice(
            tmp_path / str(number),
            campaign.enrolment(number),
            campaign.SIGNER,
            lifetime_per_km=LIFETIME,
            most_jump_km=JUMP,
            rng=SimulationStream(number),
        )
        opened.append(made)
        return made

    yield open_phone
    for one in opened:
        one.close()


def asked_of(grid, number, marginal=None):
    c = grid.open.astype(float) if marginal is None else marginal
    made = ElasticChannel(grid, c, BETA)
    return PlaceRound.made(made, name="census", purpose="to spy", number=number, rounds=ROUNDS)


def opposite(longitude, south=0.0):
    """One row of small cells, 890 km long, on the other side of the world."""
    middle = (longitude + 360.0) % 360.0 - 180.0
    return Grid.over(Box(south, south + 0.0015, middle - 4.0, middle + 4.0), 1, 5200)


# What it finds


def bisected(one, longitude, width=3.0):
    """Where the service finds a device, in degrees east: a round is opposite the middle of what is left."""
    low, high = KYIV[1] - width / 2.0, KYIV[1] + width / 2.0
    for number in range(ROUNDS):
        middle = (low + high) / 2.0
        asked = one.take(campaign.file_of(asked_of(opposite(middle), number)))
        report = one.report(asked, KYIV[0], longitude)
        cell = campaign.read(asked, report, campaign.MASTER)[2]
        # Beyond the meridian opposite the box, longitudes begin again in the west.
        low, high = (middle, high) if cell < asked.grid.size / 2 else (low, middle)
    return (low + high) / 2.0


def hits(phone, devices=3, places=1000, apart_m=0.1):
    """How often the service names the right one of a thousand places, a decimetre from one to the next."""
    step, found = apart_m / 1000.0 / DEGREE / math.cos(math.radians(KYIV[0])), 0
    for number in range(devices):
        secret = int.from_bytes(hashlib.sha256(f"secret {number}".encode()).digest()[:8], "big") % places
        guess = bisected(phone(number), KYIV[1] + (secret - places / 2) * step)
        found += round((guess - KYIV[1]) / step + places / 2) == secret
    return found


def test_the_bisecting_service_learns_no_more_than_promised(phone):
    """The places are 100 m apart at most, so the loss is at most 2.9 x 0.35 = 1.02, and a thousandth grows to
    0.0028: two of three are named in at most 3 x 0.0028^2 = 2.3e-5 of the cases (the streams are seeded)."""
    assert hits(phone) <= 1


def test_planted_the_map_that_tears_is_found_by_bisection(phone, monkeypatch):
    """To 0.4 mm, for 2.9 per km; a wrong bit of 29 comes once in e^22 rounds."""
    monkeypatch.setattr(Grid, "cells", wrapped)
    assert hits(phone) == 3
    found = bisected(phone(9), KYIV[1] + 0.4321)
    assert abs(found - KYIV[1] - 0.4321) * DEGREE * 1e6 * math.cos(math.radians(KYIV[0])) < 0.5  # mm


# What it could find, exactly


def loss(asked, a, b):
    """The largest logarithm of the ratio of a report's probabilities, in either direction."""
    cells = asked.grid.cells([a[0], b[0]], [a[1], b[1]]).tolist()
    logs = np.log([asked.channel.probabilities(cell) for cell in cells])
    return float(np.abs(logs[0] - logs[1]).max())


def between(a, b, rows, columns):
    """A grid of cells that may just be asked for, with a corner half-way from one point to the other."""
    middle = (a[0] + b[0]) / 2.0, (a[1] + b[1]) / 2.0
    side = 0.24 / math.hypot(rows > 1, columns > 1) / DEGREE
    up, across = rows * side / 2.0, columns * side / 2.0 / math.cos(math.radians(middle[0]))
    return Grid.over(
        Box(middle[0] - up, middle[0] + up, middle[1] - across, middle[1] + across), rows, columns
    )


def skewed(grid):
    """Nearly all mass in one corner: the worst that c can be, for whoever crosses."""
    c = np.full(grid.size, 1e-9)
    c[0] = 1.0
    return c


def strategies(a, b):
    """Rounds that a service may ask, to tell two points apart that it knows."""
    middle = (a[1] + b[1]) / 2.0
    for rows, columns in ((1, 2), (2, 1), (2, 2), (8, 8)):
        grid = between(a, b, rows, columns)
        yield "a border between them", asked_of(grid, 0, skewed(grid))
    for south in (-80.0, -a[0], 0.0, a[0], 80.0):
        yield "the meridian opposite", asked_of(opposite(middle, south), 0)
    for turned in (180.0, 90.0):
        east = (middle + turned + 180.0) % 360.0 - 180.0
        away = Box(-a[0] - 0.006, -a[0] + 0.006, east - 0.006, east + 0.006)
        yield "the point opposite", asked_of(Grid.over(away, 8, 8), 0)


def worst(points=(KYIV, (89.999, 17.0), (-85.0, 100.0), (0.0, -60.0)), far=(1e-6, 1e-3, 0.1, 2.0)):
    """The largest share of the promise that 29 rounds of one strategy lose; devices take all of them."""
    shares = {}
    rng = np.random.default_rng(0)
    for point in points:
        for km in far:
            b = moved(np.array(point)[:, None], km, rng.uniform(-math.pi, math.pi))[:, 0]
            for name, asked in strategies(point, b) if abs(point[0]) < 84.0 else polar(point, b):
                assert asked.grid.jump <= JUMP
                promised = LIFETIME * (float(on_the_ground(point, b)) + JUMP)
                shares[name] = max(shares.get(name, 0.0), ROUNDS * loss(asked, point, b) / promised)
    return shares


def polar(a, b):
    middle = (a[1] + b[1]) / 2.0
    for south in (-80.0, 0.0, 80.0):
        yield "the meridian opposite", asked_of(opposite(middle, south), 0)


def test_no_strategy_passes_the_promise():
    """And a border between the points uses nearly all of it: the promise is no idle one."""
    found = worst()
    assert max(found.values()) <= 1.0
    assert found["a border between them"] > 0.9


def test_planted_the_map_that_tears_passes_the_promise(monkeypatch):
    monkeypatch.setattr(Grid, "cells", wrapped)
    assert worst()["the meridian opposite"] > 100.0
