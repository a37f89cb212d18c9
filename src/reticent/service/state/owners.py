"""The owners of registered data sets, and of files in the folder."""

from __future__ import annotations

from dataclasses import dataclass

from reticent.errors import AccountConflict, ParameterError
from reticent.service.keys import Person, Role
from reticent.service.state.file import StateFile


@dataclass(frozen=True)
class Source:
    """A file in the folder and whose it is.

    Attributes:
        file: Name of the file, at the end of all links.
        identity: Mark that distinguishes the file from another file of that name.
        owner: Person who may register the file.
        is_revoked: True if the owner's key was taken back.
        made: Time at which the file was assigned.
    """

    file: str
    identity: str
    owner: Person
    is_revoked: bool
    made: float


@dataclass(frozen=True)
class Rows:
    """The source of a data set: a file in the folder, and the table if the file holds several."""

    file: str
    part: str


class Owners(StateFile):
    """Data sets that were registered over the network, and the files that were assigned."""

    def own(self, dataset: str, person: Person, rows: Rows) -> bool:
        """Note who registered a data set over which rows, and say whether it is new.

        Raises:
            AccountConflict: somebody registered it before, or the same person over other rows.
        """
        with self._writing() as connection:
            held = connection.execute(
                "SELECT person, file, part FROM owned LEFT JOIN registered USING (dataset) WHERE dataset = ?",
                (dataset,),
            ).fetchone()
            if held not in (None, (person.number, rows.file, rows.part)):
                raise AccountConflict(f"data set {dataset} is registered already")
            if held is None:
                connection.execute("INSERT INTO owned VALUES (?, ?)", (dataset, person.number))
                connection.execute("INSERT INTO registered VALUES (?, ?, ?)", (dataset, rows.file, rows.part))
        return held is None

    def disown(self, dataset: str, person: Person) -> None:
        """Forget who registered a data set."""
        with self._writing() as connection:
            gone = "DELETE FROM owned WHERE dataset = ? AND person = ? RETURNING dataset"
            if connection.execute(gone, (dataset, person.number)).fetchone():
                connection.execute("DELETE FROM registered WHERE dataset = ?", (dataset,))

    def registered(self, file: str) -> list[tuple[str, str]]:
        """Return all data sets ever registered over a file, each with its name and part of the file."""
        found = self._all("SELECT dataset, part FROM registered WHERE file = ? ORDER BY dataset", file)
        return [(dataset, part) for dataset, part in found]

    def owner(self, dataset: str) -> int | None:
        """Return the number of a data set's registrant; None for one that the operator put there."""
        row = self._one("SELECT person FROM owned WHERE dataset = ?", dataset)
        return None if row is None else int(row[0])

    def assign(self, file: str, identity: str, person: Person) -> None:
        """Give a file to an owner, with the data sets that were registered over it.

        Raises:
            ParameterError: another owner has it, or the same file under another name.
        """
        with self._writing() as connection:
            held = connection.execute(
                "SELECT s.file, p.number, p.name FROM source s JOIN person p ON p.number = s.person "
                "WHERE s.file = ? OR s.identity = ?",
                (file, identity),
            ).fetchall()
            for name, number, owner in held:
                if name != file:
                    raise ParameterError(f"file must have one name: {file} is {name}, which is {owner}'s")
                if number != person.number:
                    raise ParameterError(
                        f"file must be nobody else's, {file} is {owner}'s (key {number}): release it first"
                    )
            connection.execute(
                "INSERT INTO source VALUES (?, ?, ?, ?) ON CONFLICT (file) DO UPDATE "
                "SET identity = excluded.identity, person = excluded.person, made = excluded.made",
                (file, identity, person.number, self.now()),
            )
            connection.execute(
                "UPDATE owned SET person = ? "
                "WHERE dataset IN (SELECT dataset FROM registered WHERE file = ?)",
                (person.number, file),
            )

    def release_source(self, file: str) -> bool:
        """Take a file back from its owner, and say whether it had one. What was registered stays noted."""
        with self._writing() as connection:
            gone = connection.execute("DELETE FROM source WHERE file = ? RETURNING file", (file,)).fetchone()
        return gone is not None

    def sources(self) -> list[Source]:
        """Every file that is assigned."""
        rows = self._all(
            "SELECT s.file, s.identity, p.number, p.name, p.role, p.revoked IS NOT NULL, s.made "
            "FROM source s JOIN person p ON p.number = s.person ORDER BY s.file"
        )
        return [
            Source(file, identity, Person(number, name, Role(role)), bool(is_revoked), made)
            for file, identity, number, name, role, is_revoked, made in rows
        ]

    def source(self, file: str) -> tuple[int, str] | None:
        """The number of the owner and the identity of a file that is assigned."""
        row = self._one("SELECT person, identity FROM source WHERE file = ?", file)
        return None if row is None else (row[0], row[1])
