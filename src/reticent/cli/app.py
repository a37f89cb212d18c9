"""The commands, their options and their help. What they do is imported when they run.

Help is plain text: drawing it with rich costs more time than all the rest of `reticent --help`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import typer.core

from reticent import __version__
from reticent.apps.audit.commands import group as audit_group
from reticent.apps.chain.commands import group as chain_group
from reticent.apps.chain.commands import oracle
from reticent.apps.collect.commands import aggregate, bridge, enrolment_group, perturb
from reticent.apps.collect.commands import group as survey_group
from reticent.apps.federated.commands import group as federated_group
from reticent.apps.ledger.commands import group as ledger_group
from reticent.apps.location.commands import group as location_group
from reticent.apps.query.commands import ask, price
from reticent.apps.query.dataset_commands import group as dataset_group
from reticent.apps.service.commands import key as key_group
from reticent.apps.service.commands import serve
from reticent.apps.service.commands import source as source_group

# Without this, typer 0.20 loads rich even for plain help, and prints `\[required]`.
typer.core.HAS_RICH = False

app = typer.Typer(
    name="reticent",
    help="Learn from personal data while every release is paid for out of one privacy ledger.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

demo_group = typer.Typer(name="demo", invoke_without_command=True, rich_markup_mode=None)

app.add_typer(audit_group)
app.add_typer(chain_group)
app.add_typer(dataset_group)
app.add_typer(enrolment_group)
app.add_typer(federated_group)
app.add_typer(key_group)
app.add_typer(ledger_group)
app.add_typer(location_group)
app.add_typer(source_group)
app.add_typer(survey_group)
app.add_typer(demo_group)
app.command()(aggregate)
app.command()(ask)
app.command()(bridge)
app.command()(oracle)
app.command()(perturb)
app.command()(price)
app.command()(serve)


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Learn from personal data while every release is paid for out of one privacy ledger."""


@app.command()
def version() -> None:
    """Show the version."""
    typer.echo(f"reticent {__version__}")


@app.command()
def mechanisms(
    epsilon: Annotated[float, typer.Option(help="Privacy level of one report (epsilon-LDP).")],
    bits: Annotated[
        int | None, typer.Option(help="Only mechanisms whose report fits into so many bits.")
    ] = None,
) -> None:
    """Compare the mechanisms for one number.

    Worst-case variance of one report of a value in [-1, 1]: of the channel that is sent ("wire") and of
    the formula in the literature ("ideal").
    """
    from reticent.apps.mechanisms.compare import run

    run(epsilon=epsilon, bits=bits)


@app.command()
def convert(
    epsilon: Annotated[float | None, typer.Option(help="Epsilon; pure if alone.")] = None,
    delta: Annotated[float | None, typer.Option(help="Delta of (epsilon, delta).")] = None,
    mu: Annotated[float | None, typer.Option(help="Mu of Gaussian differential privacy.")] = None,
    rho: Annotated[float | None, typer.Option(help="Rho of zero-concentrated differential privacy.")] = None,
) -> None:
    """Say one privacy guarantee in the other units.

    Give one of: --epsilon with --delta (a budget), --epsilon (a pure release), --mu (with --delta or
    --epsilon for the other of the two), --rho (with --delta). Costs are rounded up, allowances down.
    """
    from reticent.apps.mechanisms.convert import run

    run(epsilon=epsilon, delta=delta, mu=mu, rho=rho)


@demo_group.callback()
def demo(
    context: typer.Context,
    folder: Annotated[
        Path | None, typer.Option(help="Where to put the census, the ledger and the plot; out/demo.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Where to listen; 8000, or any if that is taken.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", envvar="ONCE", help="End after the script, and do not pause in it.")
    ] = False,
) -> None:
    """Serve a census, and watch an analyst ask it.

    A synthetic census behind the service, with pages to look at and keys to ask with. A scripted analyst
    asks the documents' five questions, repeats and refines them, until one is refused.
    `reticent demo fleet` shows devices that report with local privacy, `reticent demo federated` a model that
    they train, `reticent demo location` where people are, `reticent demo chain` a ledger in a contract.
    """
    if context.invoked_subcommand is None:
        from reticent.apps.query.demo import run

        run(folder=folder, port=port, once=once)


@demo_group.command()
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


@demo_group.command("collect")
def collect_demo(
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


@demo_group.command("federated")
def federated_demo(
    folder: Annotated[Path, typer.Option(help="Where to put task, table, hold-out and model.")] = Path(
        "out/demo-federated"
    ),
    vehicles: Annotated[int, typer.Option(help="Simulated vehicles, each of which reports once.")] = 200_000,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Where to listen; 8000, or any if that is taken.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", envvar="ONCE", help="Train without pauses, and end.")
    ] = False,
) -> None:
    """Watch vehicles learn together when drivers brake hard.

    Every vehicle reports once, a few bits about a gradient, under local privacy; a page shows the curves.
    """
    from reticent.apps.federated.demo import run

    run(folder=folder, vehicles=vehicles, port=port, once=once)


@demo_group.command("location")
def location_demo(
    people: Annotated[int, typer.Option(help="Simulated people, who report in every round.")] = 5000,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Where to listen; 8000, or any if that is taken.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", envvar="ONCE", help="Report without pauses, and end.")
    ] = False,
) -> None:
    """Watch a city learn where people are, without learning where anyone is.

    People report a cell near the one they are in, in rounds; after each the channel is better. A page shows
    the maps, with the truth of the simulation beside them.
    """
    from reticent.apps.location.demo import run

    run(people=people, port=port, once=once)


@demo_group.command("chain")
def chain_demo() -> None:
    """Watch two analysts share a budget in a contract.

    Starts a chain of its own on this machine (anvil), with an owner, an oracle and two analysts.
    """
    from reticent.apps.chain.demo import run

    run()


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="A name of --list, or all.")] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Show the names and stop.")] = False,
    out: Annotated[Path, typer.Option(help="Directory for CSV, plot and caption.")] = Path("out/reproduce"),
    quick: Annotated[bool, typer.Option("--quick", help="See that it runs; not for quoting.")] = False,
    repetitions: Annotated[
        int | None, typer.Option(help="Of each simulation: 100, or 5 with --quick.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 2026,
    data: Annotated[
        Path | None, typer.Option(help="Directory of the data sets, else that of RETICENT_DATA.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Run as the kept run did, and compare.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep this run for later comparisons.")] = False,
    runs: Annotated[Path, typer.Option(help="Directory of the kept runs.")] = Path("docs/runs"),
) -> None:
    """Redo a figure of the documents, with ours and the limit.

    Writes NAME.csv, NAME.png and NAME.txt, a caption that says what was printed and what we got.
    """
    from reticent.apps.experiments.reproduce import run

    code = run(
        name=name,
        list_only=list_only,
        out=out,
        quick=quick,
        repetitions=repetitions,
        seed=seed,
        data=data,
        check=check,
        keep=keep,
        runs=runs,
    )
    raise typer.Exit(code)
