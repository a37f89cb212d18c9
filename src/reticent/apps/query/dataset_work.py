"""The work behind the commands of `reticent dataset`."""

from __future__ import annotations

import errno
import os
import re
import secrets
import sys
import textwrap
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from shutil import get_terminal_size

from rich.console import Console

from reticent.cli.asking import asked
from reticent.errors import ParameterError
from reticent.files import write_new
from reticent.fleet.people import not_added, under
from reticent.numerals import up
from reticent.privacy import UNITS_PER_ONE, Budget, Neighbours
from reticent.query import census
from reticent.query.accuracy import KEY, Accuracy
from reticent.query.declarations import (
    account_joining,
    account_moving,
    dataset_file,
    foreign_metadata,
    ledger_places,
    populations,
)
from reticent.query.declarations import home as homes
from reticent.query.declarations.conversation import Conversation
from reticent.query.declarations.datasets import FORMATS, DataSet
from reticent.query.declarations.explanation import explain
from reticent.query.opening import at_home, snapshot_path
from reticent.query.opening import open as open_data_set
from reticent.query.readability import checked_columns, unreadable_share
from reticent.query.rows import snapshot as snapshots
from reticent.query.rows import source
from reticent.query.rows.row_order import needs_order_key

_PERCENT = re.compile(r"[0-9]{1,3}([.][0-9]{1,9})?")


_FIRST_FORMAT = (
    "Format: 1. In format 2 a day among numbers counts as the days since 1970-01-01, an undeclared category "
    "as the group other, and the rows of a person are chosen by a secret order; `format: 2` in the file "
    "adopts it, with the same budget, and reuses nothing that was measured before."
)


def _console() -> Console:
    return Console(highlight=False, markup=False, soft_wrap=False)


def new(file: Path, *, out: Path | None, asks: bool) -> None:
    """Write a declaration beside the file, or at `out`: with the owner's answers, or with blanks."""
    path = file.with_name(f"{dataset_file.stem_of(file.name)}.yaml") if out is None else out
    source = os.path.relpath(file, path.parent)
    if path.exists():  # before anybody types
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    if not os.access(path.parent, os.W_OK):
        raise ParameterError(f"{path.parent} must be a folder that you may write to")
    if asks:
        data = Conversation(_typed, _said).declared(file, source)
        if data is None:
            print("Nothing is written.")
            return
        write_new(path, dataset_file.write(data))
        print(f"{path} is written. Next:")
    else:
        write_new(path, dataset_file.template(file, source))
        print(f"{path} is written. Fill in the blanks from public knowledge, not from the rows; then:")
    print(f"  reticent dataset check {path}")


def _said(text: str) -> None:
    """Print a paragraph, as wide as the terminal is."""
    width = max(20, get_terminal_size().columns - 1)
    print(textwrap.fill(text, width, subsequent_indent=" " * (len(text) - len(text.lstrip()))))


def _typed(question: str) -> str:
    try:
        return asked(question)
    except EOFError as error:  # Ctrl-D: as good as Ctrl-C
        print()
        raise KeyboardInterrupt from error


def is_terminal() -> bool:
    """Return whether somebody sits at a terminal and can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def example(folder: Path) -> None:
    """Write an invented census and its declaration."""
    path = census.write(folder)
    print(f"{path.with_suffix('.csv')} and {path} are written: 5,000 invented persons.")


def check(path: Path, *, spend: str | None = None) -> None:
    """Print the meaning of a declaration, and check that its source fits.

    Args:
        path: Declaration to check.
        spend: Part of the budget, in percent, that buys the shares of cells that cannot be read.
    """
    data = dataset_file.read(path)
    part = None if spend is None else _part_of_budget(spend, data)
    populations.of(path, data)
    console = _console()
    console.print(f"{data.name}, version {data.version}")
    for sentence in explain(data):
        console.print(f"- {sentence}")
    if data.format == FORMATS[0]:
        console.print(f"- {_FIRST_FORMAT}")
    if not data.source:
        console.print("- Source: none is named.")
        return
    order_key = _order_key_to_check(path, data)
    with closing(source.connect(data, path.parent, snapshot_path(path, data), order_key=order_key)) as table:
        if data.rows is not None:
            ((found,),) = table.tally(f"SELECT count(*) FROM {table.relation}")  # noqa: S608 - made by us
            snapshots.check_rows(data, found)
    there = "the snapshot of this version" if snapshot_path(path, data).exists() else "as declared"
    console.print(f"- Source: {there}, every column is there.")
    if data.format == FORMATS[0]:
        for fault in source.find_type_faults(data, path.parent):
            console.print(f"- Types: {fault}. Its cells count as missing.")
    if part is not None:
        _buy_readability(path, data, part)


def _part_of_budget(spend: str, data: DataSet) -> Fraction:
    """Return the part of the budget that a text like 0.1% says."""
    if data.format == FORMATS[0]:
        raise ParameterError("spend must be left out for format 1: add `format: 2` to the declaration first")
    digits = spend.strip().removesuffix("%").strip()
    percent = Fraction(digits) if _PERCENT.fullmatch(digits) else Fraction(0)
    if not 0 < percent <= 100:
        raise ParameterError(f"spend must be more than 0% and at most 100%, as 0.1%, got {spend!r:.40}")
    return percent / 100


def _buy_readability(path: Path, data: DataSet, part: Fraction) -> None:
    """Buy and print the share of cells of each column of text that cannot be read."""
    columns, console = checked_columns(data), _console()
    if not columns:
        console.print("- Cells: no column of numbers or booleans is stored as text, so nothing is bought.")
        return
    units, minimum = part * data.terms.cap / len(columns), data.terms.minimum
    if units < minimum:  # it would be charged all the same, so that more is spent than was said
        least = up(float(100 * Fraction(minimum * len(columns), data.terms.cap)))
        raise ParameterError(
            f"spend must be at least {least}%, got {float(100 * part):g}%: each of {len(columns)} columns is "
            "a question, and every question has a minimal cost"
        )
    accuracy = Accuracy(information=float(units / UNITS_PER_ONE), reuse=KEY)
    with open_data_set(path) as session:
        for column in columns:
            answer = session.ask(unreadable_share(column), accuracy)
            low, high = answer.interval
            cost = 100 * answer.share
            console.print(
                f"- {column.name}: {100 * answer.value:.3g} % of the cells cannot be read "
                f"({100 * low:.3g} to {100 * high:.3g} %), for {cost:.3g} % of the budget."
            )


def _order_key_to_check(path: Path, data: DataSet) -> str | None:
    """Return the key that orders the rows, or one for this look alone, which releases nothing of them."""
    home = homes.of_rows(path)
    if not needs_order_key(data) or (home is not None and home.order_key):
        return homes.order_key(path, data)
    return secrets.token_hex(32)


def snapshot(path: Path) -> None:
    """Write the snapshot of the declared version."""
    data = dataset_file.read(path)
    target = snapshot_path(path, data)
    if target.exists():
        raise ParameterError(
            f"version must be raised in {path.name}: version {data.version} has its snapshot"
        )
    console = _console()
    rows = homes.of_rows(path)
    if needs_order_key(data) and (rows is None or not rows.order_key):
        at_home(path, data, None)[1].close()  # which makes the key, or says that it is lost
    with (
        homes.settled(path, data),
        console.status("reading the rows") as line,
    ):  # settled: they have an account

        def seen(done: int, known: int) -> None:
            line.update(f"reading the rows: {done:,} of {known:,} tasks")

        snapshots.make(data, path.parent, target, seen, order_key=homes.order_key(path, data))
    parts = target.iterdir() if target.is_dir() else [target]
    size = sum(part.stat().st_size for part in parts) / 1e6
    console.print(f"{target} is written ({size:,.1f} MB) and used from now on for version {data.version}.")


def home(path: Path) -> None:
    """Print the identity of the people of a declaration, and the place of their ledger."""
    found = homes.known(path)
    if found is None:
        raise ParameterError(f"{path.name} was never opened: it has no ledger yet")
    console = _console()
    for name, text in (
        ("identity", found.identity),
        ("account", found.account),
        ("ledger", found.place + (f", on its way to {found.paying}" if found.moving else "")),
        ("kept in", str(found.folder)),
    ):
        console.print(f"{name:<9} {text}", soft_wrap=True)
    if found.unit != homes.PEOPLE:
        return
    console.print(f"{'shared by':<9} {', '.join(account_joining.members(found))}", soft_wrap=True)
    if ledger_places.is_there(found.address):
        with homes.open_ledger(found.address, path) as ledger:
            balances = ledger.accounts()
        studies = [study for study, whose in under(balances).items() if whose == found.account]
        console.print(f"{'and by':<9} {', '.join(studies) or 'no survey, no training'}", soft_wrap=True)
        for sentence in not_added(balances):
            console.print(sentence, soft_wrap=True)


def move(path: Path, ledger: str) -> None:
    """Move the account of a declaration to another ledger, with all that it bought."""
    data = dataset_file.read(path)
    with homes.settled(path, data) as held:
        if held.is_on_chain or (held.moving and held.paying != ledger_places.placed(ledger)):
            raise ParameterError(f"{path.name} pays from {held.paying}: it cannot move from there")
        if ledger_places.placed(ledger) == held.place:
            raise ParameterError(f"{path.name} pays from {held.place} already")
        with homes.open_ledger(ledger, path) as target:
            arrived, taken = account_moving.moved_to(held, data, target)
    console = _console()
    console.print(
        f"{path.name} pays from {arrived.place} now; nothing is left to spend in {held.place}.",
        soft_wrap=True,
    )
    if taken.charged or taken.over:
        part = 100 * taken.charged / data.terms.cap
        console.print(f"{part:.4g} % of the budget were spent there, and count here.", soft_wrap=True)
    if taken.over:
        console.print("Both together have spent more than the budget: nothing is left.")


def moved(path: Path) -> None:
    """Use a copy of a declaration's folder as its home from now on."""
    found = homes.moved(path)
    _console().print(
        f"{path.name} pays from {found.place}, by your word that no other copy is used. What an older copy "
        "does not know was spent all the same: a witness knows it (reticent ledger --help).",
        soft_wrap=True,
    )


def import_(
    file: Path,
    *,
    epsilon: float,
    delta: float,
    source: str | None,
    public_rows: bool,
    values: list[str],
    leave_out: list[str],
    table: str | None,
    unit: str | None,
    out: Path | None,
) -> None:
    """Write a declaration from the metadata of another tool."""
    additions = foreign_metadata.Additions(
        budget=Budget(epsilon, delta),
        relation=Neighbours.REPLACE_ONE if public_rows else Neighbours.ADD_REMOVE_ONE,
        source=dataset_file.source_of(source),
        categories=dict(_categories(one) for one in values),
        leave_out=leave_out,
        table=table,
        unit=unit,
    )
    is_json = file.suffix.lower() in (".json", ".jsonld", ".json-ld")
    read = foreign_metadata.read_csvw if is_json else foreign_metadata.read_yaml
    data = read(file, additions)
    path = file.with_name(f"{data.name}.yaml") if out is None else out
    write_new(path, dataset_file.write(data))
    _console().print(f"{path} is written. Read what it promises:\n  reticent dataset check {path}")


def _categories(given: str) -> tuple[str, list[str]]:
    name, equals, listed = given.partition("=")
    if not name or not equals:
        raise ParameterError(f"values must be COLUMN=A,B,C, got {given!r:.60}")
    return name, listed.split(",")
