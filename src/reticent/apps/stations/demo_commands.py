"""`reticent demo stations`: options and help."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    vehicles: Annotated[int, typer.Option(help="That ask for a station.")] = 200,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Where to listen; 8000, or any if that is taken.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", envvar="ONCE", help="End when all have asked.")] = False,
) -> None:
    """Watch vehicles find charging stations, without anybody learning where they are.

    A provider, an edge and vehicles, as programs of their own, in an invented town. A page shows the map.
    """
    from reticent.apps.stations.demo import run

    run(vehicles=vehicles, port=port, once=once)
