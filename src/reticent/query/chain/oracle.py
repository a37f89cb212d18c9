"""The oracle: measures beside the data what was paid for on a chain, and records it there.

What leaves this machine is public at once and for ever, also in blocks that a chain drops later. So at most
one draw per request ever leaves it (mathematics 4.10). For each measurement that waits there, in this order:

1. its public text is read against the declaration; what is not one of our questions is refused;
2. the oracle's own ledger, an ordinary one beside the data, is charged. It never forgets: a request that a
   reorganisation takes back stays paid here, and past the cap of the declaration nothing is measured;
3. the rows are read, noise is drawn, and the values are recorded in the own ledger, once, before anything
   is signed;
4. values are read back from there, signed, kept in the outbox, and sent.

An oracle that starts again after a crash finds the draw, or the signed bytes, and sends these. A draw belongs
to its contract, data set, key, start and information, never to the number that a chain happened to give it.

Not here: the chain (`ledger.ethereum`, `chain`) and what an answer says (`session`).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.arguments import real
from reticent.errors import (
    AlreadyFulfilled,
    BudgetExceeded,
    ChainError,
    LedgerDamaged,
    LedgerError,
    NodeUnavailable,
    NotConfirmed,
    ParameterError,
    SourceError,
    TransactionRefused,
    WrongChain,
)
from reticent.files import made
from reticent.ledger import Amount, Grant, Ledger, SqlLedger, Unit
from reticent.ledger.base import Order
from reticent.ledger.witness.opening import opened as open_ledger
from reticent.query.declarations import account_moving, account_opening, ledger_places, order_keys
from reticent.query.declarations import home as homes
from reticent.query.declarations.datasets import DataSet, Policy
from reticent.query.language.questions import parse
from reticent.query.language.tree import shown
from reticent.query.measure import Plan, Rows, plan
from reticent.randomness import Stream

try:
    import fcntl
except ImportError:  # not on this platform: nobody is kept out
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from reticent.chain.node import Receipt
    from reticent.chain.outbox import Outbox, Sent
    from reticent.ledger.ethereum.ledger import EthereumLedger, Waiting

_LONGEST_PAUSE_S = 30.0
_TOGETHER = 16  # draws that may share a commit of the own ledger
_DONE = "ledger: fulfilled already"  # the contract's words


class State(Enum):
    """The state of a measurement that waits."""

    RECORDED = "recorded"
    SENT = "sent, not confirmed yet"
    REFUSED = "refused"  # and always will be
    DELAYED = "to be tried again"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one measurement in one step.

    Attributes:
        number: Number of the measurement on the chain.
        key: Name of the question, as the asking party gave it.
        reason: why it is refused or delayed.
    """

    number: int
    key: str
    state: State
    reason: str = ""


class _Refused(Exception):
    """On public grounds, and for ever."""


class Oracle:
    """Measures what waits on a chain. Made by `open_oracle`.

    Args:
        data: the declaration; its account must be on the chain with the same terms.
        rows: the prepared rows, or how to get at them; never looked at before `own` has charged.
        chain: the ledger on the chain, with the oracle's key and an outbox.
        own: Ledger of everything that this oracle ever measured, by itself; it must outlive everything else
            here.
        rng: None for secure noise; a SimulationStream in tests.
        say: is called with a line on what happens; nothing in it comes from the rows.

    Raises:
        LedgerError: the account is not on the chain, or has other terms.
    """

    def __init__(
        self,
        data: DataSet,
        rows: Rows | Callable[[], Rows],
        chain: EthereumLedger,
        own: Ledger,
        *,
        rng: Stream | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        if data.policy is not Policy.SHARE:
            raise ParameterError(
                f"policy must be share on a chain, where all see the best answer, got {data.policy}"
            )
        if chain.balance(data.account).terms != data.terms:
            raise LedgerError(f"account {data.name} is on the chain with other terms than are declared here")
        own.open(data.terms)
        self.data = data
        self._rows, self._chain, self._own, self._rng = rows, chain, own, rng
        self._say = say if say is not None else lambda line: None
        self._refused: dict[str, str] = {}  # reasons by identity
        self._said: dict[str, str] = {}  # what was last said of a measurement that still waits
        self._held = contextlib.ExitStack()  # closed last

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the chain, the own ledger and the rows, and let the next oracle in."""
        with self._held, self._own, self._chain:  # all of them, whatever happens to one
            if not callable(self._rows):
                self._rows.close()

    # The loop

    def run(self, stop: threading.Event, poll_s: float = 1.0) -> None:
        """Measure whatever comes until `stop` is set; a node that is away or a full disk is waited out.

        Raises:
            WrongChain: the node serves another chain now, or another contract.
            LedgerDamaged: the own ledger cannot be trusted.
        """
        pause = poll_s = real("poll_s", poll_s, low=0.0, open_low=True)
        trouble = ""
        while not stop.is_set():
            try:
                self.step()
            except (WrongChain, LedgerDamaged):
                raise
            except (ChainError, LedgerError) as error:
                if not trouble:
                    self._say(f"{error}; trying again until it is over")
                trouble, pause = str(error), min(_LONGEST_PAUSE_S, 2 * pause)
            else:
                if trouble:
                    self._say("it is over, going on")
                trouble, pause = "", poll_s
            stop.wait(pause)

    def step(self) -> list[Outcome]:
        """Handle everything that waits now, and is deep enough in the chain.

        Raises:
            ChainError: the node does not answer. What was done so far is kept, and not done again.
            LedgerError: the chain names another oracle, or the own ledger cannot be written.
        """
        waiting = self._waiting()
        found = self._measured(waiting)
        records = [
            (one, values) for one, values in zip(waiting, found, strict=True) if isinstance(values, list)
        ]
        recorded = iter(self._recorded(records))
        outcomes = [one if isinstance(one, Outcome) else next(recorded) for one in found]
        for one, outcome in zip(waiting, outcomes, strict=True):
            self._tell(one, outcome)
        still = {_identity(self._chain, one) for one in waiting}
        self._said = {identity: line for identity, line in self._said.items() if identity in still}
        return outcomes

    def _waiting(self) -> list[Waiting]:
        name = self.data.account
        try:
            waiting = self._chain.waiting(name)
            appointed = self._chain.status(name).oracle if waiting else self._chain.address
        except LedgerDamaged as error:  # not ours: the next look may find a better node
            raise ChainError(f"what the node says of the contract cannot be: {error}") from error
        if appointed != self._chain.address:  # who is may draw by now, and two draws must not leave
            raise LedgerError(f"the oracle of {name} is {appointed} on the chain, not {self._chain.address}")
        return waiting

    # Recording

    def _recorded(self, records: list[tuple[Waiting, list[int]]]) -> list[Outcome]:
        """Send values and wait for them. What does not get through is sent again as long as it waits."""
        sent = self._sent(records) if records else []
        flying = [one for one in sent if not isinstance(one, Exception)]
        settled = iter(self._settled(flying) if flying else [])
        return [
            _became(waiting, one if isinstance(one, Exception) else next(settled))
            for (waiting, _), one in zip(records, sent, strict=True)
        ]

    def _sent(self, records: list[tuple[Waiting, list[int]]]) -> list[Sent | Exception]:
        """Send all together; if that fails for one of them, each alone."""
        try:
            return list(self._chain.record_many(records))
        except (NodeUnavailable, WrongChain):
            raise
        except (ChainError, ParameterError) as error:
            return [error] if len(records) == 1 else [one for each in records for one in self._sent([each])]

    def _settled(self, sent: list[Sent]) -> list[Receipt | Exception]:
        try:
            return list(self._chain.settle_many(sent))
        except (NodeUnavailable, WrongChain):
            raise
        except NotConfirmed as error:
            return [error] * len(sent)
        except ChainError as error:
            return [error] if len(sent) == 1 else [one for each in sent for one in self._settled([each])]

    # Measuring

    def _measured(self, waiting: list[Waiting]) -> list[list[int] | Outcome]:
        """The values of each measurement that can be made, all of them durable; else what became of it."""
        plans = [self._checked(one) for one in waiting]
        pairs = zip(waiting, plans, strict=True)
        values = iter(self._values([(one, held) for one, held in pairs if isinstance(held, Plan)]))
        return [held if isinstance(held, Outcome) else next(values) for held in plans]

    def _checked(self, waiting: Waiting) -> Plan | Outcome:
        known = self._refused.get(_identity(self._chain, waiting))
        try:
            return self._plan(waiting) if known is None else _outcome(waiting, State.REFUSED, known)
        except _Refused as refusal:
            return self._refusal(waiting, str(refusal))

    def _refusal(self, waiting: Waiting, reason: str) -> Outcome:
        self._refused[_identity(self._chain, waiting)] = reason
        return _outcome(waiting, State.REFUSED, reason)

    def _plan(self, waiting: Waiting) -> Plan:
        """Return the plan of a stranger's text, if the text is one of our questions, letter for letter."""
        try:
            prepared = plan(parse(waiting.question, self.data))
        except Exception as error:  # whatever it is, a text must not stop the oracle
            reason = str(error) if isinstance(error, ParameterError) else "its text cannot be read"
            raise _Refused(reason) from error
        question = prepared.question
        stated = (waiting.name, waiting.grid, waiting.dimension)
        wanted = (question.key, prepared.shift, prepared.values)
        for what, one, other in zip(("key", "grid", "dimension"), stated, wanted, strict=True):
            if one != other:
                raise _Refused(f"{what} must be {other} for this question, got {shown(one)}")
        least = self.data.terms.minimum * waiting.dimension
        if waiting.information < least:
            raise _Refused(f"information must be at least {least}, got {waiting.information}")
        return prepared

    def _values(self, asked: list[tuple[Waiting, Plan]]) -> list[list[int] | Outcome]:
        """The one draw of each measurement: made now, or read back."""
        if not asked:
            return []
        try:
            rows = self._opened()  # before paying: a source that is out of reach costs nothing
        except (SourceError, ParameterError) as error:
            return [_outcome(one, State.DELAYED, str(error)) for one, _ in asked]
        grants = self._own.request_many([self._order(one) for one, _ in asked])
        found = [self._drawn(*pair, grant, rows) for pair, grant in zip(asked, grants, strict=True)]
        self._keep([one for one in found if isinstance(one, tuple)])
        pairs = zip(asked, found, strict=True)
        return [made if isinstance(made, Outcome) else self._kept(one) for (one, _), made in pairs]

    def _drawn(
        self, waiting: Waiting, prepared: Plan, grant: Grant | LedgerError, rows: Rows
    ) -> tuple[int, list[int]] | Outcome | None:
        """A fresh draw and its number in the own ledger; None if there is nothing to draw any more."""
        if isinstance(grant, BudgetExceeded):
            return self._refusal(waiting, f"past the cap of what this oracle ever measured: {grant}")
        if isinstance(grant, LedgerError):
            raise grant
        if [one.information for one in grant.pending] != [waiting.information]:
            return None
        try:
            values = prepared.measure(prepared.vector(rows), waiting.information, self._rng)
        except SourceError as error:
            return _outcome(waiting, State.DELAYED, str(error))
        return grant.pending[0].number, values

    def _order(self, waiting: Waiting) -> Order:
        amount = Amount(waiting.information, Unit.MU2, self.data.relation)
        return Order(self.data.account, _identity(self._chain, waiting), amount)

    def _keep(self, draws: list[tuple[int, list[int]]]) -> None:
        """Record draws in the own ledger. Threads that meet there share a commit."""

        def keep(draw: tuple[int, list[int]]) -> None:
            with contextlib.suppress(AlreadyFulfilled):
                self._own.fulfil(*draw)

        if len(draws) == 1:
            keep(draws[0])
        elif draws:
            with ThreadPoolExecutor(_TOGETHER) as pool:
                list(pool.map(keep, draws))

    def _kept(self, waiting: Waiting) -> list[int] | Outcome:
        """The draw as it is kept, and will be found again."""
        drawn = self._own.reading(self.data.account, _identity(self._chain, waiting))
        if drawn.information != waiting.information:
            return self._refusal(waiting, "something else is in the oracle's own ledger under its name")
        return [total // drawn.information for total in drawn.sums]  # of one record: nothing is rounded

    def _opened(self) -> Rows:
        if callable(self._rows):
            self._rows = self._rows()
        return self._rows

    def _tell(self, waiting: Waiting, outcome: Outcome) -> None:
        reason = f" ({outcome.reason})" if outcome.reason else ""
        line = f"measurement {outcome.number}, {shown(outcome.key)}: {outcome.state.value}{reason}"
        identity = _identity(self._chain, waiting)
        if self._said.get(identity) != line:
            self._said[identity] = line
            self._say(line)


def open_oracle(
    declaration: str | os.PathLike[str],
    connect: Callable[[Outbox], EthereumLedger],
    folder: str | os.PathLike[str] | None = None,
    *,
    frame: Any = None,
    say: Callable[[str], None] | None = None,
) -> Oracle:
    """Open the oracle of a data set.

    Args:
        declaration: the owner's YAML file.
        connect: makes the ledger on the chain, with the outbox that it is given.
        folder: Folder of the own ledger and the outbox; by default beside the declaration. Losing it loses
            what was ever measured: keep it as safe as the rows, and never bring back an old copy.
        frame: the rows, as a pandas data frame or an Arrow table, instead of the declared source.
        say: Function that is called with a line on what happens, see `Oracle`.

    Raises:
        LedgerError: another oracle runs there.
    """
    from reticent.chain.outbox import Outbox
    from reticent.query import opening
    from reticent.query.declarations import dataset_file
    from reticent.query.rows import source

    path = Path(declaration).resolve()
    data = dataset_file.read(path)
    place = Path(folder) if folder is not None else opening.folder(path) / "oracle"
    made(place)
    with contextlib.ExitStack() as opened:
        opened.enter_context(_alone(place))
        outbox = opened.enter_context(contextlib.closing(Outbox(place / "outbox.sqlite")))
        with contextlib.ExitStack() as closing:
            chain = closing.enter_context(connect(outbox))
            own = closing.enter_context(open_ledger(place / "own.sqlite"))
            data = _at_home(path, data, chain, own, place)
            snapshot, order_key = opening.snapshot_path(path, data), homes.order_key(path, data)
            rows = partial(source.connect, data, path.parent, snapshot, frame, order_key=order_key)
            oracle = Oracle(data, rows, chain, own, say=say)
            closing.pop_all()
        oracle._held = opened.pop_all()
        return oracle


def _at_home(path: Path, data: DataSet, chain: EthereumLedger, own: SqlLedger, place: Path) -> DataSet:
    """The declaration as it is registered; what was spent of it elsewhere is charged to the own ledger.

    Raises:
        LedgerError: its account is in another ledger, and not on this chain.
    """
    here = ledger_places.on_chain(chain.chain_id, chain.contract)
    with homes.settled(path, data, here) as home:
        if home.moving == here:
            raise LedgerError(
                f"{path.name} is on its way to the contract {chain.contract}: `reticent chain register`, run "
                "again, ends that"
            )
        if home.ledger != here:
            raise LedgerError(
                f"{path.name} pays from {home.paying}, not from the contract {chain.contract}: "
                "`reticent chain register` moves it there"
            )
        home = homes.measured_in(home, place)
        registered = account_opening.as_registered(home.of(data), chain.balance(home.account).terms)
        own.open(registered.terms)
        account_moving.left_behind(home, path, registered, own, into=registered.terms)
        order_keys.ensure_order_key(home, path, registered, own)
        return registered


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Be the only oracle of a folder. The lock goes with the process, however it ends."""
    file = os.open(folder / "oracle.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise LedgerError(f"another oracle runs in {folder}: one data set has one oracle") from error
        yield
    finally:
        os.close(file)


def _identity(chain: EthereumLedger, waiting: Waiting) -> str:
    """Return the key of a draw in the own ledger."""
    place = f"{chain.chain_id}/{chain.contract}"
    return f"{place}/{waiting.dataset.hex()}/{waiting.key.hex()}/{waiting.start}/{waiting.information}"


def _outcome(waiting: Waiting, state: State, reason: str = "") -> Outcome:
    return Outcome(waiting.number, waiting.name, state, reason)


def _became(waiting: Waiting, found: Receipt | Exception) -> Outcome:
    """Return the outcome that the chain's reply to a record means."""
    if not isinstance(found, Exception) or isinstance(found, AlreadyFulfilled):
        return _outcome(waiting, State.RECORDED)
    reason = found.reason if isinstance(found, TransactionRefused) else str(found)
    if isinstance(found, NotConfirmed) or reason == _DONE:  # in no block, or in none that is deep enough
        return _outcome(waiting, State.SENT)
    return _outcome(waiting, State.DELAYED, reason)
