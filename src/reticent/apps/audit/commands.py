"""`reticent audit`: claims against what is measured. A name that is no command is that of a mechanism."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click
import typer
import typer.core

Report = Annotated[Path | None, typer.Option(help="Where to write the report, one page.")]
InLedger = Annotated[
    str | None, typer.Option("--ledger", help="A ledger that shall keep claim, verdict and a commitment.")
]
LedgerKey = Annotated[
    Path | None, typer.Option("--ledger-key", help="File with the key that signs that ledger's heads.")
]


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
    report: Report = None,
    ledger: InLedger = None,
    key: LedgerKey = None,
) -> None:
    """Measure whether a mechanism keeps its claim.

    Exact ratios, the sampler against its law, a lower bound on the loss from outputs alone, supports,
    totality and streams. Exit code 0 if nothing was found against the claim, 1 if something was.
    """
    from reticent.apps.audit.reports import Places
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
        places=Places(report, ledger, key),
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
    truth: Annotated[
        Path | None, typer.Option(help="The records, to compare with: safetensors with an array 'records'.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write the rebuilt records, as CSV.")] = None,
    report: Report = None,
) -> None:
    """Say what a server learns from one update of a model.

    Records are rebuilt exactly where the update determines them. Exit code 0 if none was rebuilt, 1 if one
    was. Nothing rebuilt is no guarantee of privacy. No ledger keeps this: it depends on real records.
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
        truth=truth,
        out=out,
        report=report,
    )
    raise typer.Exit(code)


@group.command()
def flower(
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Your ClientApp, as module:name.")],
    data: Annotated[
        str | None,
        typer.Option(help="A function that returns invented data sets; else `neighbours` of that module."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A function that makes the model, as module:name, to invert arrays.")
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="Of a PyTorch module: cross-entropy, squares, logistic or hinge.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="By which the app steps; else 1.")] = None,
    returns: Annotated[
        str, typer.Option(help="Whether arrays are parameters after a step, or the gradient.")
    ] = "parameters",
    epsilon: Annotated[float | None, typer.Option(help="What private reports claim.")] = None,
    private: Annotated[
        list[str] | None, typer.Option(help="A part that is a private report; else what private_mod sends.")
    ] = None,
    numbered: Annotated[
        bool, typer.Option("--numbered", help="Arrays are called 0, 1, ..., as by ArrayRecord([...]).")
    ] = False,
    runs: Annotated[int, typer.Option(help="On each data set, if parts of replies vary.")] = 1000,
    report: Report = None,
    ledger: InLedger = None,
    key: LedgerKey = None,
) -> None:
    """Run a Flower ClientApp in process on neighbouring data sets, and judge all that leaves.

    Arrays are inverted; metrics, numbers of examples, sizes, the form of replies and the texts of errors must
    not depend on the data. Exit code 0 if nothing was found, 1 if something was.
    """
    from reticent.apps.audit.flower import run
    from reticent.apps.audit.reports import Places

    code = run(
        app=app,
        data=data,
        model=model,
        loss=loss,
        rate=rate,
        returns=returns,
        epsilon=epsilon,
        private=private or ["report.payload"],
        numbered=numbered,
        runs=runs,
        places=Places(report, ledger, key),
    )
    raise typer.Exit(code)


@group.command()
def ledger(
    where: Annotated[str, typer.Argument(metavar="LEDGER", help="A path, or a postgresql:// address.")],
    check: Annotated[
        list[Path] | None, typer.Option(help="A report that must be as it was recorded; may be repeated.")
    ] = None,
    report: Report = None,
) -> None:
    """List the audits that a ledger keeps, and check them.

    Verifies the whole ledger. Exit code 1 if it does not hold, if a report is not as it was recorded, or if
    the last audit of a claim found it broken.
    """
    from reticent.apps.audit.ledgers import run

    raise typer.Exit(run(where, check=check or [], report=report))


@group.command("run")
def run_(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FUNCTION|TASK", help="Your f(included) -> scores, as module:name; or a training task."
        ),
    ],
    epsilon: Annotated[float | None, typer.Option(help="The claim, for a function.")] = None,
    delta: Annotated[float, typer.Option(help="Of the claim, for a function.")] = 0.0,
    canaries: Annotated[int, typer.Option(help="How many, each in or out by the toss of a coin.")] = 1000,
    guesses: Annotated[
        str | None, typer.Option(help="How many of them are guessed: 1000,250. Fix it beforehand.")
    ] = None,
    report: Report = None,
    ledger: InLedger = None,
    key: LedgerKey = None,
) -> None:
    """Train once with canaries, and say what that proves against the claim.

    A function gets one True or False for each canary, trains with those that are in, and returns one number
    for each: the higher, the likelier it was in. A task (YAML, or signed) is trained on canary clients
    alone. Exit code 0 if nothing was found against the claim, 1 if something was.
    """
    from reticent.apps.audit.reports import Places
    from reticent.apps.audit.trained import run

    code = run(
        what,
        epsilon=epsilon,
        delta=delta,
        canaries=canaries,
        guesses=guesses,
        places=Places(report, ledger, key),
    )
    raise typer.Exit(code)


def demo(
    folder: Annotated[Path, typer.Option(help="Where to put the page.")] = Path("out/demo-audit"),
) -> None:
    """See a person's record and a digit rebuilt from one update, and not from a private one.

    Both are invented. Needs no PyTorch.
    """
    from reticent.apps.audit.demo import run

    run(folder=folder)
