"""Key files on the command line: a person may be asked for the password."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from reticent.chain.keys import PASSWORD, Key, make_key, read_key, unlocked_key
from reticent.errors import KeyLocked, ParameterError


def opened_key(path: Path) -> Key:
    """The key of a file. A locked one takes RETICENT_KEY_PASSWORD, or asks whoever sits there."""
    try:
        return unlocked_key(path)
    except KeyLocked:
        if not _somebody_is_there():
            raise
    return read_key(path, _prompted(f"password of {path}: "))


def new_key(path: Path, *, encrypt: bool) -> Key:
    """A new key in a new file that its owner alone can read."""
    if path.exists():
        raise ParameterError(f"{path} exists already; a key is never overwritten")
    password = None
    if encrypt:
        password = os.environ.get(PASSWORD)
        if password is None and _somebody_is_there():
            password = _prompted("new password: ")
            if _prompted("the same again: ") != password:
                raise ParameterError("the passwords differ; no key was made")
        if not password:
            raise ParameterError(f"give a password in {PASSWORD} to encrypt a key")
    return make_key(path, password)


def _somebody_is_there() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _prompted(text: str) -> str:
    from getpass import getpass

    return getpass(text, stream=sys.stderr)
