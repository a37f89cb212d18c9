"""Options and help of `reticent store`; the work of the commands is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reticent.cli.options import group_of_commands

group = group_of_commands("store", "Keep, get and serve files by their hash, as IPFS names them.")

Where = Annotated[
    str,
    typer.Argument(
        help="A folder, http(s)://HOST:PORT of a gateway or `store serve`, kubo+http://HOST:PORT of a node."
    ),
]
TokenFile = Annotated[
    Path | None, typer.Option(help="A file with the token that whoever writes must send, in one line.")
]
Most = Annotated[int, typer.Option(min=0, help="Refuse a file of more bytes.")]


@group.command()
def cid(file: Annotated[Path, typer.Argument(help="A file.")]) -> None:
    """Print what a file is called, everywhere: nothing is kept."""
    from reticent.apps.store.work import cid as run

    run(file)


@group.command()
def put(
    where: Where,
    file: Annotated[Path, typer.Argument(help="A file.")],
    token_file: TokenFile = None,
) -> None:
    """Keep a file and print what it is called. Whoever reaches the store can read it."""
    from reticent.apps.store.work import put as run

    run(where, file, token_file=token_file)


@group.command()
def get(
    where: Where,
    cid: Annotated[str, typer.Argument(help="What the file is called: b...")],
    out: Annotated[Path, typer.Option(help="Where to write it.")],
    most: Most = 1 << 30,
) -> None:
    """Get a file. Every block is verified; a file that is not what it is called is not written."""
    from reticent.apps.store.work import get as run

    run(where, cid, out=out, most=most)


@group.command()
def serve(
    folder: Annotated[Path, typer.Argument(help="The folder of the store, made if it is missing.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    capacity: Annotated[int, typer.Option(min=0, help="Take no more than so many bytes.")] = 10 << 30,
    token_file: TokenFile = None,
    to_all: Annotated[
        bool, typer.Option("--open", help="Whoever reaches it may write, beyond this machine too.")
    ] = False,
) -> None:
    """Serve a folder until interrupted: IPFS's trustless gateway (/ipfs/CID?format=raw), Kubo's RPC to write.

    On this machine whoever reaches it may write; beyond it, whoever has the token.
    """
    from reticent.apps.store.work import serve as run

    run(folder, host=host, port=port, capacity=capacity, token_file=token_file, to_all=to_all)
