"""Options and help of `reticent ask`, `price`, `plan` and `answers`; their work is imported late."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reticent.apps.chain.commands import CHAIN, MaxFee, MaxTip
from reticent.cli.options import with_options

if TYPE_CHECKING:  # it loads what answers need
    from reticent.query.accuracy import Words


class Format(StrEnum):
    """The format in which an answer is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class Reuse(StrEnum):
    """The earlier purchases that may be part of an answer."""

    SPAN = "span"
    KEY = "key"
    NONE = "none"


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


DataSetOrAddress = Annotated[
    str,
    typer.Argument(
        metavar="DATASET", help="The owner's YAML file, or http(s)://HOST:PORT/NAME of a service."
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="For a service: an API key, or a file with one; also by RETICENT_KEY. For ethereum: file with "
        "the key that pays.",
    ),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Send the API key over plain http to another machine.")
]


@dataclass(frozen=True)
class Asked:
    """A question on the command line, and the accuracy that its answer shall have."""

    dataset: DataSetOrAddress
    question: Annotated[str | None, typer.Argument(metavar="[QUESTION]", help="SQL, or a JSON object.")] = (
        None
    )
    json: Annotated[Path | None, typer.Option("--json", help="File with the question as JSON.")] = None
    error: Annotated[float | None, typer.Option(help="Half the width of the interval that is wanted.")] = None
    epsilon: Annotated[float | None, typer.Option(help="Instead: epsilon of this answer alone.")] = None
    delta: Annotated[
        float | None, typer.Option(help="Delta beside --epsilon; that of the budget by default.")
    ] = None
    information: Annotated[float | None, typer.Option(help="Instead: mu2 of this answer.")] = None
    rows: Annotated[int | None, typer.Option(help="A guess of the rows in a group, for the price only.")] = (
        None
    )
    confidence: Annotated[float, typer.Option(help="Of the interval.")] = 0.95
    reuse: Annotated[Reuse, typer.Option(help="What bought before may be in it; none: a fresh draw.")] = (
        Reuse.SPAN
    )
    mu2: Annotated[bool, typer.Option("--mu2", help="Show costs in mu2 too, as the ledger counts.")] = False

    def accuracy(self) -> Words:
        """Return the accuracy word by word; without any, the free answer is wanted."""
        return {
            "error": self.error,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "information": self.information,
            "rows": self.rows,
            "confidence": self.confidence,
            "reuse": self.reuse.value,
        }


@with_options
def ask(
    asked: Asked,
    ledger: Ledger = None,
    chain: Chain = None,
    key: ApiKey = None,
    insecure: Insecure = False,
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

    DATASET is the owner's YAML file, or the address of a service that has it; QUESTION is SQL or a JSON
    object. Say how exact with --error (or
    --epsilon, --information); without, the best answer that is already paid for is shown. What the budget
    does not allow is refused with exit code 2, and nothing is charged.

    With --ledger ethereum the budget is in a contract, and an oracle holds the data: see `reticent chain`.
    """
    from reticent.apps.query.ask_work import ask as run

    run(
        asked.dataset,
        asked.question,
        file=asked.json,
        accuracy=asked.accuracy(),
        where=_where(asked.dataset, ledger, chain, key, insecure, rpc, owner, (max_fee, max_tip)),
        rehearse=rehearse,
        form=form.value,
        plot=plot,
        mu2=asked.mu2,
    )


@with_options
def price(
    asked: Asked,
    ledger: Ledger = None,
    chain: Chain = None,
    key: ApiKey = None,
    insecure: Insecure = False,
    rpc: Rpc = None,
    owner: Owner = None,
    form: Annotated[Format, typer.Option("--format", help="table or json.")] = Format.TABLE,
) -> None:
    """Show what an answer would cost, without paying.

    Options as for `reticent ask`. The data is not touched: a price is made of public numbers.
    """
    from reticent.apps.query.ask_work import price as run

    run(
        asked.dataset,
        asked.question,
        file=asked.json,
        accuracy=asked.accuracy(),
        where=_where(asked.dataset, ledger, chain, key, insecure, rpc, owner),
        form=form.value,
        mu2=asked.mu2,
    )


@with_options
def plan(
    dataset: DataSetOrAddress,
    workload: Annotated[
        Path, typer.Argument(metavar="FILE", help="SQL, each question ended by a semicolon; - for the input.")
    ],
    error: Annotated[
        float | None, typer.Option(help="Half the width of each interval, where no line -- error says it.")
    ] = None,
    rows: Annotated[int | None, typer.Option(help="A guess of the rows in a group, beside --error.")] = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    buy: Annotated[
        bool, typer.Option("--buy", help="Pay for the tables that are to be bought first.")
    ] = False,
    ledger: Ledger = None,
    chain: Chain = None,
    key: ApiKey = None,
    insecure: Insecure = False,
    rpc: Rpc = None,
    owner: Owner = None,
    max_fee: MaxFee = None,
    max_tip: MaxTip = None,
    form: Annotated[Format, typer.Option("--format", help="table or json.")] = Format.TABLE,
) -> None:
    """Plan many questions: what to buy first, and at what cost.

    FILE has SQL questions; a line `-- error 60` (or `-- error 60 rows 2000`) says how exact those after it
    shall be. A few tables that hold all of them often cost much less than the questions one by one. Nothing
    is bought without --buy, and no row is read.
    """
    from reticent.apps.query.plan_work import plan as run

    run(
        dataset,
        workload,
        error=error,
        rows=rows,
        confidence=confidence,
        buy=buy,
        where=_where(dataset, ledger, chain, key, insecure, rpc, owner, (max_fee, max_tip)),
        form=form.value,
    )


def answers(
    dataset: DataSetOrAddress,
    key: ApiKey = None,
    insecure: Insecure = False,
    form: Annotated[Format, typer.Option("--format", help="table or json.")] = Format.TABLE,
) -> None:
    """Show every answer that was bought, free of charge.

    Whoever asks one of these questions again pays nothing, or only for what is to be more exact.
    """
    from reticent.apps.query.ask_work import answers as run

    run(dataset, where=_where(dataset, None, None, key, insecure, None, None), form=form.value)


def _where(
    dataset: str,
    ledger: str | None,
    chain: Path | None,
    key: str | None,
    insecure: bool,
    rpc: str | None,
    owner: str | None,
    fees: tuple[float | None, float | None] = (None, None),
) -> str | dict[str, Any] | None:
    """Return a ledger's path or address, its place on a chain, or the means to sign in to a service."""
    if dataset.startswith(("http://", "https://")):
        if any(one is not None for one in (ledger, chain, rpc, owner, *fees)):
            raise typer.BadParameter("--ledger, --chain, --rpc, --owner and fees are not for a service")
        return {"api_key": key or os.environ.get("RETICENT_KEY"), "insecure": insecure}
    if insecure:
        raise typer.BadParameter("--insecure is for the address of a service")
    if ledger == "ethereum":
        signer = None if key is None else Path(key)
        return {"chain": chain or CHAIN, "key": signer, "rpc": rpc, "owner": owner, "fees": fees}
    if any(one is not None for one in (chain, key, rpc, owner)):
        raise typer.BadParameter(
            "--chain, --key, --rpc and --owner are for --ledger ethereum, --key for a service too"
        )
    if fees != (None, None):
        raise typer.BadParameter("--max-fee and --max-tip are for --ledger ethereum")
    return ledger


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
