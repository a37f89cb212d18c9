"""`reticent crowd verify` and `show`: options and help."""

from __future__ import annotations

from typing import Annotated

import typer

from reticent.apps.chain.commands import Rpc
from reticent.apps.crowd.task_commands import CROWD, Chain, Store, Task


def verify(task: Task, store: Store, chain: Chain = CROWD, rpc: Rpc = None) -> None:
    """Do a task again from chain and store alone, and name the first contradiction.

    Signatures, order and windows, seeds, stakes and proofs of seats, quorums, Multi-Krum, averages, models,
    reputations, pay, fees and balances. What cannot be checked, since files are gone, is said.
    """
    from reticent.apps.crowd.observing_work import verify as run

    run(task, chain=chain, rpc=rpc, store=store)


def show(
    task: Task,
    store: Store,
    chain: Chain = CROWD,
    rpc: Rpc = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the page, on this machine; 0 for any.")] = 0,
) -> None:
    """Show a task on a page, verified again whenever the chain grows; until Ctrl-C.

    Rounds, seats, accepted and rejected updates, reputations, pay, public accuracy. Any observer can run it
    with a node and a store of their own, and needs no account.
    """
    from reticent.apps.crowd.observing_work import show as run

    run(task, chain=chain, rpc=rpc, store=store, port=port)
