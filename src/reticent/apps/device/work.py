"""The work behind the commands of `reticent device`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from reticent.apps.device import page
from reticent.errors import ParameterError
from reticent.files import appearing
from reticent.ledger.device import lifetime, statement
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.lifetime import Lifetime
from reticent.ledger.device.marks import Marks


def show(file: Path, *, html: Path | None) -> None:
    """Print the statement of a device's ledger, and write it as a page if a file is given."""
    if html is not None and html.exists() and file.exists() and html.samefile(file):
        raise ParameterError(f"html must not be the ledger, got {html}")
    found = statement.read(file)
    console = Console(highlight=False, markup=False)
    for sentence in statement.sentences(found):
        console.print(sentence, soft_wrap=True)
    for room in found.rooms:
        console.print(_table(room, found))
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        with appearing(html, mode=0o600) as target:
            target.write(page.made(found).encode())
        console.print(f"Page, for your eyes: {html}", soft_wrap=True)


def _table(room: statement.Room, found: statement.Statement) -> Table:
    terms, spent = room.balance.terms, room.balance.spent
    table = Table(title=f"{statement.kind(terms)}: {page.left(room)}", title_justify="left")
    for heading in ("who and why", "when"):
        table.add_column(heading, overflow="fold")
    for heading in ("reports", "cost", "of the lifetime"):
        table.add_column(heading, justify="right")
    for one in room.series:
        table.add_row(
            f"{page.who(one)}\n{page.why(one)}".strip(),
            page.when(one),
            str(one.reports),
            statement.amount(terms.unit, one.units),
            page.share(one, found),
        )
    if not room.series:
        table.add_row("nobody", "", "0", statement.amount(terms.unit, spent), "")
    return table


def set_lifetime(file: Path, *, epsilon: float, delta: float | None, distance_km: float | None) -> None:
    """Set the lifetime of a device's ledger."""
    given = Lifetime(epsilon, delta, distance_km)
    with DeviceLedger(file, marks=Marks()) as ledger:
        terms = lifetime.opened(ledger, given)
        assert terms is not None
        spent = ledger.balance(lifetime.ACCOUNT).spent
    console = Console(highlight=False, markup=False)
    console.print(
        f"{file} has one lifetime over all: {lifetime.words(terms)}, for ever; "
        f"{100 * spent / terms.cap:.3g} % of it was spent before.",
        soft_wrap=True,
    )
