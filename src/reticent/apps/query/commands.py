"""`reticent ask` and `reticent price`: options and help. What they do is in `ask`, imported late."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from reticent.apps.chain.commands import CHAIN, MaxFee, MaxTip


class Format(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


Declaration = Annotated[Path, typer.Argument(metavar="DATASET", help="The owner's YAML file.")]
Question = Annotated[str | None, typer.Argument(metavar="[QUESTION]", help="SQL, or a JSON object.")]
File = Annotated[Path | None, typer.Option("--json", help="File with the question as JSON.")]
Error = Annotated[float | None, typer.Option(help="Half the width of the interval that is wanted.")]
Epsilon = Annotated[float | None, typer.Option(help="Instead: epsilon of this answer alone.")]
Delta = Annotated[float | None, typer.Option(help="Delta beside --epsilon; that of the budget by default.")]
Information = Annotated[float | None, typer.Option(help="Instead: mu2 of this answer.")]
Rows = Annotated[int | None, typer.Option(help="A guess of the rows in a group, for the price only.")]
Confidence = Annotated[float, typer.Option(help="Of the interval.")]
Ledger = Annotated[
    str | None,
    typer.Option(help="A path, a postgresql:// address, or ethereum; by default beside the data set."),
]
Chain = Annotated[
    Path | None, typer.Option("--chain", help="For ethereum: the file of `chain deploy`; chain.json.")
]
Rpc = Annotated[
    str | None, typer.Option("--rpc", metavar="URL", help="For ethereum: a node; also by RETICENT_RPC.")
]
Owner = Annotated[
    str | None,
    typer.Option(
        "--owner", metavar="ADDRESS", help="For ethereum: who registered the data set, if in doubt."
    ),
]


def ask(
    dataset: Declaration,
    question: Question = None,
    json: File = None,
    error: Error = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    information: Information = None,
    rows: Rows = None,
    confidence: Confidence = 0.95,
    ledger: Ledger = None,
    chain: Chain = None,
    key: Annotated[
        Path | None, typer.Option("--key", help="For ethereum: file with the key that signs and pays.")
    ] = None,
    rpc: Rpc = None,
    owner: Owner = None,
    max_fee: MaxFee = None,
    max_tip: MaxTip = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Ask made-up rows instead: free, and means nothing.")
    ] = False,
    form: Annotated[Format, typer.Option("--format", help="csv: the numbers alone.")] = Format.TABLE,
    plot: Annotated[Path | None, typer.Option(help="Where to write a plot.")] = None,
) -> None:
    """Ask a data set, and pay what is not bought yet.

    DATASET is the owner's YAML file, QUESTION is SQL or a JSON object. Say how exact with --error (or
    --epsilon, --information); without, the best answer that is already paid for is shown. What the budget
    does not allow is refused with exit code 2, and nothing is charged.

    With --ledger ethereum the budget is in a contract, and an oracle holds the data: see `reticent chain`.
    """
    from reticent.apps.query.ask import ask as run

    run(
        dataset,
        question,
        file=json,
        accuracy=_accuracy(error, epsilon, delta, information, rows, confidence),
        ledger=_ledger(ledger, chain, key, rpc, owner, (max_fee, max_tip)),
        rehearse=rehearse,
        form=form.value,
        plot=plot,
    )


def price(
    dataset: Declaration,
    question: Question = None,
    json: File = None,
    error: Error = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    information: Information = None,
    rows: Rows = None,
    confidence: Confidence = 0.95,
    ledger: Ledger = None,
    chain: Chain = None,
    rpc: Rpc = None,
    owner: Owner = None,
    form: Annotated[Format, typer.Option("--format", help="table or json.")] = Format.TABLE,
) -> None:
    """Show what an answer would cost, without paying.

    Options as for `reticent ask`. The data is not touched: a price is made of public numbers.
    """
    from reticent.apps.query.ask import price as run

    run(
        dataset,
        question,
        file=json,
        accuracy=_accuracy(error, epsilon, delta, information, rows, confidence),
        ledger=_ledger(ledger, chain, None, rpc, owner),
        form=form.value,
    )


def _ledger(
    ledger: str | None,
    chain: Path | None,
    key: Path | None,
    rpc: str | None,
    owner: str | None,
    fees: tuple[float | None, float | None] = (None, None),
) -> str | dict[str, Any] | None:
    """A ledger's path or address, or where it is on a chain."""
    if ledger == "ethereum":
        return {"chain": chain or CHAIN, "key": key, "rpc": rpc, "owner": owner, "fees": fees}
    if any(one is not None for one in (chain, key, rpc, owner)):
        raise typer.BadParameter("--chain, --key, --rpc and --owner are for --ledger ethereum")
    if fees != (None, None):
        raise typer.BadParameter("--max-fee and --max-tip are for --ledger ethereum")
    return ledger


def _accuracy(
    error: float | None,
    epsilon: float | None,
    delta: float | None,
    information: float | None,
    rows: int | None,
    confidence: float,
) -> dict[str, Any]:
    return {
        "error": error,
        "epsilon": epsilon,
        "delta": delta,
        "information": information,
        "rows": rows,
        "confidence": confidence,
    }


def demo(
    context: typer.Context,
    folder: Annotated[
        Path | None, typer.Option(help="Where to put the census, the ledger and the plot; out/demo.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Where to listen; 8000, or any if that is taken.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", envvar="ONCE", help="End after the script, and do not pause in it.")
    ] = False,
) -> None:
    """Serve a census, and watch an analyst ask it.

    A synthetic census behind the service, with pages to look at and keys to ask with. A scripted analyst
    asks the documents' five questions, repeats and refines them, until one is refused.
    Other demonstrations have a name.
    """
    if context.invoked_subcommand is None:
        from reticent.apps.query.demo import run

        run(folder=folder, port=port, once=once)
