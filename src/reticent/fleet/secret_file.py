"""The operator's secrets: 32 bytes each, in a file that its owner alone can read."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from reticent.errors import LedgerDamaged
from reticent.files import tightened
from reticent.fleet.enrolment import KEY_BYTES


def kept_secret(path: Path) -> bytes:
    """32 secret bytes from a file, drawn and written if there is none. Processes agree on them."""
    if not path.exists():
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(KEY_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
        temporary.unlink()
    try:
        found = bytes.fromhex(tightened(path).read_text())
    except ValueError:
        found = b""
    if len(found) != KEY_BYTES:
        raise LedgerDamaged(f"{path.name} must hold {2 * KEY_BYTES} hexadecimal digits")
    return found
