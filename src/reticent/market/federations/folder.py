"""Storage of a chain of acts in a folder: one numbered file per act, written completely or not at all.

The folder is the federation: its chain is replayed from the start whenever the folder is opened. One process
at a time adds acts; if two sign at once, the first act is kept and the second signer must sign again.
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
    """Create a federation in a folder.

    Raises:
        ParameterError: The folder holds a federation already.
    """
    file = acts.signed(act, key)
    found = Federation(file)
    _put(made(folder), 0, file)
    return found


def files(folder: Path) -> Iterator[bytes]:
    """Yield the files of the acts in a folder, in their order.

    Raises:
        ParameterError: The folder has no acts, or one is missing.
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
    """Load the federation of a folder and check its chain.

    Raises:
        ParameterError, GuaranteeError: An act breaks a rule; the message gives its number.
    """
    return Federation.through(files(folder))


def done(folder: Path, federation: Federation, act: Act, key: Ed25519PrivateKey) -> Signed:
    """Sign an act, apply it to a federation and store it in the federation's folder.

    Raises:
        ParameterError, GuaranteeError: The act is refused, or another act came first; nothing was stored.
    """
    return taken(folder, federation, acts.signed(act, key, federation=federation.id, after=federation.head))


def taken(folder: Path, federation: Federation, file: bytes) -> Signed:
    """Check an act that somebody else signed, apply it and store it."""
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
    """Write a file under the name of its number, unless that name is taken."""
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
