"""What a service holds for its surveys: the collector, the operator, and how callers share a commit."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Generic, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import Depends, FastAPI, Request
from starlette.concurrency import run_in_threadpool

from reticent.collect.collector import Collector
from reticent.collect.shaping import follow_up, learn
from reticent.collect.signing import signed
from reticent.collect.study import of_survey
from reticent.collect.survey import Survey
from reticent.collect.wire import Outcome
from reticent.errors import LedgerDamaged, LedgerError
from reticent.fleet.database import noted
from reticent.fleet.operator import Operator
from reticent.fleet.record import Record
from reticent.fleet.revocation import Revocations
from reticent.fleet.secret_file import kept_secret
from reticent.ledger import Ledger
from reticent.service.limits import Rate
from reticent.service.refusals import not_found
from reticent.service.settings import Settings
from reticent.service.state import own_folder

Brought = TypeVar("Brought")
Told = TypeVar("Told")
_TOGETHER = 20_000  # reports that are counted at once, or one batch
_PAUSE_S, _MOST_PAUSE_S = 3e-4, 0.02  # for each request that was counted with others: more will come


class Collecting:
    """The collector of a service, opened when it is first needed, and the operator's two secrets.

    They lie in the service's own folder, readable by its owner alone: `survey.key` signs surveys, and from
    `enrolment.key` the keys of devices come. Beside it lies the list of enrolments that were taken back.

    Args:
        settings: of the service.
        ledger: gives the one where it is entered what was learnt; None for whoever shows nothing.
    """

    def __init__(self, settings: Settings, ledger: Callable[[], Ledger] | None = None) -> None:
        self._folder, self._ledger = own_folder(settings.folder), ledger
        self._guard = threading.Lock()
        self._collector: Collector | None = None
        self.intake: Batching[bytes, Outcome] = Batching(lambda reports: self.collector.receive(reports))
        self.rate = Rate(settings.rate, settings.burst)  # of devices
        self._operator: Operator | None = None
        self._revocations: Revocations | None = None
        self.looks: dict[bytes, deque[tuple[float, int]]] = {}  # of pages, at how many reports there were

    @property
    def is_used(self) -> bool:
        """Whether anything was ever collected: else looking would begin it."""
        where = self._where
        return self._collector is not None or isinstance(where, str) or where.exists()

    @property
    def _where(self) -> Path | str:
        """Of the counts: here, or in a database that several machines share (`reticent survey share`)."""
        return noted(self._folder / "enrolment.key") or self._folder / "collected.sqlite"

    @property
    def collector(self) -> Collector:
        """That of this process."""
        return self._open()

    def _open(self) -> Collector:
        with self._guard:
            if self._collector is None:
                self._collector = Collector(self._where, self.master, revocations=self._listed())
                with contextlib.suppress(LedgerError):  # it is tried again with the next start
                    self._collector.forget()
            return self._collector

    async def opened(self) -> Collector:
        """The same, for whoever must not wait for a disk."""
        held = self._collector
        return held if held is not None else await run_in_threadpool(self._open)

    @property
    def master(self) -> bytes:
        """The operator's secret from which devices' keys come."""
        path = self._folder / "enrolment.key"
        if not path.exists() and self.is_used:
            raise LedgerDamaged("enrolment.key is gone: without it no device is known; restore it")
        return kept_secret(path)

    @property
    def signing_key(self) -> Ed25519PrivateKey:
        """The operator's secret that signs surveys."""
        return Ed25519PrivateKey.from_private_bytes(kept_secret(self._folder / "survey.key"))

    @property
    def signer(self) -> bytes:
        """The public key of who signs the surveys that are collected here."""
        return self.signing_key.public_key().public_bytes_raw()

    def survey(self, name: str) -> Survey:
        """The survey with that id, or else the newest of that name: a name may look like an id."""
        surveys = self.collector.surveys()
        for one in surveys:
            if name == one.id.hex():
                return one
        for one in reversed(surveys):
            if name == one.name:
                return one
        raise not_found("survey")

    def _listed(self) -> Revocations:
        if self._revocations is None:
            self._revocations = Revocations.beside(self._folder / "enrolment.key")
        return self._revocations

    @property
    def revocations(self) -> Revocations:
        """The enrolments that were taken back: for surveys, campaigns and trainings alike."""
        self._open()  # which takes over what earlier releases had
        with self._guard:
            return self._listed()

    @property
    def operator(self) -> Operator:
        """Who knows the devices, and in whose ledger it is entered what was learnt."""
        revocations, master = self.revocations, self.master
        with self._guard:
            if self._operator is None:
                assert self._ledger is not None
                self._operator = Operator(master, revocations, Record(self._ledger()))
            return self._operator

    def learn(self, survey: Survey, periods: Iterable[int]) -> str:
        """Enter into the ledger, before it is shown, what the reports of these periods tell.

        Returns:
            The name of the survey's account there.

        Raises:
            LedgerError: it could not be entered; nothing may be shown.
        """
        told, study, record = list(periods), of_survey(survey), self.operator.record
        learn(survey, told, self.collector, record)
        return record.account(study) if told else study.terms.name

    def follow_up(self, survey: Survey, period: int) -> Survey:
        """The follow-up of a period of a survey that learns: as it is, or made, signed and collected now.

        Raises:
            LedgerError: what shapes it could not be entered into the ledger; nothing was looked at.
            ParameterError: the survey does not learn, or nobody reported what it learns from.
        """
        found = self.collector.follow_ups(survey).get(period)
        if found is not None:
            return found
        made = follow_up(survey, period, self.collector, self.operator.record)
        return self.collector.collect(signed(made, self.signing_key), self.signer)

    def close(self) -> None:
        """Close the collector and the list."""
        with self._guard:
            collector, self._collector = self._collector, None
            revocations, self._revocations = self._revocations, None
        if collector is not None:
            collector.close()
        if revocations is not None:
            revocations.close()


class Batching(Generic[Brought, Told]):
    """Counts what requests bring: one thread, and in one go whatever came while the last go was written.

    Threads for each request would mostly wait for each other, and a commit takes as long as a request: where
    several came together, the next go waits for about as long as their replies and next requests take.
    """

    def __init__(self, receive: Callable[[list[Brought]], list[Told]]) -> None:
        self._receive = receive
        self._waiting: deque[tuple[list[Brought], asyncio.Future[list[Told]]]] = deque()
        self._going: asyncio.Task[None] | None = None

    async def receive(self, reports: list[Brought]) -> list[Told]:
        """What became of reports, once that is on the disk."""
        told: asyncio.Future[list[Told]] = asyncio.get_running_loop().create_future()
        self._waiting.append((reports, told))
        if self._going is None:
            self._going = asyncio.create_task(self._go())
        return await told

    async def _go(self) -> None:
        try:
            while self._waiting:
                together = [self._waiting.popleft()]
                size = len(together[0][0])
                while self._waiting and size + len(self._waiting[0][0]) <= _TOGETHER:
                    together.append(self._waiting.popleft())
                    size += len(together[-1][0])
                await self._count(together)
                await asyncio.sleep(min(_MOST_PAUSE_S, _PAUSE_S * (len(together) - 1)))
        finally:
            self._going = None

    async def _count(self, together: list[tuple[list[Brought], asyncio.Future[list[Told]]]]) -> None:
        try:
            outcomes = await run_in_threadpool(
                self._receive, [one for reports, _ in together for one in reports]
            )
        except Exception as error:  # theirs to tell
            for _, told in together:
                if not told.done():
                    told.set_exception(error)
            return
        start = 0
        for reports, told in together:
            if not told.done():  # its caller may have left
                told.set_result(outcomes[start : start + len(reports)])
            start += len(reports)


async def _the_collecting(request: Request) -> Collecting:
    found: Collecting = request.app.state.collecting
    return found


TheCollecting = Annotated[Collecting, Depends(_the_collecting)]


def prepare(app: FastAPI, settings: Settings) -> None:
    """Put the collector where the routes find it; it is opened when it is first needed."""
    app.state.collecting = Collecting(settings, lambda: app.state.desk.book)


@contextlib.contextmanager
def running(app: FastAPI) -> Iterator[None]:
    """Close it with the application."""
    try:
        yield
    finally:
        app.state.collecting.close()
