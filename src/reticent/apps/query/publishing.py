"""Publication of data sets from one machine to several servers, which share one ledger.

`reticent publish FOLDER --shared postgresql://...` is run where the declarations have their home
(`query.declarations.home`). It brings their accounts into the ledger in PostgreSQL, their notebooks beside
it, and notes in the state that is there as well which data sets all servers serve. A server opens no account
and makes no home: it finds the same declaration in its folder, or does not serve it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from reticent.errors import LedgerError, ParameterError
from reticent.files import secluded
from reticent.ledger import SqlLedger
from reticent.ledger.checkpoint import PublicKey, read_key
from reticent.ledger.witness.opening import noted
from reticent.ledger.witness.opening import opened as open_ledger
from reticent.query import DataSet
from reticent.query.declarations import home as homes
from reticent.query.notebook import Notebook
from reticent.query.opening import folder as kept_folder
from reticent.query.shared_notebook import TABLES, SharedNotebook
from reticent.service.settings import Settings
from reticent.service.state import Published, State, own_folder

if TYPE_CHECKING:
    from reticent.apps.query.data_sets import DataSets

SIGNER, WITNESS = "signer", "witness"  # settings that all servers have
_ORDER_KEY = "row order "  # and the name of a data set: the key that orders the rows of each person


def agreed(data: DataSet, told: Published) -> DataSet:
    """Return a declaration with the account that was published for it."""
    shares = "" if told.account == data.name else told.account
    return replace(data, identity=told.identity, shares=shares)


def publish(sets: DataSets, url: str) -> tuple[list[str], dict[str, str]]:
    """Publish the data sets of a folder, so that servers can serve them.

    Args:
        sets: Data sets of the folder, with the ledger in PostgreSQL; opened here alone.
        url: Address of that ledger.

    Returns:
        The names of the published data sets, and for each other name the reason why it is not.
    """
    ledger = sets.ledger
    if not isinstance(ledger, SqlLedger):
        raise ParameterError("shared must be the postgresql:// address of a ledger, no file")
    served, missed = [], {}
    with closing(State(url)) as state:
        database = state.database
        assert database is not None
        database.make(TABLES)
        _agree(state, sets.settings, ledger)
        state.take(sets.state)
        for data in sets.datasets():
            try:
                path, home = sets.at_home(data.name)
                with closing(Notebook(kept_folder(path) / "notebook.sqlite")) as notebook:
                    SharedNotebook(database, home.name).take(notebook)
                text = path.read_text(encoding="utf-8")
                _publish_order_key(state, home, homes.order_key(path, home))
                state.publish(Published(home.name, text, home.account, home.identity))
                served.append(home.name)
            except LedgerError as error:
                missed[data.name] = str(error)
    return served, missed


def _publish_order_key(state: State, data: DataSet, order_key: str | None) -> None:
    """Give all servers the key that orders the rows of each person; refuse a key that differs from theirs."""
    if order_key is not None and state.agree(f"{_ORDER_KEY}{data.name}", order_key) != order_key:
        raise LedgerError(
            f"the rows of {data.name} were published with another order: bring back the home that they had"
        )


def published_order_key(state: State, data: DataSet) -> str:
    """Return the key of a data set's rows that all servers use.

    Raises:
        LedgerError: The data set was published by a release that made no key.
    """
    order_key = state.agreed(f"{_ORDER_KEY}{data.name}")
    if order_key is None:
        raise LedgerError(
            f"{data.name} was published without the order of its rows: run `reticent publish` again"
        )
    return order_key


def _agree(state: State, settings: Settings, ledger: SqlLedger) -> None:
    """Note the signer and the witness of the ledger; refuse others than were noted."""
    own = own_folder(settings.folder)
    signer = _signer(settings, ledger.origin)
    if (held := state.agree(SIGNER, signer)) != signer:
        raise LedgerError(f"the heads of this ledger are signed by {held}, and the key here is {signer}")
    note = noted(ledger.where, own / homes.WITNESS)
    witness = "" if note is None else f"{note.url} {note.key}"
    if (held := state.agree(WITNESS, witness)) != witness:
        raise LedgerError(f"the witness of this ledger is {held or 'none'}, here it is {witness or 'none'}")


def opened_ledger(settings: Settings, state: State) -> SqlLedger:
    """Open the ledger of several servers as it was published: signed by the one key, with its witness.

    Raises:
        ParameterError: Nothing was published there, or the options say something else.
        LedgerError: The key here is another one.
    """
    signer, told = state.agreed(SIGNER), state.agreed(WITNESS)
    if signer is None or told is None or state.database is None:
        raise ParameterError(
            "shared must be where data sets are published: reticent publish FOLDER --shared ADDRESS"
        )
    state.database.make(TABLES)
    url, _, key = told.partition(" ")
    if settings.witness not in (None, url) or settings.witness_key not in (None, key):
        raise ParameterError(f"witness must be the one that was published, {told or 'none'}")
    own = own_folder(settings.folder)
    if url:
        secluded(own, whole=True)  # a note of the witness is made there
    ledger = open_ledger(
        str(settings.ledger),
        signer=_key_file(settings),
        origin=settings.log_name,
        witness=url or None,
        witness_key=key or None,
        note=own / homes.WITNESS if url else None,
    )
    here = _signer(settings, ledger.origin)
    if here != signer:
        ledger.close()
        raise LedgerError(
            f"the heads of this ledger are signed by {signer}, and the key here is {here}: bring the file "
            ".service/ledger.key of where it was published"
        )
    return ledger


def _key_file(settings: Settings) -> Path:
    """Return the file of the key that signs heads, which must be there already."""
    path = Path(settings.signing_key or own_folder(settings.folder) / "ledger.key")
    if not path.is_file():
        raise ParameterError(
            f"signing_key must be the key that signs the ledger's heads, there is none at {path}: bring the "
            "file .service/ledger.key of where the data sets were published"
        )
    return path


def _signer(settings: Settings, origin: str) -> str:
    return str(PublicKey(origin, read_key(_key_file(settings)).public_key()))
