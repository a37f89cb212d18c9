"""`reticent market`: options and help. What they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reticent.apps.market.federation_commands import group as federations
from reticent.cli.options import group_of_commands

group = group_of_commands("market", "Buy and sell private reports at prices that make honesty pay.")
group.add_typer(federations)

Url = Annotated[str, typer.Argument(metavar="URL", help="http(s)://HOST:PORT of a service.")]
Bill = Annotated[str, typer.Argument(metavar="BILL", help="Its id, 16 hexadecimal digits.")]
Key = Annotated[
    str | None,
    typer.Option("--key", envvar="RETICENT_KEY", metavar="KEY", help="An API key, or a file with one."),
]
Price = Annotated[
    str, typer.Option(help="What an epsilon of 1 is worth to you, in cents: 20, or 41/2. It stays here.")
]
Enrolled = Annotated[Path, typer.Option("--enrolment", help="What the operator gave this device: JSON.")]


@group.command()
def plan(
    file: Annotated[Path, typer.Argument(metavar="OFFER", help="The offer: YAML; levels may be left out.")],
    sellers: Annotated[int, typer.Option(help="Who would look at the offer, as you guess.")],
    median: Annotated[float, typer.Option(help="Half of them ask less for an epsilon of 1, in cents.")],
    spread: Annotated[float, typer.Option(help="Of the logarithm of their prices.")] = 0.7,
    levels: Annotated[int, typer.Option(help="Of the menu, where the file has none.")] = 8,
    most: Annotated[float, typer.Option(help="The most epsilon that is taken from anybody.")] = 2.0,
) -> None:
    """What a deposit buys: expected sellers, epsilon and the width of the interval.

    Where the file has no levels, those that just spend the deposit are found and printed.
    """
    from reticent.apps.market.work import plan as run

    run(file, sellers=sellers, median=median, spread=spread, levels=levels, most=most)


@group.command()
def offer(
    url: Url,
    file: Annotated[Path, typer.Argument(metavar="OFFER", help="The offer: YAML.")],
    key: Key = None,
) -> None:
    """Publish an offer. Devices may sell once whoever runs the service has the deposit."""
    from reticent.apps.market.work import offer as run

    run(url, file, key=key)


@group.command()
def fund(url: Url, bill: Bill, key: Key = None) -> None:
    """Say, as who runs the service, that the deposit of a bill is here: devices may sell from now on."""
    from reticent.apps.market.work import fund as run

    run(url, bill, key=key)


@group.command()
def quote(
    url: Url,
    price: Price,
    budget: Annotated[float, typer.Option(help="Epsilon that you would sell in all.")] = 1.0,
) -> None:
    """What your privacy is worth there: the levels you would pick, and their pay. Nothing is sent."""
    from reticent.apps.market.work import quote as run

    run(url, price=price, budget=budget)


@group.command()
def sell(
    url: Url,
    record: Annotated[Path, typer.Argument(metavar="RECORD", help="What this device knows: JSON.")],
    enrolment: Enrolled,
    ledger: Annotated[Path, typer.Option(help="The device's own ledger; made if there is none.")],
    signer: Annotated[str, typer.Option(help="The public key of the operator, 64 hexadecimal digits.")],
    price: Price,
    lifetime: Annotated[float, typer.Option(help="Epsilon of all reports of this device, for ever.")],
    kept: Annotated[float, typer.Option(help="Epsilon of it that is not for sale.")] = 0.0,
    only: Annotated[
        list[str] | None, typer.Option(help="An attribute that may be sold; all if not given.")
    ] = None,
) -> None:
    """Sell the best of what is offered. What was sold before is sent again, and paid once."""
    from reticent.apps.market.work import sell as run

    run(
        url,
        record,
        enrolment=enrolment,
        ledger=ledger,
        signer=signer,
        price=price,
        lifetime=lifetime,
        kept=kept,
        only=only,
    )


@group.command()
def sales(url: Url, enrolment: Enrolled) -> None:
    """What this device has sold there, and was paid."""
    from reticent.apps.market.work import sales as run

    run(url, enrolment=enrolment)


@group.command()
def results(
    url: Url,
    bill: Bill,
    key: Key = None,
    out: Annotated[Path | None, typer.Option("--out", help="A new folder for the reports, Parquet.")] = None,
) -> None:
    """What the reports that you bought come to. Looking is entered into the service's ledger."""
    from reticent.apps.market.work import results as run

    run(url, bill, key=key, out=out)


@group.command()
def close(url: Url, bill: Bill, key: Key = None) -> None:
    """End a bill; what is left goes back once nothing is held any more."""
    from reticent.apps.market.work import close as run

    run(url, bill, key=key)


@group.command()
def verify(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a service.")],
) -> None:
    """Do the books of a service's market again: every payment and balance. Exit code 1 if one is wrong."""
    from reticent.apps.market.work import verify as run

    run(folder)
