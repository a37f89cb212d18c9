"""`reticent crowd deploy`, `post`, `apply`, `status`, `claim`: options and help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from reticent.apps.chain.commands import Deploying, Rpc, Sending, SendingWords
from reticent.cli.options import with_options

CROWD = Path("crowd.json")

Chain = Annotated[Path, typer.Option("--chain", help="The file that `crowd deploy` wrote.")]
Store = Annotated[
    str,
    typer.Option(
        "--store", help="A folder, http(s)://HOST:PORT of a gateway or `store serve`, kubo+http://HOST:PORT."
    ),
]
TokenFile = Annotated[Path | None, typer.Option(help="A file with the store's token, in one line.")]
Task = Annotated[str, typer.Argument(metavar="TASK", help="What `crowd post` printed: 64 digits.")]


class Words(SendingWords):
    """What `Signing` says, as arguments of a call."""

    chain: Path


@dataclass(frozen=True)
class Signing(Sending):
    """Who signs, where, and what it may cost."""

    chain: Chain = CROWD

    def words(self) -> Words:
        """The arguments of what does it."""
        return {**self.sending(), "chain": self.chain}


@with_options
def deploy(
    deploying: Deploying,
    out: Annotated[Path, typer.Option(help="Where to write the chain file; must not exist.")] = CROWD,
    stake_unit: Annotated[
        int, typer.Option(metavar="WEI", help="Of one unit of a miner's stake, for ever.")
    ] = 10**15,
) -> None:
    """Put FederatedTask and its Lottery on a chain.

    Writes a file that everybody who takes part needs. Any number of tasks share the contract.
    """
    from reticent.apps.crowd.task_work import deploy as run

    run(
        out=out,
        stake_unit=stake_unit,
        confirmations=deploying.confirmations,
        forget_rpc=deploying.forget_rpc,
        **deploying.sending(),
    )


@with_options
def post(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The task in YAML, see docs/how-to/crowd.md.")],
    store: Store,
    *,
    signing: Signing,
    token_file: TokenFile = None,
) -> None:
    """Post a task, and pay its pool in.

    Puts its text, its first model and the public test rows into the store. What is not spent of the pool
    comes back at the end, by `crowd claim`.
    """
    from reticent.apps.crowd.task_work import post as run

    run(file, store=store, token_file=token_file, **signing.words())


@with_options
def apply(task: Task, signing: Signing) -> None:
    """Become a customer of a task; `crowd customer` does it by itself."""
    from reticent.apps.crowd.task_work import apply as run

    run(task, **signing.words())


def status(
    task: Annotated[
        str | None, typer.Argument(metavar="[TASK]", help="What `crowd post` printed; all without.")
    ] = None,
    chain: Chain = CROWD,
    rpc: Rpc = None,
) -> None:
    """Show tasks, or one with its rounds, reputations and pay."""
    from reticent.apps.crowd.task_work import status as run

    run(task, chain=chain, rpc=rpc)


@with_options
def claim(
    signing: Signing,
    leave: Annotated[
        bool, typer.Option("--leave", help="Stop being a miner; claim again later to get the stake.")
    ] = False,
) -> None:
    """Get what one is owed: pay, fees, the rest of a pool, a stake that is free.

    Settles and rewards what is due to the key first, in every task.
    """
    from reticent.apps.crowd.task_work import claim as run

    run(leave=leave, **signing.words())
