"""The work behind the commands `reticent serve`, `reticent publish`, `reticent key` and `reticent source`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from reticent.apps.query import sources
from reticent.errors import ParameterError, ParameterTypeError
from reticent.query.declarations import dataset_file
from reticent.service.keys import Role
from reticent.service.settings import Settings
from reticent.service.state import State
from reticent.tables.row_files import located


def serve(folder: Path, *, host: str, port: int, workers: int, **settings: Any) -> None:
    """Serve a folder of data sets until interrupted."""
    from reticent.apps.service.serving import serve as run

    def say(address: str) -> None:
        screen = Console(highlight=False, markup=False)
        screen.print(f"Reticent serves {folder} at {address} (Ctrl-C ends it)", soft_wrap=True)
        for line in what_is_served(folder, with_rows=not given.is_on_chain):
            screen.print(line, soft_wrap=True)

    given = Settings(folder, **settings)
    run(given, host=host, port=port, workers=workers, say=say)


def publish(folder: Path, shared: str, *, witness: str | None = None, witness_key: str | None = None) -> None:
    """Publish the data sets of a folder for several servers, and print which are published."""
    from reticent.apps.query import publishing
    from reticent.apps.query.data_sets import DataSets

    settings = Settings(folder, ledger=shared, witness=witness, witness_key=witness_key)
    with closing(DataSets(settings)) as sets:
        served, missed = publishing.publish(sets, shared)
    screen = Console(highlight=False, markup=False)
    screen.print(f"published: {', '.join(served) or 'no data set'}", soft_wrap=True)
    for name, why in missed.items():
        screen.print(f"  {name} is not published: {why}", soft_wrap=True)
    screen.print(f"every server needs a copy of {folder / '.service' / 'ledger.key'}", soft_wrap=True)


def what_is_served(folder: Path, *, with_rows: bool = True) -> list[str]:
    """Return lines that name the declared data sets, and say why some are not served.

    Nothing is opened for this.

    Args:
        folder: Folder of the service.
        with_rows: True if the rows must be there; False for a ledger on a chain, where an oracle has them
            elsewhere.
    """
    served, lines = [], []
    for path in sorted(folder.glob("*.yaml")):
        try:
            data = dataset_file.read(path)
            for form in ("csv", "parquet", "duckdb"):
                if with_rows and form in data.source:
                    located(f"source.{form}", str(data.source[form]), folder)
            served.append(data.name)
        except (ParameterError, ParameterTypeError) as error:
            said = str(error).replace(f"dataset {path.name}: ", "")
            lines.append(f"  {path.name} is not served: {said}")
    if served:
        lines.insert(0, f"  data sets: {', '.join(served)}")
    elif not lines:
        lines.append("  no data set is declared there yet: `reticent dataset new FILE` begins a declaration")
    return lines


@contextmanager
def _state(folder: Path, shared: str | None = None) -> Iterator[State]:
    if not folder.is_dir():
        raise ParameterError(f"folder must be a folder with declarations, there is none at {folder}")
    state = State.of_service(Settings(folder, ledger=shared, shared=shared is not None))
    try:
        yield state
    finally:
        state.close()


def make_key(folder: Path, name: str, role: str, *, shared: str | None = None) -> None:
    """Make a key and print the secret, alone on standard output."""
    with _state(folder, shared) as state:
        _, secret = state.make_key(name, Role(role))
    Console(stderr=True, highlight=False).print(f"the key of {name} ({role}), shown once:")
    print(secret)


def replace_key(folder: Path, name: str, *, shared: str | None = None) -> None:
    """Replace a lost key and print the new secret, alone on standard output."""
    with _state(folder, shared) as state:
        found = state.replace_key(name)
    if found is None:
        raise ParameterError(f"name must be of somebody who has a key, got {name!r:.60}")
    Console(stderr=True, highlight=False).print(f"the new key of {name}, shown once; the old one is void:")
    print(found[1])


def list_keys(folder: Path, *, shared: str | None = None) -> None:
    """Print every key without its secret."""
    with _state(folder, shared) as state:
        records = state.all_keys()
    table = Table()
    for heading in ("name", "role", "made", "revoked"):
        table.add_column(heading)
    for one in records:
        table.add_row(one.person.name, one.person.role.value, _day(one.made), _day(one.revoked))
    Console(highlight=False, markup=False).print(table)


def _day(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def revoke_key(folder: Path, name: str, *, shared: str | None = None) -> None:
    """Revoke the key of a person."""
    with _state(folder, shared) as state:
        if not state.revoke(name):
            raise ParameterError(f"name must be of somebody who has a key, got {name!r:.60}")
    _told(f"the key of {name} is taken back")


def assign_source(folder: Path, file: str, owner: str) -> None:
    """Assign a file of the folder to an owner."""
    with _state(folder) as state:
        name = sources.assign(state, folder, file, owner)
        over = [dataset for dataset, _ in state.registered(name)]
    _told(f"{name} is {owner}'s" + (f", with {', '.join(over)}" if over else ""))


def list_sources(folder: Path) -> None:
    """Print every assigned file with its owner and its data sets."""
    with _state(folder) as state:
        held = [(one, is_there, state.registered(one.file)) for one, is_there in sources.found(state, folder)]
    table = Table()
    for heading in ("file", "owner", "assigned", "data sets", ""):
        table.add_column(heading)
    for one, is_there, over in held:
        wrong = ["key revoked"] * one.is_revoked + ["gone or replaced"] * (not is_there)
        names = ", ".join(name for name, _ in over)
        table.add_row(one.file, one.owner.name, _day(one.made), names, ", ".join(wrong))
    Console(highlight=False, markup=False).print(table)


def release_source(folder: Path, file: str) -> None:
    """Take an assigned file back from its owner."""
    with _state(folder) as state:
        sources.release(state, file)
    _told(f"{file} is nobody's")


def _told(text: str) -> None:
    Console(highlight=False, markup=False).print(text, soft_wrap=True)
