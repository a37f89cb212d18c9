"""Secrets of the operator: 32 bytes each, in a file that its owner alone can read."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from reticent.errors import LedgerDamaged, StorageUnavailable
from reticent.files import tightened
from reticent.fleet.enrolment import KEY_BYTES


def kept_secret(path: Path) -> bytes:
    """Read 32 secret bytes from a file, created if it is missing. All processes get the same bytes.

    Raises:
        StorageUnavailable: the file cannot be written. No partial file is left.
    """
    if not path.exists():
        try:
            _write(path, secrets.token_hex(KEY_BYTES) + "\n")
        except OSError as error:
            raise StorageUnavailable(f"{path.name} cannot be written: {error.strerror}") from error
    try:
        found = bytes.fromhex(tightened(path).read_text())
    except ValueError:
        found = b""
    if len(found) != KEY_BYTES:
        raise LedgerDamaged(f"{path.name} must hold {2 * KEY_BYTES} hexadecimal digits")
    return found


def _write(path: Path, text: str) -> None:
    """Create a file with a text, unless another process was first."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
