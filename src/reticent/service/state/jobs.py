"""Questions that are answered when there is time for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reticent.service.keys import Person, new_secret
from reticent.service.state.file import StateFile

_JOB = "SELECT id, person, dataset, idempotency, body, state, made, shown, result FROM job WHERE "

# One that was heard of later than now was so before the clock was set back.
_NEXT_JOB = (
    "SELECT number FROM job WHERE state = 'queued' OR (state = 'running' AND abs(beat - ?) > ?) "
    "ORDER BY number LIMIT 1"
)


@dataclass(frozen=True)
class Job:
    """A question that is answered when there is time for it.

    Attributes:
        id: unguessable.
        person: the number of who asked.
        idempotency: under which text it is asked, so that asking again after a crash is charged once.
        body: the JSON of the question and its accuracy.
        state: queued, running, done or refused.
        made: when it came.
        shown: when its result may be seen, once there is one.
        result: the JSON of the answer, or of the refusal.
    """

    id: str
    person: int
    dataset: str
    idempotency: str | None
    body: str
    state: str
    made: float
    shown: float
    result: str | None


class JobList(StateFile):
    """Jobs of all processes."""

    def queue(
        self,
        attempt: str,
        person: Person,
        dataset: str,
        idempotency: str | None,
        body: str,
        *,
        made: float,
        is_running: bool,
        most: int,
    ) -> Job | None:
        """A new job, or the one that the attempt has already; None if the person has too many."""
        with self._writing(f"jobs of {person.number}") as connection:
            found = connection.execute(f"{_JOB} attempt = ?", (attempt,)).fetchone()
            if found:
                return Job(*found)
            unfinished = connection.execute(
                "SELECT count(*) FROM job WHERE person = ? AND (result IS NULL OR shown > ?)",
                (person.number, self.now()),
            ).fetchone()
            if unfinished[0] >= most:
                return None
            name = new_secret("job_")
            job = Job(
                name,
                person.number,
                dataset,
                idempotency or name,
                body,
                "running" if is_running else "queued",
                made,
                made,
                None,
            )
            connection.execute(
                "INSERT INTO job (id, attempt, person, dataset, idempotency, body, state, made, beat, shown) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    job.id,
                    attempt,
                    job.person,
                    dataset,
                    job.idempotency,
                    body,
                    job.state,
                    made,
                    self.now(),
                    made,
                ),
            )
        return job

    def claim(self, lapse_s: float) -> Job | None:
        """The oldest job that waits, or whose process was not heard of for so long; it runs here now."""
        now = self.now()
        if self._one(_NEXT_JOB, now, lapse_s) is None:
            return None
        with self._writing("claims") as connection:
            row = connection.execute(
                f"UPDATE job SET state = 'running', beat = ? WHERE number = ({_NEXT_JOB}) "  # noqa: S608
                "AND result IS NULL RETURNING id",  # it may be finished meanwhile
                (now, now, lapse_s),
            ).fetchone()
            found = connection.execute(f"{_JOB} id = ?", row).fetchone() if row else None
        return Job(*found) if found else None

    def beat(self, jobs: Iterable[str]) -> None:
        """Say that these are still worked on."""
        with self._writing("beats") as connection:
            connection.executemany(
                "UPDATE job SET beat = ? WHERE id = ?", [(self.now(), one) for one in jobs]
            )

    def finish(self, job: str, state: str, result: str, shown: float) -> None:
        """Keep the result of a job; the first stands."""
        with self._writing(f"job {job}") as connection:
            connection.execute(
                "UPDATE job SET state = ?, result = ?, shown = ? WHERE id = ? AND result IS NULL",
                (state, result, shown, job),
            )

    def job(self, name: str, person: Person) -> Job | None:
        """A job of this person."""
        row = self._one(f"{_JOB} id = ? AND person = ?", name, person.number)
        return Job(*row) if row else None

    def job_counts(self) -> dict[str, int]:
        """Return how many jobs are in each state, as their owners see it: a result that waits runs still."""
        rows = self._all(
            "SELECT CASE WHEN result IS NOT NULL AND shown > ? THEN 'running' ELSE state END AS seen, "
            "count(*) FROM job GROUP BY seen",
            self.now(),
        )
        return {str(state): int(number) for state, number in rows}
