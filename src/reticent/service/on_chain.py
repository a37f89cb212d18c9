"""A ledger on a chain behind the service, which is then an analyst's front: an oracle elsewhere measures.

One key signs for everybody who asks here. The workers of a service take turns to send with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from reticent.chain.keys import unlocked_key
from reticent.chain.node import Node
from reticent.errors import ParameterError, UnknownAccount
from reticent.ledger.chain_contract import artifact, checked_address
from reticent.ledger.chain_file import ChainFile
from reticent.ledger.ethereum import EthereumLedger
from reticent.query import DataSet
from reticent.query.on_chain import opened_ledger, registrant
from reticent.service.settings import Settings


def opened(settings: Settings, declared: Iterable[tuple[Path, DataSet]], lock: Path) -> EthereumLedger:
    """The ledger that the settings name.

    Args:
        settings: of the service.
        declared: the data sets of its folder, which one owner must have registered.
        lock: a file that the workers share.
    """
    if settings.ledger is None or settings.key is None:
        missing = "key must name the file of the key that signs and pays"
        if settings.ledger is None:
            missing = "ledger must name the file that `reticent chain deploy` wrote"
        raise ParameterError(f"{missing}, where the ledger is on a chain")
    file, key = ChainFile.read(Path(settings.ledger)), unlocked_key(settings.key)
    node = file.connect()
    try:
        artifact().check(node, file.contract)
        return opened_ledger(file, node, key, _owner(settings, declared, file, node), lock=lock)
    except BaseException:
        node.close()
        raise


def _owner(settings: Settings, declared: Iterable[tuple[Path, DataSet]], file: ChainFile, node: Node) -> str:
    """Who registered the data sets; those that nobody did are passed over."""
    if settings.owner is not None:
        return checked_address("owner", settings.owner)
    owners: dict[str, str] = {}
    for path, data in declared:
        try:
            owners.setdefault(registrant(path, data, file, node, None), data.name)
        except UnknownAccount:
            continue
    if not owners:
        raise ParameterError(
            f"no data set of {settings.folder} is registered at {file.contract}: do so with `reticent chain "
            "register`, or say with --owner ADDRESS who will"
        )
    if len(owners) > 1:
        names = " and ".join(list(owners.values())[:2])
        raise ParameterError(f"{names} have different owners: say with --owner ADDRESS whose are served")
    return next(iter(owners))
