"""`reticent survey`, `perturb`, `aggregate`: options and help. What they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reticent.cli.options import group_of_commands

group = group_of_commands("survey", "Ask devices, and learn only from what they perturbed.")

enrolment_group = group_of_commands("enrolment", "Take enrolments of devices back, and list those that were.")

Where = Annotated[
    Path, typer.Argument(metavar="WHERE", help="The folder of a service, or a file with a master key.")
]
Yaml = Annotated[Path, typer.Argument(metavar="YAML", help="The survey.")]
Devices = Annotated[Path, typer.Option("--out", help="Where devices' file goes; must not exist.")]
SigningKey = Annotated[Path, typer.Option("--key", help="The signing key; made if there is none.")]
File = Annotated[Path, typer.Argument(metavar="SURVEY", help="A survey: YAML, or signed as JSON.")]
Signed = Annotated[Path, typer.Option("--survey", help="The signed survey.")]
Workers = Annotated[int, typer.Option(help="Processes that work at once.")]
Cluster = Annotated[str | None, typer.Option(help="A Dask scheduler instead, tcp://HOST:PORT.")]


@group.command()
def new(
    file: Annotated[Path, typer.Argument(metavar="YAML", help="Where to write; must not exist.")],
    purpose: Annotated[
        str | None, typer.Option(help="Why you ask, in words for the person behind a device.")
    ] = None,
) -> None:
    """Write a survey to be filled in."""
    from reticent.apps.collect.work import new as run

    run(file, purpose=purpose)


@group.command()
def check(file: File) -> None:
    """Say in words what a survey asks and what it costs a device. Exit code 2 if something does not hold."""
    from reticent.apps.collect.work import check as run

    run(file)


@group.command()
def show(
    file: File,
    plot: Annotated[Path, typer.Option(help="Where the plot goes.")] = Path("out/survey.png"),
) -> None:
    """The same, and a plot of the error that so many devices give."""
    from reticent.apps.collect.work import show as run

    run(file, plot=plot)


@group.command()
def sign(file: Yaml, out: Devices, key: SigningKey) -> None:
    """Choose the mechanisms, and sign what devices get. It never changes again: a change is a new survey."""
    from reticent.apps.collect.work import sign as run

    run(file, out=out, key=key)


@group.command()
def enrol(
    out: Annotated[Path, typer.Option("--out", help="A folder for the enrolments, one file each.")],
    master: Annotated[Path, typer.Option(help="The operator's master key; made if there is none.")],
    count: Annotated[int, typer.Option(help="How many devices or clients.")] = 1,
) -> None:
    """Make enrolments: what each device or client is given, once and in secret."""
    from reticent.apps.collect.work import enrol as run

    run(out=out, master=master, count=count)


@enrolment_group.command()
def revoke(
    where: Where,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="16 hexadecimal digits, as in its file.")],
) -> None:
    """Take enrolments back, for ever: no survey, campaign or training counts them from now on."""
    from reticent.apps.collect.work import revoke as run

    run(where, ids)


@enrolment_group.command("list")
def list_(where: Where) -> None:
    """List the enrolments that were taken back, the oldest first."""
    from reticent.apps.collect.work import list_revoked as run

    run(where)


@enrolment_group.command()
def counted(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a service.")],
    survey: Annotated[str, typer.Argument(metavar="SURVEY", help="Its name, or its id.")],
    id_: Annotated[str, typer.Argument(metavar="ID", help="16 hexadecimal digits, as in its file.")],
) -> None:
    """Print which periods of an enrolment were counted, for a device that may have forgotten: JSON."""
    from reticent.apps.collect.work import counted as run

    run(folder, survey, id_)


@group.command()
def publish(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a service.")],
    file: Annotated[Path, typer.Argument(metavar="YAML", help="The survey.")],
) -> None:
    """Sign a survey with the service's own key, and let the service collect its reports.

    Devices get it at /api/v1/surveys. `reticent survey enrol --master FOLDER/.service/enrolment.key` enrols
    them.
    """
    from reticent.apps.collect.work import publish as run

    run(folder, file)


@group.command()
def share(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a service.")],
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="postgresql://...")],
) -> None:
    """Count reports in a PostgreSQL database, with other machines that have the same enrolment.key.

    For a service that has collected nothing yet. Each report is counted once, whichever machine it comes to.
    """
    from reticent.apps.collect.work import share as run

    run(folder, address)


@group.command()
def under(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a service.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the survey, or its id.")],
    people: Annotated[Path, typer.Argument(metavar="PEOPLE", help="The file NAME.people.")],
) -> None:
    """Let the account of people pay for what a survey of the same people shows, too; for ever.

    Their budget then holds over their data sets and this survey together: a period that it does not hold is
    not shown. What was shown before is charged now.
    """
    from reticent.apps.collect.work import under as run

    run(folder, name, people)


@group.command()
def follow(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a service.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the survey, or its id.")],
    period: Annotated[int | None, typer.Option(min=1, help="From 1 on; the one that it is now.")] = None,
) -> None:
    """Shape the mechanisms of those who did not report yet by what was reported, where a survey learns.

    What was reported is entered into the service's ledger, looked at, and solved for; the follow-up is signed
    with the service's own key. Devices of the second wave get it at /api/v1/surveys. A period has one.
    """
    from reticent.apps.collect.work import follow as run

    run(folder, name, period=period)


@group.command("estimates")
def estimates_(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a service.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the survey, or its id.")],
    out: Annotated[Path | None, typer.Option("--out", help="Estimates as .csv, .json or .parquet.")] = None,
) -> None:
    """What the reports of a survey come to so far. Looking is entered into the service's ledger."""
    from reticent.apps.collect.work import estimates_of as run

    run(folder, name, out=out)


def bridge(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a service.")],
    broker: Annotated[str, typer.Option(metavar="HOST:PORT", help="The MQTT broker.")],
    topic: Annotated[str, typer.Option(help="Above `reports` and `batches`.")] = "reticent",
    name: Annotated[
        str | None,
        typer.Option(help="Of the bridge; the broker keeps a session under it.", show_default="reticent"),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Of bridges that share the messages: each is brought by one. Needs MQTT 5."),
    ] = None,
    username: Annotated[
        str | None, typer.Option(help="At the broker; its password: RETICENT_MQTT_PASSWORD.")
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Verify the broker, and encrypt.")] = False,
) -> None:
    """Bring reports from an MQTT broker to a service."""
    from reticent.apps.collect.work import bridge_to as run

    run(folder, broker=broker, topic=topic, name=name, group=group, username=username, tls=tls)


def perturb(
    given: Annotated[Path, typer.Argument(metavar="IN", help="Rows: CSV or Parquet.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Reports: CSV or Parquet; must not exist.")],
    survey: Signed,
    workers: Workers = 2,
    cluster: Cluster = None,
) -> None:
    """Write a private report of every row of a file, however large.

    Each run is one period of the survey, entered in a ledger beside IN before anything is drawn; when all
    periods are used, no more reports are made.
    """
    from reticent.apps.collect.work import perturb_file as run

    run(given, out, survey=survey, workers=workers, cluster=cluster)


def aggregate(
    reports: Annotated[Path, typer.Argument(metavar="REPORTS", help="As `reticent perturb` wrote them.")],
    survey: Signed,
    out: Annotated[Path | None, typer.Option("--out", help="Estimates as .csv, .json or .parquet.")] = None,
    workers: Workers = 2,
    cluster: Cluster = None,
) -> None:
    """Estimate means and frequencies from a file of reports."""
    from reticent.apps.collect.work import aggregate_file as run

    run(reports, survey=survey, out=out, workers=workers, cluster=cluster)


def fleet(
    epsilon: Annotated[float, typer.Option(help="Privacy level of one report (epsilon-LDP).")] = 1.0,
    devices: Annotated[int, typer.Option(help="Size of the simulated fleet.")] = 200_000,
    plot: Annotated[Path, typer.Option(help="Where to write the plot.")] = Path("out/fleet.png"),
) -> None:
    """Watch a simulated fleet report its readings.

    Truth, estimate with interval and bytes sent, for the mechanisms of the literature and ours; live in
    the terminal and as a plot.
    """
    from reticent.apps.collect.demo_fleet import run

    run(epsilon=epsilon, devices=devices, plot=plot)


def demo(
    devices: Annotated[int, typer.Option(help="Simulated vehicles.")] = 1000,
    broker: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="A running MQTT broker; one is started if not given."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Where to listen; 8000, or any if that is taken.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", envvar="ONCE", help="Report one period, and end.")] = False,
) -> None:
    """Watch vehicles report over MQTT.

    A thousand simulated devices with ledgers of their own perturb their speed and kind before they send it; a
    page shows what the reports come to.
    """
    from reticent.apps.collect.demo import run

    run(devices=devices, broker=broker, port=port, once=once)
