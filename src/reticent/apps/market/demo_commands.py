"""`reticent demo market`: options and help. What it does is in `demo`, imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    devices: Annotated[int, typer.Option(min=10, max=100_000, help="How many sell.")] = 1000,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Where to listen; 8000, or any if that is taken.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", envvar="ONCE", help="End after the script.")] = False,
) -> None:
    """Devices sell private reports to three buyers, and two federations deal.

    Each device keeps its price to itself and picks what is best for its owner; every cent is in the ledger.
    One member of a federation rides free.
    """
    from reticent.apps.market.demo import run

    run(devices=devices, port=port, once=once)
