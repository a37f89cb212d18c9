"""API keys: 256 random bits for each person and role; only their hash is kept.

Made and revoked from the command line, or by an owner on the pages. A key is shown once.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from dataclasses import dataclass
from enum import StrEnum

from reticent.errors import ParameterError

PREFIX = "rk_"
_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class Role(StrEnum):
    """The role of the holder of a key."""

    OWNER = "owner"  # registers data sets, makes keys, sets quotas
    ANALYST = "analyst"  # asks
    AUDITOR = "auditor"  # sees budgets and the ledger
    BUYER = "buyer"  # buys reports on the market, and sees what she bought and the ledger


@dataclass(frozen=True)
class Person:
    """The holder of a key.

    `number` names the key for ever; a revoked number is never given again.
    """

    number: int
    name: str
    role: Role


def new_secret(prefix: str = PREFIX) -> str:
    """256 fresh bits as text."""
    return prefix + base64.urlsafe_b64encode(os.urandom(_BYTES)).rstrip(b"=").decode()


def digest(secret: str) -> str:
    """Return the hash that is kept of a secret.

    A secret has 256 random bits: a slow hash would add nothing.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


def checked_name(name: str) -> str:
    """The name of a person, as keys carry it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ParameterError(f"name must be 1 to 64 letters, digits or ._@-, got {name!r:.60}")
    return name
