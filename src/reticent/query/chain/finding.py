"""Finding a data set on a chain: who registered it, and the ledger that holds it."""

from __future__ import annotations

import os
from pathlib import Path

from reticent.chain.fees import Ceiling
from reticent.chain.keys import Key
from reticent.chain.node import Node
from reticent.chain.outbox import Outbox
from reticent.chain.view import checked_address
from reticent.errors import ParameterError, UnknownAccount
from reticent.ledger.ethereum.chain_file import ChainFile
from reticent.ledger.ethereum.contract import artifact
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.query.chain.commitment import Commitment
from reticent.query.declarations.datasets import DataSet


def connected(
    declaration: Path,
    data: DataSet,
    file: ChainFile,
    node: Node,
    *,
    key: Key | None = None,
    owner: str | None = None,
    outbox: Outbox | None = None,
    ceiling: Ceiling | None = None,
    guess: bool = True,
) -> EthereumLedger:
    """Return the ledger on a chain that holds a data set; without a key, it is for looking only.

    It owns the node: to close the one closes the other.
    """
    try:
        artifact().check(node, file.contract)
        namespace = registrant(declaration, data, file, node, owner, guess=guess)
        signer = key if key is not None else passing_key()
        return opened_ledger(file, node, signer, namespace, outbox, ceiling=ceiling)
    except BaseException:
        node.close()
        raise


def opened_ledger(
    file: ChainFile,
    node: Node,
    key: Key,
    namespace: str,
    outbox: Outbox | None = None,
    lock: Path | None = None,
    ceiling: Ceiling | None = None,
) -> EthereumLedger:
    """The ledger of a chain file, with the accounts that `namespace` registered."""
    return EthereumLedger(
        node,
        file.contract,
        key,
        owner=namespace,
        confirmations=file.confirmations,
        first_block=file.block,
        outbox=outbox,
        lock=lock,
        ceiling=ceiling,
    )


def registrant(
    declaration: Path, data: DataSet, file: ChainFile, node: Node, owner: str | None, *, guess: bool = True
) -> str:
    """Return the address that registered a data set: as given, as recorded, or the only one of that name.

    Only who looks may guess: anybody can register a name, and a person who asks would pay a stranger's
    account and believe a stranger's oracle.

    Raises:
        UnknownAccount: nobody did.
        ParameterError: several did, or only strangers say so and nothing may be guessed.
    """
    if owner is not None:
        return checked_address("owner", owner)
    held = Commitment.read(declaration)
    if held is not None and held.is_at(file):
        return held.owner
    if not guess:
        raise ParameterError(
            f"say with --owner ADDRESS who registered {data.name}: anybody can register a name, so it is not "
            "guessed here"
        )
    found = []
    for logs in node.logs(file.contract, file.block, node.number(), [artifact().topic("Registered")]):
        for log in logs:
            event = artifact().event(log)
            if event is not None and event.fields["name"] == data.name:
                found.append(checked_address("owner", event.fields["owner"]))
    if not found:
        raise UnknownAccount(f"no data set {data.name} is registered at {file.contract}")
    if len(found) > 1:
        raise ParameterError(f"{len(found)} data sets are called {data.name}: say whose with --owner ADDRESS")
    return found[0]


def passing_key() -> Key:
    """Return a new random key that belongs to nobody, for looking only."""
    return Key(os.urandom(32))
