"""Reports of devices over HTTP, and what they come to. `collect` does the work.

Devices need no API key: the tag of a report says who made it. So the rate is that of the device whose report
comes first, at this host, if it is genuine, and else that of the host: a fleet behind one address is not held
up by strangers there, nor a device by whoever sends what it once sent from elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from reticent.apps.query.api import PROBLEMS, Anyone, Json, Owner, stranger
from reticent.apps.query.schemas import SignedSurvey
from reticent.collect.collector import Collector
from reticent.collect.estimates import Estimate, estimates
from reticent.collect.study import of_survey
from reticent.collect.survey import MOST_PERIODS, Survey
from reticent.collect.wire import Outcome, split
from reticent.errors import LedgerDamaged, LedgerError, ParameterError
from reticent.fleet.counted import asker
from reticent.fleet.enrolment import ID_BYTES
from reticent.fleet.operator import Operator
from reticent.fleet.record import Record
from reticent.fleet.revocation import Revocations
from reticent.fleet.secret_file import kept_secret
from reticent.ledger import Ledger
from reticent.mechanisms.record import Category
from reticent.service.limits import Rate
from reticent.service.refusals import Refused, not_found, too_many
from reticent.service.replies import Reply
from reticent.service.settings import Settings
from reticent.service.state import own_folder

MOST_REPORTS = 10_000  # in a batch
_TOGETHER = 20_000  # reports that are counted at once, or one batch
_PAUSE_S, _MOST_PAUSE_S = 3e-4, 0.02  # for each request that was counted with others: more will come
REJECTS = 100  # that cost a caller as much as a request
_KIND = "application/octet-stream"
BYTES: Json = {
    "requestBody": {
        "required": True,
        "content": {_KIND: {"schema": {"type": "string", "format": "binary"}}},
    }
}
router = APIRouter(prefix="/api/v1", responses=PROBLEMS)


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
        self.intake = Intake(lambda reports: self.collector.receive(reports))
        self.rate = Rate(settings.rate, settings.burst)  # of devices
        self._operator: Operator | None = None
        self._revocations: Revocations | None = None
        self.looks: dict[bytes, deque[tuple[float, int]]] = {}  # of pages, at how many reports there were

    @property
    def collector(self) -> Collector:
        """That of this process."""
        return self._open()

    def _open(self) -> Collector:
        with self._guard:
            if self._collector is None:
                path = self._folder / "collected.sqlite"
                self._collector = Collector(path, self.master, revocations=self._listed())
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
        if not path.exists() and (self._folder / "collected.sqlite").exists():
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
        closed = {period: self.collector.is_closed(survey, period) for period in periods}
        counts = self.collector.periods(survey)  # of a closed period this is its last word
        told = {period: counts.get(period, 0) if is_closed else None for period, is_closed in closed.items()}
        study, record = of_survey(survey), self.operator.record
        record.learn(study, told)
        return record.account(study) if told else study.terms.name

    def close(self) -> None:
        """Close the collector and the list."""
        with self._guard:
            collector, self._collector = self._collector, None
            revocations, self._revocations = self._revocations, None
        if collector is not None:
            collector.close()
        if revocations is not None:
            revocations.close()


class Intake:
    """Counts what requests bring: one thread, and in one go whatever came while the last go was written.

    Threads for each request would mostly wait for each other, and a commit takes as long as a request: where
    several came together, the next go waits for about as long as their replies and next requests take.
    """

    def __init__(self, receive: Callable[[list[bytes]], list[Outcome]]) -> None:
        self._receive = receive
        self._waiting: deque[tuple[list[bytes], asyncio.Future[list[Outcome]]]] = deque()
        self._going: asyncio.Task[None] | None = None

    async def receive(self, reports: list[bytes]) -> list[Outcome]:
        """What became of reports, once that is on the disk."""
        told: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
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

    async def _count(self, together: list[tuple[list[bytes], asyncio.Future[list[Outcome]]]]) -> None:
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
Name = Annotated[str, Path(max_length=80, description="Of the survey, or its id.")]
EnrolmentId = Annotated[
    str, Path(pattern=f"^[0-9a-f]{{{2 * ID_BYTES}}}$", description="Of the enrolment, in hexadecimal digits.")
]
Period = Annotated[int, Query(ge=0, le=MOST_PERIODS)]


# What devices send


@router.post("/reports", openapi_extra=BYTES)
async def report(request: Request) -> Json:
    """Count one report. A retry of the same report is acknowledged, and counted once."""
    (outcome,) = await _received(request, [await body_of(request)])
    if not outcome.is_acknowledged:
        raise Refused(422, "report_refused", f"the report is refused: {outcome.value}", outcome=outcome.value)
    return {"outcome": outcome.value}


@router.post("/reports/batch", openapi_extra=BYTES)
async def batch(request: Request) -> Reply:
    """Count many reports, each behind its length in two bytes. What became of each is told in their order."""
    body = await body_of(request)
    try:
        reports = split(body, most=MOST_REPORTS)
    except ParameterError:
        await stranger(request)
        (await request.app.state.collecting.opened()).reject([Outcome.LENGTH])
        raise
    outcomes = [one._value_ for one in await _received(request, reports)]  # quicker than `value`
    return Reply(
        {"counts": {one: outcomes.count(one) for one in sorted(set(outcomes))}, "outcomes": outcomes}
    )


async def body_of(request: Request) -> bytes:
    """The bytes that were sent as such."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != _KIND:
        raise Refused(415, "unsupported_media_type", f"content-type must be {_KIND}")
    return await request.body()


async def _received(request: Request, reports: list[bytes]) -> list[Outcome]:
    """What became of reports, within the rate of whoever brings them."""
    collecting: Collecting = request.app.state.collecting
    collector = await collecting.opened()
    is_known = bool(reports) and collector.knows(reports[0])
    host = request.client.host if request.client else ""

    async def charge() -> None:
        if not is_known:
            await stranger(request)
        elif pause := collecting.rate.wait_s(f"{host} {reports[0][13:21].hex()}"):
            raise too_many(pause)

    await charge()
    try:
        outcomes = await collecting.intake.receive(reports)
    except LedgerError as error:
        raise Refused(503, "not_counted", str(error), retry_s=1.0) from error
    with contextlib.suppress(Refused):
        for _ in range(sum(not one.is_acknowledged for one in outcomes) // REJECTS):
            await charge()
    return outcomes


@router.post("/surveys/{name}/counted", openapi_extra=BYTES)
async def counted(request: Request, collecting: TheCollecting, name: Name) -> Json:
    """Which periods of the device that asks were counted, if it has forgotten. It sends its id and a tag."""
    body = await body_of(request)
    try:
        survey = await run_in_threadpool(collecting.survey, name)
    except Refused:
        await stranger(request)
        raise
    who = await asking(request, collecting, f"survey:{survey.id.hex()}", body)
    try:
        word = await run_in_threadpool(collecting.collector.counted, survey, who)
    except LedgerError as error:
        raise Refused(503, "not_known", str(error), retry_s=1.0) from error
    return word.fields()


async def asking(request: Request, collecting: Collecting, study: str, body: bytes) -> bytes:
    """The id of the enrolled device that asks what was counted, within its rate."""
    who = await run_in_threadpool(lambda: asker(collecting.master, study, body))
    if who is None:
        await stranger(request)
        raise Refused(403, "not_enrolled", "the question must be made with the key of an enrolment")
    host = request.client.host if request.client else ""
    if pause := collecting.rate.wait_s(f"{host} {who.hex()}"):
        raise too_many(pause)
    return who


# Enrolments


@router.get("/enrolments/revoked")
def revoked(person: Owner, collecting: TheCollecting) -> Json:
    """The ids of all enrolments that were taken back, the oldest first."""
    return {"revoked": [one.hex() for one in collecting.revocations.listed()]}


@router.put("/enrolments/revoked/{enrolment}", status_code=204)
def revoke(person: Owner, collecting: TheCollecting, enrolment: EnrolmentId) -> Response:
    """Take an enrolment back, for ever: no survey, campaign or training counts it from now on."""
    collecting.revocations.revoke(bytes.fromhex(enrolment))
    return Response(status_code=204)


# Surveys


@router.get("/surveys", dependencies=[Depends(stranger)])
def surveys(collecting: TheCollecting) -> Json:
    """What is asked, for devices and for whoever wants to know. A device trusts a signer it knew before."""
    collector = collecting.collector
    return {
        "signer": collecting.signer.hex(),
        "surveys": [
            {**_summary(one), "file": collector.file(one).decode("ascii")} for one in collector.surveys()
        ],
    }


@router.post("/surveys", status_code=201)
def collect(person: Owner, collecting: TheCollecting, body: SignedSurvey) -> Json:
    """Collect the reports of a survey that the operator signed."""
    file = json.dumps(body.model_dump(), sort_keys=True, separators=(",", ":")).encode()
    return _summary(collecting.collector.collect(file, collecting.signer))


@router.get("/surveys/{name}/estimates")
def estimated(
    person: Anyone,
    collecting: TheCollecting,
    name: Name,
    first: Period = 0,
    last: Period = MOST_PERIODS,
) -> Json:
    """What the reports of some periods come to, with intervals, and what liars could have moved."""
    survey, collector = collecting.survey(name), collecting.collector
    periods = {at: n for at, n in collector.periods(survey).items() if first <= at <= last}
    account = collecting.learn(survey, periods)
    found = estimates(collector.tally(survey, list(periods)))
    return {
        **_summary(survey),
        "account": account,
        "reports": {str(at): n for at, n in sorted(periods.items())},
        "rejected": collector.rejected(),
        "estimates": [_estimate(survey, place, one) for place, one in enumerate(found)],
    }


def _summary(survey: Survey) -> Json:
    return {
        "name": survey.name,
        "version": survey.version,
        "id": survey.id.hex(),
        "purpose": survey.purpose,
        "epsilon": survey.epsilon,
        "start": survey.start,
        "period_s": survey.period_s,
        "periods": survey.periods,
    }


def _estimate(survey: Survey, place: int, found: Estimate) -> Json:
    told: dict[str, Any] = {"name": found.name, "reports": found.reports, "mean": None, "frequencies": None}
    attribute = survey.attributes[place]
    if found.mean is not None:
        told["mean"] = {
            "value": found.mean.value,
            "lower": found.mean.lower,
            "upper": found.mean.upper,
            "robust": found.robust,
        }
    if found.frequencies is not None and isinstance(attribute, Category):
        labels = range(attribute.values) if isinstance(attribute.values, int) else attribute.values
        rows = zip(
            labels,
            found.frequencies.frequencies,
            found.frequencies.lower,
            found.frequencies.upper,
            strict=True,
        )
        told["frequencies"] = [
            {
                "category": label,
                "value": float(value),
                "lower": float(lower),
                "upper": float(upper),
                "robust": None if found.robust is None else float(found.robust[at]),  # type: ignore[index]
            }
            for at, (label, value, lower, upper) in enumerate(rows)
        ]
    told["shifts"] = {
        f"{share:g}": {"by_outputs": shift.by_outputs, "by_inputs": shift.by_inputs}
        for share, shift in found.shifts.items()
    }
    return told


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
