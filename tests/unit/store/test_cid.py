"""Identifiers have one text each, and what comes is held against them."""

import base64

import pytest

from reticent.errors import ContentForged, ParameterError
from reticent.store.cid import DAG_PB, RAW, Cid

NAME = "bafkreifjjcie6lypi6ny7amxnfftagclbuxndqonfipmb64f2km2devei4"  # of "hello world\n"


def text(raw):
    return "b" + base64.b32encode(raw).decode().rstrip("=").lower()


@pytest.mark.parametrize("codec", [RAW, DAG_PB])
def test_a_text_comes_back(codec):
    cid = Cid.of(codec, b"some block")
    assert Cid.parse(str(cid)) == cid
    assert Cid.of_bytes(bytes(cid)) == cid
    assert len(str(cid)) == 59


@pytest.mark.parametrize(
    "given",
    [
        "",
        None,
        7,
        NAME.upper(),
        NAME[:-1],
        NAME + "a",
        NAME[:-1] + "5",  # the same bytes, with a bit that base 32 leaves over
        "z" + NAME[1:],
        "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG",  # version 0
        text(bytes(Cid.of(RAW, b""))[:1] + b"\x71" + bytes(Cid.of(RAW, b""))[2:]),  # dag-cbor
        text(b"\x01\x55\x13\x20" + bytes(32)),  # another hash
        text(b"\x02\x55\x12\x20" + bytes(32)),  # another version
        text(b"\x01\x55\x12\x1f" + bytes(32)),  # another length
        "../../etc/passwd",
        "a\nb" * 30,
    ],
)
def test_what_is_no_identifier_is_refused_in_one_line(given):
    with pytest.raises(ParameterError, match=r"^cid must be") as caught:
        Cid.parse(given)
    assert "\n" not in str(caught.value)


def test_what_came_is_held_against_its_name():
    cid = Cid.parse(NAME)
    assert cid.checked(b"hello world\n") == b"hello world\n"
    with pytest.raises(ContentForged, match=NAME):
        cid.checked(b"hello world")


def test_raw_and_node_of_the_same_bytes_are_two_names():
    assert str(Cid.of(RAW, b"x")) != str(Cid.of(DAG_PB, b"x"))


@pytest.mark.parametrize(("codec", "digest"), [(RAW, bytes(31)), (0x71, bytes(32))])
def test_a_name_of_something_else_cannot_be_made(codec, digest):
    with pytest.raises(ParameterError, match="raw or dag-pb"):
        Cid(codec, digest)
