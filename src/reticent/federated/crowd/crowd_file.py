"""`crowd.json`: where the contract of a crowd is. `reticent crowd deploy` writes it."""

from __future__ import annotations

from dataclasses import dataclass

from reticent.ledger.ethereum.chain_file import DeploymentFile


@dataclass(frozen=True)
class CrowdFile(DeploymentFile):
    """The chain and the contract of a crowd. Nothing in this file is secret.

    Attributes:
        rpc: a node; None if everybody names their own.
        chain_id: the chain that every node must serve.
        contract: the address of FederatedTask, which names its Lottery.
        block: Block in which the contract was made; nothing of the contract lies before.
        confirmations: how many blocks must lie on top of a block before it counts.
    """

    rpc: str | None
    chain_id: int
    contract: str
    block: int
    confirmations: int

    written_by = "crowd deploy"
