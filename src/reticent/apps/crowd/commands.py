"""`reticent crowd`: options and help. What it does is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from reticent.apps.crowd.edge_commands import edge
from reticent.apps.crowd.observing_commands import show, verify
from reticent.apps.crowd.program_commands import customer, miner
from reticent.apps.crowd.task_commands import apply, claim, deploy, post, status
from reticent.cli.options import group_of_commands

group = group_of_commands("crowd", "Train with a crowd that nobody has to trust, by a contract.")


for _one in (deploy, post, apply, customer, edge, miner, status, claim, verify, show):
    group.command()(_one)


@group.command()
def plan(
    people: Annotated[int, typer.Option(help="Customers at most, up to 256.")],
    rounds: Annotated[int, typer.Option(help="Models that are made, one after the other.")],
    f: Annotated[int, typer.Option("--f", help="Updates of a round that may be hostile.")] = 1,
    miners: Annotated[int, typer.Option(help="Who take seats in each round.")] = 10,
    hostile: Annotated[float, typer.Option(help="The share of the miners' stake that is hostile.")] = 0.2,
    seats: Annotated[int, typer.Option(help="Of a committee, on average.")] = 20,
    least: Annotated[int, typer.Option(help="Seats without which nothing is decided.")] = 1,
    draws: Annotated[int, typer.Option(help="Committees of a round before the task is cancelled.")] = 3,
    unit: Annotated[int, typer.Option(metavar="WEI", help="Pay for each point of reputation.")] = 0,
    bonus: Annotated[int, typer.Option(metavar="WEI", help="On top for the early half, per point.")] = 0,
    leader_fee: Annotated[int, typer.Option(metavar="WEI", help="To the leader of a round.")] = 0,
    committee_fee: Annotated[int, typer.Option(metavar="WEI", help="To all seats of a round.")] = 0,
    gas_price: Annotated[
        float | None, typer.Option(metavar="GWEI", help="Of a unit of gas, to say what gas costs.")
    ] = None,
) -> None:
    """Say what a task will cost and risk, before it is posted.

    Gas of each role, the pool that must be paid in, and the chances that a committee is captured or stalled.
    Nothing is sent.
    """
    from reticent.apps.crowd.work import plan as run
    from reticent.federated.crowd.terms import Prices, Terms

    terms = Terms(rounds=rounds, people=people, f=f, expected=seats, least=least, draws=draws)
    prices = Prices(unit, bonus, leader_fee, committee_fee, 0)
    run(terms, prices, miners=miners, hostile=hostile, gas_price=gas_price)
