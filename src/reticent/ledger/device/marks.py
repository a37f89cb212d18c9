"""Marks of device ledgers: how far each was when something last left, stored where no copy restores it.

A ledger that is put back from a backup verifies, and has forgotten the reports that left since: it would draw
the same periods again. So every report is marked before it leaves, in another place: a folder of the
machine's state, which backups leave out (it bears a CACHEDIR.TAG), and the system's keyring where there is
one. A ledger names its mark by a random identity that is written into it; an enrolment is remembered with the
identity of the ledger that reports for it. So these are recognised: a ledger behind its mark or beside it (an
older copy), one that has no mark here (a copy from another machine), and another ledger for the same
enrolment (the first was deleted).

A mark is written when the ledger's record is durable, and before anything leaves. After a crash in between,
the ledger is ahead of its mark, as it may be; it is never behind. The mark's file has two slots: a write goes
over the older one, so that a crash leaves the newer one as it was.

Nothing here locks or opens files for writing: `device` does. docs/ledger-format.md has the bytes.

Privacy: marks hold random identities, numbers of records and hashes of ledgers, and nobody's data. If
somebody restores a whole machine, or all places, the mark is restored too: only the collector's receipt
reveals it then.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib
import importlib.util
import os
import re
from collections.abc import Callable
from io import FileIO
from typing import TYPE_CHECKING, Any, Protocol

from reticent.errors import LedgerDamaged, LedgerError, StorageUnavailable
from reticent.files import appearing, secluded

if TYPE_CHECKING:
    from pathlib import Path

NOTE = "mark"  # the name under which a ledger keeps the identity of its mark
SLOT = 512  # bytes: no write to one slot touches the other's sector
_FIRST = b"reticent device mark 1\n"
_OWNER = b"reticent-device-mark/v1\n"
_SERVICE = "reticent device ledger"  # in a keyring
_TAG = b"Signature: 8a477f597d28d172789f06886806bc55\n# Left out of backups: marks of Reticent's devices.\n"
_IDENTITY = re.compile("[0-9a-f]{32}", re.ASCII)
_TEXT = re.compile("(0|[1-9][0-9]{0,18}) ([0-9a-f]{64})", re.ASCII)

Write = Callable[[FileIO, bytes, int], None]  # all of it at a place, durably


class Keyring(Protocol):
    """The interface of a keyring: a backend of the package `keyring`, or a similar object."""

    def get_password(self, service: str, username: str) -> str | None:
        """Return the text that is stored under a name, or None."""

    def set_password(self, service: str, username: str, password: str) -> None:
        """Store a text under a name."""


def system_keyring() -> Keyring | None:
    """Return the keyring of this system, if the package `keyring` is installed and recommends one."""
    if importlib.util.find_spec("keyring") is None:
        return None
    backend: Any = importlib.import_module("keyring").get_keyring()
    return backend if backend.priority >= 1 else None


def state_folder() -> str:
    """Return the folder for the state of a machine: XDG_STATE_HOME, by default ~/.local/state."""
    given = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(given):  # noqa: PTH117
        return given
    home = os.path.expanduser("~")  # noqa: PTH111
    if home == "~":
        raise LedgerError("marks must have a folder: there is no home, and XDG_STATE_HOME is not set")
    return os.path.join(home, ".local", "state")  # noqa: PTH118


class Marks:
    """A store of the marks of ledgers: a folder and, if there is one, a keyring.

    Args:
        folder: Folder for its owner alone, left out of backups; by default `reticent/devices` in
            `state_folder()`.
        keyring: Keyring as a second place; with the default folder, the keyring of the system, if there is
            one.
        moved: Statement of the owner that a ledger without a mark here is the newest one, moved from another
            machine. A ledger that is behind its mark is refused all the same.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        keyring: Keyring | None = None,
        moved: bool = False,
    ) -> None:
        is_usual = folder is None
        usual = os.path.join(state_folder(), "reticent", "devices") if folder is None else folder  # noqa: PTH118
        self._folder = os.path.join(os.getcwd(), usual)  # noqa: PTH109, PTH118
        self.keyring = system_keyring() if is_usual and keyring is None else keyring
        self.moved = moved

    @property
    def folder(self) -> Path:
        """The folder in which the marks are stored."""
        from pathlib import Path

        return Path(self._folder)

    def __str__(self) -> str:
        return self._folder

    def prepare(self) -> None:
        """Create the folder of the marks, for its owner alone."""
        try:
            secluded(self._folder)
            if not os.path.exists(self.at("CACHEDIR.TAG")):  # noqa: PTH110
                with appearing(self.at("CACHEDIR.TAG"), mode=0o600) as file:
                    file.write(_TAG)
        except OSError as error:
            raise StorageUnavailable(
                f"the folder of marks {self._folder} cannot be used: {error.strerror or error}"
            ) from error

    def at(self, name: str) -> str:
        """Return the path of a file in the folder of the marks."""
        return os.path.join(self._folder, name)  # noqa: PTH118

    def place(self, identity: str) -> str:
        """Return the path of the file of a mark."""
        return self.at(f"{identity}.mark")

    def owner(self, owner: str) -> str | None:
        """Return the identity of the ledger that reports for an owner; None if there was none."""
        try:
            with open(self.at(f"{owner}.owner"), encoding="ascii") as file:  # noqa: PTH123
                found = file.read().removesuffix("\n")
        except FileNotFoundError:
            found = self.kept(owner) or ""
            if not found:
                return None
        except UnicodeError:
            found = ""
        if not _IDENTITY.fullmatch(found):
            raise LedgerDamaged(f"the note of a device's ledger is damaged: {self.at(owner)}.owner")
        return found

    def give(self, owner: str, identity: str) -> None:
        """Remember which ledger belongs to an owner; the caller makes the folder durable."""
        with appearing(self.at(f"{owner}.owner"), mode=0o600) as file:
            file.write(f"{identity}\n".encode())
        self.keep(owner, identity)

    def kept(self, name: str) -> str | None:
        """Return the text that the keyring stores under a name, or None."""
        if self.keyring is None:
            return None
        try:
            return self.keyring.get_password(_SERVICE, name)
        except Exception as error:  # of whichever backend
            raise LedgerError(f"the keyring cannot be read: {type(error).__name__}") from error

    def keep(self, name: str, text: str) -> None:
        """Store a text in the keyring, if there is a keyring."""
        if self.keyring is None:
            return
        try:
            self.keyring.set_password(_SERVICE, name, text)
        except Exception as error:  # of whichever backend
            raise LedgerError(f"the keyring cannot be written: {type(error).__name__}") from error


class Mark:
    """The position of one ledger: how many records it had when something last left, and its tip then.

    Args:
        marks: Store in which the mark lies.
        identity: Identity of the ledger.
        file: File of the mark, open and locked.
        write: Function that writes to the file durably.
    """

    def __init__(self, marks: Marks, identity: str, file: FileIO, write: Write) -> None:
        self._marks, self.identity, self.file, self._write = marks, identity, file, write
        self.place = marks.place(identity)
        self._next = 0  # the slot that is written next
        self.number, self.tip = -1, b""

    def read(self) -> bool:
        """Read the newest mark, and return whether there is one.

        Raises LedgerDamaged if the file has content but no slot is whole.
        """
        stored = os.pread(self.file.fileno(), 2 * SLOT, 0)
        found = [_read(stored[at : at + SLOT], self.identity) for at in (0, SLOT)]
        whole = {slot: one for slot, one in enumerate(found) if one is not None}
        if stored.strip(b"\0") and not whole:
            raise LedgerDamaged(
                f"the mark of a device's ledger is damaged: {self._marks.place(self.identity)}"
            )
        if whole:
            newest = max(whole, key=lambda slot: whole[slot][0])
            self._next = 1 - newest
            self.number, self.tip = whole[newest]
        held = _TEXT.fullmatch(self._marks.kept(self.identity) or "")
        if held and int(held[1]) > self.number:
            self.number, self.tip = int(held[1]), bytes.fromhex(held[2])
        return self.number >= 0

    def write(self, number: int, tip: bytes) -> None:
        """Record a later position of the ledger durably, in the file and in the keyring."""
        body = _FIRST + f"{self.identity}\n{number} {tip.hex()}\n".encode()
        slot = body + hashlib.sha256(body).hexdigest().encode() + b"\n"
        self._write(self.file, slot.ljust(SLOT, b"\0"), self._next * SLOT)
        self._marks.keep(self.identity, f"{number} {tip.hex()}")
        self._next, self.number, self.tip = 1 - self._next, number, tip


def _read(slot: bytes, identity: str) -> tuple[int, bytes] | None:
    """Return the position in a slot, or None if the slot is not whole or of another ledger."""
    lines = slot.rstrip(b"\0").split(b"\n")
    body = b"\n".join(lines[:3]) + b"\n"
    if len(lines) != 5 or lines[3].decode("latin-1") != hashlib.sha256(body).hexdigest() or lines[4]:
        return None
    said = _TEXT.fullmatch(lines[2].decode("latin-1"))
    if lines[0] + b"\n" != _FIRST or lines[1] != identity.encode() or said is None:
        return None
    return int(said[1]), bytes.fromhex(said[2])


def owner_of(key: bytes, account: str) -> str:
    """Return the name under which the marks remember the ledger of a key's holder, for one account."""
    return hmac.digest(key, _OWNER + account.encode(), "sha256")[:16].hex()
