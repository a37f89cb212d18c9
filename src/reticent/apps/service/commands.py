"""Options and help of `reticent serve`, `publish`, `key` and `source`; the work is imported late."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from reticent.apps.chain.commands import MaxFee, MaxTip
from reticent.cli.options import group_of_commands

Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Holds the declarations (*.yaml) and the service's state.")
]


Shared = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        envvar="RETICENT_SHARED",
        help="Of several servers: the postgresql:// address of the ledger and state that they share.",
    ),
]
Witness = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="RETICENT_WITNESS",
        help="Of the ledger; noted beside it, and asked from then on without this.",
    ),
]
WitnessKey = Annotated[
    str | None,
    typer.Option(envvar="RETICENT_WITNESS_KEY", help="The witness's key, as it prints it at start."),
]
SigningKey = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        envvar="RETICENT_SIGNING_KEY",
        help="Signs heads of the ledger; by default .service/ledger.key in the folder.",
    ),
]


class RoleName(StrEnum):
    """The role of the person that a key is made for."""

    OWNER = "owner"
    ANALYST = "analyst"
    AUDITOR = "auditor"
    BUYER = "buyer"


key = group_of_commands("key", "Make, list, replace and revoke API keys of a service.")

source = group_of_commands("source", "Say which owner may register which file of a service.")


def serve(
    folder: Folder,
    ledger: Annotated[
        str | None, typer.Option(help="A path or postgresql:// address; by default a file in the folder.")
    ] = None,
    shared: Shared = None,
    signing_key: SigningKey = None,
    chain: Annotated[
        str | None, typer.Option(help="Instead: the file that `chain deploy` wrote. An oracle measures.")
    ] = None,
    signer: Annotated[
        str | None,
        typer.Option(
            "--key", help="For a chain: file of the key that signs; RETICENT_KEY_PASSWORD opens it."
        ),
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="For a chain: who registered the data sets.",
        ),
    ] = None,
    max_fee: MaxFee = None,
    max_tip: MaxTip = None,
    witness: Witness = None,
    witness_key: WitnessKey = None,
    log_name: Annotated[
        str | None, typer.Option(help="Of a ledger that is made; one witness knows each by another name.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; put a TLS proxy before any other than this.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes.")] = 1,
    drain: Annotated[
        float,
        typer.Option(help="Seconds after SIGTERM in which it is not ready, and still takes requests."),
    ] = 0.0,
    traces: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Of a collector for OpenTelemetry, or a file: spans without data."),
    ] = None,
    grid: Annotated[
        float, typer.Option(help="Seconds: replies to questions leave at multiples of it.")
    ] = 0.1,
    rate: Annotated[float, typer.Option(help="Requests a second of one key, in the long run.")] = 50.0,
    burst: Annotated[int, typer.Option(help="Requests of one key at once.")] = 100,
    work_rate: Annotated[
        float, typer.Option(help="Cells a second that one key asks for, in the long run.")
    ] = 2500.0,
    work_burst: Annotated[int, typer.Option(help="Cells that one key asks for at once.")] = 1 << 17,
    most_at_once: Annotated[
        int, typer.Option(help="Requests of one process at once; more are told to come again.")
    ] = 512,
    largest_body: Annotated[int, typer.Option(help="Bytes of a request.")] = 1 << 18,
    threads: Annotated[int, typer.Option(help="That answer, of one process; as many do the rest.")] = 8,
    job_threads: Annotated[int, typer.Option(help="That work on long questions, of one process.")] = 2,
    longest: Annotated[
        float, typer.Option(help="Seconds: a question that takes longer becomes a job.")
    ] = 30.0,
    most_jobs: Annotated[int, typer.Option(help="Unfinished jobs of one person.")] = 100,
    most_epsilon: Annotated[
        float, typer.Option(help="Of the budget of a data set that is registered over the network.")
    ] = 1.0,
    most_delta: Annotated[float, typer.Option(help="Beside it.")] = 1e-6,
    https_cookie: Annotated[
        bool, typer.Option("--https-cookie", help="Behind TLS: cookies over https only.")
    ] = (False),
) -> None:
    """Serve the data sets of a folder over HTTP, with pages.

    FOLDER holds a declaration for each data set. Make a key first with `reticent key make`.
    """
    from reticent.apps.service.work import serve as run

    if chain is not None and (ledger is not None or signer is None):
        raise typer.BadParameter("--chain goes with --key, and not with --ledger")
    if shared is not None and (ledger, chain) != (None, None):
        raise typer.BadParameter("--shared is where the ledger is: leave out --ledger and --chain")
    if chain is None and (max_fee, max_tip) != (None, None):
        raise typer.BadParameter("--max-fee and --max-tip are for --chain")
    run(
        folder,
        ledger=shared or (ledger if chain is None else chain),
        shared=shared is not None,
        signing_key=signing_key,
        drain_s=drain,
        traces=traces,
        key=signer,
        owner=owner,
        max_fee=max_fee,
        max_tip=max_tip,
        witness=witness,
        witness_key=witness_key,
        log_name=log_name,
        host=host,
        port=port,
        workers=workers,
        grid_s=grid,
        rate=rate,
        burst=burst,
        work_rate=work_rate,
        work_burst=work_burst,
        most_at_once=most_at_once,
        largest_body=largest_body,
        threads=threads,
        job_threads=job_threads,
        longest_s=longest,
        most_jobs=most_jobs,
        most_epsilon=most_epsilon,
        most_delta=most_delta,
        secure_cookie=https_cookie,
    )


def publish(
    folder: Folder, shared: Shared = None, witness: Witness = None, witness_key: WitnessKey = None
) -> None:
    """Let several servers serve the data sets of a folder.

    Run it where the declarations have their home, at first and whenever one of them changed. Then give every
    server a copy of the declarations, the rows and .service/ledger.key.
    """
    from reticent.apps.service.work import publish as run

    if shared is None:
        raise typer.BadParameter("--shared must be the postgresql:// address that all servers will use")
    run(folder, shared, witness=witness, witness_key=witness_key)


@source.command("assign")
def assign_source(folder: Folder, file: str, owner: str) -> None:
    """Let an owner register a file of the folder.

    Over the network an owner registers only what is assigned to them. A file that took the place of another
    is assigned anew; data sets that were registered over it come along.
    """
    from reticent.apps.service.work import assign_source as run

    run(folder, file, owner)


@source.command("list")
def list_sources(folder: Folder) -> None:
    """List the files that are assigned, and whose they are."""
    from reticent.apps.service.work import list_sources as run

    run(folder)


@source.command("release")
def release_source(folder: Folder, file: str) -> None:
    """Take a file back. What was registered over it is opened no more."""
    from reticent.apps.service.work import release_source as run

    run(folder, file)


@key.command("make")
def make_key(
    folder: Folder,
    name: str,
    role: Annotated[RoleName, typer.Option()] = RoleName.ANALYST,
    shared: Shared = None,
) -> None:
    """Make a key for a person and print it, once."""
    from reticent.apps.service.work import make_key as run

    run(folder, name, role.value, shared=shared)


@key.command("replace")
def replace_key(folder: Folder, name: str, shared: Shared = None) -> None:
    """Replace a key that was lost and print the new one, once. Quotas, files and jobs stay."""
    from reticent.apps.service.work import replace_key as run

    run(folder, name, shared=shared)


@key.command("list")
def list_keys(folder: Folder, shared: Shared = None) -> None:
    """List the keys that were ever made."""
    from reticent.apps.service.work import list_keys as run

    run(folder, shared=shared)


@key.command("revoke")
def revoke_key(folder: Folder, name: str, shared: Shared = None) -> None:
    """Take a key back. It stops at once."""
    from reticent.apps.service.work import revoke_key as run

    run(folder, name, shared=shared)
