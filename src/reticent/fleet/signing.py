"""Signed files: a document with the signature of its author. A device takes no others.

    {"signature": "<128 hexadecimal digits>", "signer": "<64>", "survey": "<the survey's text>"}

Ed25519 over a line that says what kind of text it is ("reticent-survey/v1") and the text. The field of the
text has the name of its kind too. The device knows the signer's public key beforehand; the one in the file
only says which it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from reticent.errors import GuaranteeError, ParameterError
from reticent.fleet.published import Kind, Published
from reticent.fleet.texts import LONGEST_TEXT

MOST_BYTES = 2 * LONGEST_TEXT  # largest signed file
_HEX = re.compile(r"[0-9a-f]*", re.ASCII)

Text = TypeVar("Text", bound=Published)


def signed(text: Published, key: Ed25519PrivateKey) -> bytes:
    """Return the signed file of a document."""
    return sealed(text.field, text.head, text.text, key)


def verified(kind: type[Text], file: bytes, signer: bytes) -> Text:
    """Return the document of a signed file, if this signer signed it and it keeps what it claims.

    Args:
        kind: Class of the document.
        file: Content of the file, as `signed` wrote it.
        signer: Public key that the device trusts, 32 bytes.

    Raises:
        ParameterError: it is no such file, or a field breaks its rule.
        GuaranteeError: somebody else signed it, or it does not keep what it claims.
    """
    found = kind.parse(opened(kind.field, kind.head, file, signer, most=2 * kind.longest))
    found.check()
    return found


def unverified(kind: type[Text], file: bytes) -> Text:
    """Return the document of a signed file without checking the signer: for its author and for readers."""
    return kind.parse(_read(kind.field, file, 2 * kind.longest)[kind.field].encode("ascii"))


def signer_of(kind: type[Kind], file: bytes) -> bytes:
    """Return the public key that a file names as its signer."""
    return bytes.fromhex(_read(kind.field, file, 2 * kind.longest)["signer"])


# Any text, stored in a field named after its kind


def sealed(field: str, head: bytes, text: bytes, key: Ed25519PrivateKey) -> bytes:
    """Return the signed file of an ASCII text; the signature covers the line that names its kind, too."""
    fields = {
        "signature": key.sign(head + text).hex(),
        "signer": key.public_key().public_bytes_raw().hex(),
        field: text.decode("ascii"),
    }
    return _encode(fields)


def _encode(fields: Mapping[str, str]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def opened(
    field: str, head: bytes, file: bytes, signer: bytes, *, most: int = MOST_BYTES, exact: bool = False
) -> bytes:
    """Return the text of a sealed file, if this signer signed it.

    Args:
        field: Name of the field that holds the text.
        head: Line that is signed before the text.
        file: Content of the file.
        signer: Public key of the signer, 32 bytes.
        most: Largest size of the file in bytes.
        exact: Refuse a file that is not written byte by byte as `sealed` writes it. The signature covers the
            text alone: set this if you rely on the hash of the file.
    """
    given = _read(field, file, most)
    if exact and _encode(given) != file:
        raise ParameterError(f"a signed {field} must be JSON with sorted fields and no spaces around them")
    if given["signer"] != signer.hex():
        raise GuaranteeError(f"the {field} is signed by somebody else than this device trusts")
    text = given[field].encode("ascii")
    try:
        Ed25519PublicKey.from_public_bytes(signer).verify(bytes.fromhex(given["signature"]), head + text)
    except (InvalidSignature, ValueError) as error:
        raise GuaranteeError(f"the signature of the {field} does not hold") from error
    return text


def _read(field: str, file: bytes, most: int) -> dict[str, str]:
    if not isinstance(file, bytes) or len(file) > most:
        raise ParameterError(f"a signed {field} must be at most {most} bytes")
    try:
        given: Any = json.loads(file.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise ParameterError(f"a signed {field} must be JSON in ASCII") from error
    names = {"signature": 128, "signer": 64, field: None}
    if not isinstance(given, dict) or set(given) != set(names):
        raise ParameterError(f"a signed {field} must have the fields {', '.join(names)}")
    for name, length in names.items():
        text = given[name]
        if not isinstance(text, str) or not text.isascii():
            raise ParameterError(f"{name} must be a text in ASCII")
        if length is not None and (len(text) != length or not _HEX.fullmatch(text)):
            raise ParameterError(f"{name} must be {length} hexadecimal digits")
    return given
