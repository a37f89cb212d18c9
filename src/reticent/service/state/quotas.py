"""The quotas of analysts, and each request that is counted: a retry is not counted again.

Limits and what was used of them belong to a name. They are kept under the number of the person who has the
name now, or had it last: work that began under a key which was taken back counts for the one that was made
meanwhile.
"""

from __future__ import annotations

from reticent.errors import IdempotencyConflict
from reticent.service.keys import Person, Role
from reticent.service.state.file import StateFile, Statements
from reticent.service.state.history import Asked, insert_notes

_BEARER = "(SELECT max(number) FROM person WHERE name = (SELECT name FROM person WHERE number = ?))"


class Quotas(StateFile):
    """Quotas, and the attempts that are counted with them."""

    def set_quota(self, dataset: str, person: Person, units: int | None) -> None:
        """Limit what an analyst may be charged of a data set; None lifts the limit."""
        with self._writing(_scope(person)) as connection:
            number = _bearer(connection, person)
            connection.execute("DELETE FROM quota WHERE dataset = ? AND person = ?", (dataset, number))
            if units is not None:
                connection.execute("INSERT INTO quota VALUES (?, ?, ?)", (dataset, number, units))

    def quota(self, dataset: str, person: Person) -> tuple[int | None, int]:
        """An analyst's limit, if there is one, and what was used of it."""
        row = self._one(
            f"SELECT (SELECT units FROM quota WHERE dataset = ? AND person = {_BEARER}), "  # noqa: S608
            f"(SELECT units FROM used WHERE dataset = ? AND person = {_BEARER})",
            dataset,
            person.number,
            dataset,
            person.number,
        )
        assert row is not None
        return row[0], row[1] or 0

    def quotas(self, dataset: str) -> list[tuple[str, int | None, int]]:
        """Every analyst with a valid key: name, limit if there is one, and what was used."""
        return [
            (row[0], row[1], row[2])
            for row in self._all(
                "SELECT p.name, q.units, coalesce(u.units, 0) FROM person p "
                "LEFT JOIN quota q ON q.dataset = ? AND q.person = p.number "
                "LEFT JOIN used u ON u.dataset = ? AND u.person = p.number "
                "WHERE p.role = ? AND p.revoked IS NULL ORDER BY p.number",
                dataset,
                dataset,
                Role.ANALYST.value,
            )
        ]

    def attempted(self, attempt: str, person: Person, dataset: str, body: str) -> str | None:
        """Note the body that came first under an attempt; the answer, if it was given one before.

        Raises:
            IdempotencyConflict: another body came before.
        """
        row = self._one("SELECT body, answer FROM attempt WHERE id = ?", attempt)
        if row is None:
            with self._writing(f"attempt {attempt}") as connection:
                connection.execute(
                    "INSERT INTO attempt VALUES (?, ?, ?, ?, 0, NULL, ?) ON CONFLICT DO NOTHING",
                    (attempt, person.number, dataset, body, self.now()),
                )
                row = connection.execute(
                    "SELECT body, answer FROM attempt WHERE id = ?", (attempt,)
                ).fetchone()
        assert row is not None
        if row[0] != body:
            raise IdempotencyConflict("the Idempotency-Key was used for another request")
        answer: str | None = row[1]
        return answer

    def reserve(self, attempt: str, person: Person, dataset: str, units: int) -> tuple[bool, int | None]:
        """Count an attempt with units, at least.

        Returns:
            Whether it was counted with nothing before; and what is left of the quota if that does not
            suffice: then nothing is changed.
        """
        with self._writing(_scope(person)) as connection:
            row = connection.execute("SELECT units FROM attempt WHERE id = ?", (attempt,)).fetchone()
            held = row[0] if row else 0
            more = max(0, units - held)
            number = _bearer(connection, person)
            limit = connection.execute(
                "SELECT units FROM quota WHERE dataset = ? AND person = ?", (dataset, number)
            ).fetchone()
            used = _used(connection, dataset, number)
            if more and limit and used + more > limit[0]:
                return False, max(0, int(limit[0]) - used)
            if row is None:
                connection.execute(
                    "INSERT INTO attempt VALUES (?, ?, ?, '', 0, NULL, ?)",
                    (attempt, person.number, dataset, self.now()),
                )
            _count(connection, attempt, dataset, person, held, held + more)
        return held == 0, None

    def release(self, attempt: str, person: Person, dataset: str) -> None:
        """Count an attempt with nothing: it was charged nothing."""
        with self._writing(_scope(person)) as connection:
            row = connection.execute("SELECT units FROM attempt WHERE id = ?", (attempt,)).fetchone()
            if row:
                _count(connection, attempt, dataset, person, row[0], 0)
                connection.execute("DELETE FROM attempt WHERE id = ? AND body = ''", (attempt,))

    def settle(self, attempt: str, person: Person, one: Asked, answer: str, *, is_first: bool) -> str:
        """Count an attempt with what it was charged, and remember the question, all or nothing.

        Args:
            attempt: Id of the attempt.
            person: Person who made the attempt.
            one: Question and its cost.
            answer: Answer that a retry must get.
            is_first: True if nothing was counted before this try. Else an earlier try may have been charged,
                of which this one knows nothing, and the larger count stands.

        Returns:
            The answer, or that of another try which was first.
        """
        with self._taken_along() as notes, self._writing(_scope(person)) as connection:
            row = connection.execute("SELECT units, answer FROM attempt WHERE id = ?", (attempt,)).fetchone()
            held, earlier = row if row else (0, None)
            if earlier is not None:
                insert_notes(connection, notes)
                return str(earlier)
            _count(
                connection,
                attempt,
                one.dataset,
                person,
                held,
                one.cost if is_first or not row else max(held, one.cost),
            )
            connection.execute("UPDATE attempt SET answer = ? WHERE id = ? AND body <> ''", (answer, attempt))
            connection.execute("DELETE FROM attempt WHERE id = ? AND body = ''", (attempt,))
            insert_notes(connection, [*notes, one])
        return answer


def _scope(person: Person) -> str:
    """Return the name of the group of counts that change together: those of one person, by any server."""
    return f"quota {person.name}"


def _bearer(connection: Statements, person: Person) -> int:
    """Under whose number a person is counted."""
    found = connection.execute(f"SELECT {_BEARER}", (person.number,)).fetchone()
    return int(found[0])


def _used(connection: Statements, dataset: str, number: int) -> int:
    row = connection.execute(
        "SELECT units FROM used WHERE dataset = ? AND person = ?", (dataset, number)
    ).fetchone()
    return int(row[0]) if row else 0


def _count(
    connection: Statements, attempt: str, dataset: str, person: Person, before: int, after: int
) -> None:
    """Change what an attempt is counted with, and what its person used in all."""
    if before == after:
        return
    number = _bearer(connection, person)
    used = _used(connection, dataset, number) + after - before
    connection.execute(
        "INSERT INTO used VALUES (?, ?, ?) "
        "ON CONFLICT (dataset, person) DO UPDATE SET units = excluded.units",
        (dataset, number, max(0, used)),
    )
    connection.execute("UPDATE attempt SET units = ? WHERE id = ?", (after, attempt))
