"""A chain of acts in a folder: one file for each, numbered, which appears whole or not at all.

Whoever has the folder has the federation: it is gone through from the start whenever it is opened. Acts come
in by one process at a time; of two that sign at once the first is kept, and the other is told to sign again.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.errors import ParameterError, StorageUnavailable
from reticent.files import made
from reticent.market.federations import acts
from reticent.market.federations.acts import Act, Found, Signed
from reticent.market.federations.federation import Federation

_NAME = re.compile(r"\d{6}\.json", re.ASCII)
MOST_ACTS = 999_999


def founded(folder: Path, act: Found, key: Ed25519PrivateKey) -> Federation:
    """Found a federation in a folder.

    Raises:
        ParameterError: there is one already.
    """
    file = acts.signed(act, key)
    found = Federation(file)
    _put(made(folder), 0, file)
    return found


def files(folder: Path) -> Iterator[bytes]:
    """The acts of a folder, in their order.

    Raises:
        ParameterError: there are none, or one is missing.
    """
    names = (
        sorted(one.name for one in folder.iterdir() if _NAME.fullmatch(one.name)) if folder.is_dir() else []
    )
    if not names:
        raise ParameterError(f"folder must hold the acts of a federation, got {folder}")
    for number, name in enumerate(names):
        if name != _name(number):
            raise ParameterError(f"{_name(number)} is missing in {folder}")
        if (folder / name).stat().st_size > 2 * Act.longest:
            raise ParameterError(f"{name} must be at most {2 * Act.longest} bytes")
        yield (folder / name).read_bytes()


def opened(folder: Path) -> Federation:
    """The federation of a folder, gone through.

    Raises:
        ParameterError, GuaranteeError: with the number of the act that breaks a rule.
    """
    return Federation.through(files(folder))


def done(folder: Path, federation: Federation, act: Act, key: Ed25519PrivateKey) -> Signed:
    """Do something in the federation of a folder: sign it, take it, keep it.

    Raises:
        ParameterError, GuaranteeError: it is refused, or another act came first; nothing was kept.
    """
    return taken(folder, federation, acts.signed(act, key, federation=federation.id, after=federation.head))


def taken(folder: Path, federation: Federation, file: bytes) -> Signed:
    """Keep an act that somebody else signed, if it is right."""
    number = federation.count
    if number > MOST_ACTS:
        raise ParameterError(f"a federation must have at most {MOST_ACTS} acts")
    before = dict(federation.__dict__)
    signed = federation.apply(file)
    try:
        _put(folder, number, file)
    except BaseException:
        federation.__dict__.update(before)
        raise
    return signed


def _name(number: int) -> str:
    return f"{number:06d}.json"


def _put(folder: Path, number: int, file: bytes) -> None:
    """Let a file have its name, unless another has it."""
    draft = folder / f".{_name(number)}.{secrets.token_hex(8)}"
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
            target.write(file)
            target.flush()
            os.fsync(target.fileno())
        os.link(draft, folder / _name(number))
    except FileExistsError as error:
        raise ParameterError(
            f"{_name(number)} is there already: another act came first, sign again"
        ) from error
    except OSError as error:
        raise StorageUnavailable(f"{_name(number)} cannot be written: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
