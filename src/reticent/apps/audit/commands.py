"""`reticent audit`: options and help. What it does is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def audit(
    mechanism: Annotated[str | None, typer.Argument(help="A mechanism by its class name, or all.")] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="The level that is claimed (mu for DiscreteGaussian).")
    ] = None,
    function: Annotated[
        str | None, typer.Option("--callable", help="Your own f(value) or f(value, size), as module:name.")
    ] = None,
    inputs: Annotated[str, typer.Option(help="Private values to compare, for --callable.")] = "-1,1",
    delta: Annotated[float, typer.Option(help="Delta of the claim, for --callable.")] = 0.0,
    samples: Annotated[int | None, typer.Option(help="Outputs per input, for --callable.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer draws: finds what is clearly wrong.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Where to write a plot.")] = None,
    report: Annotated[Path | None, typer.Option(help="Where to write a page.")] = None,
) -> None:
    """Measure whether a mechanism keeps its claim.

    Exact ratios, the sampler against its law, a lower bound on the loss from outputs alone, supports,
    totality and streams. Exit code 0 if nothing was found against the claim, 1 if something was.
    """
    from reticent.apps.audit.work import run

    code = run(
        mechanism=mechanism,
        epsilon=epsilon,
        delta=delta,
        function=function,
        inputs=inputs,
        samples=samples,
        quick=quick,
        plot=plot,
        report=report,
    )
    raise typer.Exit(code)
