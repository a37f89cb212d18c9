"""`reticent serve` and `reticent key`: options and help. What they do is in `cli.service`, imported late."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Holds the declarations (*.yaml) and the service's state.")
]


class RoleName(StrEnum):
    """What a key is for."""

    OWNER = "owner"
    ANALYST = "analyst"
    AUDITOR = "auditor"


key = typer.Typer(
    name="key",
    help="Make, list and revoke API keys of a service.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def serve(
    folder: Folder,
    ledger: Annotated[
        str | None, typer.Option(help="A path or postgresql:// address; by default a file in the folder.")
    ] = None,
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
        typer.Option(metavar="ADDRESS", help="For a chain: who registered the data sets, if in doubt."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; put a TLS proxy before any other than this.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes.")] = 1,
    grid: Annotated[
        float, typer.Option(help="Seconds: replies to questions leave at multiples of it.")
    ] = 0.1,
    rate: Annotated[float, typer.Option(help="Requests a second of one key, in the long run.")] = 50.0,
    burst: Annotated[int, typer.Option(help="Requests of one key at once.")] = 100,
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
    https_cookie: Annotated[
        bool, typer.Option("--https-cookie", help="Behind TLS: cookies over https only.")
    ] = (False),
) -> None:
    """Serve the data sets of a folder over HTTP, with pages.

    FOLDER holds a declaration for each data set. Make a key first with `reticent key make`.
    """
    from reticent.cli.service import serve as run

    if chain is not None and (ledger is not None or signer is None):
        raise typer.BadParameter("--chain goes with --key, and not with --ledger")
    run(
        folder,
        ledger=ledger if chain is None else chain,
        key=signer,
        owner=owner,
        host=host,
        port=port,
        workers=workers,
        grid_s=grid,
        rate=rate,
        burst=burst,
        most_at_once=most_at_once,
        largest_body=largest_body,
        threads=threads,
        job_threads=job_threads,
        longest_s=longest,
        most_jobs=most_jobs,
        secure_cookie=https_cookie,
    )


@key.command("make")
def make_key(folder: Folder, name: str, role: Annotated[RoleName, typer.Option()] = RoleName.ANALYST) -> None:
    """Make a key for a person and print it, once."""
    from reticent.cli.service import make_key as run

    run(folder, name, role.value)


@key.command("list")
def list_keys(folder: Folder) -> None:
    """List the keys that were ever made."""
    from reticent.cli.service import list_keys as run

    run(folder)


@key.command("revoke")
def revoke_key(folder: Folder, name: str) -> None:
    """Take a key back. It stops at once."""
    from reticent.cli.service import revoke_key as run

    run(folder, name)
