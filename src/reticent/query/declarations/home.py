"""The home of a declaration: who its people are, and the one ledger that pays for what is told about them.

Beside `census.yaml`, at its resolved path, lies a folder `census.reticent` with everything that Reticent
keeps, and in it `home.json`, made when the declaration is first opened:

    {"identity": "3f2a...", "account": "census", "ledger": "ledger.sqlite", "inode": 42, ...}

Whoever reads rows comes by here, command, Python, service or oracle, and gets that ledger or a refusal that
names it. The identity is part of the account's terms, so that a ledger which others share tells these
people from others whose data set has the same name.

- A link to the declaration leads to the same home: paths are resolved.
- A second declaration of the same file shares the first one's account (`claims`); `same` says where that is.
- A copy of the folder is refused: the number of the file (`inode`) is in it, and a copy has another. After a
  restore `moved` says that the other one is gone.
- An account moves to another ledger by `moved_to` alone, with all that it bought (`ledger.moving`); until
  that is done `moving` says where to, and whoever comes next ends it.

Not here: copies that nothing connects to the first, and accounts of two files about the same people. No
program sees that they are the same; docs/limits.md says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from reticent.errors import AccountConflict, BudgetExceeded, KeyUsed, LedgerError, UnknownAccount
from reticent.files import appearing, secluded
from reticent.ledger import Ledger, SqlLedger, Terms
from reticent.ledger.base import Amount
from reticent.ledger.sql.moving import Taken, check_new, check_same, hand_over, take_over
from reticent.ledger.witness import opening
from reticent.ledger.witness.client import WitnessedLedger
from reticent.query.declarations.claims import claimed, given_up
from reticent.query.declarations.datasets import DataSet

try:
    import fcntl
except ImportError:  # not on this platform: two first openings at once may collide
    fcntl = None  # type: ignore[assignment]

OWN = "ledger.sqlite"  # in the folder of the declaration, by default
WITNESS = "ledger.witness"  # in that of a service: which witness a ledger in PostgreSQL has
COMMITMENT = "commitment.json"  # where a contract holds the account
SERVICE = ".service"  # a folder beside the declarations that a service serves
_FILE = "home.json"
_LARGEST = 1 << 16
_IDENTITY = re.compile(r"[0-9a-f]{32}")
_BOUND = "bound to a declaration"  # the key under which an old account gets its one identity
_MOST_SHARED = 8  # homes on the way to the first
_ADDRESSES = ("postgresql://", "postgres://")
_WHERE = ("host", "hostaddr", "port", "dbname", "options", "service")  # of an address, what says where


@dataclass(frozen=True)
class Home:
    """What `home.json` says.

    Attributes:
        folder: where it lies.
        identity: of the people; 32 hexadecimal digits.
        account: the name of their account.
        ledger: a path, from the folder on or absolute; an address without password; `ethereum:` and more.
        moving: where the account is on its way to; empty if it is not.
        same: the folder of the declaration whose account this one shares; empty if it has its own.
        left: the ledger that the account was in before a contract held it, if it was open there.
        oracle: the folder of the oracle that measures for that contract.
        taken: accounts whose spending counts here already, a line each.
        unit: whom the account protects, by the column that says who it is; empty if that was never noted.
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

    @property
    def place(self) -> str:
        """Where the ledger is, whoever asks from wherever."""
        return placed(self.ledger, self.folder)

    @property
    def address(self) -> str:
        """The same, to connect with; PostgreSQL's own ways find the password."""
        return self.address_of(self.ledger)

    @property
    def paying(self) -> str:
        """The place where the account is, or to which it is on its way."""
        return placed(self.moving or self.ledger, self.folder)

    @property
    def paying_address(self) -> str:
        """The same, to connect with."""
        return self.address_of(self.moving or self.ledger)

    def address_of(self, ledger: str) -> str:
        """A ledger as the home notes it, to connect with."""
        return ledger if ledger.startswith(_ADDRESSES) else placed(ledger, self.folder)

    @property
    def is_on_chain(self) -> bool:
        """Whether a contract holds the account."""
        return self.ledger.startswith("ethereum:")

    @property
    def is_beside(self) -> bool:
        """Whether the ledger is the declaration's own file, where nobody in particular put it."""
        return self.place == placed(OWN, self.folder)

    def with_taken(self, place: str, account: str) -> Home:
        """The home once it counts what an account elsewhere spent."""
        return replace(self, taken=f"{self.taken}{account} {place}\n")

    def of(self, data: DataSet) -> DataSet:
        """A declaration with what is known of its people."""
        shares = "" if self.account == data.name else self.account
        return replace(data, identity=self.identity, shares=shares)


def open_ledger(address: str | os.PathLike[str], path: Path) -> SqlLedger:
    """The ledger of a declaration, with its witness if a note says so: beside it, or at the service's."""
    return opening.opened(address, note=_service_note(path))


def check_witnessed(ledger: SqlLedger, path: Path) -> None:
    """Refuse a ledger that was opened without the witness that it has."""
    if opening.noted(ledger.where, _service_note(path)) is not None and not isinstance(
        ledger, WitnessedLedger
    ):
        raise LedgerError(
            f"the ledger at {placed(ledger.where)} has a witness: open it by its path, or with it"
        )


def _service_note(path: Path) -> Path:
    return Path(path).resolve().parent / SERVICE / WITNESS


def folder(path: Path) -> Path:
    """Where Reticent keeps what belongs to a declaration, however its path is written."""
    found = Path(path).resolve()
    return found.with_name(f"{found.stem}.reticent")


def placed(ledger: str | os.PathLike[str], base: Path | None = None) -> str:
    """One text for each ledger: a resolved path, or what of an address says where."""
    text = os.fsdecode(ledger)
    if text.startswith("ethereum:"):
        return text
    if not text.startswith(_ADDRESSES):
        return str((base / text if base is not None else Path(text)).resolve())
    parts = urlsplit(text)
    host = parts.netloc.rpartition("@")[2]
    query = sorted((name, value) for name, value in parse_qsl(parts.query) if name in _WHERE)
    return f"postgresql://{host}{parts.path}" + "".join(
        f"{'&' if i else '?'}{name}={value}" for i, (name, value) in enumerate(query)
    )


def on_chain(chain_id: int, contract: str) -> str:
    """How a home names a contract."""
    return f"ethereum:{chain_id}/{contract}"


def known(path: Path) -> Home | None:
    """The home as it stands; None if the declaration was never opened. Nothing is made or moved."""
    found = _read(folder(path))
    for _ in range(_MOST_SHARED):
        if found is None or not found.same:
            break
        found = _read(found.folder / found.same)
    return found


def stamp(path: Path) -> int:
    """Changes whenever a home is made or moved."""
    try:
        return (folder(path) / _FILE).stat().st_mtime_ns
    except OSError:
        return 0


@contextlib.contextmanager
def settled(path: Path, data: DataSet, ledger: str | os.PathLike[str] | None = None) -> Iterator[Home]:
    """The home of a declaration, made at its first opening; nobody moves it during the block.

    Args:
        path: of the declaration.
        data: what it says.
        ledger: where the opener wants the ledger to be, if the declaration has no home yet.

    Raises:
        LedgerError: the folder is a copy, or the source belongs to a declaration that is out of reach.
    """
    place = folder(path)
    _seclude(place)
    with _alone(place):
        home = _read(place)
        if home is None:
            home = Home(place, secrets.token_hex(16), data.name, _first(path, ledger), unit=_unit(data))
            _write(home)
        if not home.same:
            first = claimed(path, data, home.identity, place)
            if first == place:
                if not home.unit:  # of an earlier release
                    home = replace(home, unit=_unit(data))
                    _write(home)
                _check_unit(home, data, path)
                yield home
                return
            home = _shared(home, first, path)
    with _first_home(home, path) as found:
        _check_unit(found, data, path)
        yield found


def _seclude(place: Path) -> None:
    """Make the folder, or take from it and all in it what an earlier release let others do."""
    try:
        secluded(place, whole=True)
    except OSError as error:
        raise LedgerError(f"{error.filename or place}: {error.strerror}") from error


@contextlib.contextmanager
def _first_home(home: Home, path: Path) -> Iterator[Home]:
    """The home of the account that a declaration shares, which may share another's by now."""
    for _ in range(_MOST_SHARED):
        place = home.folder / home.same
        if not place.is_dir():
            break
        with _alone(place):
            found = _read(place)
            if found is None:
                break
            if not found.same:
                yield found
                return
        home = found
    raise LedgerError(f"{path.name} shares the account of {place}, which is gone: bring it back")


def opened(home: Home, data: DataSet, ledger: Ledger) -> DataSet:
    """The data set, with its account open in its ledger.

    An account of an earlier release has no identity: it is given the first that comes, by a payment of the
    least amount under a key that only one can have. In the declaration's own file nobody else comes.

    Raises:
        AccountConflict: the account is of other people, or was opened with other terms.
    """
    found = home.of(data)
    try:
        ledger.open(found.terms)
        return found
    except AccountConflict as conflict:
        held, plain = ledger.balance(found.account).terms, replace(found, identity="")
        if held != plain.terms:
            raise _other_people(found, held) from conflict
        if not home.is_beside:
            _bind(ledger, plain.terms, home.identity)
        return plain


def as_registered(data: DataSet, terms: Terms) -> DataSet:
    """A declaration with the identity in its account's terms, if there is one."""
    found = re.fullmatch(r".* \[([0-9a-f]{32})\]", terms.subject)
    return replace(data, identity=found[1] if found else "")


def as_open(data: DataSet, ledger: Ledger) -> DataSet:
    """A declaration as its account is open where an oracle measures: whoever asks there has no home."""
    try:
        return as_registered(data, ledger.balance(data.account).terms)
    except UnknownAccount:
        return data


def moved_to(home: Home, data: DataSet, ledger: SqlLedger) -> tuple[Home, Taken]:
    """Move an account to another ledger, with all that it bought; within `settled`.

    What it leaves can spend nothing any more. After a crash anywhere, doing it again ends it.

    Args:
        home: as it is.
        data: the declaration.
        ledger: where to.

    Raises:
        LedgerError: that is where it is, under another address, or where it was before. Nothing was written.
    """
    place, taken = placed(ledger.where), Taken(0, 0)
    kept = _kept(ledger.where, home.folder)
    arrived = replace(home, ledger=kept, moving="")
    arrived = arrived.with_taken(home.place, home.account)
    with _leaving(home, home.of(data).terms) as left:
        check_new(left, ledger, home.account)
        _write(replace(home, moving=kept))
        if left is not None:
            terms = opened(arrived, data, ledger).terms
            taken = take_over(ledger, terms, hand_over(left, home.account, place, terms))
        _write(arrived)
    return arrived, taken


@contextlib.contextmanager
def _leaving(home: Home, terms: Terms) -> Iterator[SqlLedger | None]:
    """The ledger that an account leaves; None if it was never opened there.

    Raises:
        AccountConflict: it was, with other terms than it would have. Nothing was written.
    """
    if not _is_there(home.place):
        yield None
        return
    with open_ledger(home.address, home.folder) as left:
        try:
            check_same(left.balance(home.account).terms, terms)
        except UnknownAccount:
            yield None
            return
        yield left


def left_behind(
    home: Home, path: Path, data: DataSet, ledger: SqlLedger, *, into: Terms | None = None
) -> Taken:
    """Add what was spent of the same budget in other ledgers; within `settled`.

    Earlier releases kept one ledger for Python and the command, and another for a service. And a declaration
    that turns out to share another's account may have spent by itself before.

    Args:
        home: as it is.
        path: of the declaration.
        data: what it says.
        ledger: that of the home; for one on a chain, the ledger of its oracle.
        into: the account, if it is open already.
    """
    charged = over = 0
    own = _read(folder(path))
    target = into if into is not None else opened(home, data, ledger).terms
    for left, place, account in _left(home, path, data, ledger):
        taken = take_over(ledger, target, hand_over(left, account, home.place, target))
        charged, over = charged + taken.charged, over + taken.over
        home = home.with_taken(place, account)
        _write(home)
    if own is not None and own.same and own.moving:
        _write(replace(own, moving=""))
    return Taken(charged, over)


def _left(
    home: Home, path: Path, data: DataSet, ledger: SqlLedger | None = None
) -> Iterator[tuple[SqlLedger, str, str]]:
    """Accounts of the same people in other ledgers that do not count yet: ledger, place and name of each.

    Raises:
        LedgerError: the ledger that the account was in before is gone.
    """
    own = _read(folder(path))
    places = [folder(path) / OWN, home.folder / OWN, Path(path).resolve().parent / SERVICE / OWN]
    found = [(str(place.resolve()), account) for place in places for account in {home.account, data.name}]
    before = home.address_of(home.left) if home.left else ""
    if before:
        found.append((before, home.account))
    if own is not None and own.same and own.moving:  # it joins
        found.append((own.address, own.account))
    for (place, account), address in {(placed(one), account): one for one, account in found}.items():
        if (place, account) == (home.place, home.account) or f"{account} {place}\n" in home.taken:
            continue
        if not _is_there(address):
            if before and place == placed(before) and account == home.account:
                raise LedgerError(
                    f"{path.name} left {place}, which is gone: bring it back, it says what was spent before"
                )
            continue
        is_own = own is not None and place == own.place
        held = ledger if ledger is not None and place == home.place else None
        with contextlib.nullcontext(held) if held is not None else open_ledger(address, path) as left:
            if _is_of(left, account, home.of(data), any_identity=is_own):
                yield left, place, account


def given_back(path: Path, data: DataSet) -> None:
    """Leave nothing of a declaration that was refused at its first opening."""
    place = folder(path)
    with _alone(place):
        made = _read(place)
        if made is not None:
            given_up(path, data, made.identity)
        shutil.rmtree(place, ignore_errors=True)


def moved(path: Path) -> Home:
    """Say that a copy is the home from now on: the other one is gone. The operator's word is taken for it."""
    place = folder(path)
    with _alone(place):
        home = _read(place, copies=True)
        if home is None:
            raise LedgerError(f"{path.name} was never opened: there is no home in {place}")
        _write(home)
        return home


def moved_on_chain(home: Home, path: Path, data: DataSet, charge: Callable[[int], None], place: str) -> Home:
    """Move an account into a contract that holds it already; within `settled`.

    What was bought stays where it was, and what was spent is charged there, in ledgers of earlier releases
    too: the oracle's own ledger takes the rest over (`left_behind`). After a crash anywhere, doing it again
    ends it.

    Args:
        home: as it is.
        path: of the declaration.
        data: as it is registered.
        charge: charges units there, once however often it is called.
        place: the contract's text.
    """
    spent, terms, arrived = 0, data.terms, home
    if home.ledger != place:
        with _leaving(home, terms) as left:
            _write(replace(home, moving=place))
            arrived = replace(home, ledger=place, moving="", left="" if left is None else home.ledger)
            if left is not None:
                spent = hand_over(left, home.account, place, terms).spent
    for other, _, account in _left(home, path, data):
        spent += hand_over(other, account, place, terms).spent
    if spent:
        charge(spent)
    if arrived != home:
        _write(arrived)
    return arrived


def measured_in(home: Home, place: Path) -> Home:
    """Note where the oracle of a contract keeps what it measured; within `settled`.

    Raises:
        LedgerError: another folder was noted before: a new one would know nothing of what was measured.
    """
    if not home.oracle:
        home = replace(home, oracle=_kept(place, home.folder))
        _write(home)
    held, here = placed(home.oracle, home.folder), placed(place)
    if held != here:
        raise LedgerError(f"the oracle keeps what it measured in {held}, and in no other folder; got {here}")
    return home


def _first(path: Path, ledger: str | os.PathLike[str] | None) -> str:
    """Where the ledger of a declaration is that has no home: on a chain, as wanted, or beside it."""
    if (folder(path) / COMMITMENT).is_file():
        from reticent.query.chain.commitment import Commitment  # loads what only chains need

        held = Commitment.read(path)
        if held is not None:
            return on_chain(held.chain_id, held.contract)
    return OWN if ledger is None else _kept(ledger, folder(path))


def _kept(ledger: str | os.PathLike[str], base: Path) -> str:
    """A ledger as a home notes it: paths beside the declaration as they are from there, no password."""
    text = os.fsdecode(ledger)
    if text.startswith(_ADDRESSES):
        parts = urlsplit(text)
        user, at, host = parts.netloc.rpartition("@")
        query = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name != "password"])
        who = user.partition(":")[0] + at
        return f"postgresql://{who}{host}{parts.path}" + (f"?{query}" if query else "")
    place = placed(text)
    if place.startswith("ethereum:"):
        return place
    with contextlib.suppress(ValueError):
        return str(Path(place).relative_to(base))
    with contextlib.suppress(ValueError):
        return str(Path("..") / Path(place).relative_to(base.parent))
    return place


def _is_there(place: str) -> bool:
    return place.startswith(_ADDRESSES) or Path(place).is_file()


def _is_of(left: SqlLedger, account: str, data: DataSet, *, any_identity: bool) -> bool:
    """Whether an account in another ledger is of the people of a declaration."""
    try:
        terms = left.balance(account).terms
    except UnknownAccount:
        return False
    called = replace(data, identity="", shares="" if account == data.name else account)
    same = [called.terms, replace(called, identity=data.identity).terms]
    return terms in same or (any_identity and as_registered(called, terms).terms == terms)


# home.json


def _read(place: Path, *, copies: bool = False) -> Home | None:
    file = place / _FILE
    try:
        with file.open("rb") as content:
            found = json.loads(content.read(_LARGEST))
            inode = os.fstat(content.fileno()).st_ino
        told = {one.name: found[one.name] for one in fields(Home) if one.name not in ("folder", "unit")}
        told["unit"] = found.get("unit", "")
        if not all(isinstance(one, str) for one in told.values()) or not _IDENTITY.fullmatch(
            told["identity"]
        ):
            raise ValueError
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LedgerError(f"{file} does not say where the ledger is") from error
    if found.get("inode") != inode and not copies:
        raise LedgerError(
            f"{place} is a copy, or was restored: what is left of its budget is known where it was made. If "
            f"that is gone for good, say so with `reticent dataset moved {place.with_suffix('.yaml').name}`"
        )
    return Home(place, **told)


def _write(home: Home) -> None:
    told = asdict(home)
    del told["folder"]
    with appearing(home.folder / _FILE, mode=0o600) as file:
        told["inode"] = os.fstat(file.fileno()).st_ino
        file.write((json.dumps(told, indent=1) + "\n").encode())


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Be the only one who looks for, makes or moves a home. The lock goes with the process."""
    try:
        file = os.open(place / "home.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LedgerError(f"{place} cannot be written ({error.strerror}): it holds what was spent") from error
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _shared(home: Home, first: Path, path: Path) -> Home:
    """Share the account of another declaration: what this one bought moves there when that is opened."""
    if not (first / _FILE).is_file():
        raise LedgerError(
            f"the source of {path.name} belongs to the declaration of {first}, which is gone: bring it back, "
            "or remove the note beside the source if the people are others"
        )
    shared = replace(home, same=_kept(first, home.folder), moving=str(first))
    _write(shared)
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


# Accounts


def _bind(ledger: Ledger, terms: Terms, identity: str) -> None:
    """Give an account of an earlier release its identity, once."""
    least = Amount(terms.minimum, terms.unit, terms.neighbours)
    try:
        ledger.charge(terms.name, _BOUND, least, idempotency=f"bound:{identity}")
    except KeyUsed as used:
        raise AccountConflict(
            f"account {terms.name} of this ledger belongs to another declaration: use another ledger or name"
        ) from used
    except BudgetExceeded as refusal:
        raise AccountConflict(
            f"account {terms.name} was opened by an earlier release and is spent: nothing is left to bind it"
        ) from refusal


def _other_people(data: DataSet, held: Terms) -> AccountConflict:
    theirs = as_registered(data, held)
    if theirs.identity not in ("", data.identity) and theirs.terms == held:
        return AccountConflict(
            f"account {data.account} of this ledger belongs to other people: it was opened as "
            f"{theirs.identity}, this declaration is {data.identity}. If they are the same, bring home.json "
            "from where it was opened"
        )
    return AccountConflict(
        f"account {data.account} is open with other terms than are declared; all declarations of one file of "
        "rows have one account"
    )
