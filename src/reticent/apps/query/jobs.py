"""Questions that take long: queued, remembered in the state, and taken up again after a crash.

A job is asked under its own id, so that asking it again returns the same answer and costs nothing. Two
processes may work on one job, if the first was only slow: the first result stands.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, cast

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from reticent.apps.query.apart import Apart, OtherHand, Work
from reticent.apps.query.attempts import Settled
from reticent.apps.query.desk import LONGEST_REPEAT, Desk, Question, shaped_free, shaped_paid
from reticent.apps.query.lanes import SWITCH_S, Lanes, restful
from reticent.apps.query.schemas import Priced
from reticent.apps.query.weights import MANY, PLANNED, WorkWeight, letters_asked
from reticent.errors import BudgetExceeded, CommitUnknown, NotMeasured, ReticentError, StorageUnavailable
from reticent.query import Answer
from reticent.query.accuracy import Accuracy
from reticent.query.declarations.datasets import Policy
from reticent.query.language.questions import MOST_VALUES
from reticent.service.keys import Person
from reticent.service.limits import Rate, leaves_after_s
from reticent.service.refusals import Refused, not_signed_in, refused_as, shape, too_much
from reticent.service.replies import refusal_text, written
from reticent.service.state import Job

Result = TypeVar("Result")
Shape = TypeVar("Shape", Answer, bytes)

log = logging.getLogger("reticent.service")
_LOOK_S = 1.0  # between two looks for jobs of other processes
_QUICKEST_BEAT_S = 0.02
_PASSING = (StorageUnavailable, CommitUnknown)
_WAITING = 8  # times the threads, if they mostly wait for a chain or the time grid


class Jobs:
    """The threads of one process that answer questions: at once, or as jobs.

    Args:
        desk: Desk that answers.
        apart: Process that makes answers of many cells; None to make them here.
        estimator: Process that makes free estimates which take long; None to make them here.
    """

    def __init__(self, desk: Desk, apart: Apart | None = None, estimator: Apart | None = None) -> None:
        self._desk, self._settings = desk, desk.settings
        self._apart, self._estimator = apart, estimator
        self._is_on_chain = desk.ledger.measured_by_oracle
        waits = self._is_on_chain or self._settings.grid_s > 0
        self.lanes = Lanes(self._settings.threads * (_WAITING if waits else 1))
        self._work_rate = Rate(self._settings.work_rate, self._settings.work_burst)
        self._closing, self._news = threading.Event(), threading.Condition()
        self._running: set[str] = set()
        self._threads = [
            threading.Thread(target=self._work, name=f"job-{i}", daemon=True)
            for i in range(self._settings.job_threads)
        ]
        self._threads.append(threading.Thread(target=self._keep, name="beat", daemon=True))
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the threads, once the questions in work are answered; waiting jobs stay in the state."""
        self._closing.set()
        self._desk.leave()
        with self._news:
            self._news.notify_all()
        self.lanes.close()
        for process in (self._apart, self._estimator):
            if process is not None:
                process.close()
        for thread in self._threads:
            thread.join()

    async def ask(
        self,
        person: Person,
        name: str,
        body: Priced,
        idempotency: str | None,
        start: float,
        shaped: Callable[[Answer], Shape],
    ) -> Shape | Job:
        """Answer a question in a thread, or return a job if the answer takes longer than a request may wait.

        Args:
            person: Person who asks.
            name: Name of the data set.
            body: Question and its accuracy.
            idempotency: Idempotency text, used like that of `Desk.ask`.
            start: Time at which the question came, on the monotonic clock.
            shaped: Function that shapes the answer, in the same thread; another process may do the work of
                `in_bytes`.
        """
        given = (person, name, body.query, body.accuracy())

        def here() -> Shape | None:
            answer = self._desk.free(*given, idempotency)
            return None if answer is None else shaped(answer)

        def paid_here() -> Shape:
            return shaped(self._desk.ask(*given, idempotency=idempotency, start=start))

        def quick() -> tuple[WorkWeight, Shape | None]:
            weight = self._weighed(person, name, body.query)
            return weight, here() if max(weight) <= MANY else None

        free: Callable[[], Any] = partial(restful, here)
        paid: Callable[[], Any] = paid_here
        weight, found = await run_in_threadpool(quick)
        cells = weight.cells
        other = self._other_process(weight, name) if shaped is in_bytes else None
        if other is not None:
            free = partial(self._free_apart, other, *given, idempotency)
        if weight.is_long_estimate:
            found = await self.lanes.estimate(free)
        elif cells > MANY:
            paid = partial(restful, paid_here)
            if other is not None:
                paid = partial(self._paid_apart, other, *given, idempotency, start)
            found = await self.lanes.free(cells, free)
        if found is not None:
            return found
        work = self.lanes.paid(cells, paid)
        answer = asyncio.wrap_future(work)
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait((answer,), timeout=self._settings.longest_s)
        if answer.done():
            return cast(Shape, answer.result())
        passed_s = time.monotonic() - start
        return await run_in_threadpool(self._adopt, work, person, name, body, idempotency, passed_s)

    async def free(
        self, person: Person, name: str, query: Question, work: Work[Result], *, is_here: bool = False
    ) -> Result:
        """Do free work on a question of a person, within the rate of their work.

        Args:
            person: Person who asks.
            name: Name of the data set.
            query: Question, which is weighed.
            work: Work to do at a desk, here or in another process.
            is_here: True if the work must be done here, such as work that returns many objects.

        Raises:
            Refused: The question is more work than the rate allows now. Nothing was done.
        """

        def quick() -> tuple[WorkWeight, Result | None]:
            weight = self._weighed(person, name, query)
            return weight, work(self._desk) if max(weight) <= MANY else None

        weight, found = await run_in_threadpool(quick)
        if max(weight) <= MANY:
            return cast(Result, found)
        return await self.free_of(weight, name, work, is_here=is_here)

    async def free_of(
        self, weight: WorkWeight, name: str, work: Work[Result], *, is_here: bool = False
    ) -> Result:
        """Do free work of a weight that is counted already."""
        placed = self._placed(weight, name, work, is_here=is_here)
        if weight.is_long_estimate:
            return await self.lanes.estimate(placed)
        return await self.lanes.free(weight.cells, placed)

    async def rehearse(self, person: Person, name: str, query: Question, work: Work[Result]) -> Result:
        """Do free work on made-up rows, beside which nothing is recorded; only its cells are counted."""

        def weighed() -> int:
            cells = self._desk.cells(name, query)
            self.charge(person, name, WorkWeight(cells, 0))
            return cells

        cells = await run_in_threadpool(weighed)
        return await self.lanes.rehearse(cells, self._placed(WorkWeight(cells, 0), name, work))

    def _placed(
        self, weight: WorkWeight, name: str, work: Work[Result], *, is_here: bool = False
    ) -> Callable[[], Result]:
        """Return a call that does the work at this desk, or in another process if there is much of it."""
        if max(weight) <= MANY:
            return partial(work, self._desk)
        other = None if is_here else self._other_process(weight, name)
        if other is not None:
            return partial(other.call, work)
        return partial(restful, partial(work, self._desk))

    def _other_process(self, weight: WorkWeight, name: str) -> Apart | None:
        """Return the process that does work of such a weight; None if this process does the work.

        A degraded answer is drawn at once, so a data set with that policy has all its work done here.
        """
        if max(weight) <= MANY or self._desk.open_data(name).policy is Policy.DEGRADE:
            return None
        return self._estimator if weight.is_long_estimate else self._apart

    def _free_apart(
        self,
        other: Apart,
        person: Person,
        name: str,
        query: Question,
        accuracy: Accuracy,
        idempotency: str | None,
    ) -> bytes | None:
        """Return the reply to a question that another process can answer for free; None else."""
        attempt = self._desk.attempt(person, name, query, accuracy, idempotency)
        if attempt.answer is not None:
            return attempt.answer.encode()
        if self._desk.session(name).has_requested(query, attempt.ledger):
            return None
        shaped = other.call(partial(shaped_free, person, name, query, accuracy))
        return None if shaped is None else self._desk.ended(Settled(attempt, None), person, shaped)

    def _paid_apart(
        self,
        other: Apart,
        person: Person,
        name: str,
        query: Question,
        accuracy: Accuracy,
        idempotency: str | None,
        start: float,
    ) -> bytes:
        """Charge for a question of many cells here; let another process draw, record and shape the answer."""
        hand = OtherHand(other, name, start)
        try:
            settled = self._desk.settle(person, name, query, accuracy, idempotency, offering=False, hand=hand)
        except BudgetExceeded as refusal:
            short = (refusal.account, refusal.asked, refusal.left)
            offer = other.call(partial(_offered, name, query, accuracy, short))
            raise refused_as(refusal, reply=offer) from refusal
        if settled.paid is None:
            return cast(str, settled.attempt.answer).encode()
        made = partial(shaped_paid, person, name, query, settled.paid, accuracy.confidence)
        shaped = other.call(made)
        return self._desk.ended(settled, person, shaped)

    def _weighed(self, person: Person, name: str, query: Question) -> WorkWeight:
        """Return the weight of a question, counted for the person who asks."""
        weight = self._desk.weigh(name, query)
        self.charge(person, name, weight)
        return weight

    def charge_list(self, person: Person, name: str, queries: Iterable[Question]) -> WorkWeight:
        """Return the weight of several questions, counted for a person. Raises Refused as `charge` does."""
        weights = [self._desk.weigh(name, query) for query in queries]
        weight = WorkWeight(sum(one.cells for one in weights), sum(one.reuse for one in weights))
        self.charge(person, name, weight)
        return weight

    def charge_plan(self, person: Person, name: str, queries: Sequence[Question]) -> WorkWeight:
        """Return the weight of planning a workload, counted for a person. Raises Refused as `charge` does.

        Questions are counted before they are read, and what they may be estimated from once they are.
        """
        cells = PLANNED * len(queries)
        self.charge(person, name, WorkWeight(cells, 0))
        reuse = sum(self._desk.weigh(name, query).reuse for query in queries)
        self.charge(person, name, WorkWeight(0, reuse))
        return WorkWeight(cells, reuse)

    def charge(self, person: Person, name: str, weight: WorkWeight) -> None:
        """Count work on a data set for a person. Raises Refused if that is too much now."""
        steps = self._settings.steps(self._desk.open_data(name).rows)
        pause_s = self._work_rate.wait_s(str(person.number), weight.cells * steps + weight.reuse)
        if pause_s:
            raise too_much(weight.cells + weight.reuse, pause_s)

    def hopeless(self, person: Person, name: str, text: bytes, *, may_reuse: bool = True) -> Refused | None:
        """Return the refusal of a request that is too much work now, if it can be told at once.

        Nothing is counted, and nobody who has much of the rate left is looked at.

        Args:
            person: Person who asks.
            name: Data set that is asked about.
            text: Body of the request.
            may_reuse: Whether the question may be estimated from recorded values, which is work too.
        """
        caller = str(person.number)
        if not self._work_rate.full_s(caller, MOST_VALUES) or not self._desk.is_open(name):
            return None
        weight, steps = WorkWeight(letters_asked(text), 0), 1
        if len(text) <= LONGEST_REPEAT:
            try:
                query = json.loads(text)["query"]
            except (ValueError, KeyError, TypeError):  # faults of the request are reported later
                return None
            if not isinstance(query, Mapping):  # SQL takes longer to read
                return None
            weight = self._desk.weigh(name, query)
            if not may_reuse:
                weight = weight._replace(reuse=0)
            steps = self._settings.steps(self._desk.open_data(name).rows)
        pause_s = self._work_rate.full_s(caller, weight.cells * steps + weight.reuse)
        return too_much(sum(weight), pause_s) if pause_s else None

    @contextmanager
    def reading(self, person: Person, text: bytes) -> Iterator[None]:
        """Guard the reading of a long request, which counts by its letters if it is refused once it is read.

        Raises:
            Refused: The request is more work than the rate allows now, even to read. Nothing is counted.
        """
        caller, letters = str(person.number), letters_asked(text)
        pause_s = self._work_rate.full_s(caller, letters)
        if pause_s:
            raise too_much(letters, pause_s)
        try:
            yield
        except BaseException:
            self._work_rate.wait_s(caller, letters)
            raise

    def _adopt(
        self,
        answer: Future[Any],
        person: Person,
        name: str,
        body: Priced,
        idempotency: str | None,
        passed_s: float,
    ) -> Job:
        """Make a job of a question that is being answered and takes long."""
        made = self._desk.state.now() - passed_s
        job = self._queued(person, name, body, idempotency, made=made, is_running=True)
        with self._news:
            self._running.add(job.id)
        answer.add_done_callback(lambda done: self._end(job, done))
        return job

    def queue(self, person: Person, name: str, body: Priced, idempotency: str | None) -> Job:
        """Queue a new job, or return the earlier job with the same idempotency text and body."""
        job = self._queued(person, name, body, idempotency, made=self._desk.state.now(), is_running=False)
        with self._news:
            self._news.notify()
        return job

    def _queued(
        self,
        person: Person,
        name: str,
        body: Priced,
        idempotency: str | None,
        *,
        made: float,
        is_running: bool,
    ) -> Job:
        attempt = self._desk.attempt(person, name, body.query, body.accuracy(), idempotency)
        job = self._desk.state.queue(
            attempt.id,
            person,
            name,
            idempotency,
            body.model_dump_json(),
            made=made,
            is_running=is_running,
            most=self._settings.most_jobs,
        )
        if job is None:
            raise Refused(
                429,
                "too_many_jobs",
                f"at most {self._settings.most_jobs} jobs may be unfinished",
                retry_s=self._settings.longest_s,
            )
        return job

    def told(self, job: Job) -> dict[str, Any]:
        """Return the state of a job as far as its owner may know it.

        Progress is computed from public numbers and the clock only.
        """
        now = self._desk.state.now()
        # A result waits for a deadline or a point of the grid, at the longest. One that would wait for longer
        # was there before the clock was set back.
        longest_s = self._deadline_s(job.dataset) + self._settings.grid_s
        is_shown = job.result is not None and not 0.0 < job.shown - now <= longest_s
        state = "running" if job.result is not None and not is_shown else job.state
        progress = 1.0 if is_shown else 0.0
        if state == "running":
            expected_s = max(self._deadline_s(job.dataset), self._settings.longest_s, 1.0)
            progress = round(min(0.99, max(0.0, now - job.made) / expected_s), 2)
        return {
            "job": job.id,
            "dataset": job.dataset,
            "state": state,
            "progress": progress,
            "result": json.loads(job.result) if is_shown and job.result is not None else None,
            "waits_for": "chain and oracle" if self._is_on_chain and not is_shown else None,
        }

    def _deadline_s(self, name: str) -> float:
        try:
            return self._settings.deadline_s(self._desk.open_data(name).rows)
        except ReticentError:
            return self._settings.deadline_s(None)

    # The threads

    def _work(self) -> None:
        while not self._closing.is_set():
            job = None
            try:
                job = self._desk.state.claim(self._settings.job_lapse_s)
            except Exception as error:
                _fault(error)
            if job is None:
                with self._news:
                    if not self._closing.is_set():
                        self._news.wait(min(_LOOK_S, self._settings.job_lapse_s))
                continue
            with self._news:
                self._running.add(job.id)
            done: Future[bytes] = Future()
            try:
                done.set_result(self._answer(job))
            except BaseException as error:
                done.set_exception(error)
            self._end(job, done)

    def _answer(self, job: Job) -> bytes:
        person = self._desk.state.numbered(job.person)
        if person is None:  # the key was taken back meanwhile
            raise not_signed_in()
        body = Priced.model_validate_json(job.body)
        given = (person, job.dataset, body.query, body.accuracy())
        cells = self._desk.cells(job.dataset, body.query)
        start = time.monotonic() - max(0.0, self._desk.state.now() - job.made)

        def answered() -> bytes:
            return in_bytes(self._desk.ask(*given, idempotency=job.idempotency, start=start))

        if cells <= MANY:
            return answered()
        work = partial(restful, answered)
        other = self._other_process(WorkWeight(cells, 0), job.dataset)
        if other is not None:
            work = partial(self._paid_apart, other, *given, job.idempotency, start)
        return self.lanes.paid(cells, work).result()

    def _end(self, job: Job, done: Future[Any]) -> None:
        """Store the result of a job, to be seen from the next point of the time grid on."""
        state = "refused"
        try:
            answer, state = done.result(), "done"
            result = answer if isinstance(answer, bytes) else in_bytes(answer)
        except ReticentError as error:
            if isinstance(error, NotMeasured) and self._closing.is_set():
                return  # another process waits on
            if isinstance(error, _PASSING) and self._desk.state.database is not None:
                self._forgo(job)
                return
            result = refusal_text(error)
        except BaseException as error:  # a fault of ours, or the process ends before it began
            if self._closing.is_set():
                return
            _fault(error)
            result = written(shape("fault", "internal fault"))
        passed_s = self._desk.state.now() - job.made
        leaves_s = leaves_after_s(passed_s, self._deadline_s(job.dataset), self._settings.grid_s)
        try:
            self._desk.state.finish(job.id, state, result.decode(), job.made + leaves_s)
        except Exception as error:  # it is taken up again
            _fault(error)
        with self._news:
            self._running.discard(job.id)

    def _forgo(self, job: Job) -> None:
        """Leave a job whose database was lost to the next process that claims it.

        Under its key the job is paid for once.
        """
        with self._news:
            self._running.discard(job.id)

    def _keep(self) -> None:
        """Mark the running jobs as alive, and write the notes that wait."""
        pause_s = max(_QUICKEST_BEAT_S, min(0.5, self._settings.job_lapse_s / 5))
        while not self._closing.wait(pause_s):
            try:
                with self._news:
                    running = list(self._running)
                if running:
                    self._desk.state.beat(running)
                self._desk.state.flush()
            except Exception as error:
                _fault(error)


def in_bytes(answer: Answer) -> bytes:
    """Return an answer in the bytes of a reply."""
    return written(answer.to_json())


def _offered(
    name: str, query: Question, accuracy: Accuracy, short: tuple[str, int, int], desk: Desk
) -> bytes:
    """Return the reply to a question that the budget does not suffice for, with the best free answer."""
    return refusal_text(desk.session(name).offer(query, accuracy, BudgetExceeded(*short)))


def _fault(error: BaseException) -> None:
    """Log the type of an error only: its text could hold data."""
    log.error(json.dumps({"event": "fault", "type": type(error).__name__}))


@contextlib.contextmanager
def running(app: FastAPI) -> Iterator[None]:
    """Run the threads that answer, while the application runs."""
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))
    desk: Desk = app.state.desk
    is_apart = getattr(app.state, "is_apart", False) and not desk.ledger.measured_by_oracle
    apart, estimator = (Apart(desk.settings), Apart(desk.settings)) if is_apart else (None, None)
    app.state.jobs = Jobs(desk, apart, estimator)
    if apart is not None:
        apart.start()  # the estimator is started when it is first needed
    try:
        yield
    finally:
        app.state.jobs.close()
