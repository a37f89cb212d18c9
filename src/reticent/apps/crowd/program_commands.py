"""`reticent crowd customer` and `miner`: options and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reticent.apps.crowd.task_commands import Signing, Store, Task, TokenFile
from reticent.cli.options import with_options

Poll = Annotated[float, typer.Option(metavar="SECONDS", min=0.01, help="Between two looks at the chain.")]


@with_options
def customer(
    task: Task,
    files: Annotated[
        list[Path],
        typer.Argument(help="Records of any number of appliances: CSV with the class last, or npz."),
    ],
    store: Store,
    home: Annotated[Path, typer.Option(help="A folder of its own, for ledger and updates; made if missing.")],
    lifetime: Annotated[
        float,
        typer.Option(metavar="MU2", help="That all trainings may cost a record; fixed with the ledger."),
    ],
    *,
    signing: Signing,
    edge: Annotated[
        str | None, typer.Option(metavar="URL", help="Of `crowd edge`, for a task of mode noised.")
    ] = None,
    max_round_blocks: Annotated[
        int,
        typer.Option(
            metavar="BLOCKS", min=1, help="Take no part in a task whose rounds take longer to be paid."
        ),
    ] = 216_000,
    token_file: TokenFile = None,
    poll: Poll = 1.0,
) -> None:
    """Take part in a task at home, until it is over.

    Applies, and in every round trains once, pays its own ledger, commits, reveals and is settled; takes what
    it is owed at the end. Stopped or killed, the same command goes on. Guard the folder like the records, and
    never bring back an old copy of it.
    """
    from reticent.apps.crowd.program_work import customer as run

    run(
        task,
        files,
        home=home,
        lifetime=lifetime,
        store=store,
        edge=edge,
        max_round_blocks=max_round_blocks,
        token_file=token_file,
        poll=poll,
        **signing.words(),
    )


@with_options
def miner(
    store: Store,
    home: Annotated[Path, typer.Option(help="A folder for what it signed; made if missing.")],
    *,
    signing: Signing,
    stake: Annotated[int, typer.Option(metavar="UNITS", help="To enrol with, if it is not enrolled.")] = 0,
    max_lock_blocks: Annotated[
        int,
        typer.Option(metavar="BLOCKS", min=1, help="Serve no task whose seats lock the stake for longer."),
    ] = 50_400,
    token_file: TokenFile = None,
    poll: Poll = 1.0,
) -> None:
    """Judge the updates of all tasks of a contract, until interrupted.

    Draws lots, takes seats, proposes as a leader, and votes only for what it computes itself. `crowd claim`
    gets the fees. Stopped or killed, the same command goes on.
    """
    from reticent.apps.crowd.program_work import miner as run

    run(
        home=home,
        stake=stake,
        max_lock_blocks=max_lock_blocks,
        store=store,
        token_file=token_file,
        poll=poll,
        **signing.words(),
    )
