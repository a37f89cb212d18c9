"""`reticent demo crowd`: options and help."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    once: Annotated[bool, typer.Option("--once", envvar="ONCE", help="End when the task is over.")] = False,
) -> None:
    """Watch ten homes and five miners train together, and nobody trust anybody.

    A chain and a store of their own, every home and every miner a program of its own, on this machine. One
    home sends poison, and a miner is killed when it should lead.
    """
    from reticent.apps.crowd.demo import run

    run(once=once)
