"""Files that are whole or not there: a crash while writing leaves what was there before."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def appearing(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write, which takes its name, over one that is there, when it is whole and on the disk.

    Args:
        path: its name.
        mode: its rights, less what the umask takes away; 0o600 for its owner alone.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
