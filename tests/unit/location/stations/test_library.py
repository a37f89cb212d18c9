"""Libraries of journeys: signed texts that are read back whole, about one map; invented journeys drive."""

import dataclasses
import json

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.errors import GuaranteeError, ParameterError
from reticent.fleet import signing
from reticent.location.stations import JourneyLibrary
from reticent.location.stations.traffic import invented
from reticent.randomness import SimulationStream
from reticent.spaces.roads import cut

from ...spaces.roads.networks import lattice
from .town import library, town, trips


def changed(fields):
    """The text of a library with other fields."""
    given = json.loads(library(trips()[:3]).text) | fields
    return json.dumps(given, sort_keys=True, separators=(",", ":")).encode()


def test_a_signed_library_is_read_as_it_was_written():
    key = Ed25519PrivateKey.generate()
    made = library()
    file = signing.signed(made, key)
    read = signing.verified(JourneyLibrary, file, key.public_key().public_bytes_raw())
    assert read == made
    assert read.text == made.text
    assert read.journeys == trips()
    with pytest.raises(GuaranteeError, match="signed by somebody else"):
        signing.verified(JourneyLibrary, file, Ed25519PrivateKey.generate().public_key().public_bytes_raw())
    planted = file.replace(b"town", b"tows", 1)
    with pytest.raises(GuaranteeError, match="signature of the library does not hold"):
        signing.verified(JourneyLibrary, planted, key.public_key().public_bytes_raw())


def test_it_is_about_one_map():
    other = cut(lattice(13, spacing_m=201.0), 100.0)
    assert other.digest != town().digest
    assert town().within(1.0).digest == town().by("straight").digest == town().digest
    with pytest.raises(ParameterError, match="library town must be about the same map"):
        library().on(other)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"map": "ab"}, "map must be the digest"),
        ({"seconds": 0}, "seconds must be >= 1, got 0"),
        ({"count": 0}, "count must be >= 1"),
        ({"count": 4}, "lengths must hold 4 numbers"),
        ({"lengths": "?"}, "lengths must be compressed whole numbers"),
        ({"places": 3}, "places must be a text"),
        ({"format": 2}, "format must be 1, got 2"),
        ({"more": 1}, "field 'more' is not known"),
    ],
)
def test_bad_texts(fields, message):
    with pytest.raises(ParameterError, match=message):
        JourneyLibrary.parse(changed(fields))


def test_bad_journeys():
    made = library(trips()[:3])
    for journeys, message in (
        ((), "journeys must hold at least one"),
        (((3,),), "every journey must have at least 2 places"),
        (((3, -1),), "places must be numbers >= 0"),
    ):
        with pytest.raises(ParameterError, match=message):
            dataclasses.replace(made, journeys=journeys)
    with pytest.raises(ParameterError, match="about the same map"):
        JourneyLibrary.of(town(), [(0, town().size)], seconds=60, name="a", purpose="b")


def test_invented_journeys_take_the_time_that_they_take():
    roads = town()
    for journey in trips()[:40]:
        assert len(journey) >= 6
        total = roads.seconds.distances(journey[0])[list(journey)]
        longest = float(roads.seconds.lengths.max())
        np.testing.assert_allclose(total, 10.0 * np.arange(len(journey)), atol=longest)


def test_journeys_that_no_map_has():
    with pytest.raises(ParameterError, match="least must be smaller: few ways of this map"):
        invented(town(), count=3, seconds=1000, least=1000, rng=SimulationStream(1))
