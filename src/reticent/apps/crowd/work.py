"""What `reticent crowd` does."""

from __future__ import annotations

from reticent.arguments import real, whole
from reticent.cli.terminal import console, facts
from reticent.federated.crowd.committees import Chances
from reticent.federated.crowd.plan import LARGER
from reticent.federated.crowd.plan import plan as planned
from reticent.federated.crowd.terms import Prices, Terms

_MOST_MINERS = 100_000


def plan(terms: Terms, prices: Prices, *, miners: int, hostile: float, gas_price: float | None) -> None:
    """Print what a task costs and risks."""
    whole("miners", miners, low=1, high=_MOST_MINERS)
    gwei = None if gas_price is None else real("gas_price", gas_price, low=0)
    found = planned(terms, prices, miners=miners, hostile=hostile)

    def gas(amount: int) -> str:
        worth = "" if gwei is None else f", {amount * gwei * 1e-9:.6g} of the coin"
        return f"{amount:,}{worth}"

    rows = [
        ("gas of a customer, per round", gas(found.customer_gas)),
        ("gas of a miner, per round", gas(found.miner_gas)),
        ("gas of a round in all", gas(found.round_gas)),
        ("gas of the task in all", gas(found.task_gas)),
        ("pool to pay in, wei or smallest parts", f"{found.pool:,}"),
        (f"a committee of {terms.expected}", _chances(found.committee)),
        (
            f"of {LARGER * terms.expected}, in a dispute",
            "more than a contract can have" if found.appeal is None else _chances(found.appeal),
        ),
        ("some result captured", f"{found.captured:.2g}"),
        ("task cancelled, if the hostile refuse", f"{found.cancelled:.2g}"),
    ]
    screen = console()
    screen.print(facts(rows))
    screen.print(
        f"Chances for hostile stake of {hostile:.0%} and many small units of stake. What is not spent of the "
        "pool goes back. Gas is that of calls on a test chain.",
        soft_wrap=True,
    )


def _chances(one: Chances) -> str:
    return f"captured {one.captured:.2g}, stalled {one.stalled:.2g}"
