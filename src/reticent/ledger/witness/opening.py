"""Opening a ledger together with its witness, which a note beside the ledger names.

The note is made when a ledger is first opened with a witness, `ledger.sqlite.witness` beside a file. From
then on everybody who opens this ledger, service, command or Python, asks that witness, and gets an older
copy, or another ledger in its place, refused by name. The note outlives the ledger's file: a restored one
finds it. The note of a ledger in PostgreSQL is beside the service. The database address may change: under
another address the first account of the log decides whether it is the noted log.

Not covered: a backup of the whole folder from before the note was made. If you name the witness at every
start (`--witness`, `RETICENT_WITNESS`), the content of the folder does not matter.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from urllib.parse import urlsplit

from reticent.errors import LedgerError, ParameterError, RolledBack
from reticent.files import appearing
from reticent.ledger.checkpoint import load_key, read_key
from reticent.ledger.sql.ledger import SqlLedger
from reticent.ledger.witness.client import WitnessClient, WitnessedLedger

_LARGEST = 1 << 14
_ADDRESSES = ("postgresql://", "postgres://")


@dataclass(frozen=True)
class Note:
    """A note of the witness that a ledger has.

    Attributes:
        url: Address at which the witness listens.
        key: Public key of the witness; empty before the first opening, which believes the key that is shown.
        origin: Name of the log: a ledger of another name is another ledger. Also empty before the first
            opening.
        signer: File of the key that signs heads, relative to the note's folder.
        database: Database of a ledger in PostgreSQL, where it was last opened.
        log: Root of the log's first two entries, which no other log has and every copy of it keeps; empty as
            long as the log has no account.
    """

    url: str
    key: str
    origin: str
    signer: str
    database: str = ""
    log: str = ""


def opened(
    where: str | os.PathLike[str],
    *,
    signer: Path | None = None,
    origin: str | None = None,
    witness: str | None = None,
    witness_key: str | None = None,
    note: Path | None = None,
) -> SqlLedger:
    """Open the ledger at a path or address, with its witness if it has one.

    Args:
        where: Path or address of the ledger.
        signer: File of the key that signs heads, created if there is none; by default the noted file.
        origin: Name of the log, as for `SqlLedger`.
        witness: Address of a witness, which is noted; by default the noted witness, if any.
        witness_key: Public key of the witness; by default the noted key, or else the key that the witness
            shows first.
        note: Path of the note, for a ledger that is not a file.

    Raises:
        RolledBack: The ledger is behind the witness, or forked from it.
        WitnessUnavailable: The witness cannot be reached.
        LedgerError: The note cannot be read, or the ledger has another name than the note; or there is no
            ledger at this address, while one at another address is noted.
    """
    place, held = _place(where, note), _noted(where, note, is_named=witness is not None)
    if held is None and witness is None and witness_key is None:
        return SqlLedger(where, origin=origin, key=None if signer is None else load_key(signer))
    if place is None or (held is None and signer is None):
        raise ParameterError("a witness is for a ledger in a file, or of a service, whose heads are signed")
    asked = _asked(held, place, signer, witness, witness_key, origin)
    key = load_key(signer) if signer is not None else read_key(place.parent / asked.signer)
    client = WitnessClient(asked.url, key=asked.key or None)
    try:
        ledger = WitnessedLedger(where, client=client, key=key, origin=asked.origin or None)
    except BaseException as error:
        client.close()
        if isinstance(error, RolledBack):
            raise RolledBack(
                f"{error}. What was released since is not in this copy, and would be sold again: bring back "
                "the newest one, or see `reticent ledger recover --help`"
            ) from error
        raise
    found = replace(
        asked,
        key=str(client.key),
        origin=ledger.origin,
        database=_database(where),
        log=_first_entries(ledger),
    )
    if found != held:
        _write(place, found)
    return ledger


def _asked(
    held: Note | None,
    place: Path,
    signer: Path | None,
    witness: str | None,
    witness_key: str | None,
    origin: str | None,
) -> Note:
    """Return the new note, from the existing note and the arguments."""
    if witness is None and (held is None or witness_key not in (None, held.key)):
        raise ParameterError("witness_key goes with the address of a witness")
    if held is not None and origin not in (None, held.origin):
        raise LedgerError(f"{place} notes a ledger of the log {held.origin}, asked for {origin}")
    if held is not None and witness not in (None, held.url) and witness_key is None:
        raise ParameterError(f"witness_key must be given with another witness than {place} notes, {held.url}")
    known = Note("", "", origin or "", "") if held is None else held
    signing = known.signer if signer is None else _from(place.parent, signer)
    return replace(known, url=witness or known.url, key=witness_key or known.key, signer=signing)


def noted(where: str | os.PathLike[str], note: Path | None = None) -> Note | None:
    """Return the note of a ledger, if it has one.

    See `opened` for the arguments.
    """
    return _noted(where, note, is_named=False)


def _noted(where: str | os.PathLike[str], note: Path | None, *, is_named: bool) -> Note | None:
    place = _place(where, note)
    found = None if place is None else _read(place)
    if found is None or found.database == _database(where):
        return found
    try:
        with SqlLedger(where, create=False) as ledger:
            origin, log = ledger.origin, _first_entries(ledger)
    except LedgerError as error:
        if is_named:  # a caller that names the witness begins another ledger there, with it
            return None
        raise LedgerError(
            f"{place} notes a witness for a ledger that was at another address, and at this one {error}. "
            "Name the witness, or take the note away if another ledger shall begin here"
        ) from error
    is_same = found.log == log if found.log and log else found.origin == origin
    return found if is_same else None


def _first_entries(ledger: SqlLedger) -> str:
    """Return the root that distinguishes a log from all others, or an empty text.

    The second entry of a log opens an account, with a random commitment.
    """
    return ledger.root(2).hex() if ledger.head().size >= 2 else ""


def _place(where: str | os.PathLike[str], note: Path | None) -> Path | None:
    if _database(where):
        return note
    found = Path(os.fsdecode(where)).resolve()
    return found.with_name(f"{found.name}.witness")


def _database(where: str | os.PathLike[str]) -> str:
    """Return the database that an address leads to, without the user; an empty text for a file."""
    if not os.fsdecode(where).startswith(_ADDRESSES):
        return ""
    parts = urlsplit(os.fsdecode(where))
    return f"{parts.netloc.rpartition('@')[2]}{parts.path}"


def _from(folder: Path, file: Path) -> str:
    found = Path(file).resolve()
    return str(found.relative_to(folder.resolve()) if found.is_relative_to(folder.resolve()) else found)


def _read(place: Path) -> Note | None:
    """Read the note, if there is one; a note of an earlier release has fewer fields."""
    try:
        with place.open("rb") as file:
            told = json.loads(file.read(_LARGEST))
        found = Note(**{one.name: told[one.name] for one in fields(Note) if one.name in told})
        if not all(isinstance(part, str) for part in asdict(found).values()):
            raise TypeError
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LedgerError(f"{place} does not say which witness the ledger has") from error
    return found


def _write(place: Path, note: Note) -> None:
    with appearing(place, mode=0o600) as file:
        file.write((json.dumps(asdict(note), indent=1) + "\n").encode())
