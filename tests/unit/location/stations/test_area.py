"""What a provider signs: vehicles work out again what it claims, and take nothing that is not kept."""

import json
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.errors import GuaranteeError, ParameterError
from reticent.fleet.signing import signed, verified
from reticent.location.stations.area import Area, StationList, StationService
from reticent.location.stations.road_file import written
from reticent.privacy import cost_units

from .asking_town import START, provider, stations, town

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
SIGNER = KEY.public_key().public_bytes_raw()


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    return provider(tmp_path_factory.mktemp("provider"))


def test_text_and_list_come_back(held):
    assert verified(StationService, held.file, held.signer) == held.service
    assert StationService.parse(held.service.text) == held.service
    assert verified(StationList, held.list_file, held.signer).stations == stations()
    assert held.service.stations == held.listed.id.hex()


def test_the_level_is_two_beta_and_is_never_more_than_asked(held):
    for level in (0.1, 5.0, 12.0):
        made = StationService.made(held.area.roads, level=level, **fields(held.service))
        area = Area.of(made, held.map_file)
        assert level * (1 - 1e-6) < made.level <= level
        assert area.channel.level == made.level >= 2.0 * made.beta
        assert area.channel.exact_level() <= made.level
        assert area.units == cost_units(made.level)
        assert area.guarantee.slack == 2.0 >= area.roads.jump


def fields(service):
    names = ("name", "version", "purpose", "k", "m", "start", "period_s", "provider", "stations", "library")
    return {name: getattr(service, name) for name in names}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"level": 2.5}, "level must be"),
        ({"beta": 5.0}, "level must be"),
        ({"horizon_km": 1.0}, "level must be"),
        ({"map": "0" * 64}, "the map must be the one that the service signed"),
    ],
)
def test_a_signed_lie_is_refused(held, changed, told):
    """Planted: a provider that charges half, shortens the horizon, or sends another map."""
    with pytest.raises(GuaranteeError, match=told):
        Area.of(replace(held.service, **changed), held.map_file)


def test_another_map_is_refused(held):
    with pytest.raises(GuaranteeError, match="the map must be"):
        Area.of(held.service, written(town(7)))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"format": 2}, "format must be 1"),
        ({"k": 0}, "k must be >= 1"),
        ({"m": 65}, "m must be <= 64"),
        ({"m": 2.0}, "m must be a whole number"),
        ({"period_s": 0}, "period_s must be >= 1"),
        ({"beta": 0}, "beta must be > 0"),
        ({"level": "5"}, "level must be a number"),
        ({"horizon_km": None}, "horizon_km must be a number"),
        ({"map": "xyz"}, "map must be hexadecimal"),
        ({"map": "00"}, "map must be 64 hexadecimal digits"),
        ({"provider": "00"}, "provider must be 32 bytes"),
        ({"stations": ""}, "stations must be an id of 16"),
        ({"library": "00"}, "library must be an id of 16"),
        ({"name": "a b"}, "name must be 1 to 80"),
        ({"more": 1}, "field 'more' is not known"),
    ],
)
def test_fields_keep_their_rules(held, changed, told):
    given = json.loads(held.service.text) | changed
    text = json.dumps(given, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises((ParameterError, TypeError), match=told):
        StationService.parse(text)


def test_lists_keep_their_rules(held):
    given = json.loads(held.listed.text)
    for place, changed, told in (
        (0, {"lat": 99.0}, "lat must be between"),
        (1, {"id": "S0"}, "id must be that of one station"),
        (2, {"connectors": 0}, "connectors must be >= 1"),
        (3, {"name": 3}, "name must be a text"),
        (4, {"free": 1}, "field 'free' is not known"),
    ):
        rows = [dict(one) for one in given["stations"]]
        rows[place] |= changed
        text = json.dumps(given | {"stations": rows}, sort_keys=True, separators=(",", ":")).encode()
        with pytest.raises(ParameterError, match=told):
            StationList.parse(text)


def test_periods(held):
    assert [held.service.period(START + at) for at in (0, 299.9, 300, 3000)] == [0, 0, 1, 10]
    for odd in (START - 1, float("nan"), float("inf"), -float("inf"), 1e300):
        with pytest.raises(ParameterError, match="must have begun"):
            held.service.period(odd)


def test_somebody_else_s_signature_is_refused(held):
    with pytest.raises(GuaranteeError, match="signed by somebody else"):
        verified(StationService, signed(held.service, KEY), held.signer)
    assert verified(StationService, signed(held.service, KEY), SIGNER) == held.service
