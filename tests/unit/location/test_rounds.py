"""Rounds: kilobytes that round-trip, and a device that believes none of a thousand lies."""

import contextlib
import json
from collections import Counter

import numpy as np
import pytest

from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.location import LocationDevice, PlaceRound, rounds
from reticent.location.rounds import TOTAL, round_of, signed, verified
from reticent.mechanisms.location import ElasticChannel, blahut_arimoto
from reticent.spaces import Box, FiniteSpace, Grid

from . import campaign

# Text


@pytest.mark.parametrize(
    ("rows", "columns", "most"), [(1, 2, 800), (11, 15, 1800), (16, 24, 3000), (60, 80, 30_000)]
)
def test_a_round_is_kilobytes_and_comes_back(rows, columns, most):
    grid = Grid.over(campaign.PARIS, rows, columns)
    prior = np.random.default_rng(0).dirichlet(np.full(grid.size, 0.3))
    channel = blahut_arimoto(grid, prior, 1.0, turns=8)
    made = PlaceRound.made(channel, name="paris", purpose="where buses should go", number=3, rounds=15)
    file = signed(made, campaign.SIGNING)
    assert len(file) < most
    for found in (verified(file, campaign.SIGNER), round_of(file)):
        assert found == made
        assert found.text == made.text
        assert found.id == made.id
        assert found.channel.level == made.channel.level == pytest.approx(2.0, rel=1e-6)
    np.testing.assert_allclose(made.channel.marginal, channel.marginal, atol=1e-6)
    assert sum(made.marginal) == TOTAL
    assert made.units >= 2 * 10**12


def test_a_cell_is_never_rounded_away():
    grid = Grid.over(campaign.PARIS, 50, 50)
    c = np.full(2500, 1e-15)
    c[17] = 1.0
    made = PlaceRound.made(ElasticChannel(grid, c, 0.5), name="x", purpose="y", number=0, rounds=1)
    assert min(made.marginal) == 1
    assert sum(made.marginal) == TOTAL


def test_a_million_cells_fit():
    """Even a c without any order: 2.2 MB, which a device takes (only the text is made and read here)."""
    grid = Grid.over(Box(48.0, 49.0, 2.0, 3.5), 150, 150)
    c = np.random.default_rng(0).dirichlet(np.full(grid.size, 0.2)) + 1e-12
    made = PlaceRound.made(ElasticChannel(grid, c, 1.0), name="x", purpose="y", number=0, rounds=1)
    file = signed(made, campaign.SIGNING)
    assert len(file) * (1 << 20) / grid.size < 2 * rounds._LONGEST
    assert verified(file, campaign.SIGNER).id == made.id


def test_the_guarantee_of_a_round_is_one_of_points():
    """Two points a metre apart may be in cells `jump` km more apart: without the slack the claim is false."""
    asked = campaign.asked(beta=0.5)
    assert asked.guarantee.slack == asked.grid.jump
    assert asked.guarantee.within(0.001).epsilon == pytest.approx(0.001 + asked.grid.jump, rel=1e-6)
    logs = np.log(asked.channel.matrix[np.ix_(asked.grid.open, asked.grid.open)])
    cells = np.flatnonzero(asked.grid.open).tolist()
    a, b = cells.index(0), cells.index(6)  # diagonally across a corner
    between = float(np.abs(logs[a] - logs[b]).max())
    assert asked.channel.guarantee.within(0.001).epsilon < between <= asked.guarantee.within(0.001).epsilon


# Lies


def believed(device, seeds):
    """Which lies are taken, by kind; how many there were."""
    taken, told = Counter(), 0
    for seed in seeds:
        for kind, file in campaign.lies(np.random.default_rng(seed)):
            told += 1
            with contextlib.suppress(GuaranteeError, ParameterError, ParameterTypeError):
                device.take(file)
                taken[kind] += 1
    return taken, told


@pytest.fixture
def device(tmp_path):
    who, caps = campaign.enrolment(1), {"lifetime_per_km": 9.0, "most_jump_km": 5.0}
    with LocationDevice(tmp_path / "ledger", who, campaign.SIGNER, **caps) as one:
        yield one


def test_the_honest_round_is_taken(device):
    honest = campaign.asked()
    assert device.take(campaign.file_of(honest)) == honest


def test_another_compressor_makes_no_lie(device):
    honest = campaign.asked()
    fields = json.loads(honest.text) | {"marginal": campaign.packed(honest.marginal, level=0)}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    assert PlaceRound.parse(text) == honest
    assert PlaceRound.parse(text).text == text


def test_no_lie_is_believed(device):
    taken, told = believed(device, range(4))
    assert not taken
    assert told >= 200
    assert device.spent_per_km == 0.0


@pytest.mark.slow
def test_no_lie_of_a_thousand_is_believed(device):
    taken, told = believed(device, range(100, 132))
    assert not taken
    assert told >= 1000 * 2


def unchecked_marginal(self):
    """Planted: whoever signs will have added up."""
    object.__setattr__(self, "beta", float(self.beta))


PLANTED = {
    "marginal": {
        "sum too large",
        "sum too small",
        "not normalised",
        "zero in an open cell",
    },
    "claims": {"level halved", "level lowered", "cells too small", "cells in metres", "cells turned"},
    "signature": {"altered signature", "another's text", "signed as something else"},
}


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_a_device_that_does_not_look_is_found(device, monkeypatch, planted):
    if planted == "marginal":
        monkeypatch.setattr(PlaceRound, "__post_init__", unchecked_marginal)
    elif planted == "claims":
        true = PlaceRound.parse.__func__

        def trusting(cls, text):
            try:
                return true(cls, text)
            except GuaranteeError:
                return campaign.asked(beta=json.loads(text)["beta"])

        monkeypatch.setattr(PlaceRound, "parse", classmethod(trusting))
    else:
        monkeypatch.setattr(
            "reticent.fleet.signing.Ed25519PublicKey",
            type("Trusting", (), {"from_public_bytes": staticmethod(lambda key: Trusts())}),
        )
    taken, _ = believed(device, range(1))
    assert PLANTED[planted] <= set(taken)


class Trusts:
    def verify(self, signature, text):
        """Anything."""


def test_small_grids_are_looked_at_pair_by_pair(monkeypatch):
    """Planted: a channel that loses more than it says, by whatever mistake."""
    file = campaign.file_of(campaign.asked())
    verified(file, campaign.SIGNER)
    true = ElasticChannel._logs
    monkeypatch.setattr(ElasticChannel, "_logs", lambda self, place: true(self, place) * 1.5)
    with pytest.raises(GuaranteeError, match="the channel does not keep its level"):
        verified(file, campaign.SIGNER)


def test_a_country_is_looked_at_without_underflow():
    """1,000 km at beta 1.5: probabilities of e^-1500 are compared by their logarithms."""
    grid = Grid.over(Box(43.0, 51.0, -4.0, 8.0), 8, 9)
    made = campaign.asked(beta=1.5, grid=grid)
    assert verified(campaign.file_of(made), campaign.SIGNER) == made


# Errors


BAD = [
    ({"number": 5, "rounds": 5}, "number must be <= 4, got 5"),
    ({"rounds": 0}, "rounds must be >= 1"),
    ({"name": "a/b"}, "name must be 1 to 80 letters"),
    ({"purpose": "\n"}, "purpose must be a printable text"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_bad_rounds(changes, message):
    with pytest.raises(ParameterError, match=message):
        campaign.asked(**changes)


def test_a_round_that_no_phone_could_draw_from():
    """Weights of 28,000 bits for each of a million cells."""
    grid = Grid.over(Box(43.0, 51.0, -4.0, 8.0), 512, 1024)
    with pytest.raises(
        ParameterError, match=r"beta must be at most .* on this grid, got 10: a device could not draw"
    ):
        PlaceRound("x", "1", "y", 0, 1, grid, 10.0, (1,) * grid.size)


def test_grids_that_cannot_be_published():
    fields = {"name": "x", "purpose": "y", "number": 0, "rounds": 1}
    for space, message in (
        (Grid(2, 2, 1.0, 1.0, unit="cell"), "grid must cut its box into equal cells, in km"),
        (Grid(2, 2, 1.0, 1.0, campaign.PARIS), "grid must cut its box into equal cells, in km"),
        (Grid.over(campaign.PARIS, 1, 1), "grid must have 2 to 1048576 cells, got 1"),
        (FiniteSpace([[0.0, 1.0], [1.0, 0.0]]), "channel must be one of a grid"),
    ):
        with pytest.raises(ParameterError, match=message):
            PlaceRound.made(ElasticChannel(space, np.ones(space.size), 1.0), **fields)


# What a kilometre is


def test_a_round_of_another_geometry_is_refused_by_name(device):
    """Kilometres per degree, as rounds were signed before: no field, or any other word in it."""
    fields = json.loads(campaign.asked().text)
    old = {key: one for key, one in fields.items() if key != "geometry"}
    for one, name in (
        (old, "kilometres per degree"),
        (fields | {"geometry": "flat"}, "flat"),
        (fields | {"geometry": None}, "None"),
    ):
        with pytest.raises(
            ParameterError, match=f"geometry must be orthographic, got '?{name}'?: near points"
        ):
            device.take(campaign.sealed(campaign.written(one)))
    assert device.spent_per_km == 0.0


def test_planted_an_old_round_that_is_read_as_new_is_found(device, monkeypatch):
    """Planted: the label is not looked at. Then only the size of a cell could tell."""
    old = {key: one for key, one in json.loads(campaign.asked().text).items() if key != "geometry"}
    true = PlaceRound.parse.__func__

    def careless(cls, text):
        return true(cls, campaign.written({"geometry": "orthographic"} | json.loads(text)))

    monkeypatch.setattr(PlaceRound, "parse", classmethod(careless))
    assert device.take(campaign.sealed(campaign.written(old)))


def test_a_box_whose_kilometres_are_not_is_refused(device):
    fields = json.loads(campaign.asked(beta=0.01).text)
    with pytest.raises(
        ParameterError, match=r"box must reach at most 2650 km from its middle, got 4\d\d\d km"
    ):
        device.take(campaign.sealed(campaign.written(fields | {"box": [-10.0, 80.0, 0.0, 20.0]})))
