"""Signed surveys and enrolments: only the right signer, only the right text."""

import hmac
import json
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.collect.signing import signed, signer_of, survey_of, verified
from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.fleet import signing
from reticent.fleet.enrolment import Enrolment, Use, device_key, enrolled, tag
from reticent.fleet.texts import LONGEST_TEXT

from . import fleet

SURVEY = fleet.mixed()
FILE = signed(SURVEY, fleet.SIGNING)
REFUSED = (ParameterError, ParameterTypeError, GuaranteeError)


def test_a_signed_survey_is_verified():
    assert verified(FILE, fleet.SIGNER).text == SURVEY.text
    assert survey_of(FILE).id == SURVEY.id
    assert signer_of(FILE) == fleet.SIGNER


def test_another_signer_is_refused():
    other = Ed25519PrivateKey.generate()
    with pytest.raises(GuaranteeError, match="signed by somebody else"):
        verified(signed(SURVEY, other), fleet.SIGNER)
    given = json.loads(signed(SURVEY, other)) | {"signer": fleet.SIGNER.hex()}
    with pytest.raises(GuaranteeError, match="the signature of the survey does not hold"):
        verified(json.dumps(given).encode(), fleet.SIGNER)


def checked(file):
    try:
        return verified(file, fleet.SIGNER)
    except REFUSED:
        return None


def flips():
    """The file with one bit of each byte changed; what is left of it is the survey or nothing."""
    for place in range(len(FILE)):
        other = bytearray(FILE)
        other[place] ^= 1
        yield bytes(other)


def accepted():
    return [one for one in map(checked, flips()) if one is not None]


def test_a_changed_byte_is_refused():
    assert accepted() == []


def test_planted_a_signature_that_is_not_checked_is_found(monkeypatch):
    class Lenient:
        @staticmethod
        def from_public_bytes(_):
            return Lenient()

        def verify(self, *_):
            pass

    monkeypatch.setattr(signing, "Ed25519PublicKey", Lenient)
    assert len(accepted()) > 50


def test_the_signature_is_of_surveys_alone():
    """A signature of the text without its head is no signature."""
    given = json.loads(FILE) | {"signature": fleet.SIGNING.sign(SURVEY.text).hex()}
    with pytest.raises(GuaranteeError, match="does not hold"):
        verified(json.dumps(given).encode(), fleet.SIGNER)


def test_a_signed_survey_that_breaks_its_guarantee_is_refused():
    text = SURVEY.text.replace(b'"epsilon":2.0,"kind":"OneBit"', b'"epsilon":4.0,"kind":"OneBit"')
    assert text != SURVEY.text
    fields = {
        "signature": fleet.SIGNING.sign(b"reticent-survey/v1\n" + text).hex(),
        "signer": fleet.SIGNER.hex(),
        "survey": text.decode(),
    }
    with pytest.raises(GuaranteeError, match="together"):
        verified(json.dumps(fields).encode(), fleet.SIGNER)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"signature": "00"}, "signature must be 128 hexadecimal digits"),
        ({"signature": "G" * 128}, "signature must be 128 hexadecimal digits"),
        ({"signature": 7}, "signature must be a text"),
        ({"signer": "0" * 63}, "signer must be 64 hexadecimal digits"),
        ({"signer": None}, "signer must be a text"),
        ({"survey": ["x"]}, "survey must be a text"),
        ({"survey": "\ud800"}, "survey must be a text in ASCII"),
        ({"survey": "é"}, "survey must be a text in ASCII"),
        ({"more": 1}, "must have the fields signature, signer, survey"),
    ],
)
def test_a_broken_field_is_named(change, rule):
    file = json.dumps(json.loads(FILE) | change).encode()
    for read in (survey_of, signer_of, lambda file: verified(file, fleet.SIGNER)):
        with pytest.raises(ParameterError, match=rule):
            read(file)


@pytest.mark.parametrize(
    "file",
    [b"", b"{}", b"[]", b"\xff", b"[" * 500_000, b"1" * 5000, bytes(2 * LONGEST_TEXT + 1), "{}", None],
    ids=lambda file: repr(file)[:20],
)
def test_what_is_no_file_is_refused(file):
    with pytest.raises(ParameterError, match="a signed survey must"):
        verified(file, fleet.SIGNER)


def test_a_signer_of_another_length_is_refused():
    for signer in (b"", bytes(31), bytes(32)):
        with pytest.raises(GuaranteeError):
            verified(FILE, signer)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=130),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(["signature", "signer", "survey"]), JSON)
def test_any_value_is_refused_in_words(field, value):
    given = json.loads(FILE) | {field: value}
    assert checked(json.dumps(given).encode()) is None


@settings(max_examples=120, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_words(file):
    assert checked(file) is None


# Enrolment


def test_an_enrolment_is_stored_and_read():
    one = enrolled(fleet.MASTER)
    assert Enrolment.from_json(one.to_json()) == one
    assert one.key == device_key(fleet.MASTER, one.id) != device_key(bytes(32), one.id)
    assert one.key.hex() not in repr(one)
    assert enrolled(fleet.MASTER).id != one.id


def test_the_tag_is_hmac_sha256():
    """Of the label and the content, cut to 16 bytes: RFC 4231, test case 2, with its beginning as a label."""
    use = SimpleNamespace(value=b"what do ya ")
    assert tag(b"Jefe", use, b"want for nothing?").hex() == "5bdcc146bf60754e6a042426089575c7"
    for use in Use:
        assert tag(bytes(32), use, b"x") == hmac.digest(bytes(32), use.value + b"x", "sha256")[:16]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "must be JSON"),
        ("[" * 100_000, "must be JSON"),
        ("[]", "must have the fields id and key"),
        ('{"id": "00"}', "must have the fields id and key"),
        ('{"id": 1, "key": ""}', "must be hexadecimal"),
        ('{"id": "0", "key": ""}', "must be hexadecimal"),
        ('{"id": "00", "key": ""}', "id must be 8 bytes"),
        ('{"id": "0011223344556677", "key": "00"}', "key must be 32 bytes"),
    ],
)
def test_a_broken_enrolment_is_refused(text, rule):
    with pytest.raises(ParameterError, match=rule):
        Enrolment.from_json(text)
