"""`reticent chain status`, `watch` and `verify`: what the commands that only look do.

Names and questions on a chain are strangers' words: they are shown without control characters.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from eth_utils.address import to_checksum_address
from rich.table import Table

from reticent.apps.chain.work import waiting
from reticent.arguments import real
from reticent.chain.contracts import Event
from reticent.chain.log import ChainLog
from reticent.chain.node import Node
from reticent.cli import terminal
from reticent.errors import LedgerDamaged, NodeUnavailable, UnknownAccount
from reticent.ledger import Unit
from reticent.ledger.ethereum.chain_file import ChainFile
from reticent.ledger.ethereum.contract import artifact, dataset_id, text_of
from reticent.ledger.ethereum.state import DataSet as Registered
from reticent.ledger.ethereum.state import State
from reticent.ledger.ethereum.verify import verify as verify_chain
from reticent.privacy import UNITS_PER_ONE, spent_epsilon
from reticent.query import DataSet
from reticent.query.chain.commitment import Commitment, place
from reticent.query.chain.finding import registrant
from reticent.query.declarations import dataset_file
from reticent.query.declarations.account_opening import as_registered

_DELTA = 1e-6
_PAUSE_S = 1.0
_LONGEST_TEXT = 100
_ADDRESSES = ("owner", "oracle", "declarer", "analyst", "payer", "candidate")


def plain(text: str, longest: int = _LONGEST_TEXT) -> str:
    """A stranger's words, in one line and without anything that a terminal would obey."""
    shown = "".join(one if one.isprintable() else "?" for one in text[: longest + 1])
    return shown if len(shown) <= longest else shown[: longest - 3] + "..."


# Status


def status(
    declaration: Path | None, *, delta: float | None, chain: Path, rpc: str | None, owner: str | None
) -> None:
    """Print data sets as their events made them."""
    if delta is not None:
        delta = real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    file = ChainFile.read(chain)
    with closing(file.connect(rpc)) as node, waiting("reading"):
        artifact().check(node, file.contract)
        data, identifier = _chosen(declaration, file, node, owner)
        log = ChainLog(
            node, artifact(), file.contract, State, first_block=file.block, confirmations=file.confirmations
        )
        state = log.sync()
    if delta is None:
        delta = _DELTA if data is None else data.budget.delta
    depth = f" ({file.confirmations} confirmations)" if file.confirmations else ""
    screen = terminal.console()
    screen.print(
        f"PrivacyLedger {file.contract} on chain {file.chain_id}, block {log.block}{depth}", soft_wrap=True
    )
    shown = _picked(state, identifier, file)
    if not shown:
        screen.print("No data set is registered yet: reticent chain register.")
    for held in shown:
        screen.print()
        _show(held, state, delta)


def _picked(state: State, identifier: bytes | None, file: ChainFile) -> list[Registered]:
    """The data set that is meant, or all."""
    if identifier is None:
        return list(state.datasets.values())
    if identifier not in state.datasets:
        raise UnknownAccount(f"no data set of that owner and name is registered at {file.contract}")
    return [state.datasets[identifier]]


def _chosen(
    declaration: Path | None, file: ChainFile, node: Node, owner: str | None
) -> tuple[DataSet | None, bytes | None]:
    """The data set of a declaration and its identifier; nothing if all are meant."""
    if declaration is None:
        return None, None
    data = dataset_file.read(declaration)
    return data, dataset_id(registrant(declaration, data, file, node, owner), data.name)


def _show(held: Registered, state: State, delta: float) -> None:
    screen, terms = terminal.console(), held.terms
    paused = " (paused: nothing can be spent)" if held.paused else ""
    screen.print(f"{plain(held.name)}{paused}", style="bold", soft_wrap=True)
    pending = sum(one.dataset == held.id for one in state.waiting.values())
    questions = sum(dataset == held.id for dataset, _ in state.keys)
    facts = [
        ("protects", "unknown: its terms cannot be read" if terms is None else plain(terms.subject)),
        ("owner", held.owner),
        ("oracle", held.oracle),
        ("measurements", f"{held.measurements - pending:,} recorded, {pending:,} pending"),
        ("questions", f"{questions:,}"),
    ]
    if held.registrant != held.owner:
        facts.insert(2, ("first owner", held.registrant))
    for name, text in facts:
        screen.print(f"{name:<13}{text}", soft_wrap=True)
    screen.print(_budget(held, delta))
    if held.analysts:
        screen.print(_analysts(held))


def _unit(held: Registered) -> str:
    return "units of 1e-12" if held.terms is None else held.terms.unit.value


def _amount(units: int, rounded: Callable[[float], str]) -> str:
    return rounded(units / UNITS_PER_ONE) if units else "0"


def _part(units: int, whole: int, rounded: Callable[[float], str]) -> str:
    return f"{rounded(100 * units / whole)} %" if units and whole else "0 %"


def _budget(held: Registered, delta: float) -> Table:
    table, in_mu2 = Table(), _unit(held) == Unit.MU2.value
    table.add_column("", no_wrap=True)
    for heading in (_unit(held), *((f"epsilon at {delta:g}",) if in_mu2 else ()), "of the cap"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = (
        ("cap", held.cap, terminal.down),
        ("spent", held.spent, terminal.up),
        ("left", held.cap - held.spent, terminal.down),
    )
    for name, units, rounded in rows:
        epsilon = (rounded(spent_epsilon(units, delta)) if units else "0",) if in_mu2 else ()
        table.add_row(name, _amount(units, rounded), *epsilon, _part(units, held.cap, rounded))
    return table


def _analysts(held: Registered) -> Table:
    table = Table()
    table.add_column("analyst", no_wrap=True)
    for heading in ("quota", "spent", "of the quota"):
        table.add_column(heading, justify="right", no_wrap=True)
    for who, one in held.analysts.items():
        table.add_row(
            who,
            _amount(one.quota, terminal.down),
            _amount(one.used, terminal.up),
            _part(one.used, one.quota, terminal.up) if one.quota else "not allowed",
        )
    return table


# Watching


def watch(*, chain: Path, rpc: str | None, once: bool) -> None:
    """Print a line for each event that is deep enough in the chain, as they come."""
    file = ChainFile.read(chain)
    teller, is_away = Teller(file), False
    node = file.connect(rpc)
    try:
        artifact().check(node, file.contract)
        while True:
            try:
                if is_away:
                    node.close()
                    node = file.connect(rpc)  # another chain may be there by now
                    is_away = False
                    print("the node is back", file=sys.stderr)
                for line in teller.lines(node):
                    print(line, flush=True)
            except NodeUnavailable as error:
                if once:
                    raise
                if not is_away:
                    print(f"{error}; waiting for it", file=sys.stderr)
                is_away = True
            if once:
                return
            time.sleep(_PAUSE_S)
    finally:
        node.close()


class Teller:
    """The events of a contract in words, each once; remembers what data sets are called."""

    def __init__(self, file: ChainFile) -> None:
        self._file = file
        self._next, self._last = file.block, (-1, -1)
        self._known: dict[bytes, tuple[str, str, int]] = {}  # name, unit and cap
        self._time = (-1, 0)

    def lines(self, node: Node) -> Iterator[str]:
        """What is new and deep enough in the chain."""
        last = node.number() - self._file.confirmations
        for logs in node.logs(self._file.contract, self._next, last):
            for log in logs:
                event = artifact().event(log) if (log.block, log.index) > self._last else None
                if event is None:
                    continue
                at = datetime.fromtimestamp(self._time_of(node, log.block), UTC)
                line = f"{at:%Y-%m-%d %H:%M:%S}Z block {log.block}: {self.words(event)}"
                self._next, self._last = log.block, (log.block, log.index)
                yield line
        self._next = max(self._next, last + 1)

    def _time_of(self, node: Node, block: int) -> int:
        if self._time[0] != block:
            self._time = block, node.block(block).timestamp
        return self._time[1]

    def words(self, event: Event) -> str:
        """An event in one line."""
        told: dict[str, Any] = {
            name: to_checksum_address(value) if name in _ADDRESSES else value
            for name, value in event.fields.items()
        }
        identifier = told["dataset"]
        if event.name == "Registered":
            self._known[identifier] = plain(told["name"], 40), plain(told["unit"]), told["cap"]
        name, unit, cap = self._known.get(identifier, (identifier.hex(), "?", 0))
        return f"{name}: {_what(event.name, told, unit, cap)}"


def _what(kind: str, told: dict[str, Any], unit: str, cap: int) -> str:
    def amount(units: int, rounded: Callable[[float], str] = terminal.up) -> str:
        return f"{unit} {_amount(units, rounded)}"

    match kind:
        case "Registered":
            return f"registered by {told['owner']}, cap {amount(cap, terminal.down)}, oracle {told['oracle']}"
        case "Declared":
            return f"{told['declarer']} declares a question: {_question(told['question'])}"
        case "Allowed":
            return f"{told['analyst']} may be charged {amount(told['quota'], terminal.down)} in all"
        case "MeasurementRequested":
            spent = _part(told["spent"], cap, terminal.up)
            charge = f"{amount(told['information'])}; {spent} of the cap is spent"
            return f"measurement {told['number']}, {told['analyst']} is charged {charge}"
        case "Reused":
            return f"{told['analyst']} asks for {amount(told['information'])}, bought before: free"
        case "Paid":
            spent = _part(told["spent"], cap, terminal.up)
            charge = f"{amount(told['information'])}; {spent} of the cap is spent"
            return f"measurement {told['number']}, made elsewhere, {told['payer']} is charged {charge}"
        case "Fulfilled":
            count = len(told["grid_values"])
            return f"measurement {told['number']} is recorded, {count} value{'s' if count != 1 else ''}"
        case "Paused":
            return "paused: nothing can be spent" if told["paused"] else "resumed"
        case "OracleAppointed":
            return f"its oracle is {told['oracle']} now"
        case "OwnershipOffered":
            return f"offered to {told['candidate']}"
        case _:
            return f"its owner is {told['owner']} now"


def _question(raw: bytes) -> str:
    """A declared question in a few words, if it is one of ours."""
    try:
        told = json.loads(raw)
        words = [told["measured"], *([f"of {told['column']}"] if told["column"] else [])]
        words += [f"by {' and '.join(one['column'] for one in told['by'])}"] if told["by"] else []
        for part, name in (("of", "that is"), ("where", "where")):
            if told[part] is not True:
                words.append(f"{name} {json.dumps(told[part], separators=(',', ':'))}")
        return plain(" ".join(words))
    except (ValueError, KeyError, TypeError, RecursionError):
        return plain(text_of(raw)) if raw else "a payment, nothing to measure"


# Verifying


def verify(declaration: Path | None, *, chain: Path, rpc: str | None, owner: str | None) -> None:
    """Replay, compare, and exit with 1 if something does not hold."""
    file = ChainFile.read(chain)
    try:
        with closing(file.connect(rpc)) as node, waiting("verifying"):
            data, identifier = _chosen(declaration, file, node, owner)
            newest = max(file.block, node.number() - file.confirmations)
            block, state = verify_chain(node, artifact(), file.contract, newest, first_block=file.block)
            block_hash = node.block(block).hash
        shown = _picked(state, identifier, file)
        committed = "" if data is None else _check_declaration(declaration, data, shown[0], file)
    except LedgerDamaged as error:
        print(f"error: does not verify: {plain(str(error), longest=500)}", file=sys.stderr)
        raise typer.Exit(1) from error
    counted = {held.id for held in shown}
    pending = sum(one.dataset in counted for one in state.waiting.values())
    measurements = sum(held.measurements for held in shown)
    rows = [
        ("block", f"{block:,}"),
        ("data sets", f"{len(shown):,}"),
        ("questions", f"{sum(dataset in counted for dataset, _ in state.keys):,}"),
        ("measurements", f"{measurements:,}"),
        ("recorded", f"{measurements - pending:,}"),
        *((("declaration", committed),) if committed else ()),
    ]
    screen = terminal.console()
    screen.print(f"PrivacyLedger {file.contract} on chain {file.chain_id}: verified", soft_wrap=True)
    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    screen.print(table)
    print(f"block {block_hash}")


def _check_declaration(
    declaration: Path | None, data: DataSet, registered: Registered, file: ChainFile
) -> str:
    """What the commitment says of the declaration."""
    assert declaration is not None
    if registered.terms is None or as_registered(data, registered.terms).terms != registered.terms:
        raise LedgerDamaged(f"{data.name} is registered with other terms than are declared")
    held = Commitment.read(declaration)
    if held is None or not held.is_at(file):
        return "not checked: its nonce is not here"
    if held.of(declaration) != registered.commitment:
        raise LedgerDamaged(
            f"{declaration} is not the declaration that was registered (nonce in {place(declaration)})"
        )
    return "the registered one"
