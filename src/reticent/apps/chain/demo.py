"""`reticent demo chain`: two analysts share a budget that lies in a contract, on a chain of this machine.

Everything is as in earnest: contracts, signed transactions, confirmations, an oracle beside the data, secure
noise. Only the chain and the persons are made up, so nothing is paid and the truth can be shown.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from rich.padding import Padding
from rich.text import Text

from reticent.apps.chain import watching as chain_views
from reticent.apps.chain import work as chain
from reticent.apps.chain.keys import new_key
from reticent.apps.chain.oracle import opened
from reticent.apps.chain.watching import Teller
from reticent.apps.query import views
from reticent.apps.query.ask_work import refused_line
from reticent.apps.query.demo import five_truths
from reticent.chain.anvil import Anvil
from reticent.chain.keys import Key
from reticent.chain.node import Node
from reticent.cli import terminal
from reticent.errors import ChainError, QuestionRefused
from reticent.ledger.ethereum.chain_file import ChainFile
from reticent.ledger.ethereum.contract import artifact
from reticent.ledger.ethereum.verify import verify
from reticent.query import DataSet, Session, census
from reticent.query.chain.finding import connected
from reticent.query.declarations import dataset_file
from reticent.query.kinds.intervals import shown_half_width

BLOCK_TIME_S = 1.0
CONFIRMATIONS = 1
SHARE = 0.4
_ETHER = 10**18
_WAIT_S = 30.0

_NAME = "average personal income"
_QUESTION = census.FIVE[_NAME]
_OTHER_WORDS = "select avg(income) from census where age >= 0"
_ERROR, _FINER, _TOO_EXACT = 1000.0, 600.0, 100.0


def run() -> None:
    """Start a chain, deploy, register, ask, verify, and stop it."""
    with (
        tempfile.TemporaryDirectory(prefix="reticent-chain-") as folder,
        Anvil(block_time_s=BLOCK_TIME_S) as anvil,
    ):
        story = _Story(Path(folder), anvil)
        with closing(story.node):
            story.tell()


@dataclass(frozen=True)
class _Person:
    """Somebody with a key."""

    name: str
    file: Path
    key: Key


class _Story:
    """Who takes part, and what happens."""

    def __init__(self, folder: Path, anvil: Anvil) -> None:
        self.screen = terminal.console()
        self.node = Node(anvil.url)
        self.chain = folder / "chain.json"
        self.declaration = census.write(folder)
        self.data: DataSet = dataset_file.read(self.declaration)
        self.truth = five_truths(census.persons())[_NAME]
        self.people = {name: self._person(folder, name) for name in ("owner", "oracle", "Anna", "Bruno")}
        self.seen = self.node.number()

    def _person(self, folder: Path, name: str) -> _Person:
        file = folder / f"{name.lower()}.key"
        key = new_key(file, encrypt=False)
        self.node.rpc("anvil_setBalance", key.address, hex(10 * _ETHER))
        return _Person(name, file, key)

    def tell(self) -> None:
        """All of it."""
        self._beginning()
        self._deploy()
        with self._measuring():
            self._say("2. Anna asks for the average income within 1,000 dollars, and pays.")
            self._asks("Anna", _QUESTION, _ERROR)
            self._say("3. Bruno asks the same in other words. It is recorded already, and free.")
            self._asks("Bruno", _OTHER_WORDS, _ERROR)
            self._say("4. Bruno wants it within 600, and pays the difference.")
            self._asks("Bruno", _QUESTION, _FINER)
            self._say(
                "5. Anna wants it within 100. The budget does not allow it: refused, nothing is charged."
            )
            self._is_refused()
        self._say("6. What all the world can read, for ever; the noisy values too, but nothing of the rows.")
        self._public()
        self._say("7. Anybody can redo every total and sum from these events, and compare with the contract.")
        self._verify()

    # What happens

    def _beginning(self) -> None:
        self.screen.print(
            f"A chain on this machine (anvil, chain {self.node.chain_id}) makes a block every "
            f"{BLOCK_TIME_S:g} s; what has {CONFIRMATIONS} more on top counts. Four people with a key each:"
        )
        for person in self.people.values():
            self._command(f"chain key {person.file.name}", person.key.address)

    def _deploy(self) -> None:
        budget = self.data.budget
        self._say(
            f"1. The owner puts the ledger on the chain, and a census of {self.data.rows:,} invented persons "
            f"in it: epsilon {budget.epsilon:g} at delta {budget.delta:g}, for ever. "
            f"Each analyst may be charged {100 * SHARE:.0f} % of it."
        )
        owner, oracle = self.people["owner"], self.people["oracle"]
        told: dict[str, Any] = {"key": owner.file, "chain": self.chain, "rpc": None}
        with redirect_stdout(StringIO()):
            chain.deploy(
                self.node.url, owner.file, out=self.chain, confirmations=CONFIRMATIONS, forget_rpc=False
            )
        self._command(f"chain deploy --key owner.key --rpc {self.node.url}", self._gas())
        with redirect_stdout(StringIO()):
            chain.register(self.declaration, oracle=oracle.key.address, **told)
        short = oracle.key.address[:8]
        self._command(f"chain register census.yaml --oracle {short}.. --key owner.key", self._gas())
        for analyst in (self.people["Anna"], self.people["Bruno"]):
            address = analyst.key.address
            with redirect_stdout(StringIO()):
                chain.allow(self.declaration, address, share=SHARE, epsilon=None, owner=None, **told)
            command = f"chain allow census.yaml {address[:8]}.. --share {SHARE:g} --key owner.key"
            self._command(command, self._gas())

    @contextmanager
    def _measuring(self) -> Iterator[None]:
        """The oracle, in a thread and with a connection of its own."""
        stop = threading.Event()
        oracle = opened(self.declaration, ChainFile.read(self.chain), self.people["oracle"].key)
        thread = threading.Thread(target=oracle.run, args=(stop, 0.2), daemon=True)
        thread.start()
        self._command("oracle census.yaml --key oracle.key", "runs beside the data from now on")
        try:
            yield
        finally:
            stop.set()
            thread.join()
            oracle.close()

    def _session(self, name: str) -> Session:
        file, key = ChainFile.read(self.chain), self.people[name].key
        ledger = connected(self.declaration, self.data, file, file.connect(), key=key)
        return Session(self.data, None, ledger, wait_s=_WAIT_S)

    def _asks(self, name: str, question: str, error: float) -> None:
        self._command(self._ask_command(name, question, error))
        with self._session(name) as session, chain.waiting(f"{name} asks"):
            answer = session.ask(question, error=error)
        half = shown_half_width(answer.cells[0].estimate)
        value = f"{terminal.rounded(answer.value, half)} ± {terminal.error_text(half)}"
        left = _part(answer.remaining, self.data)
        self._indented(
            f"{value} (truth {terminal.rounded(self.truth, half)}), case {answer.case.value}, cost "
            f"{views.amount(answer.cost, self.data)}; left {left}",
            style="" if answer.cost else "green",
        )
        self._indented(self._gas() or "no transaction: to read a chain is free")

    def _ask_command(self, name: str, question: str, error: float) -> str:
        where = f"--ledger ethereum --key {name.lower()}.key"
        return f'ask census.yaml "{question}" --error {error:g} {where}'

    def _is_refused(self) -> None:
        self._command(self._ask_command("Anna", _QUESTION, _TOO_EXACT))
        with self._session("Anna") as session:
            try:
                session.ask(_QUESTION, error=_TOO_EXACT)
            except QuestionRefused as refusal:
                self._indented(f"error: {refused_line(refusal, self.data)}", style="red")

    def _public(self) -> None:
        self._command("chain watch --once")
        for line in Teller(ChainFile.read(self.chain)).lines(self.node):
            for person in self.people.values():
                line = line.replace(person.key.address, person.name)
            self._indented(line.split(" ", 2)[2])

    def _verify(self) -> None:
        file = ChainFile.read(self.chain)
        with redirect_stdout(StringIO()):
            chain_views.verify(self.declaration, chain=self.chain, rpc=None, owner=None)
        _, state = verify(self.node, artifact(), file.contract, first_block=file.block)
        held = next(iter(state.datasets.values()))
        spent = f"{terminal.up(100 * held.spent / held.cap)} % of the budget is spent"
        self._command("chain verify census.yaml", f"verified: {held.measurements} measurements, {spent}")

    # How it is shown

    def _say(self, text: str) -> None:
        self.screen.print(f"\n{text}", style="bold")

    def _command(self, text: str, result: str = "") -> None:
        self.screen.print(Text(f"$ reticent {text}", style="cyan"))
        if result:
            self._indented(result)

    def _indented(self, text: str, style: str = "") -> None:
        self.screen.print(Padding(Text(text, style=style), (0, 0, 0, 2)))

    def _gas(self) -> str:
        """The transactions since the last look: whose, and their gas."""
        names = {person.key.address.lower(): person.name for person in self.people.values()}
        used: dict[str, list[int]] = {}
        last = self.node.number()
        for number in range(self.seen + 1, last + 1):
            found = self.node.rpc("eth_getBlockByNumber", hex(number), True)
            for one in found["transactions"]:
                receipt = self.node.receipt(one["hash"])
                if receipt is None:
                    raise ChainError("the chain changed")
                used.setdefault(names.get(one["from"].lower(), "?"), []).append(receipt.gas)
        self.seen = last
        return "; ".join(f"{name} gas {' + '.join(f'{one:,}' for one in gas)}" for name, gas in used.items())


def _part(units: int, data: DataSet) -> str:
    return f"{terminal.down(100 * units / data.terms.cap)} %"
