"""Signed surveys, see `fleet.signing`."""

from __future__ import annotations

from reticent.collect.survey import Survey
from reticent.fleet import signing
from reticent.fleet.signing import signed as signed


def verified(file: bytes, signer: bytes) -> Survey:
    """The survey of a signed file, if this signer signed it and its mechanisms keep their guarantees."""
    return signing.verified(Survey, file, signer)


def survey_of(file: bytes) -> Survey:
    """The survey of a signed file, whoever signed it: for its author and for people who read it."""
    return signing.unverified(Survey, file)


def signer_of(file: bytes) -> bytes:
    """Who is said to have signed a file."""
    return signing.signer_of(Survey, file)
