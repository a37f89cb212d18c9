"""Opening of data sets (`reticent.open`), from the owner's declaration or the address of a service.

Beside `census.yaml` lies a folder `census.reticent` with everything that Reticent stores: the location of the
only ledger (`home`) and by default the ledger itself, the notebook, and the snapshot of each version, if the
owner made one. Data sets of a service (`reticent serve`) are opened by its address: see `remote`.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, overload

from reticent.errors import LedgerError, MissingExtra, ParameterError, ParameterTypeError
from reticent.files import secluded
from reticent.ledger import Ledger, SqlLedger
from reticent.query import shared_notebook
from reticent.query.declarations import account_moving, account_opening, ledger_places, order_keys
from reticent.query.declarations import home as homes
from reticent.query.declarations.datasets import FORMATS, DataSet
from reticent.query.declarations.home import folder as folder
from reticent.query.session import Session

if TYPE_CHECKING:
    from reticent.query.remote import RemoteSession

_SCHEMES = ("http://", "https://")
_READING, _MEASURING = ("yaml", "sqlglot"), ("duckdb", "ibis", "opendp", "pyarrow")  # of the extra `query`


def snapshot_path(path: Path, data: DataSet) -> Path:
    """Return the path of the snapshot of this version and format, whether it exists or not."""
    form = "parquet" if "spark" in data.source else "duckdb"
    cells = "" if data.format == FORMATS[0] else f"+format{data.format}"  # no version has a plus
    return folder(path) / f"snapshot-{data.version}{cells}.{form}"


@overload
def open(  # noqa: A001
    declaration: str | os.PathLike[str],
    *,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    frame: Any = None,
) -> Session: ...


@overload
def open(  # noqa: A001
    declaration: str, *, key: str, dataset: str | None = None, insecure: bool = False
) -> RemoteSession: ...


def open(  # noqa: A001
    declaration: str | os.PathLike[str],
    *,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    frame: Any = None,
    key: str | None = None,
    dataset: str | None = None,
    insecure: bool = False,
) -> Session | RemoteSession:
    """Open a data set to ask questions about it.

    Args:
        declaration: Path of the owner's YAML file; or the address of a service, alone (http://host:8000) or
            with the name of a data set (http://host:8000/census).
        ledger: Path or postgresql:// address of the ledger, when the declaration is first opened; a file
            beside it by default. A declaration keeps its ledger for ever: another one is refused by name. If
            an oracle records in the ledger, the source is never touched: the oracle holds the data.
        frame: Rows as a pandas data frame or an Arrow table, instead of the declared source.
        key: API key, for a service.
        dataset: Data set of a service, if the address does not name it; not needed if there is only one.
        insecure: True to send the key over plain http to another machine, where anybody on the network path
            can read it.

    Returns:
        A session, or a remote session with the same methods; close it, or use it in a `with` block.

    Raises:
        MissingExtra: A package that local data sets need is not installed.
        ParameterError: The declaration, or an argument, is wrong.
        LedgerError: The account is in another ledger.
    """
    from reticent.query.declarations import dataset_file
    from reticent.query.rows import source

    if not isinstance(declaration, (str, os.PathLike)):
        raise ParameterTypeError(f"declaration must be a path, got {type(declaration).__name__}")
    if isinstance(declaration, str) and declaration.startswith(_SCHEMES):
        if key is None:
            raise ParameterError("key must be given with the address of a service")
        if ledger is not None or frame is not None:
            raise ParameterError("ledger and frame are for a declaration here, not for a service")
        from reticent.query.remote import RemoteSession

        return RemoteSession(declaration, key, dataset, insecure=insecure)
    if key is not None or dataset is not None or insecure:
        raise ParameterError("key, dataset and insecure are for the address of a service")
    _check_parts(*_READING)
    path = Path(declaration).resolve()
    data = dataset_file.read(path)
    kept = folder(path)
    with ExitStack() as held:
        rows = None
        if isinstance(ledger, Ledger) and ledger.measured_by_oracle:
            held.callback(ledger.close)
            if frame is not None:
                raise ParameterError("frame must be left out with this ledger: an oracle holds the data")
            secluded(kept)
        else:
            _check_parts(*_MEASURING)
            data, ledger = at_home(path, data, ledger)
            held.callback(ledger.close)
            key_of_rows = homes.order_key(path, data)
            snapshot = snapshot_path(path, data)
            rows = partial(source.connect, data, path.parent, snapshot, frame, order_key=key_of_rows)
            if frame is not None:  # its column types depend on its rows, so answers must not show them
                data = replace(data, source=MappingProxyType({}))
        where = getattr(ledger, "where", "")
        notebook = shared_notebook.opened(where, data.name, kept / "notebook.sqlite")
        held.callback(notebook.close)
        session = Session(data, rows, ledger, notebook)
        held.pop_all()
        return session


def _check_parts(*modules: str) -> None:
    """Raise MissingExtra if a module is missing, before anything is opened; no module is loaded yet."""
    for module in modules:
        if find_spec(module) is None:
            raise MissingExtra("a data set that lies here", "query")


def at_home(
    path: Path, data: DataSet, wanted: Ledger | str | os.PathLike[str] | None
) -> tuple[DataSet, SqlLedger]:
    """Open the only ledger of a declaration, and the declaration's account there.

    Args:
        path: Path of the declaration.
        data: Declaration that was read from the path.
        wanted: Ledger that the caller asks for, which must be the declaration's own; None for any.

    Raises:
        LedgerError: The ledger is elsewhere.
    """
    if isinstance(wanted, Ledger) and not isinstance(wanted, SqlLedger):
        raise LedgerError(
            f"ledger must be a path, a postgresql:// address or an SqlLedger, got {type(wanted).__name__}: "
            "what is spent must outlive this process"
        )
    where = wanted.where if isinstance(wanted, SqlLedger) else wanted
    with homes.settled(path, data, where) as home:
        place = home.paying
        if home.is_on_chain or place.startswith("ethereum:"):
            raise LedgerError(
                f"{path.name} pays from the contract {place.removeprefix('ethereum:')}: ask it with --chain"
            )
        if where is not None and ledger_places.placed(where) != place:
            got = ledger_places.placed(where)
            raise LedgerError(
                f"{path.name} pays from {place}, and from no other ledger; got {got}. "
                f"To move it there with all that is spent: reticent dataset move {path.name} --ledger LEDGER"
            )
        if isinstance(wanted, SqlLedger):
            homes.check_witnessed(wanted, homes.near_service(path, home))
        ledger = (
            wanted
            if isinstance(wanted, SqlLedger)
            else homes.open_ledger(
                where if where is not None else home.paying_address, homes.near_service(path, home)
            )
        )
        try:
            if home.moving:
                home, _ = account_moving.moved_to(home, data, ledger)
            account_moving.left_behind(home, path, data, ledger)
            opened = account_opening.opened(home, data, ledger)
            order_keys.ensure_order_key(home, path, opened, ledger)
            return opened, ledger
        except BaseException:
            if ledger is not wanted:
                ledger.close()
            raise
