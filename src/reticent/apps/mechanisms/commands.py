"""Options and help of `reticent mechanisms` and `convert`; their work is imported when they run."""

from __future__ import annotations

from typing import Annotated

import typer


def mechanisms(
    epsilon: Annotated[float, typer.Option(help="Privacy level of one report (epsilon-LDP).")],
    bits: Annotated[
        int | None, typer.Option(help="Only mechanisms whose report fits into so many bits.")
    ] = None,
) -> None:
    """Compare the mechanisms for one number.

    Worst-case variance of one report of a value in [-1, 1]: of the channel that is sent ("wire") and of
    the formula in the literature ("ideal").
    """
    from reticent.apps.mechanisms.compare import run

    run(epsilon=epsilon, bits=bits)


def convert(
    epsilon: Annotated[float | None, typer.Option(help="Epsilon; pure if alone.")] = None,
    delta: Annotated[float | None, typer.Option(help="Delta of (epsilon, delta).")] = None,
    mu: Annotated[float | None, typer.Option(help="Mu of Gaussian differential privacy.")] = None,
    rho: Annotated[float | None, typer.Option(help="Rho of zero-concentrated differential privacy.")] = None,
) -> None:
    """Say one privacy guarantee in the other units.

    Give one of: --epsilon with --delta (a budget), --epsilon (a pure release), --mu (with --delta or
    --epsilon for the other of the two), --rho (with --delta). Costs are rounded up, allowances down.
    """
    from reticent.apps.mechanisms.convert import run

    run(epsilon=epsilon, delta=delta, mu=mu, rho=rho)
