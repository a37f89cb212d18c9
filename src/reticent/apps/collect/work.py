"""`reticent survey`, `perturb`, `aggregate`: what the commands do."""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from reticent.arguments import whole
from reticent.collect import export, survey_file
from reticent.collect.estimates import Estimate, estimates
from reticent.collect.explanation import explain, gains, standard_error
from reticent.collect.signing import signed, signer_of, survey_of
from reticent.collect.study import of_survey
from reticent.collect.survey import Survey
from reticent.errors import MissingExtra, ParameterError
from reticent.files import made, secluded, write_new
from reticent.fleet import people as peoples
from reticent.fleet.enrolment import ID_BYTES, enrolled
from reticent.fleet.operator import LEDGER, LEDGER_KEY
from reticent.fleet.record import Record
from reticent.fleet.revocation import Revocations
from reticent.fleet.secret_file import kept_secret
from reticent.fleet.texts import hexadecimal
from reticent.ledger.checkpoint import load_key
from reticent.ledger.witness.opening import opened
from reticent.processes import end_with_parent

_LARGEST = 1 << 21
_MOST_ENROLMENTS = 1_000_000


def new(file: Path, *, purpose: str | None) -> None:
    """Write the template."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    try:
        write_new(file, survey_file.template(today, purpose, file.stem))
    except FileExistsError as error:
        raise ParameterError(f"{file} exists already") from error
    Console().print(f"{file} is yours to fill in; then `reticent survey check {file}`.", soft_wrap=True)


def read(file: Path) -> Survey:
    """A survey from its YAML, or from what devices get."""
    if file.suffix.lower() in (".yaml", ".yml"):
        if not file.is_file():
            raise ParameterError(f"there is no {file}")
        return survey_file.read(file)
    return survey_of(_bytes(file))


def _bytes(file: Path) -> bytes:
    if not file.is_file() or file.stat().st_size > _LARGEST:
        raise ParameterError(f"there is no survey at {file}")
    return file.read_bytes()


def check(file: Path) -> None:
    """Explain a survey."""
    screen = Console()
    for sentence in explain(read(file)):
        screen.print(f"- {sentence}", markup=False, highlight=False)


def show(file: Path, *, plot: Path) -> None:
    """Explain a survey, and plot its errors."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingExtra("the plot", "plot") from error
    survey = read(file)
    check(file)
    devices = np.geomspace(100, 10_000_000, 60)
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for place, (attribute, instrument) in enumerate(zip(survey.attributes, survey.instruments, strict=True)):
        bounds = getattr(instrument, "bounds", (0.0, 1.0))
        share = [100 * standard_error(survey, place, int(n)) / (bounds[1] - bounds[0]) for n in devices]
        axes.loglog(devices, share, label=f"{attribute.name} ({type(instrument).__name__})")
    axes.set(
        title=f"{survey.name}: one period at epsilon {survey.epsilon:g}",
        xlabel="devices that report",
        ylabel="standard error, % of the range, worst case",
    )
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    plot.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(plot, dpi=110)
    plt.close(figure)
    Console().print(f"Plot: {plot}", soft_wrap=True)


def sign(file: Path, *, out: Path, key: Path) -> None:
    """Write what devices get."""
    survey = read(file)
    if out.exists():
        raise ParameterError(f"out must not exist, got {out}")
    survey_file.check_purpose(survey)
    content = signed(survey, load_key(key))
    write_new(out, content)
    Console().print(
        f"{out}: survey {survey.id.hex()}, signed by {signer_of(content).hex()}. Devices need that key and "
        f"this file; whoever has {key} can ask them anything that they allow.",
        soft_wrap=True,
    )


def publish(folder: Path, file: Path) -> None:
    """Sign with the key of a service, and let it collect."""
    with _collecting(folder) as collecting:
        survey = read(file)
        survey_file.check_purpose(survey)
        collecting.collector.collect(signed(survey, collecting.signing_key), collecting.signer)
    Console().print(f"{survey.name}, {survey.id.hex()}, is collected from now on.", soft_wrap=True)


def share(folder: Path, address: str) -> None:
    """Let a service keep its counts, and whose enrolment was taken back, where several machines do."""
    from reticent.collect.collector import Collector
    from reticent.errors import LedgerError
    from reticent.fleet.database import is_address, note
    from reticent.service.state import own_folder

    own = own_folder(folder)
    if not own.is_dir():
        raise ParameterError(
            f"folder must be that of a service, which has a key or was started, got {folder}"
        )
    if not is_address(address):
        raise ParameterError("address must be a postgresql:// address")
    if (own / "collected.sqlite").exists():
        raise ParameterError("folder must be that of a service that has collected nothing by itself")
    master = own / "enrolment.key"
    was_there = master.exists()
    try:
        with (
            Collector(address, kept_secret(master)) as collector,
            contextlib.closing(Revocations.of_this_machine(master)) as until_now,
        ):
            for one in until_now.listed():
                collector.revoke(one)
    except LedgerError:
        if not was_there:
            master.unlink()  # it is of no use: another one enrolled the devices
        raise
    note(master, address)
    Console().print(
        "Reports are counted in that database from now on. Another machine needs enrolment.key and "
        f"survey.key of {own}, and this command.",
        soft_wrap=True,
    )


def under(folder: Path, name: str, people: Path) -> None:
    """Put a survey of a service under the account of people."""
    from reticent.apps.query.data_sets import DataSets
    from reticent.ledger import SqlLedger
    from reticent.query.declarations import people_account, populations
    from reticent.service.settings import Settings

    with contextlib.ExitStack() as held:
        made: list[DataSets] = []
        collecting = held.enter_context(_collecting(folder, lambda: made[0].book))
        made.append(held.enter_context(contextlib.closing(DataSets(Settings(folder)))))
        data_sets, survey = made[0], collecting.survey(name)
        if not isinstance(data_sets.book, SqlLedger):
            raise ParameterError(
                "the folder's ledger must be no contract, which holds one data set's account"
            )
        for one in data_sets.datasets():  # so that their account is where the service pays from
            if one.people and populations.path_of(folder / "x", one.people) == people.resolve():
                data_sets.session(one.name)
        whose = people_account.opened(people, data_sets.book)
        study = of_survey(survey)
        charged = collecting.operator.record.put_under(study, whose)
        price = peoples.price(study.unit, study.units, whose.devices)
        cap = whose.held(data_sets.book).cap
    screen = Console(highlight=False)
    enough = "" if price <= cap else ": more than there is, so none will be shown"
    screen.print(
        f"{survey.name} is under {whose.account}, for ever: each period that is looked at costs "
        f"{100 * price / cap:.4g} % of their budget{enough}.",
        soft_wrap=True,
    )
    if charged:
        screen.print(
            f"For what was shown before, {100 * charged / cap:.4g} % of it is charged.", soft_wrap=True
        )


@contextlib.contextmanager
def _collecting(folder: Path, ledger: Any = None) -> Iterator[Any]:
    from reticent.apps.collect.collecting import Collecting
    from reticent.service.settings import Settings
    from reticent.service.state import own_folder

    if not own_folder(folder).is_dir():
        raise ParameterError(
            f"folder must be that of a service, which has a key or was started, got {folder}"
        )
    with contextlib.closing(Collecting(Settings(folder), ledger)) as found:
        yield found


def estimates_of(folder: Path, name: str, *, out: Path | None) -> None:
    """Print, and write, what a service's collector counted."""
    from reticent.apps.query.data_sets import DataSets
    from reticent.service.settings import Settings

    if out is not None and out.exists():
        raise ParameterError(f"out must not exist, got {out}")
    with contextlib.ExitStack() as held:
        made: list[DataSets] = []
        collecting = held.enter_context(_collecting(folder, lambda: made[0].book))
        made.append(held.enter_context(contextlib.closing(DataSets(Settings(folder)))))
        survey = collecting.survey(name)
        periods = collecting.collector.periods(survey)
        account = collecting.learn(survey, periods)
        found = estimates(*collecting.collector.tallies(survey, list(periods)))
    Console().print(table(survey, found))
    Console(highlight=False).print(f"Entered in the ledger under the account {account}.", soft_wrap=True)
    if out is not None:
        export.write(out, survey, found)


def follow(folder: Path, name: str, *, period: int | None) -> None:
    """Let what was published shape the mechanisms of those who did not report yet."""
    from reticent.apps.query.data_sets import DataSets
    from reticent.service.settings import Settings

    with contextlib.ExitStack() as held:
        made: list[DataSets] = []
        collecting = held.enter_context(_collecting(folder, lambda: made[0].book))
        made.append(held.enter_context(contextlib.closing(DataSets(Settings(folder)))))
        survey = collecting.survey(name)
        number = survey.period_at(time.time()) if period is None else period - 1  # people count from 1
        number = whole("period", number + 1, low=1, high=survey.periods) - 1
        text = collecting.follow_up(survey, number)
    screen = Console(highlight=False)
    screen.print(
        f"Period {number + 1} of {survey.name} has the follow-up {text.id.hex()}, shaped by "
        f"{text.follows.reports:,} reports, which the ledger knows of. Devices of the second wave take it.",
        soft_wrap=True,
    )
    for sentence in gains(survey, text):
        screen.print(f"- {sentence}", markup=False, soft_wrap=True)


def bridge_to(
    folder: Path,
    *,
    broker: str,
    topic: str,
    name: str | None,
    group: str | None,
    username: str | None,
    tls: bool,
) -> None:
    """Bring reports from a broker, until interrupted."""
    import ssl

    from reticent.collect.mqtt import Bridge

    host, port = broker_address(broker)
    if group is not None and name is None:
        raise ParameterError("name must be given in a group: one for each bridge, and the same at each start")
    with _collecting(folder) as collecting:
        bridge = Bridge(
            collecting.collector,
            host,
            port,
            name=name or "reticent",
            topic=topic,
            group=group,
            username=username,
            password=os.environ.get("RETICENT_MQTT_PASSWORD"),
            tls=ssl.create_default_context() if tls else None,
        )
        Console().print(f"Reports of {host}:{port} go to {folder}. Ctrl-C ends it.", soft_wrap=True)
        bridge.run()


def broker_address(given: str) -> tuple[str, int]:
    """HOST:PORT of a broker."""
    host, _, port = given.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65536:
        raise ParameterError(f"broker must read HOST:PORT, got {given!r:.80}")
    return host, int(port)


def enrol(*, out: Path, master: Path, count: int) -> None:
    """Write enrolments."""
    whole("count", count, low=1, high=_MOST_ENROLMENTS)
    secret = kept_secret(master)
    made(out)
    for _ in range(count):
        enrolment = enrolled(secret)
        write_new(out / f"{enrolment.id.hex()}.json", enrolment.to_json() + "\n", mode=0o600)
    Console().print(f"{count} enrolments in {out}, one for each device.", soft_wrap=True)


@contextlib.contextmanager
def _revocations(where: Path) -> Iterator[Revocations]:
    """The list of a service, or of a master key in a file."""
    if where.is_dir():
        with _collecting(where) as collecting:
            yield collecting.revocations
        return
    if not where.is_file():
        raise ParameterError(
            f"where must be the folder of a service or a file with a master key, got {where}"
        )
    with contextlib.closing(Revocations.beside(where)) as found:
        yield found


def revoke(where: Path, ids: list[str]) -> None:
    """Take enrolments back."""
    given = [_identity(one) for one in ids]  # all of them, before any is taken back
    with _revocations(where) as revocations:
        for one in given:
            is_new = revocations.revoke(one)
            told = "is taken back" if is_new else "was taken back before"
            Console(highlight=False).print(f"{one.hex()} {told}", soft_wrap=True)


def _identity(text: str) -> bytes:
    found = hexadecimal("id", text)
    if len(found) != ID_BYTES:
        raise ParameterError(f"id must be {2 * ID_BYTES} hexadecimal digits, got {len(text)}")
    return found


def counted(folder: Path, name: str, identity: str) -> None:
    """Print the collector's word on an enrolment."""
    who = _identity(identity)
    with _collecting(folder) as collecting:
        print(collecting.collector.counted(collecting.survey(name), who).to_json())


def list_revoked(where: Path) -> None:
    """Print what was taken back, one id on a line."""
    with _revocations(where) as revocations:
        for one in revocations.listed():
            print(one.hex())


# Tables


@contextlib.contextmanager
def _executor(workers: int, cluster: str | None) -> Iterator[Executor]:
    workers = whole("workers", workers, low=1, high=1024)
    if cluster is None:
        with ProcessPoolExecutor(workers, initializer=end_with_parent) as pool:
            yield pool
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingExtra("a cluster", "cluster") from error
    try:
        client = Client(cluster, timeout=10)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ParameterError(f"cluster must be a Dask scheduler that answers, got {cluster!r:.80}") from error
    with client:
        yield client.get_executor(pure=False)  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Callable[[int], None]]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=None)
        yield lambda rows: shown.update(task, description=f"{what}: {rows:,} rows")


def perturb_file(given: Path, out: Path, *, survey: Path, workers: int, cluster: str | None) -> None:
    """Write reports."""
    from reticent.collect.batch import perturb
    from reticent.query.declarations.claims import claim_ledger

    asked = survey_of(_bytes(survey))
    study, periods = of_survey(asked), list[tuple[Record, int]]()

    def paying() -> None:
        """Charge the ledger beside the rows, under whatever name they are: a second report costs again."""
        kept = secluded(claim_ledger(given, lambda path: path.with_name(f"{path.name}.reticent")))
        ledger = held.enter_context(opened(kept / LEDGER, signer=kept / LEDGER_KEY))
        record = Record(ledger)
        periods.append((record, record.next_part(study)))

    with contextlib.ExitStack() as held:
        executor = held.enter_context(_executor(workers, cluster))
        progress = held.enter_context(_progress("perturbed"))
        done = perturb(asked, given, out, executor, workers=workers, progress=progress, paying=paying)
        ((record, number),) = periods
        record.learn(study, {number: done})
    Console().print(
        f"{out}: {done:,} reports at epsilon {asked.epsilon:g} each, as period {number + 1} of "
        f"{asked.periods} in the ledger of {given.name}. They are private, {given.name} is not.",
        soft_wrap=True,
    )


def aggregate_file(
    reports: Path, *, survey: Path, out: Path | None, workers: int, cluster: str | None
) -> None:
    """Print, and write, estimates."""
    from reticent.collect.batch import aggregate

    asked = survey_of(_bytes(survey))
    if out is not None and out.exists():
        raise ParameterError(f"out must not exist, got {out}")
    with _executor(workers, cluster) as executor, _progress("counted") as progress:
        found = estimates(aggregate(asked, reports, executor, workers=workers, progress=progress))
    Console().print(table(asked, found))
    if out is not None:
        export.write(out, asked, found)


def table(survey: Survey, found: list[Estimate]) -> Table:
    """Estimates for a screen."""
    shown = Table(title=f"{survey.name}, epsilon {survey.epsilon:g} a report", title_justify="left")
    for heading in ("attribute", "value"):
        shown.add_column(heading, no_wrap=True)
    for heading in ("reports", "estimate", "95 % interval", "median of groups"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in export.rows(survey, found):
        if row["estimate"] is None:
            shown.add_row(row["attribute"], "", "0", "", "", "")
            continue
        shown.add_row(
            row["attribute"],
            row["value"] or "mean",
            f"{row['reports']:,}",
            f"{row['estimate']:.4g}",
            f"[{row['lower']:.4g}, {row['upper']:.4g}]",
            "" if row["robust"] is None else f"{row['robust']:.4g}",
        )
    return shown
