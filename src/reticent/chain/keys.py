"""Keys that sign transactions: a file that only its owner can read, encrypted (keystore version 3) or not."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reticent.errors import ChainError, KeyLocked, ParameterError
from reticent.files import tightened, write_new

_RECURSION = sys.getrecursionlimit()
from eth_account import Account  # noqa: E402
from eth_account.messages import encode_defunct  # noqa: E402
from eth_account.signers.local import LocalAccount  # noqa: E402

# eth_account's py_ecc raises it to 100,000, with which a deeply nested text ends the process.
sys.setrecursionlimit(_RECURSION)

PASSWORD = "RETICENT_KEY_PASSWORD"  # noqa: S105
_LARGEST_FILE = 1 << 16


class Key:
    """A private key and the address that it signs for."""

    def __init__(self, secret: bytes | str) -> None:
        try:
            if isinstance(secret, str):  # strictly: a lost digit must not make another key
                secret = bytes.fromhex(re.fullmatch("(?:0x)?([0-9a-fA-F]{64})", secret)[1])  # type: ignore[index]
            self._account: LocalAccount = Account.from_key(secret)
        except Exception:  # a dozen classes, some of which quote the key
            raise ParameterError("a private key must be 32 bytes in hexadecimal digits") from None
        self.address: str = self._account.address

    def __repr__(self) -> str:
        return f"Key({self.address})"

    @property
    def secret(self) -> bytes:
        """The private key itself, for lots that only its owner can prove; never shown, never sent."""
        return bytes(self._account.key)

    def sign(self, transaction: dict[str, Any]) -> tuple[bytes, str]:
        """Return the signed bytes of a transaction and its hash.

        The same transaction gives the same bytes.
        """
        signed = self._account.sign_transaction(transaction)
        return bytes(signed.raw_transaction), "0x" + bytes(signed.hash).hex()

    def sign_message(self, message: bytes) -> bytes:
        """Return 65 bytes that prove this key's owner wrote a message (EIP-191).

        They are never those of a transaction.
        """
        return bytes(self._account.sign_message(encode_defunct(message)).signature)

    def encrypted(self, password: str) -> dict[str, Any]:
        """Return the key as a keystore of version 3."""
        found: dict[str, Any] = self._account.encrypt(password)
        return found


def signer_of(raw: bytes) -> str:
    """Return the address that signed a transaction."""
    return str(Account.recover_transaction(raw))


def writer_of(message: bytes, signature: bytes) -> str | None:
    """Return the address whose key signed a message (`Key.sign_message`); None if there is none."""
    if len(signature) != 65 or signature[-1] not in (27, 28):  # others of the same are taken by eth_account
        return None
    try:
        return str(Account.recover_message(encode_defunct(message), signature=signature))
    except Exception:  # a dozen classes of three libraries, for bytes that are a stranger's
        return None


def recovered(digest: bytes, v: int, r: int, s: int) -> str | None:
    """Return the address that signed a hash; None if the signature is invalid."""
    from eth_keys.datatypes import Signature

    try:
        return Signature(vrs=(v - 27, r, s)).recover_public_key_from_msg_hash(digest).to_address()
    except Exception:  # of several libraries, for numbers that are a stranger's
        return None


def make_key(path: str | os.PathLike[str], password: str | None = None) -> Key:
    """Write a new key to a new file, encrypted if there is a password.

    An existing file is never overwritten.

    Raises:
        ChainError: The file exists, or cannot be written.
    """
    key = Key(os.urandom(32))
    text = (
        "0x" + bytes(key._account.key).hex()
        if password is None
        else json.dumps(key.encrypted(password), default=str)
    )
    with _explained(path):
        write_new(path, text + "\n", mode=0o600)
    return key


def read_key(path: str | os.PathLike[str], password: str | None = None) -> Key:
    """Read the key of a file.

    Raises:
        KeyLocked: The key is encrypted, and there is no password.
        ChainError: The file cannot be read, or the password is wrong.
        ParameterError: The file holds no key.
    """
    file = Path(path)
    with _explained(path), tightened(file).open("rb") as opened:
        found = opened.read(_LARGEST_FILE + 1)
    if len(found) > _LARGEST_FILE:
        raise ParameterError(f"{file} is too large for a key")
    text = found.decode(errors="replace").strip()
    if not text.startswith("{"):
        try:
            return Key(text)
        except ParameterError as error:
            raise ParameterError(f"{file}: {error}") from error
    try:
        keystore = json.loads(text)
    except (ValueError, RecursionError):  # the error holds the text
        raise ParameterError(f"{file} holds neither a key nor a keystore") from None
    if password is None:
        raise KeyLocked(f"the key in {file} is locked: give its password")
    try:
        return Key(bytes(Account.decrypt(keystore, password)))
    except Exception:  # a wrong password, or no keystore
        raise ChainError(f"the key in {file} is locked: the password does not open it") from None


def unlocked_key(path: str | os.PathLike[str]) -> Key:
    """Read the key of a file; RETICENT_KEY_PASSWORD opens a locked one, without a prompt."""
    try:
        return read_key(path, os.environ.get(PASSWORD))
    except KeyLocked as error:
        raise KeyLocked(f"{error} in {PASSWORD}") from error


@contextmanager
def _explained(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ChainError(f"the key file cannot be used: {error.strerror}: {path}") from error
