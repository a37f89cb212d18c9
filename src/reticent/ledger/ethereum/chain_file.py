"""The file `chain.json`, which names a ledger on a chain: `reticent chain deploy` writes it, users read it.

    {
     "rpc": "https://node.example.org",
     "chain_id": 11155111,
     "contract": "0x...",
     "anchor": "0x...",
     "block": 7123456,
     "confirmations": 5
    }

Nothing in it is secret. An address of a node that looks as if it held a password or a token is not written:
`rpc` is null then, and everybody names a node of their own with `--rpc` or RETICENT_RPC.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

from reticent.arguments import whole
from reticent.chain.node import Node
from reticent.chain.view import checked_address
from reticent.errors import ParameterError, ParameterTypeError
from reticent.files import write_new

RPC = "RETICENT_RPC"
MOST_CONFIRMATIONS = 10_000
_LARGEST_FILE = 1 << 16
_LARGEST_CHAIN_ID = 1 << 63
_LONGEST_WORD = 15  # of the path of a node's address; what is longer may be a token


class DeploymentFile:
    """The base of files that locate a contract: reading, writing and connecting to a node.

    A subclass is a dataclass with at least the fields below. The base is not a dataclass itself, so that
    fields keep their own order.
    """

    written_by: ClassVar[str]  # the command

    rpc: str | None
    chain_id: int
    contract: str
    block: int
    confirmations: int

    def __post_init__(self) -> None:
        if self.rpc is not None and not isinstance(self.rpc, str):
            raise ParameterTypeError("rpc must be an address of a node, or null")
        whole("chain_id", self.chain_id, low=1, high=_LARGEST_CHAIN_ID)
        checked_address("contract", self.contract)
        whole("block", self.block, low=0)
        whole("confirmations", self.confirmations, low=0, high=MOST_CONFIRMATIONS)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the deployment file at `path`.

        Raises:
            ParameterError: There is no such file, or a field is missing, unknown or wrong; in one line.
        """
        if not path.is_file():
            raise ParameterError(
                f"there is no {path}: `reticent {cls.written_by}` writes it, --chain names another"
            )
        if path.stat().st_size > _LARGEST_FILE:
            raise ParameterError(f"{path} is too large for a chain file")
        try:
            given = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ParameterError(f"{path} is no JSON") from error
        try:
            return cls(**_checked_fields(given, [field.name for field in fields(cls)]))  # type: ignore[arg-type]
        except (ParameterError, ParameterTypeError) as error:
            raise ParameterError(f"{path}: {error}") from error

    def write(self, path: Path) -> None:
        """Write a new file; an existing file is never overwritten."""
        write_new(path, json.dumps(asdict(self), indent=1) + "\n")  # type: ignore[call-overload]

    def connect(self, rpc: str | None = None) -> Node:
        """Connect to a node of this chain: the node of `rpc`, of RETICENT_RPC, or of the file."""
        return Node(node_address(rpc, self.rpc), chain_id=self.chain_id)


@dataclass(frozen=True)
class ChainFile(DeploymentFile):
    """The location of a ledger's contracts on a chain.

    Attributes:
        rpc: Address of a node; None if everybody names their own.
        chain_id: Id of the chain that every node must serve.
        contract: Address of the PrivacyLedger.
        anchor: Address of the HeadAnchor.
        block: Block in which the contracts were deployed; none of their events lie before it.
        confirmations: Number of blocks that must lie on top of a block before it counts.
    """

    rpc: str | None
    chain_id: int
    contract: str
    anchor: str
    block: int
    confirmations: int

    written_by = "chain deploy"

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_address("anchor", self.anchor)


def _checked_fields(given: Any, names: list[str]) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise ParameterError("must be a JSON object")
    if missing := [name for name in names if name not in given]:
        raise ParameterError(f"field {missing[0]} is missing")
    if unknown := [name for name in given if name not in names]:
        raise ParameterError(f"field {unknown[0]!r:.60} is not known")
    return given


def node_address(*given: str | None) -> str:
    """Return the first address of a node among an option, RETICENT_RPC, and a file."""
    option, *others = given
    for address in (option, os.environ.get(RPC), *others):
        if address:
            return address
    raise ParameterError(f"name a node with --rpc URL or {RPC}")


def shareable(rpc: str) -> str | None:
    """Return the address of a node, or None if the address seems to hold a password or a token."""
    parts = urlsplit(rpc)
    is_secret = "@" in parts.netloc or parts.query or parts.fragment
    words = re.split(r"[/._-]", parts.path)
    return None if is_secret or any(len(word) > _LONGEST_WORD for word in words) else rpc
