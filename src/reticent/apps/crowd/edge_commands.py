"""`reticent crowd edge`: options and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def edge(
    folder: Annotated[Path, typer.Argument(help="A folder of its own for what it keeps, made if missing.")],
    tasks: Annotated[
        list[Path], typer.Option("--task", help="The text of a task, mode noised or documented; several.")
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    capacity: Annotated[int, typer.Option(min=0, help="Keep no more than so many bytes.")] = 4 << 30,
) -> None:
    """Serve as a task's edge until interrupted: features in, slopes out, over HTTP, safetensors only.

    Killed, the same command goes on with every session. In mode documented NO RECORD IS PROTECTED, whatever
    epsilon the task says: see what it prints. In mode noised phones send what is private already.
    """
    from reticent.apps.crowd.edge_work import edge as run

    run(folder, tasks, port=port, host=host, capacity=capacity)
