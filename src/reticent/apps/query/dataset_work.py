"""`reticent dataset`: what its commands do."""

from __future__ import annotations

import errno
import os
import sys
import textwrap
from contextlib import closing
from pathlib import Path
from shutil import get_terminal_size

from rich.console import Console

from reticent.cli.asking import asked
from reticent.errors import ParameterError
from reticent.fleet.people import not_added, under
from reticent.privacy import Budget, Neighbours
from reticent.query import census
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
from reticent.query.declarations.explanation import explain
from reticent.query.opening import snapshot_path
from reticent.query.rows import snapshot as snapshots
from reticent.query.rows import source


def _console() -> Console:
    return Console(highlight=False, markup=False, soft_wrap=False)


def _write(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(text)


def new(file: Path, *, out: Path | None, asks: bool) -> None:
    """Write a declaration beside the file, or at `out`: what the owner answers, or with blanks."""
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
        _write(path, dataset_file.write(data))
        print(f"{path} is written. Next:")
    else:
        _write(path, dataset_file.template(file, source))
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
    """Whether somebody sits there who can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def example(folder: Path) -> None:
    """Write the census that nobody is in."""
    path = census.write(folder)
    print(f"{path.with_suffix('.csv')} and {path} are written: 5,000 invented persons.")


def check(path: Path) -> None:
    """Print what the declaration means and whether its source fits."""
    data = dataset_file.read(path)
    populations.of(path, data)
    console = _console()
    console.print(f"{data.name}, version {data.version}")
    for sentence in explain(data):
        console.print(f"- {sentence}")
    if not data.source:
        console.print("- Source: none is named.")
        return
    with closing(source.connect(data, path.parent, snapshot_path(path, data))) as table:
        if data.rows is not None:
            ((found,),) = table.tally(f"SELECT count(*) FROM {table.relation}")  # noqa: S608 - made by us
            snapshots.check_rows(data, found)
    there = "the snapshot of this version" if snapshot_path(path, data).exists() else "as declared"
    console.print(f"- Source: {there}, every column is there.")


def snapshot(path: Path) -> None:
    """Write the snapshot of this version."""
    data = dataset_file.read(path)
    target = snapshot_path(path, data)
    if target.exists():
        raise ParameterError(
            f"version must be raised in {path.name}: version {data.version} has its snapshot"
        )
    console = _console()
    with (
        homes.settled(path, data),
        console.status("reading the rows") as line,
    ):  # settled: they have an account

        def seen(done: int, known: int) -> None:
            line.update(f"reading the rows: {done:,} of {known:,} tasks")

        snapshots.make(data, path.parent, target, seen)
    parts = target.iterdir() if target.is_dir() else [target]
    size = sum(part.stat().st_size for part in parts) / 1e6
    console.print(f"{target} is written ({size:,.1f} MB) and used from now on for version {data.version}.")


def home(path: Path) -> None:
    """Print who the people are, and where their ledger is."""
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
    """Move the account to another ledger, with all that it bought."""
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
    """Take a copy for the home from now on."""
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
    """Write a declaration from another tool's."""
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
    _write(path, dataset_file.write(data))
    _console().print(f"{path} is written. Read what it promises:\n  reticent dataset check {path}")


def _categories(given: str) -> tuple[str, list[str]]:
    name, equals, listed = given.partition("=")
    if not name or not equals:
        raise ParameterError(f"values must be COLUMN=A,B,C, got {given!r:.60}")
    return name, listed.split(",")
