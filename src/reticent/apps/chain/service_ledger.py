"""A ledger on a chain behind the service, which is then an analyst's front: an oracle elsewhere measures.

One key signs for everybody who asks here. The workers of a service take turns to send with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from reticent.chain.fees import Ceiling
from reticent.chain.keys import unlocked_key
from reticent.chain.view import checked_address
from reticent.errors import ParameterError
from reticent.ledger.ethereum.chain_file import ChainFile
from reticent.ledger.ethereum.contract import artifact
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.query import DataSet
from reticent.query.chain.commitment import Commitment
from reticent.query.chain.finding import opened_ledger
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
    return _opened(settings, lambda file: _owner(settings, declared, file), lock)


def own(settings: Settings, lock: Path) -> EthereumLedger:
    """The ledger of the service's own accounts at the same contract: what it learnt from devices.

    It registers and measures them itself, with the key that signs for everybody, which pays for the gas.
    """
    return _opened(settings, lambda file: None, lock)


def _opened(settings: Settings, whose: Callable[[ChainFile], str | None], lock: Path) -> EthereumLedger:
    assert settings.ledger is not None
    assert settings.key is not None
    ceiling = Ceiling.of(settings.max_fee, settings.max_tip)
    file, key = ChainFile.read(Path(settings.ledger)), unlocked_key(settings.key)
    node = file.connect()
    try:
        artifact().check(node, file.contract)
        owner = whose(file) or key.address
        return opened_ledger(file, node, key, owner, lock=lock, ceiling=ceiling)
    except BaseException:
        node.close()
        raise


def _owner(settings: Settings, declared: Iterable[tuple[Path, DataSet]], file: ChainFile) -> str:
    """Who registered the data sets: as told, or as kept beside a declaration. It is never guessed from names.

    Anybody can register a name at a contract, and would be asked in the place of whoever has the rows.
    """
    if settings.owner is not None:
        return checked_address("owner", settings.owner)
    owners: dict[str, str] = {}
    for path, data in declared:
        held = Commitment.read(path)
        if held is not None and held.is_at(file):
            owners.setdefault(held.owner, data.name)
    if not owners:
        raise ParameterError(
            f"say with --owner ADDRESS who registered the data sets of {settings.folder} at {file.contract}: "
            "none of them has the commitment of a registration there beside it, and a name proves nothing"
        )
    if len(owners) > 1:
        names = " and ".join(list(owners.values())[:2])
        raise ParameterError(f"{names} have different owners: say with --owner ADDRESS whose are served")
    return next(iter(owners))
