"""Gas of every operation of the contracts, from receipts, and what it costs.

Storage that is written for the first time is most of it: the first request of a key, of an analyst and of a
data set costs more than later ones, and both are shown.

Reference: Zhao 2022, Fig. 4.3 prints three prices in ether, without gas or gas price.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.chain.sender import Sender
from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.zhao_2022.chapter_4 import chains
from reticent.experiments.zhao_2022.chapter_4.chains import ANALYST, ORACLE, OWNER, Chain
from reticent.ledger import Amount, SqlLedger, Terms, Unit
from reticent.ledger.ethereum import anchor
from reticent.ledger.ethereum.contract import NO_MARK, artifact, dataset_id, key_id, mark_of
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.privacy import MAX_UNITS, Neighbours
from reticent.query import mean
from reticent.query.language.questions import resolve
from reticent.query.measure import plan
from reticent.randomness import SimulationStream

SIZES, QUICK_SIZES = (1, 2, 10, 100, 512), (1, 2, 10)
PRICES_GWEI = (1, 10, 50)
STEP = 10**10  # units of mu^2 that each request adds
TERMS = Terms("census", Unit.MU2, Neighbours.REPLACE_ONE, "one row", MAX_UNITS)


def run(options: Options) -> Outcome:
    """Do everything that the contracts can do, and read the receipts."""
    sizes = QUICK_SIZES if options.quick else SIZES
    with chains.chain() as on, TemporaryDirectory() as folder:
        found = _Receipts(on, SimulationStream(options.seed, path=(13,)), options.progress)
        found.all(sizes, Path(folder))
    return Outcome(found.rows, _caption(found.rows), lambda: _draw(found.rows))


class _Receipts:
    """Who does what, and the gas of it."""

    def __init__(self, on: Chain, rng: SimulationStream, progress: Callable[[int, int], None]) -> None:
        self.on, self.rng, self._progress = on, rng, progress
        self.rows: list[Row] = []
        self.steps = 0
        self.owner, self.analyst, self.oracle = (on.ledger(place) for place in (OWNER, ANALYST, ORACLE))
        prepared = plan(resolve(mean("income"), chains.declared(TERMS.name)))
        self.key, self.question, self.grid = prepared.question.key, prepared.question.text, prepared.shift
        self.dataset = dataset_id(self.owner.address, TERMS.name)

    def note(self, operation: str, function: str, action: Callable[[], object]) -> None:
        """Do it, and write down the gas of its one transaction of that function."""
        action()
        (gas,) = (one.gas for one in self.on.used() if one.function == function)
        self.rows.append(
            {"operation": operation, "function": function, "gas": gas}
            | {f"ether at {price} gwei": gas * price / 1e9 for price in PRICES_GWEI}
        )
        self._progress(len(self.rows), self.steps)

    def all(self, sizes: tuple[int, ...], folder: Path) -> None:
        """Everything, in the order of a data set's life."""
        self.steps = 23 + 2 * len(sizes)
        on, name = self.on, TERMS.name
        self.note("deploy PrivacyLedger", "deploy", lambda: None)  # the chain began with it
        address = on.keys[ORACLE].address
        self.note(
            "register a data set", "register",
            lambda: self.owner.register(TERMS, oracle=address, commitment=b"\1" * 32),
        )  # fmt: skip
        analyst = on.keys[ANALYST].address
        self.note("allow an analyst", "allow", lambda: self.owner.allow(name, analyst, MAX_UNITS))
        self.note("allow, another quota", "allow", lambda: self.owner.allow(name, analyst, MAX_UNITS - 1))
        self._requests()
        self._sizes(sizes)
        self._owning()
        self._anchor(folder)

    # Asking

    def _requests(self) -> None:
        ask = self._asker(self.analyst, self.key, 1)
        words = (self.key.encode(), self.question.encode(), self.grid, 1)
        self.note(
            "declare a key (a mean)", "declare", lambda: self._send(OWNER, "declare", self.dataset, *words)
        )
        self.note("request, charged: first of all", "request", ask)
        self.note("record 1 value: first of all", "fulfil", self._recorder(1))
        self.note("request, charged: later, same key", "request", ask)
        self.note("record 1 value: later, same key", "fulfil", self._recorder(1))
        self.note("request, charged: later, with idempotency key", "request", lambda: ask("one"))
        self._recorder(1)()
        other = self._asker(self.analyst, f"{self.key} 2", 1)
        self.note("request, charged: later, fresh key", "request", other)
        self.note("record 1 value: later, fresh key", "fulfil", self._recorder(1))
        third = self._asker(self.analyst, f"{self.key} 4", 1)
        self.note("request, charged: later, fresh key, idempotency key", "request", lambda: third("three"))
        self._recorder(1)()
        own = self._asker(self.owner, f"{self.key} 3", 1)
        self.note("request, charged: owner, fresh key", "request", own)
        self._recorder(1)()
        self.note("request, charged: owner, same key", "request", own)
        self._recorder(1)()
        self.note("request, reused", "request", lambda: self._reuse(None))
        self.note("request, reused, with idempotency key", "request", lambda: self._reuse("two"))
        self.note("request, repeated with idempotency key", "request", lambda: self._reuse("two"))

    def _asker(self, ledger: EthereumLedger, key: str, size: int) -> Callable[..., None]:
        """Asks for ever more under a key."""
        ledger.declare(TERMS.name, key, question=self.question, grid=self.grid, dimension=size)
        bought = 0

        def ask(idempotency: str | None = None) -> None:
            nonlocal bought
            bought += STEP
            amount = Amount(bought, TERMS.unit, TERMS.neighbours)
            grant = ledger.request(TERMS.name, key, amount, idempotency=idempotency)
            assert grant.charged == STEP

        return ask

    def _recorder(self, size: int) -> Callable[[], None]:
        """Records the oldest measurement that waits, with values of both signs below 2^40."""

        def record() -> None:
            (waiting, *_) = self.oracle.waiting(TERMS.name)
            values = [int((unit - 1.5) * 2**41) for unit in self.rng.units(size)]
            self.oracle.settle(self.oracle.record(waiting, values))

        return record

    def _reuse(self, idempotency: str | None) -> None:
        """A covered request that is written down all the same."""
        key = key_id(self.key.encode(), self.question.encode(), self.grid, 1)
        self._send(ANALYST, "request", self.dataset, key, STEP, mark_of(idempotency))

    def _send(self, place: int, function: str, *arguments: Any) -> None:
        """A call that the ledger spares, or joins to another."""
        data = artifact().encode(function, *arguments)
        Sender(self.on.node, self.on.keys[place]).transact(self.on.contract, data)

    def _sizes(self, sizes: tuple[int, ...]) -> None:
        for size in sizes:
            ask = self._asker(self.owner, f"{self.key} of {size}", size)
            for when in ("fresh key", "same key"):
                ask()
                self.on.used()
                self.note(f"record {size} values, {when}", "fulfil", self._recorder(size))

    # Owning

    def _owning(self) -> None:
        name, owner = TERMS.name, self.owner
        self.note(
            "pay for a release made elsewhere", "pay",
            lambda: self._send(OWNER, "pay", self.dataset, b"elsewhere", STEP, NO_MARK),
        )  # fmt: skip
        self.note("pause", "pause", lambda: owner.pause(name))
        self.note("resume", "pause", lambda: owner.resume(name))
        self.note("appoint an oracle", "appoint", lambda: owner.appoint(name, self.on.keys[3].address))
        self.note("offer to another owner", "offer", lambda: owner.offer(name, self.on.keys[4].address))
        self.note("take what is offered", "take", lambda: self.on.ledger(4).take(name))

    def _anchor(self, folder: Path) -> None:
        sender = Sender(self.on.node, self.on.keys[OWNER])
        made = []
        self.note(
            "deploy HeadAnchor", "deploy",
            lambda: made.append(sender.transact(None, anchor.contract().creation)),
        )  # fmt: skip
        with SqlLedger(folder / "ledger.db", key=Ed25519PrivateKey.generate()) as ledger:
            ledger.open(TERMS)
            self.note(
                "anchor a head", "anchor", lambda: anchor.write_anchor(ledger, sender, str(made[0].contract))
            )


def sums(rows: list[Row]) -> dict[str, int]:
    """Gas of a request and its record, after the first, by what is new about it."""
    gas = {row["operation"]: row["gas"] for row in rows}
    ask, record = "request, charged: later, ", "record 1 value: later, "
    return {
        "same key": gas[f"{ask}same key"] + gas[f"{record}same key"],
        "same key, with idempotency key": gas[f"{ask}with idempotency key"] + gas[f"{record}same key"],
        "fresh key": gas[f"{ask}fresh key"] + gas[f"{record}fresh key"],
        "fresh key, with idempotency key": gas[f"{ask}fresh key, idempotency key"]
        + gas[f"{record}fresh key"],
    }


def _caption(rows: list[Row]) -> str:
    width = max(len(row["operation"]) for row in rows)
    prices = "".join(f"{f'{price} gwei':>12}" for price in PRICES_GWEI)
    lines = [
        "Gas of every operation, from the receipts of a chain of our own, and its price in ether.",
        "",
        "Printed (Fig. 4.3, a demo on Ropsten; neither gas nor gas price): 0.00799 ether for the first",
        "request, 0.00327 for the first of another type, 0.00086 for one that is reused.",
        "Found:",
        f"  {'':{width}} {'gas':>10} {prices}",
    ]
    for row in rows:
        ether = "".join(f"{row[f'ether at {price} gwei']:12.6f}" for price in PRICES_GWEI)
        lines.append(f"  {row['operation']:{width}} {row['gas']:>10,} {ether}")
    together = "; ".join(f"{what} {gas:,}" for what, gas in sums(rows).items())
    lines.append(f"Charged request and record of one value together, after the first: {together}.")
    lines += [
        "Covered requests need no transaction at all: to read a chain is free. What a rollup adds for its",
        "data, and what ether costs, is not in here.",
    ]
    return "\n".join(lines)


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 1, size=(10.0, 8.0))
    axis = axes[0][0]
    shown = rows[::-1]
    axis.barh([row["operation"] for row in shown], [row["gas"] for row in shown], color=plots.ACCENT)
    axis.set_xscale("log")
    axis.set_xlabel("gas")
    for place, row in enumerate(shown):
        axis.annotate(f" {row['gas']:,}", (row["gas"], place), va="center", fontsize=8)
    axis.margins(x=0.15)
    return figure
