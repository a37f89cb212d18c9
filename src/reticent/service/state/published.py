"""The agreement of servers that share a state: the data sets they serve, from which accounts, who signs.

One machine says so (`reticent publish`), that where the declarations have their home. Nobody who only serves
decides whose rows are whose: two servers that did, each for itself, could open two accounts for the same
people.
"""

from __future__ import annotations

from dataclasses import dataclass

from reticent.service.state.file import StateFile

_TAKEN = ("person", "visit", "quota", "used", "asked", "attempt", "job")
_NUMBERED = ("person", "asked", "job")


@dataclass(frozen=True)
class Published:
    """A data set that all servers serve.

    Attributes:
        dataset: Name of the data set.
        declaration: Text that declares the data set, the same on every server.
        account: Account from which the data set pays.
        identity: Identity of its people, as the account's terms have it.
    """

    dataset: str
    declaration: str
    account: str
    identity: str


class Agreed(StateFile):
    """The published agreement of servers that share a state.

    A state in a file has none.

    A state in a file has none.
    """

    def publish(self, one: Published) -> None:
        """Let all servers serve a data set, or serve it as it is declared by now."""
        with self._writing() as connection:
            connection.execute(
                "INSERT INTO published VALUES (?, ?, ?, ?) ON CONFLICT (dataset) DO UPDATE "
                "SET declaration = excluded.declaration, account = excluded.account, "
                "identity = excluded.identity",
                (one.dataset, one.declaration, one.account, one.identity),
            )

    def take(self, other: StateFile) -> bool:
        """Take over keys, quotas and what was asked from the state of one machine, unless keys are here.

        Which files are whose stays behind: it is true on that machine alone.
        """
        with self._writing() as connection:
            if connection.execute("SELECT 1 FROM person").fetchone() is not None:
                return False
            for table in _TAKEN:
                rows = other._all(f"SELECT * FROM {table}")  # noqa: S608
                if rows:
                    marks = ", ".join("?" * len(rows[0]))
                    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608
            for table in _NUMBERED:
                connection.execute(
                    f"SELECT setval(pg_get_serial_sequence('{table}', 'number'), "  # noqa: S608
                    f"(SELECT coalesce(max(number), 1) FROM {table}))"
                )
        return True

    def published(self) -> dict[str, Published]:
        """All that was published, by name."""
        rows = self._all("SELECT dataset, declaration, account, identity FROM published")
        return {row[0]: Published(*row) for row in rows}

    def published_as(self, name: str) -> Published | None:
        """Return what was published under a name; None if nothing is."""
        row = self._one(
            "SELECT dataset, declaration, account, identity FROM published WHERE dataset = ?", name
        )
        return None if row is None else Published(*row)

    def agree(self, name: str, setting: str) -> str:
        """Note a setting that all servers have, if none is noted; the one that is."""
        with self._writing("settings") as connection:
            connection.execute("INSERT INTO setting VALUES (?, ?) ON CONFLICT DO NOTHING", (name, setting))
            row = connection.execute("SELECT setting FROM setting WHERE name = ?", (name,)).fetchone()
        return str(row[0])

    def agreed(self, name: str) -> str | None:
        """A setting that all servers have; None if nobody said so."""
        row = self._one("SELECT setting FROM setting WHERE name = ?", name)
        return None if row is None else str(row[0])
