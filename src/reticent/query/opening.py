"""`reticent.open`: from the owner's file to a data set that can be asked.

Beside `census.yaml` lies a folder `census.reticent` with everything that Reticent keeps: the ledger, the
notebook, and the snapshot of each version, if the owner made one.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from reticent.errors import ParameterTypeError
from reticent.ledger import Ledger, SqlLedger
from reticent.query.datasets import DataSet
from reticent.query.notebook import Notebook
from reticent.query.session import Session


def folder(path: Path) -> Path:
    """Where Reticent keeps what belongs to a declaration."""
    return path.with_name(f"{path.stem}.reticent")


def snapshot_path(path: Path, data: DataSet) -> Path:
    """Where the snapshot of this version is, if there is one."""
    return folder(path) / f"snapshot-{data.version}.duckdb"


def open(  # noqa: A001
    declaration: str | os.PathLike[str],
    *,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    frame: Any = None,
) -> Session:
    """Open a data set to ask it.

    Args:
        declaration: the owner's YAML file.
        ledger: a ledger, its path, or its postgresql:// address; by default a file beside the declaration.

        frame: the rows, as a pandas data frame or an Arrow table, instead of the declared source.

    Returns:
        A session; close it, or use it in a `with` block.
    """
    from reticent.query import dataset_file, source

    if not isinstance(declaration, (str, os.PathLike)):
        raise ParameterTypeError(f"declaration must be a path, got {type(declaration).__name__}")
    path = Path(declaration)
    data = dataset_file.read(path)
    kept = folder(path)
    kept.mkdir(mode=0o700, exist_ok=True)
    if not isinstance(ledger, Ledger):
        ledger = SqlLedger(kept / "ledger.sqlite" if ledger is None else ledger)
    try:
        rows = partial(source.connect, data, path.parent, snapshot_path(path, data), frame)
        return Session(data, rows, ledger, Notebook(kept / "notebook.sqlite"))
    except BaseException:
        ledger.close()
        raise
