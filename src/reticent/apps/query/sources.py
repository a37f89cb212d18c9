"""Ownership of the files in the folder, which the operator assigns to owners.

Over the network nobody can name the file of another owner.

A file is known by its name at the end of all links and by its identity: a file that took the place of another
under the same name is nobody's until it is assigned again. Data sets that the operator declares in the folder
by hand are not looked at here: they are the operator's. All data sets over one file pay from one account
(`query.claims`); of a database file, which claims know by tables, one is registered over the network and no
other.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from reticent import files
from reticent.errors import ParameterError
from reticent.query import DataSet
from reticent.query.declarations.claims import part
from reticent.service.keys import Person, Role
from reticent.service.state import Rows, Source, State
from reticent.tables.row_files import located

_FORMS = ("csv", "parquet", "duckdb")


def assign(state: State, folder: Path, file: str, owner: str) -> str:
    """Assign a file of the folder to an owner; the data sets registered over the file come along.

    Returns:
        Name of the file at the end of all links.

    Raises:
        ParameterError: The file is missing, may not be a source, or is somebody else's; or there is no such
            owner.
    """
    path = located("file", file, folder, is_inside=True)
    person = state.named(owner)
    if person is None or person.role is not Role.OWNER:
        raise ParameterError(f"owner must be somebody who has the key of an owner, got {owner!r:.60}")
    state.assign(path.name, files.identity(path), person)
    return path.name


def release(state: State, file: str) -> None:
    """Take a file back from its owner.

    Nobody can register it then, and data sets that were registered over it are not opened any more.
    """
    if not state.release_source(file):
        raise ParameterError(f"file must be assigned to somebody, got {file!r:.80}")


def found(state: State, folder: Path) -> list[tuple[Source, bool]]:
    """Return every assigned file, and whether it is there and unchanged."""
    return [(one, _is_same(folder / one.file, one.identity)) for one in state.sources()]


def of(state: State, folder: Path, person: Person) -> list[str]:
    """Return the files that a person may register now."""
    return [one.file for one, is_there in found(state, folder) if is_there and one.owner == person]


def registrable(state: State, folder: Path, person: Person, data: DataSet) -> Rows:
    """Return the rows of a declaration that came over the network.

    Raises:
        ParameterError: The rows are no file that is assigned to this person. The message does not say whether
            there is such a file.
    """
    form = next((form for form in _FORMS if form in data.source), None)
    if form is None or "spark" in data.source:  # a Spark that is named reads whatever it is told to
        raise ParameterError("source must be a csv, parquet or duckdb file that the operator assigned to you")
    rows = _assigned(state, folder, person.number, data, form)
    if rows is None:
        given = str(data.source[form])
        raise ParameterError(
            f"source.{form} must be a file that the operator assigned to you, got {given!r:.80}"
        )
    for name, other in state.registered(rows.file):
        if other != rows.part:
            raise ParameterError(
                f"source.table must be that of {name}: all data sets over {rows.file} pay from one account"
            )
    return rows


def holder(state: State, folder: Path, data: DataSet) -> int | None:
    """Return the number of the owner of a data set's file, if it is assigned."""
    form = next((form for form in _FORMS if form in data.source), None)
    if form is not None:
        with suppress(ParameterError):
            path = located(f"source.{form}", str(data.source[form]), folder, is_inside=True)
            held = state.source(path.name)
            return None if held is None else held[0]
    return None


def check(state: State, folder: Path, data: DataSet) -> str:
    """Check again, whenever rows are read, that a data set from the network may have them.

    Returns:
        Identity of its file; empty if the operator declared the data set.

    Raises:
        ParameterError: Its file is not assigned to its owner, or is another file than was assigned.
    """
    owner = state.owner(data.name)
    if owner is None:  # the operator's
        return ""
    form = next((form for form in _FORMS if form in data.source), "")
    rows = _assigned(state, folder, owner, data, form) if form else None
    held = None if rows is None else state.source(rows.file)
    if held is None:
        raise ParameterError(
            f"the source of {data.name} must be assigned to its owner: reticent source assign"
        )
    return held[1]


def _assigned(state: State, folder: Path, owner: int, data: DataSet, form: str) -> Rows | None:
    """Return the rows of a data set, if their file is assigned to the owner."""
    try:
        path = located(f"source.{form}", str(data.source[form]), folder, is_inside=True)
    except ParameterError:
        return None
    held = state.source(path.name)
    is_theirs = held is not None and held[0] == owner and _is_same(path, held[1])
    return Rows(path.name, part(data)) if is_theirs else None


def _is_same(path: Path, identity: str) -> bool:
    try:
        return files.identity(path) == identity
    except OSError:
        return False
