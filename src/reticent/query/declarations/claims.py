"""Notes beside files of rows, each of which names the declaration that was the first to read the file.

Beside `census.csv` lies `.census.csv.reticent`. Every other declaration of the same file, under this name, a
symbolic link or a hard link in the same folder, finds it there and shares the account of the first; so does
one of `census.csv.gz` beside it, which by its name is the same, compressed. For a DuckDB file there is a note
for each table, and beside a file that names people one that says where their home is. Files that Spark reads
are noted as others are, a folder of them by itself; a file in a noted folder belongs to the declaration that
has the folder. A table that Spark knows by name is noted in the folder of the declaration:
`.spark.HASH.reticent`. Where nothing may be written beside the rows, nothing is noted; of databases that are
reached by an address neither (docs/limits.md). A full or failing disk may be written: a declaration that
cannot leave its note there is refused, or each declaration of the rows would have a budget of its own.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from reticent import files
from reticent.errors import LedgerError, StorageUnavailable
from reticent.query.declarations.datasets import DataSet
from reticent.tables.packed import SUFFIX, without_suffix

try:
    import fcntl
except ImportError:  # not on this platform: two hard links that are declared at once may collide
    fcntl = None  # type: ignore[assignment]

_FILES = ("csv", "parquet", "duckdb")
PEOPLE = "people"  # parts that no table is called: those have a dot
LEDGER = "ledger"
_LARGEST = 1 << 16
# Where nothing may be written, or a file can have no second name: later declarations meet the same error.
_NEVER = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)


def claimed(path: Path, data: DataSet, identity: str, folder: Path) -> Path:
    """Return the folder of the first declaration of a source: the given folder, if nobody declared it before.

    Args:
        path: Path of the declaration.
        data: Declared data set.
        identity: Identity of the people of the declaration.
        folder: Folder with the home of the declaration.
    """
    source = _source(path, data)
    if source is None:
        return folder
    return _claimed(*source, identity, folder)


def claimed_people(file: Path, identity: str, folder: Path) -> Path:
    """Return the folder of the home that first claimed a file of people, whatever the file is called."""
    return _claimed(file, files.identity(file), PEOPLE, identity, folder)


def claim_ledger(file: Path, name: Callable[[Path], Path]) -> Path:
    """Return the folder of the one ledger that lies beside a file, whatever the file is called.

    The same file under a symbolic link, a hard link in its folder, a new name there, or compressed under its
    own name leads to the ledger that was first. Earlier releases put one beside each name: one that is found
    there is taken over.

    Args:
        file: Existing file that the ledger is about.
        name: Function from a path of the file to the folder that its ledger would have.

    Raises:
        LedgerError: Earlier releases made several ledgers for the same file.
    """
    real = file.resolve()
    identity = files.identity(real)
    names = [real, file.absolute(), *_same_rows(real, identity)[0]]
    ledgers = list(dict.fromkeys(name(path) for path in names))
    existing = [path for path in ledgers if path.is_dir()]
    first = existing[0] if existing else ledgers[0]
    # By its full path from the file: ledgers in two folders may have one name.
    claimed = _claimed(real, identity, LEDGER, _seen_from(real, first), first)
    found = sorted({path.resolve() for path in (*existing, claimed) if path.is_dir()})
    if len(found) > 1:
        raise LedgerError(
            f"{file} has several ledgers, under several of its names: {', '.join(map(str, found))}. What was "
            "released is the sum of them: keep the one with the most spent, and move the others away"
        )
    return found[0] if found else claimed


def _claimed(file: Path, itself: str, table: str, identity: str, folder: Path) -> Path:
    claim = {"identity": identity, "file": itself, "table": table}
    with _alone(file.parent):
        for note in () if table else _around(file):
            held = _claim(note)
            if held is not None and held["identity"] != identity:  # noted here too, for later declarations
                first = _folder(note, held)
                claim["identity"] = held["identity"]
                return _first(file, claim | {"folder": _seen_from(file, first)}, first)
        return _first(file, claim | {"folder": _seen_from(file, folder)}, folder)


def _seen_from(file: Path, folder: Path) -> str:
    """Return a folder as a path relative to a file, so that both may be moved together."""
    with contextlib.suppress(ValueError):  # not on the same drive
        return os.path.relpath(folder, file.parent)
    return str(folder)


def _around(file: Path) -> Iterator[Path]:
    """Yield the notes of folders of Parquet that a file lies in, and of files that lie in such a folder."""
    yield from (_note(one, "") for one in file.parents if one.name)
    if file.is_dir():
        yield from sorted(file.rglob(".*.reticent"))


def given_up(path: Path, data: DataSet, identity: str) -> None:
    """Remove the note of a declaration that was never accepted: no other declaration may be sent to it."""
    source = _source(path, data)
    if source is not None:
        _remove_notes(source[0], identity, source[2])


def release_people(file: Path, identity: str) -> None:
    """Remove the note of people whose account was never opened."""
    _remove_notes(file, identity, PEOPLE)


def _remove_notes(file: Path, identity: str, table: str) -> None:
    with _alone(file.parent), contextlib.suppress(OSError):
        for note in file.parent.glob(".*.reticent"):
            held = _claim(note)
            if held is not None and (held["identity"], held["table"]) == (identity, table):
                note.unlink()


def _first(file: Path, claim: dict[str, Any], folder: Path) -> Path:
    identity, itself, table = claim["identity"], claim["file"], claim["table"]
    names, same = _same_rows(file, itself)
    named = [_note(one, table) for one in names]
    for note in named:
        _check_readable(note)
    for note in (*named, *sorted(file.parent.glob(".*.reticent"))):
        held = _claim(note)
        if held is None or held["table"] != table:
            continue
        if note in named or held["file"] in same:
            if held["identity"] != identity:
                # noted for this file too: another link to it has neither its name nor that of its twin
                return _noted(named[0], held | {"file": itself}) if note != named[0] else _folder(note, held)
            if note == named[0] and held == claim:
                return folder
    return _noted(named[0], claim)


def _same_rows(file: Path, itself: str) -> tuple[list[Path], set[str]]:
    """Return the names in a file's folder that lead to the same rows, its own first, and the file identities.

    One name leads to another by a hard link, or by being what it is called when it is compressed, or not.
    """
    names, same = [file], {itself}
    for name in names:  # the list grows meanwhile
        twin = _twin(name)
        if twin is not None and twin not in names:
            names.append(twin)
        with contextlib.suppress(OSError):  # a twin that is not there, or no more
            if name.stat().st_nlink > 1:
                told = files.identity(name)
                names += [one for one in _links(file.parent, told) if one not in names]
            same.add(files.identity(name))
    return names, same


def _links(folder: Path, identity: str) -> Iterator[Path]:
    """Yield the hard links of a file in a folder; callers have followed symbolic links before."""
    for one in folder.iterdir():
        with contextlib.suppress(OSError):
            told = one.lstat()
            if stat.S_ISREG(told.st_mode) and told.st_nlink > 1 and files.identity(one) == identity:
                yield one


def _twin(file: Path) -> Path | None:
    """Return the name of a CSV file when compressed, or when not: by that name, it holds the same rows."""
    name = without_suffix(file.name)
    if not name.casefold().endswith(".csv"):
        return None
    return file.with_name(name if name != file.name else f"{name}{SUFFIX}")


def _check_readable(note: Path) -> None:
    """Refuse a note that cannot be read: the rows belong to a declaration that is not known then."""
    try:
        files.tightened(note)
        with note.open("rb"):
            pass
    except FileNotFoundError:
        pass
    except PermissionError as error:
        raise LedgerError(
            f"{note} says whose these rows are, and is another user's: ask as the user who declared them"
        ) from error


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock on the search for notes and their writing: two names of one file have a note each."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # a file system without locks: the first to write has it
            place = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            held.callback(os.close, place)
            if fcntl is not None:
                fcntl.flock(place, fcntl.LOCK_EX)
        yield


def _folder(note: Path, claim: dict[str, Any]) -> Path:
    return (note.parent / str(claim["folder"])).resolve()


def _noted(note: Path, claim: dict[str, Any]) -> Path:
    """Write a note and return the folder of the declaration that has the source: the first writer has it."""
    draft = note.with_name(f"{note.name}.{secrets.token_hex(8)}")
    try:
        with files.private(draft).open("wb") as file:
            file.write((json.dumps(claim) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, note)
        except FileExistsError:
            held = _claim(note)
            if held is not None and held["identity"] != claim["identity"]:
                return _folder(note, held)
            draft.replace(note)
    except OSError as error:
        if error.errno not in _NEVER:
            raise StorageUnavailable(
                f"{note} cannot be written ({error.strerror}): it says whose these rows are"
            ) from error
        # nothing may be written there: docs/limits.md
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
    return _folder(note, claim)


def _source(path: Path, data: DataSet) -> tuple[Path, str, str] | None:
    base, named = Path(path).resolve().parent, next((name for name in _FILES if name in data.source), None)
    if named is None and "spark" not in data.source:
        return None
    try:
        if named is None:
            return base / "spark", "", part(data)
        file = (base / str(data.source[named])).resolve()
        told = file.stat()
        if not stat.S_ISREG(told.st_mode) and not ("spark" in data.source and stat.S_ISDIR(told.st_mode)):
            return None
        return file, files.identity(file), part(data)
    except (OSError, ValueError):  # it is not there, or cannot be: the error comes when it is opened
        return None


def part(data: DataSet) -> str:
    """Return the part of its file that a source is: the table of a DuckDB file, else an empty text.

    A table of Spark's by its name, whichever Spark: two that are called alike are the same people until one
    declaration lies in another folder.
    """
    if "spark" in data.source and "table" in data.source:
        return "spark:" + _small(f"{data.source.get('schema', 'default')}.{data.source['table']}")
    if "duckdb" not in data.source:
        return ""
    return _small(".".join(str(data.source.get(name, "main")) for name in ("schema", "table")))


def _small(name: str) -> str:
    """Return a name as DuckDB compares names: letter by letter. Python lowers a last sigma differently."""
    return "".join(letter.lower()[0] for letter in name)


def _note(file: Path, table: str) -> Path:
    part = f".{sha256(table.encode()).hexdigest()[:12]}" if table else ""
    return file.with_name(f".{file.name}{part}.reticent")


def _claim(note: Path) -> dict[str, Any] | None:
    try:
        with note.open("rb") as content:
            held = json.loads(content.read(_LARGEST))
        is_whole = all(isinstance(held[name], str) for name in ("identity", "folder", "file", "table"))
        return held if is_whole else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
