"""`commitment.json` beside a declaration: where it is registered, and the nonce that opens the commitment.

The contract holds SHA-256 of the nonce and the declaration's bytes. A person who gets both can check that the
declaration is the registered one; without the nonce, nobody can try what it says.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from reticent.chain.view import checked_address
from reticent.errors import ParameterError
from reticent.files import appearing, made
from reticent.ledger.ethereum.chain_file import ChainFile
from reticent.query.declarations.home import COMMITMENT, folder

_NONCE = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Commitment:
    """The kept record of a registration; `owner` is the address that registered."""

    chain_id: int
    contract: str
    owner: str
    nonce: str

    @classmethod
    def read(cls, declaration: Path) -> Commitment | None:
        """Return the record beside a declaration; None if there is no such file."""
        path = place(declaration)
        if not path.is_file():
            return None
        try:
            found = cls(**json.loads(path.read_text(encoding="utf-8")))
            checked_address("contract", found.contract)
            checked_address("owner", found.owner)
            if not isinstance(found.chain_id, int) or not _NONCE.fullmatch(found.nonce):
                raise ParameterError("chain_id or nonce")
        except (TypeError, ValueError, RecursionError) as error:
            raise ParameterError(f"{path} does not say where the data set is registered") from error
        return found

    def write(self, declaration: Path) -> Path:
        """Keep it, durably and for its owner alone, before anything is sent."""
        path = place(declaration)
        made(path.parent)
        with appearing(path, mode=0o600) as file:
            file.write((json.dumps(asdict(self), indent=1) + "\n").encode())
        return path

    def of(self, declaration: Path) -> bytes:
        """The commitment to a declaration as it is now."""
        return sha256(bytes.fromhex(self.nonce) + declaration.read_bytes()).digest()

    def is_at(self, file: ChainFile) -> bool:
        """Return whether the registration is at the contract of this chain file."""
        return (self.chain_id, self.contract) == (file.chain_id, checked_address("contract", file.contract))


def place(declaration: Path) -> Path:
    """Return the path of the commitment file of a declaration."""
    return folder(declaration) / COMMITMENT
