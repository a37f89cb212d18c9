"""The holders of keys, and the visitors with a browser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reticent.errors import ParameterError
from reticent.service.keys import Person, Role, checked_name, digest, new_secret
from reticent.service.state.file import StateFile

VISIT_S = 12 * 3600.0
_SET_BACK_S = 600.0  # by which a clock may be corrected without ending visits
_PERSON = "SELECT number, name, role FROM person WHERE revoked IS NULL AND "


@dataclass(frozen=True)
class Visit:
    """A signed-in browser."""

    person: Person
    csrf: str


@dataclass(frozen=True)
class KeyRecord:
    """A key as lists show it."""

    person: Person
    made: float
    revoked: float | None


class People(StateFile):
    """Keys and visits."""

    def make_key(self, name: str, role: Role) -> tuple[Person, str]:
        """A new key; its secret is returned here and never again.

        Somebody of a name that had a key before has its limits, and what was used of them: taking a key back
        and making another gives no fresh quota. What belonged to it stays away.
        """
        checked_name(name)
        secret = new_secret()
        with self._writing() as connection:
            taken = "SELECT 1 FROM person WHERE name = ? AND revoked IS NULL"
            if connection.execute(taken, (name,)).fetchone():
                raise ParameterError(f"name must be of nobody who has a key, got {name!r}")
            made = connection.execute(
                "INSERT INTO person (name, role, digest, made) VALUES (?, ?, ?, ?) RETURNING number",
                (name, role.value, digest(secret), self.now()),
            ).fetchone()
            for table in ("quota", "used"):
                connection.execute(
                    f"INSERT INTO {table} SELECT dataset, ?, units FROM {table} WHERE person = "  # noqa: S608
                    "(SELECT max(number) FROM person WHERE name = ? AND number < ?)",
                    (made[0], name, made[0]),
                )
        return Person(made[0], name, role), secret

    def replace_key(
        self, name: str, *, number: int | None = None, key: str | None = None
    ) -> tuple[Person, str] | None:
        """Make another secret for a lost key: the old one and its visits end, all else stays as it is.

        Its number, quotas and what was used of them, files, data sets and jobs are those of the person.

        Args:
            name: Name of the person.
            number: Number of the person; None to replace the key of the present holder of the name.
            key: Secret that is replaced, if it must still be valid.
        """
        secret = new_secret()
        with self._writing() as connection:
            found = connection.execute(
                "UPDATE person SET digest = ?, made = ? WHERE name = ? AND revoked IS NULL "
                "AND coalesce(number = ?, TRUE) AND coalesce(digest = ?, TRUE) RETURNING number, name, role",
                (digest(secret), self.now(), name, number, None if key is None else digest(key)),
            ).fetchone()
            if found:
                connection.execute("DELETE FROM visit WHERE person = ?", found[:1])
        person = _person(found)
        return None if person is None else (person, secret)

    def revoke(self, name: str, *, number: int | None = None) -> bool:
        """Take a key back, with its visits, and say whether there was one. See `replace_key`."""
        with self._writing() as connection:
            found = connection.execute(
                "UPDATE person SET revoked = ? WHERE name = ? AND revoked IS NULL "
                "AND coalesce(number = ?, TRUE) RETURNING number",
                (self.now(), name, number),
            ).fetchone()
            if found:
                connection.execute("DELETE FROM visit WHERE person = ?", found)
        return found is not None

    def revoke_by(self, person: Person, name: str) -> bool:
        """Take a key back for an owner, and say whether it was; those of other owners the operator takes."""
        whom = self._theirs(person, name)
        return whom is not None and self.revoke(name, number=whom.number)

    def replace_by(self, person: Person, name: str, *, key: str | None = None) -> str | None:
        """Make another secret for a lost key, if the owner may take that key back; else return None.

        Args:
            person: Owner who asks.
            name: Name of the person who lost the key.
            key: Secret with which the owner came: their own is replaced by it only while it is valid itself.
        """
        whom = self._theirs(person, name)
        if whom is None:
            return None
        found = self.replace_key(name, number=whom.number, key=key if whom == person else None)
        return None if found is None else found[1]

    def _theirs(self, person: Person, name: str) -> Person | None:
        """Return the holder of a name, if an owner may take back their key.

        A moment later the name may be another's.
        """
        whom = self.named(name)
        return whom if whom is not None and (whom.role is not Role.OWNER or whom == person) else None

    def all_keys(self) -> list[KeyRecord]:
        """Return every key that was ever made."""
        rows = self._all("SELECT number, name, role, made, revoked FROM person ORDER BY number")
        return [
            KeyRecord(Person(number, name, Role(role)), made, gone) for number, name, role, made, gone in rows
        ]

    def person(self, secret: str) -> Person | None:
        """Return the holder of a key; None for an unknown or revoked key.

        The key is found by its hash, so time tells nothing.
        """
        return _person(self._one(f"{_PERSON} digest = ?", digest(secret)))

    def named(self, name: str) -> Person | None:
        """Return the person who has a valid key under a name."""
        return _person(self._one(f"{_PERSON} name = ?", name))

    def numbered(self, number: int) -> Person | None:
        """Whose key has this number, if it is valid."""
        return _person(self._one(f"{_PERSON} number = ?", number))

    def enter(self, key: str) -> tuple[str, Visit] | None:
        """A new visit with a key: the cookie's secret, and its token against forged forms.

        None if the key is not valid. It is looked at in the transaction that begins the visit: one that is
        replaced meanwhile either begins none, or its visit ends with it.
        """
        secret, csrf = new_secret(""), new_secret("")
        with self._writing("visits") as connection:
            person = _person(connection.execute(f"{_PERSON} digest = ?", (digest(key),)).fetchone())
            if person is None:
                return None
            connection.execute("DELETE FROM visit WHERE ends < ?", (self.now(),))
            ends = self.now() + VISIT_S
            connection.execute(
                "INSERT INTO visit VALUES (?, ?, ?, ?)", (digest(secret), person.number, csrf, ends)
            )
        return secret, Visit(person, csrf)

    def visit(self, secret: str) -> Visit | None:
        """The visit of a cookie, if it has not ended.

        One that would take longer than any visit began before the clock was set back, and has ended too.
        """
        now = self.now()
        row = self._one(
            "SELECT p.number, p.name, p.role, v.csrf FROM visit v JOIN person p ON p.number = v.person "
            "WHERE v.digest = ? AND v.ends > ? AND v.ends <= ? AND p.revoked IS NULL",
            digest(secret),
            now,
            now + VISIT_S + _SET_BACK_S,
        )
        if row is None:
            return None
        return Visit(Person(row[0], row[1], Role(row[2])), row[3])

    def leave(self, secret: str) -> None:
        """End a visit."""
        with self._writing("visits") as connection:
            connection.execute("DELETE FROM visit WHERE digest = ?", (digest(secret),))


def _person(row: tuple[Any, ...] | None) -> Person | None:
    return None if row is None else Person(row[0], row[1], Role(row[2]))
