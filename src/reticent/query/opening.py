"""`reticent.open`: from the owner's file to a data set that can be asked.

Beside `census.yaml` lies a folder `census.reticent` with everything that Reticent keeps: the ledger, the
notebook, and the snapshot of each version, if the owner made one. Or from the address of a service
(`reticent serve`) to one of its data sets: see `remote`.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from reticent.errors import ParameterError, ParameterTypeError
from reticent.ledger import Ledger, SqlLedger
from reticent.query.datasets import DataSet
from reticent.query.notebook import Notebook
from reticent.query.session import Session

if TYPE_CHECKING:
    from reticent.query.remote import RemoteSession

_SCHEMES = ("http://", "https://")


def folder(path: Path) -> Path:
    """Where Reticent keeps what belongs to a declaration."""
    return path.with_name(f"{path.stem}.reticent")


def snapshot_path(path: Path, data: DataSet) -> Path:
    """Where the snapshot of this version is, if there is one."""
    return folder(path) / f"snapshot-{data.version}.duckdb"


@overload
def open(  # noqa: A001
    declaration: str | os.PathLike[str],
    *,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    frame: Any = None,
) -> Session: ...


@overload
def open(  # noqa: A001
    declaration: str, *, key: str, dataset: str | None = None
) -> RemoteSession: ...


def open(  # noqa: A001
    declaration: str | os.PathLike[str],
    *,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    frame: Any = None,
    key: str | None = None,
    dataset: str | None = None,
) -> Session | RemoteSession:
    """Open a data set to ask it.

    Args:
        declaration: the owner's YAML file; or the address of a service, alone (http://host:8000) or with
            the name of a data set (http://host:8000/census).
        ledger: a ledger, its path, or its postgresql:// address; by default a file beside the declaration.
            With one that an oracle records in, the source is never touched: the oracle holds the data.
        frame: the rows, as a pandas data frame or an Arrow table, instead of the declared source.
        key: the API key, for a service.
        dataset: which data set of a service, if the address does not say it; not needed if it has one.

    Returns:
        A session, or one that asks a service and answers the same; close it, or use it in a `with` block.
    """
    from reticent.query import dataset_file, source

    if not isinstance(declaration, (str, os.PathLike)):
        raise ParameterTypeError(f"declaration must be a path, got {type(declaration).__name__}")
    if isinstance(declaration, str) and declaration.startswith(_SCHEMES):
        if key is None:
            raise ParameterError("key must be given with the address of a service")
        if ledger is not None or frame is not None:
            raise ParameterError("ledger and frame are for a declaration here, not for a service")
        from reticent.query.remote import RemoteSession

        return RemoteSession(declaration, key, dataset)
    if key is not None or dataset is not None:
        raise ParameterError("key and dataset are for the address of a service")
    path = Path(declaration)
    data = dataset_file.read(path)
    kept = folder(path)
    kept.mkdir(mode=0o700, exist_ok=True)
    if not isinstance(ledger, Ledger):
        ledger = SqlLedger(kept / "ledger.sqlite" if ledger is None else ledger)
    with ExitStack() as held:
        held.callback(ledger.close)
        rows = None
        if not ledger.measured_by_oracle:
            rows = partial(source.connect, data, path.parent, snapshot_path(path, data), frame)
        elif frame is not None:
            raise ParameterError("frame must be left out with this ledger: an oracle holds the data")
        notebook = Notebook(kept / "notebook.sqlite")
        held.callback(notebook.close)
        session = Session(data, rows, ledger, notebook)
        held.pop_all()
        return session
