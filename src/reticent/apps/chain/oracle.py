"""`reticent oracle`: runs the oracle of a data set, beside its rows. It prints what happens, and no value."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from reticent.apps.chain.keys import opened_key
from reticent.apps.chain.watching import plain
from reticent.apps.chain.work import GweiFees
from reticent.chain.fees import Ceiling
from reticent.chain.keys import Key
from reticent.chain.outbox import Outbox
from reticent.errors import LedgerError
from reticent.ledger.ethereum.chain_file import ChainFile
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.query import DataSet
from reticent.query.chain.commitment import Commitment
from reticent.query.chain.finding import connected
from reticent.query.chain.oracle import Oracle, open_oracle
from reticent.query.declarations import dataset_file

_LONGEST_LINE = 300


def run(
    declaration: Path,
    *,
    key: Path,
    chain: Path,
    rpc: str | None,
    owner: str | None,
    fees: GweiFees = (None, None),
    once: bool,
) -> None:
    """Measure and record until interrupted; with `once`, what waits now."""
    file, ceiling, signer = ChainFile.read(chain), Ceiling.of(*fees), opened_key(key)
    with opened(declaration, file, signer, rpc=rpc, owner=owner, ceiling=ceiling, say=say) as oracle:
        if once:
            oracle.step()
            return
        say(f"oracle of {oracle.data.name} with the key {signer.address}; Ctrl-C stops it")
        oracle.run(threading.Event())


def opened(
    declaration: Path,
    file: ChainFile,
    key: Key,
    *,
    rpc: str | None = None,
    owner: str | None = None,
    ceiling: Ceiling | None = None,
    say: Callable[[str], None] | None = None,
) -> Oracle:
    """The oracle of a data set. Whose it is, is never guessed: anybody may register the same name."""
    data = dataset_file.read(declaration)

    def connect(outbox: Outbox) -> EthereumLedger:
        node = file.connect(rpc)
        ledger = connected(
            declaration, data, file, node,
            key=key, owner=owner, outbox=outbox, ceiling=ceiling, guess=False,
        )  # fmt: skip
        try:
            check(declaration, data, file, ledger)
        except BaseException:
            ledger.close()
            raise
        return ledger

    return open_oracle(declaration, connect, say=say)


def check(declaration: Path, data: DataSet, file: ChainFile, ledger: EthereumLedger) -> None:
    """Refuse a key that may not record; say so if the declaration is not the one that was registered."""
    status = ledger.status(data.name)
    if status.oracle != ledger.address:
        raise LedgerError(
            f"the oracle of {data.name} is {status.oracle}, the key is that of {ledger.address}"
        )
    held = Commitment.read(declaration)
    if held is not None and held.is_at(file) and held.of(declaration) != status.commitment:
        say(f"note: {declaration.name} was changed since it was registered")


def say(line: str) -> None:
    """A line with its time. Questions are strangers' words."""
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z {plain(line, longest=_LONGEST_LINE)}", flush=True)
