"""The documents' comparison on a contract: 150 requests of five types, with and without reuse.

Every request is a real one: asked for by an analyst's key, charged by the contract, measured with noise,
recorded by the oracle's key. Without reuse each request has a key of its own, so that nothing is ever bought
before. With reuse a type has one key; a request that is covered is either only read, which needs no
transaction, or written down as well, so that the chain shows who asked.

Reference: Zhao 2022, section 4.3 (Fig. 4.5, two contracts on Ropsten); Zhao et al. 2021, section V-B.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.zhao_2022.chapter_4 import chains, reuse
from reticent.experiments.zhao_2022.chapter_4.chains import ANALYST, ORACLE, OWNER, Chain
from reticent.experiments.zhao_2022.chapter_4.fig_4_5 import RUNS
from reticent.ledger import Amount, Terms, Unit
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.privacy import MAX_UNITS, Neighbours, epsilon_of
from reticent.query.language.questions import resolve
from reticent.query.measure import plan
from reticent.randomness import SimulationStream

FRESH, READ, WRITTEN = WAYS = ("without reuse", "reuse", "reuse, all written down")
QUICK_QUERIES = 12
ONE = 10**12  # ledger units of mu^2 = 1


def run(options: Options) -> Outcome:
    """Ask the requests of the first run of fig-4.5 in three ways."""
    queries = QUICK_QUERIES if options.quick else reuse.QUERIES
    asked = drawn(options.seed, queries)
    rows: list[Row] = []
    with chains.chain() as on:
        for place, way in enumerate(WAYS):
            side = _Side(on, way, options.seed)
            rows += side.rows(
                asked,
                lambda done, p=place: options.progress(p * queries + done, len(WAYS) * queries),  # type: ignore[misc]
            )
    return Outcome(rows, _caption(rows, queries), lambda: _draw(rows))


def drawn(seed: int, queries: int) -> list[tuple[int, int]]:
    """Type and units of the first requests of the first run of fig-4.5."""
    asked = reuse.requests(RUNS, reuse.QUERIES, reuse.DELTAS["paper"], SimulationStream(seed, path=(0,)))
    return [
        (int(kind), reuse.units(float(cost)))
        for kind, cost in zip(asked.kinds[0, :queries], asked.costs[0, :queries], strict=True)
    ]


@dataclass
class _Totals:
    charged: int = 0
    gas: int = 0
    declaring: int = 0
    transactions: int = 0
    measured: int = 0


class _Side:
    """One way to ask, on a data set of its own."""

    def __init__(self, on: Chain, way: str, seed: int) -> None:
        self.on, self.way = on, way
        self.data = chains.declared(f"census-{WAYS.index(way)}")
        self.analyst, self.oracle = on.ledger(ANALYST), on.ledger(ORACLE)
        self.rng = SimulationStream(seed, path=(12, WAYS.index(way)))
        self.table = chains.made_up(self.data, seed)
        self.plans = [plan(resolve(query, self.data)) for query in reuse.TYPES.values()]
        self.vectors = [one.vector(self.table) for one in self.plans]
        self._open(on.ledger(OWNER))

    def _open(self, owner: EthereumLedger) -> None:
        terms = Terms(self.data.name, Unit.MU2, Neighbours.REPLACE_ONE, "one row", MAX_UNITS)
        owner.register(terms, oracle=self.on.keys[ORACLE].address, commitment=bytes(32))
        owner.allow(terms.name, self.on.keys[ANALYST].address, MAX_UNITS)
        self.on.used()

    def rows(self, asked: list[tuple[int, int]], progress: Callable[[int], None]) -> list[Row]:
        """What each request cost, and all before it."""
        totals = _Totals()
        found: list[Row] = []
        for number, (kind, units) in enumerate(asked, start=1):
            charged = self._ask(number, kind, units)
            used = self.on.used()
            totals.charged += charged
            totals.gas += sum(one.gas for one in used)
            totals.declaring += sum(one.gas for one in used if one.function == "declare")
            totals.transactions += len(used)
            totals.measured += sum(one.function == "fulfil" for one in used)
            mu = math.sqrt(totals.charged / ONE)
            found.append(
                {
                    "way": self.way,
                    "requests": number,
                    "type": kind,
                    "asked, mu2": units / ONE,
                    "charged, mu2": charged / ONE,
                    "spent, mu2": totals.charged / ONE,
                    "spent, units": totals.charged,
                    "spent, exact epsilon": epsilon_of(mu, reuse.BUDGET.delta),
                    "gas of this": sum(one.gas for one in used),
                    "gas": totals.gas,
                    "gas of declaring": totals.declaring,
                    "transactions": totals.transactions,
                    "measured": totals.measured,
                }
            )
            progress(number)
        return found

    def _ask(self, number: int, kind: int, units: int) -> int:
        """One request from the analyst's key to the recorded values; what it was charged."""
        prepared, name = self.plans[kind], self.data.name
        key = prepared.question.key + (f" {number}" if self.way == FRESH else "")
        self.analyst.declare(
            name, key, question=prepared.question.text, grid=prepared.shift, dimension=prepared.coordinates
        )
        amount = Amount(units, Unit.MU2, Neighbours.REPLACE_ONE)
        text = f"request-{number}" if self.way == WRITTEN else None
        grant = self.analyst.request(name, key, amount, idempotency=text)
        for one in grant.pending:
            values = prepared.measure(self.vectors[kind], one.information, self.rng)
            self.oracle.fulfil(one.number, values)
        assert self.analyst.reading(name, key).information == grant.information
        return grant.charged


def last(rows: list[Row]) -> dict[str, Row]:
    """Where each way ended."""
    return {row["way"]: row for row in rows}


def _caption(rows: list[Row], queries: int) -> str:
    ends = last(rows)
    fresh, read, written = (ends[way] for way in WAYS)
    lines = [
        f"{queries} random requests of five query types on a contract, with and without reuse of noise.",
        "",
        'Printed: "about 52 % less" privacy cost at 150 requests, by two contracts on Ropsten (neither the',
        "measure nor gas is printed).",
        "Found (the first run of fig-4.5; anvil):",
    ]
    for way, row in ends.items():
        lines.append(
            f"  {way}: mu2 {row['spent, mu2']:.4f}, exact epsilon {row['spent, exact epsilon']:.3f}; "
            f"{row['measured']} requests reached the data holder; {row['transactions']} transactions, "
            f"gas {row['gas']:,} ({row['gas'] / queries:,.0f} a request; {row['gas of declaring']:,} of it "
            "to declare keys)."
        )
    saved = {
        "mu2": 1 - read["spent, mu2"] / fresh["spent, mu2"],
        "exact epsilon": 1 - read["spent, exact epsilon"] / fresh["spent, exact epsilon"],
        "gas": 1 - read["gas"] / fresh["gas"],
        "gas without that of declaring": 1 - _asking(read) / _asking(fresh),
        "gas if all is written down": 1 - written["gas"] / fresh["gas"],
        "requests to the data holder": 1 - read["measured"] / fresh["measured"],
    }
    lines += [
        "Reuse saves: " + ", ".join(f"{name} {part:.1%}" for name, part in saved.items()) + ".",
        "The contract counts mu2 in whole units, exactly; the exact epsilon is at delta "
        f"{reuse.BUDGET.delta:g}. A request that is",
        "covered by what was bought is read for nothing; written down, it leaves a trace, and costs gas.",
    ]
    return "\n".join(lines)


def _asking(row: Row) -> int:
    return int(row["gas"] - row["gas of declaring"])


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 2, size=(13.0, 5.0))
    looks = dict(zip(WAYS, (("#0072B2", "-"), (plots.ACCENT, "-"), (plots.ACCENT, "--")), strict=True))
    for axis, column, scale, text in (
        (axes[0][0], "spent, exact epsilon", 1.0, f"exact epsilon spent at delta {reuse.BUDGET.delta:g}"),
        (axes[0][1], "gas", 1e-6, "gas in all, millions"),
    ):
        for way, (color, line) in looks.items():
            chosen = [row for row in rows if row["way"] == way]
            numbers = [row["requests"] for row in chosen]
            axis.plot(
                numbers, [scale * row[column] for row in chosen], color=color, linestyle=line, label=way
            )
        axis.set_xlabel("requests")
        axis.set_ylabel(text)
    axes[0][0].set_title("what the requests cost in privacy", loc="left", fontsize=11)
    axes[0][1].set_title("and in gas", loc="left", fontsize=11)
    axes[0][1].legend(frameon=False)
    return figure
