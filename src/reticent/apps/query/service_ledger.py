"""The ledger that a service pays from, as its settings name it, and the note of the ledger for devices."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path

from reticent.errors import LedgerError, ParameterError
from reticent.files import appearing
from reticent.ledger import Ledger
from reticent.ledger.witness.opening import opened as open_ledger
from reticent.query import DataSet
from reticent.query.declarations import home as homes
from reticent.service.settings import Settings
from reticent.service.state import own_folder


def opened(settings: Settings, declared: Callable[[], Iterable[tuple[Path, DataSet]]]) -> Ledger:
    """Open the ledger that the settings name.

    Args:
        settings: Settings of the service.
        declared: Function that finds the data sets of the folder, which one owner must have registered on a
            chain.
    """
    own = own_folder(settings.folder)
    if settings.is_on_chain:
        from reticent.apps.chain import service_ledger as on_chain

        if (settings.witness, settings.witness_key, settings.log_name) != (None, None, None):
            raise ParameterError("witness and log_name are for a ledger that is on no chain")
        return on_chain.opened(settings, declared(), own / "sending.lock")
    return open_ledger(
        settings.ledger if settings.ledger is not None else own / "ledger.sqlite",
        signer=own / "ledger.key",
        origin=settings.log_name,
        witness=settings.witness,
        witness_key=settings.witness_key,
        note=own / homes.WITNESS,
    )


def check_note(path: Path, place: str | None) -> None:
    """Note the ledger that holds what devices disclosed, or refuse another ledger than was noted."""
    if place is None:
        return
    if not path.exists():
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        with appearing(draft, mode=0o600) as note:
            note.write(f"{place}\n".encode())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)  # whole, and never over another's
        draft.unlink()
    told = path.read_text(encoding="utf-8").strip()
    if told != place:
        raise LedgerError(
            f"what devices told is entered in the ledger {told}, not in {place}: open the service with that "
            f"one; without {path} it would begin anew"
        )
