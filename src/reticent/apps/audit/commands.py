"""`reticent audit`: claims against what is measured. A name that is no command is that of a mechanism."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click
import typer
import typer.core


class _Audits(typer.core.TyperGroup):
    """`audit Duchi --epsilon 1` is `audit mechanism Duchi --epsilon 1`, as before there were others."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["mechanism", *args]
        return super().parse_args(ctx, args)


group = typer.Typer(
    name="audit",
    cls=_Audits,
    help="Measure whether claims are kept, and what updates tell.",
    rich_markup_mode=None,
)


@group.command()
def mechanism(
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


@group.command()
def gradients(
    model: Annotated[str, typer.Option(help="A function that makes the model, as module:name.")],
    update: Annotated[Path, typer.Option(help="What was sent: a file in the form of safetensors.")],
    loss: Annotated[
        str | None, typer.Option(help="Of a PyTorch module: cross-entropy, squares, logistic or hinge.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="If steps of -rate times the gradient were sent.")
    ] = None,
    records: Annotated[int | None, typer.Option(help="How many records the server knows there are.")] = None,
    labels: Annotated[str | None, typer.Option(help="Their classes, if it knows them: 3,1,4.")] = None,
    noise: Annotated[float, typer.Option(help="Standard deviation of noise that it knows of.")] = 0.0,
    non_negative: Annotated[
        bool, typer.Option("--non-negative", help="Records have no negative numbers, like pictures.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Where to write the rebuilt records, as CSV.")] = None,
) -> None:
    """Say what a server learns from one update of a model.

    Records are rebuilt exactly where the update determines them. Exit code 0 if none was rebuilt, 1 if one
    was. Nothing rebuilt is no guarantee of privacy.
    """
    from reticent.apps.audit.gradients import run

    code = run(
        model=model,
        update=update,
        loss=loss,
        rate=rate,
        records=records,
        labels=labels,
        noise=noise,
        non_negative=non_negative,
        out=out,
    )
    raise typer.Exit(code)
