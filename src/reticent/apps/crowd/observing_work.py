"""What `reticent crowd verify` and `show` do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reticent.apps.crowd.opened import task_of
from reticent.cli.terminal import console, facts
from reticent.errors import ParameterError
from reticent.federated.crowd import evidence
from reticent.federated.crowd.contract import NOBODY, TaskContract
from reticent.federated.crowd.crowd_file import CrowdFile
from reticent.federated.crowd.observing import Seen, seen
from reticent.federated.crowd.verify import Report
from reticent.federated.crowd.verify import verify as verified
from reticent.store import Store, at

if TYPE_CHECKING:
    from reticent.apps.crowd.page import Observer


@dataclass(frozen=True)
class Observed:
    """A task of a contract, and where its files are."""

    contract: TaskContract
    task: bytes
    store: Store
    first_block: int = 0
    confirmations: int = 0

    def look(self) -> tuple[Report, Seen]:
        """Do it again.

        Raises:
            Contradiction: the first one.
        """
        read = evidence.read(self.contract, first_block=self.first_block, confirmations=self.confirmations)
        report = verified(read, self.task, self.store)
        return report, seen(report, self.task, self.store)

    def observer(self) -> Observer:
        """What the page looks with."""
        from reticent.apps.crowd.page import Observer

        return Observer(self.contract.node.number, self.look)


def verify(task: str, *, chain: Path, rpc: str | None, store: str) -> None:
    """Do a task again, and print what was checked."""
    with _opened(task, chain, rpc, store) as observed:
        _told(*observed.look())


def show(task: str, *, chain: Path, rpc: str | None, store: str, port: int) -> None:
    """Serve the page of a task until interrupted."""
    from reticent.apps.crowd.page import watched
    from reticent.service.serve import listen

    screen = console()
    with _opened(task, chain, rpc, store) as observed, listen("127.0.0.1", port) as place:
        title = (
            f"{observed.task.hex()} in {observed.contract.address} on chain {observed.contract.node.chain_id}"
        )
        with watched(observed.observer(), title, place) as url:
            screen.print(f"The page is at {url} until Ctrl-C.", soft_wrap=True)
            try:
                while True:
                    time.sleep(0.5)
            except KeyboardInterrupt:
                screen.print("Ended.")


@contextmanager
def _opened(task: str, chain: Path, rpc: str | None, store: str) -> Iterator[Observed]:
    named = task_of(task)
    if "://" not in store and not Path(store).is_dir():
        raise ParameterError(f"there is no folder {store} to read files from")
    file = CrowdFile.read(chain)
    with closing(file.connect(rpc)) as node, at(store) as files:
        contract = TaskContract(node, file.contract)
        yield Observed(contract, named, files, file.block, file.confirmations)


def _told(report: Report, found: Seen) -> None:
    screen = console()
    decided = sum(bool(one.model) for one in found.rounds)
    money = "wei" if found.token == NOBODY else "smallest parts of its token"
    rows = [
        ("state", found.status),
        ("up to block", f"{report.last:,}"),
        ("calls done again", f"{report.calls:,}, of all tasks of the contract"),
        ("results judged again", f"{len(report.rounds)} of {decided}"),
        ("paid to customers", f"{sum(one.pay for one in found.customers):,} {money}"),
        ("left in the pool", f"{found.pool:,} {money}"),
    ]
    for one in found.rounds:
        if one.accuracy is not None:
            rows.append((f"public accuracy after round {one.number}", f"{one.accuracy:.4f}"))
    screen.print(facts(rows))
    for line in (found.without_accuracy, *report.remarks):
        if line:
            screen.print(line, soft_wrap=True, markup=False)
    for line in report.unchecked:
        screen.print(f"Not checked: {line}.", soft_wrap=True, markup=False)
    screen.print("Nothing contradicts itself.", soft_wrap=True)
