"""Signing of surveys, see `fleet.signing`."""

from __future__ import annotations

from reticent.collect.survey import Survey
from reticent.fleet import signing
from reticent.fleet.signing import signed as signed


def verified(file: bytes, signer: bytes) -> Survey:
    """Return the survey of a signed file, if this signer signed it and its guarantees hold."""
    return signing.verified(Survey, file, signer)


def survey_of(file: bytes) -> Survey:
    """Return the survey of a signed file without checking the signer: for its author and for readers."""
    return signing.unverified(Survey, file)


def signer_of(file: bytes) -> bytes:
    """Return the public key that a file names as its signer."""
    return signing.signer_of(Survey, file)
