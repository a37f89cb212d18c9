"""The home of a declaration: the identity of its people, and the one ledger that pays for its answers.

Beside `census.yaml`, at its resolved path, lies a folder `census.reticent` with everything that Reticent
keeps, and in it `home.json`, made when the declaration is first opened:

    {"identity": "3f2a...", "account": "census", "ledger": "ledger.sqlite", "inode": 42, ...}

Every reader of rows, command, Python, service or oracle, comes by here and gets that ledger or a refusal that
names it. The identity is part of the account's terms, so that a ledger which others share tells these
people from others whose data set has the same name.

- A link to the declaration leads to the same home: paths are resolved.
- A second declaration of the same file shares the first one's account (`claims`); `same` says where that is.
- Declarations about the same people (`populations`) share the account of these, whose home is beside the file
  that names them; `people` says where that is, from the first opening on and for ever. Theirs says which data
  sets have joined (`members`), and which accounts of before must be counted there (`joining`).
- A copy of the folder is refused, since these are in the file and a copy has others: its number (`inode`);
  when it was made (`born`), as a disk gives the numbers of deleted files out again; and, where files lie on
  no disk of their own, in which system (`system`), as all containers of an image show one and the same file.
  After a restore `moved` says that the other one is gone.
- An account moves to another ledger by `account_moving` alone, with all that it bought; until that is done
  `moving` names the destination, and the next opening completes the move.

Not here: copies that nothing connects to the first, and accounts of two files about the same people where
nobody declares it. No program sees that they are the same; docs/limits.md says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path

from reticent import files
from reticent.errors import AccountConflict, LedgerError, StorageUnavailable
from reticent.files import appearing, born_ns, secluded
from reticent.ledger import SqlLedger
from reticent.ledger.witness import opening
from reticent.ledger.witness.client import WitnessedLedger
from reticent.query.declarations import populations
from reticent.query.declarations.claims import claimed, claimed_people, given_up, release_people
from reticent.query.declarations.datasets import DataSet
from reticent.query.declarations.ledger_places import ADDRESSES, kept, on_chain, placed
from reticent.query.declarations.populations import SUFFIX, Population
from reticent.query.rows.row_order import is_order_key, needs_order_key

try:
    import fcntl
except ImportError:  # not on this platform: two first openings at once may collide
    fcntl = None  # type: ignore[assignment]

OWN = "ledger.sqlite"  # in the folder of the declaration, by default
WITNESS = "ledger.witness"  # in that of a service: which witness a ledger in PostgreSQL has
COMMITMENT = "commitment.json"  # where a contract holds the account
SERVICE = ".service"  # a folder beside the declarations that a service serves
FILE = "home.json"
_LARGEST = 1 << 22  # people have a line for each of their data sets
_IDENTITY = re.compile(r"[0-9a-f]{32}")
_NUMBERS = ("inode", "born", "system")  # of home.json
_MOST_SHARED = 8  # homes on the way to the first
_LATER = (
    "unit",
    "people",
    "whose",
    "members",
    "joining",
    "order_key",
    "lost_orders",
)  # of home.json, that earlier releases did not write
PEOPLE = "people"  # the unit of a home that several data sets share


@dataclass(frozen=True)
class Home:
    """The content of `home.json`: the identity of people, their account and the ledger that holds it.

    Attributes:
        folder: Folder with `home.json`.
        identity: Identity of the people, 32 hexadecimal digits.
        account: Name of their account.
        ledger: Ledger: a path, from the folder on or absolute; an address without password; `ethereum:` and
            more.
        moving: Ledger that the account is on its way to; empty if the account is not moving.
        same: Folder of the declaration whose account this one shares; empty if it has its own.
        left: Ledger that the account was in before a contract held it, if it was open there.
        oracle: Folder of the oracle that measures for that contract.
        taken: Accounts whose spending counts here already, a line each.
        unit: Unit that the account protects, with the column of the person; empty if that was never noted.
        people: Folder of the home of the people whose account this one shares; empty if it has its own.
        whose: Identity of these people: a home that was made anew in that folder is not theirs.
        members: Data sets that share the account, in a home of people: name and identity of each, a line
            each.
        joining: Accounts that data sets had before, in a home of people, and that count in theirs: a line
            each.
        order_key: Secret that orders the rows of each person (`rows.row_order`), 64 hexadecimal digits; empty
            where no declaration of these rows needed one yet. It is never changed.
        lost_orders: Name and version of each declaration of these rows that was measured with another key, a
            line each: one that is lost, or the declaration's own. They are never measured with this one.
    """

    folder: Path
    identity: str
    account: str
    ledger: str
    moving: str = ""
    same: str = ""
    left: str = ""
    oracle: str = ""
    taken: str = ""
    unit: str = ""
    people: str = ""
    whose: str = ""
    members: str = ""
    joining: str = ""
    order_key: str = field(default="", repr=False)
    lost_orders: str = ""

    @property
    def place(self) -> str:
        """The normalised location of the ledger: the same text wherever it is asked for."""
        return placed(self.ledger, self.folder)

    @property
    def address(self) -> str:
        """The address of the ledger, to connect with; PostgreSQL's own means find the password."""
        return self.address_of(self.ledger)

    @property
    def paying(self) -> str:
        """The location of the ledger where the account is, or to which it is on its way."""
        return placed(self.moving or self.ledger, self.folder)

    @property
    def paying_address(self) -> str:
        """The address, to connect with, of the ledger where the account is or to which it is on its way."""
        return self.address_of(self.moving or self.ledger)

    def address_of(self, ledger: str) -> str:
        """Return the address, to connect with, of a ledger as the home notes it."""
        return ledger if ledger.startswith(ADDRESSES) else placed(ledger, self.folder)

    @property
    def is_on_chain(self) -> bool:
        """Whether a contract holds the account."""
        return self.ledger.startswith("ethereum:")

    @property
    def is_beside(self) -> bool:
        """Whether the ledger is the declaration's own file, where nobody in particular put it."""
        return self.place == placed(OWN, self.folder)

    def with_taken(self, place: str, account: str) -> Home:
        """Return the home with a note that it counts the spending of an account elsewhere."""
        return replace(self, taken=f"{self.taken}{account} {place}\n")

    def of(self, data: DataSet) -> DataSet:
        """Return a data set with the identity and the account that the home knows."""
        shares = "" if self.account == data.name else self.account
        return replace(data, identity=self.identity, shares=shares)


def open_ledger(address: str | os.PathLike[str], path: Path) -> SqlLedger:
    """Open the ledger of a declaration, with its witness if a note beside it or at the service names one."""
    return opening.opened(address, note=_service_note(path))


def check_witnessed(ledger: SqlLedger, path: Path) -> None:
    """Refuse a ledger that was opened without the witness that it has."""
    if opening.noted(ledger.where, _service_note(path)) is not None and not isinstance(
        ledger, WitnessedLedger
    ):
        raise LedgerError(
            f"the ledger at {placed(ledger.where)} has a witness: open it by its path, or with it"
        )


def near_service(path: Path, home: Home) -> Path:
    """Return the path beside which a service's witness note lies: the declaration, else its people's home."""
    return home.folder if home.unit == PEOPLE and not _service_note(path).is_file() else path


def _service_note(path: Path) -> Path:
    return Path(path).resolve().parent / SERVICE / WITNESS


def folder(path: Path) -> Path:
    """Return the folder with all that belongs to a declaration or to people, for any form of its path."""
    found = Path(path).resolve()
    return found.with_name(f"{found.name if found.suffix == SUFFIX else found.stem}.reticent")


def known(path: Path) -> Home | None:
    """Return the home without changing anything; None if the declaration was never opened."""
    found = of_rows(path)
    return read(_at(found, found.people)) if found is not None and found.people else found


def of_rows(path: Path) -> Home | None:
    """Return the home of the first declaration of the same rows; None if there is none yet."""
    return next(reversed(list(homes_of_rows(path))), None)


def homes_of_rows(path: Path) -> Iterator[Home]:
    """Yield the home of a declaration, and those whose account it shares, the first declaration's last."""
    found = read(folder(path))
    for _ in range(_MOST_SHARED + 1):
        if found is None:
            return
        yield found
        if not found.same:
            return
        found = read(_at(found, found.same))


def _at(home: Home, noted: str) -> Path:
    """Return the path of a folder that a home notes."""
    return (home.folder / noted).resolve()


def stamp(path: Path) -> tuple[int, ...]:
    """Return a stamp of the home file that changes whenever a home is made or moved."""
    try:
        return files.stamp(folder(path) / FILE)
    except OSError:
        return ()


@contextlib.contextmanager
def settled(path: Path, data: DataSet, ledger: str | os.PathLike[str] | None = None) -> Iterator[Home]:
    """Yield the home of a declaration, made at its first opening, and lock it for the duration of the block.

    Args:
        path: Path of the declaration.
        data: Declared data set.
        ledger: Ledger that the opener asks for, if the declaration has no home yet.

    Raises:
        LedgerError: The folder is a copy, or the source belongs to a declaration that is out of reach.
    """
    people, place = populations.of(path, data), folder(path)
    _seclude(place)
    with _alone(place), contextlib.ExitStack() as refusals:
        home = read(place)
        if home is None:
            home = Home(place, secrets.token_hex(16), data.name, _first(path, ledger), unit=_unit(data))
            write(home)
            release = partial(given_up, path, data, home.identity)
            refusals.enter_context(_forgotten_if_refused(home, release))
        if not home.same:
            first = claimed(path, data, home.identity, place)
            if first == place:
                if not home.unit:  # of an earlier release
                    home = replace(home, unit=_unit(data))
                    write(home)
                with _paying(home, people, data, path, ledger) as found:
                    yield found
                return
            home = _shared(home, first, path)
    with _first_home(home, path) as found, _paying(found, people, data, path, ledger) as payer:
        yield payer


def order_key(path: Path, data: DataSet) -> str | None:
    """Return the key that orders the rows of each person; None for rows that need none.

    A declaration that had a key of its own before it shared another's account keeps it: its measurements were
    made with that.

    Raises:
        LedgerError: The declaration was never opened, so there is no key yet; or its key is lost.
    """
    if not needs_order_key(data):
        return None
    home = next((one for one in homes_of_rows(path) if one.order_key), None)
    if home is None:
        raise LedgerError(
            f"{path.name} was never opened: the key that orders each person's rows is not made yet"
        )
    if f"{data.name} {data.version}" in home.lost_orders.splitlines():
        raise LedgerError(
            f"{path.name}: version {data.version} was measured with another order key than "
            f"{home.folder / FILE} holds, one that is lost or of another declaration: raise the version"
        )
    if not is_order_key(home.order_key):
        raise LedgerError(f"{home.folder / FILE} holds no order key of 64 digits: bring the file back")
    return home.order_key


@contextlib.contextmanager
def _paying(
    rows: Home,
    people: Population | None,
    data: DataSet,
    path: Path,
    ledger: str | os.PathLike[str] | None,
) -> Iterator[Home]:
    """Yield the home that pays for rows: their own, or that of their people, locked for the block.

    A process that holds both locks took that of the rows first; a holder of the other never waits for a data
    set.
    """
    _check_unit(rows, data, path)
    _check_people(rows, people, path)
    if people is None:
        yield rows
        return
    wanted = ledger if ledger is not None or rows.is_beside else rows.paying_address
    if rows.people and not (folder(people.path) / FILE).is_file():
        raise LedgerError(
            f"{path.name} shares the account of {folder(people.path)}, which is gone: bring it back"
        )
    with of_people(people, wanted) as home:
        if rows.people and rows.whose != home.identity:
            raise LedgerError(
                f"{path.name} shares the account of other people than {home.folder} is of by now: bring back "
                "the home that it joined"
            )
        yield home


@contextlib.contextmanager
def of_people(people: Population, ledger: str | os.PathLike[str] | None = None) -> Iterator[Home]:
    """Yield the home of people, made when they are first asked about, and lock it for the block.

    Args:
        people: Population that their file declares.
        ledger: Ledger for their account, if they have no home yet.
    """
    place = folder(people.path)
    _seclude(place)
    with _alone(place):
        home = read(place)
        identity = secrets.token_hex(16) if home is None else home.identity
        is_new = home is None
        first = claimed_people(people.path, identity, place)
        if first != place and (first / FILE).is_file():
            raise AccountConflict(
                f"people must be {first.name.removesuffix('.reticent')}, as when they were first asked "
                f"about: {people.path.name} is the same file"
            )
        if home is None:
            there = OWN if ledger is None else kept(ledger, place)
            home = Home(place, identity, people.account, there, unit=PEOPLE)
            write(home)
        if home.unit != PEOPLE or home.account != people.account:
            raise AccountConflict(
                f"{people.path.name}: people must be {home.account.removeprefix('people:')}, as when they "
                f"were first asked about, got {people.name}"
            )
        release = partial(release_people, people.path, identity)
        with _forgotten_if_refused(home, release) if is_new else contextlib.nullcontext():
            yield home


@contextlib.contextmanager
def _forgotten_if_refused(home: Home, release: Callable[[], None]) -> Iterator[None]:
    """Leave no note of a home that is refused at its first opening: others may declare the same rows.

    Args:
        home: Home that was made just now; its account was never opened if the opening is refused.
        release: Function that takes the note beside the rows, or beside the file of people, back.
    """
    try:
        yield
    except AccountConflict:
        stored = read(home.folder)
        is_joined = stored is None or stored.people or stored.members or stored.moving
        if not is_joined:  # else others know it by now
            release()
            (home.folder / FILE).unlink(missing_ok=True)
        raise


def _check_people(rows: Home, people: Population | None, path: Path) -> None:
    """Refuse rows that leave their people or go to others: the spending counts with these people for ever."""
    if rows.people:
        held = _at(rows, rows.people)
        if people is None or folder(people.path) != held:
            theirs = held.name.removesuffix(".reticent")
            raise AccountConflict(
                f"{path.name}: people must be {theirs}, with whom the budget is shared for ever, got "
                f"{'nothing' if people is None else people.path.name}"
            )
    elif people is not None:
        if rows.folder != folder(path):
            raise AccountConflict(
                f"{path.name}: people must be declared in {rows.folder.stem}.yaml, too, and that be opened: "
                "its rows are the same"
            )
        if rows.is_on_chain or rows.paying.startswith("ethereum:"):
            raise AccountConflict(
                f"{path.name}: people must be left out for a data set whose account a contract holds"
            )


def _seclude(place: Path) -> None:
    """Make the folder private, or remove the access rights that an earlier release left to others."""
    try:
        secluded(place, whole=True)
    except OSError as error:
        raise StorageUnavailable(f"{error.filename or place}: {error.strerror}") from error


@contextlib.contextmanager
def _first_home(home: Home, path: Path) -> Iterator[Home]:
    """Yield the home of the account that a declaration shares, which may share another's by now."""
    for _ in range(_MOST_SHARED):
        place = home.folder / home.same
        if not place.is_dir():
            break
        with _alone(place):
            found = read(place)
            if found is None:
                break
            if not found.same:
                yield found
                return
        home = found
    raise LedgerError(f"{path.name} shares the account of {place}, which is gone: bring it back")


def given_back(path: Path, data: DataSet) -> None:
    """Remove every trace of a declaration that was refused at its first opening."""
    place = folder(path)
    with _alone(place):
        made = read(place)
        if made is not None:
            given_up(path, data, made.identity)
        shutil.rmtree(place, ignore_errors=True)


def moved(path: Path) -> Home:
    """Accept a copy as the home from now on. The operator states that the original is gone."""
    place = folder(path)
    with _alone(place):
        home = read(place, copies=True)
        if home is None:
            raise LedgerError(f"{path.name} was never opened: there is no home in {place}")
        write(home)
        return home


def measured_in(home: Home, place: Path) -> Home:
    """Note the folder in which the oracle of a contract keeps its measurements; call it within `settled`.

    Raises:
        LedgerError: Another folder was noted before: a new one would know nothing of what was measured.
    """
    if not home.oracle:
        home = replace(home, oracle=kept(place, home.folder))
        write(home)
    held, here = placed(home.oracle, home.folder), placed(place)
    if held != here:
        raise LedgerError(f"the oracle keeps what it measured in {held}, and in no other folder; got {here}")
    return home


def _first(path: Path, ledger: str | os.PathLike[str] | None) -> str:
    """Return the ledger of a declaration that has no home: on a chain, as requested, or beside it."""
    if (folder(path) / COMMITMENT).is_file():
        from reticent.query.chain.commitment import Commitment  # loads what only chains need

        held = Commitment.read(path)
        if held is not None:
            return on_chain(held.chain_id, held.contract)
    return OWN if ledger is None else kept(ledger, folder(path))


# home.json


def read(place: Path, *, copies: bool = False) -> Home | None:
    """Read the home that is noted in a folder; return None if there is none."""
    file = place / FILE
    try:
        with file.open("rb") as content:
            found = json.loads(content.read(_LARGEST))
            itself = _numbers(content.fileno())
        told = {one.name: found[one.name] for one in fields(Home) if one.name not in ("folder", *_LATER)}
        told |= {name: found.get(name, "") for name in _LATER}
        if not all(isinstance(one, str) for one in told.values()) or not _IDENTITY.fullmatch(
            told["identity"]
        ):
            raise ValueError
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LedgerError(f"{file} does not say where the ledger is") from error
    names = _NUMBERS if "born" in found else _NUMBERS[:1]  # earlier releases noted no more
    if any(found.get(name) != itself.get(name) for name in names) and not copies:
        raise LedgerError(
            f"{place} is a copy, or was restored: what is left of its budget is known where it was made. If "
            f"that is gone for good, say so with `reticent dataset moved {declared_at(place).name}`"
        )
    return Home(place, **told)


def declared_at(place: Path) -> Path:
    """Return the declaration, or the file of people, whose home a folder is."""
    return place.with_name(place.stem if place.stem.endswith(SUFFIX) else f"{place.stem}.yaml")


def write(home: Home) -> None:
    """Write a home to its folder, entirely or not at all."""
    told = asdict(home)
    del told["folder"]
    with appearing(home.folder / FILE, mode=0o600) as file:
        told |= _numbers(file.fileno())
        file.write((json.dumps(told, indent=1) + "\n").encode())


def _numbers(file: int) -> dict[str, int]:
    """Return the numbers that tell an open file from a copy of it, as far as the system provides them."""
    told, born, system = os.fstat(file), born_ns(file), os.fstatvfs(file).f_fsid
    found = {"inode": told.st_ino} | ({} if born is None else {"born": born})
    return found | ({"system": system} if born is not None and not os.major(told.st_dev) else {})


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Hold the lock on the search, creation and moves of a home. The lock ends with the process."""
    try:
        file = os.open(place / "home.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageUnavailable(
            f"{place} cannot be written ({error.strerror}): it holds what was spent"
        ) from error
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _shared(home: Home, first: Path, path: Path) -> Home:
    """Share the account of another declaration: what this one bought moves there when that is opened."""
    if not (first / FILE).is_file():
        raise LedgerError(
            f"the source of {path.name} belongs to the declaration of {first}, which is gone: bring it back, "
            "or remove the note beside the source if the people are others"
        )
    shared = replace(home, same=kept(first, home.folder), moving=str(first))
    write(shared)
    return shared


def _unit(data: DataSet) -> str:
    return data.unit if data.person is None else f"{data.unit} {data.person}"


def _check_unit(home: Home, data: DataSet, path: Path) -> None:
    """Refuse a declaration that tells people apart by another column: the budget was set for the first."""
    if home.unit not in ("", _unit(data)):
        raise AccountConflict(
            f"{path.name}: unit must be that of the account, {home.unit!r}, got {_unit(data)!r}: all "
            "declarations of one file of rows protect the same"
        )
