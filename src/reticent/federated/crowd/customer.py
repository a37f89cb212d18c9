"""A customer: trains at home, seals, commits, reveals, is settled and paid. Killed anywhere, it goes on.

In this order, and each step is on the disk before the next: the home's ledger is paid and the update drawn,
once (`on_device.Home`); it is sealed, and the sealed file and its key are kept; the file goes to the store;
the commitment is sent, under a label that holds one commitment for ever; when the window of commitments is
over, file and key are revealed. So at most one draw of a round ever leaves, and nothing leaves unpaid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from reticent.arguments import whole
from reticent.chain.keys import Key
from reticent.errors import LedgerError, ParameterError
from reticent.federated.crowd import task_text
from reticent.federated.crowd.calls import Calls
from reticent.federated.crowd.contract import Proposal, commitment
from reticent.federated.crowd.deciding import Action, Do, customer_action
from reticent.federated.crowd.following import Follower, Seen
from reticent.federated.crowd.modes import OnDevice
from reticent.federated.crowd.rounds import Place, model_before
from reticent.federated.crowd.running import Program
from reticent.federated.crowd.task_text import CrowdTask
from reticent.federated.crowd.updates import seal, size_of
from reticent.federated.on_device import Home, HomeTask
from reticent.federated.robust.averages import Integers
from reticent.federated.robust.grid import Update
from reticent.federated.softmax import Labels
from reticent.ledger.device.ledger import DeviceLedger
from reticent.mechanisms.base import Floats
from reticent.store import Cid, Directory, Store

_GAS = ("commit", "reveal", "settle")  # calls of a round
MAX_ROUND_BLOCKS = 216_000  # until a round is paid: 30 days of blocks of 12 s
_NOTHING = Proposal(0, bytes(32), 0, 0, 0, 0)  # in place of the result of a void round


class Learner(Protocol):
    """A learner that pays for each update of a home first, draws it once, and keeps it."""

    @property
    def ledger(self) -> DeviceLedger:
        """The ledger of the home, which keeps short notes too."""

    @property
    def store(self) -> Directory:
        """The home's own folder of files."""

    def check(self, identifier: str, task: CrowdTask) -> None:
        """Refuse a task that cannot be trained or paid for, before anything is spent on it."""

    def update(self, identifier: str, task: CrowdTask, number: int, model: Integers) -> Update:
        """The update of a round, the same ever after."""

    def close(self) -> None:
        """Close the ledger."""


class DeviceLearner:
    """Updates of a home that trains on the device (`on_device`).

    Args:
        home: Ledger and folder of the home.
        records: Function that reads the home's features by rows and classes, for so many numbers each.
    """

    def __init__(self, home: Home, records: Callable[[int], tuple[Floats, Labels]]) -> None:
        self.ledger, self.store, self._home, self._records = home.ledger, home.store, home, records

    def check(self, identifier: str, task: CrowdTask) -> None:
        """Refuse another mode, files that cannot be read, and a round that the ledger cannot pay."""
        asked = self._asked(identifier, task)
        self._records(asked.model.inputs)
        self._home.check_price(identifier, 0, asked.units)

    def _asked(self, identifier: str, task: CrowdTask) -> HomeTask:
        if not isinstance(task.training, OnDevice):
            raise ParameterError(f"mode must be {OnDevice.mode} to train here, got {task.training.mode}")
        return task.training.home_task(identifier, task.grid, task.rounds)

    def update(self, identifier: str, task: CrowdTask, number: int, model: Integers) -> Update:
        """Return the update of a round. Raises BudgetExceeded, and then nothing was drawn."""
        asked = self._asked(identifier, task)
        features, labels = self._records(asked.model.inputs)
        return self._home.file(asked, self._home.update(asked, number, model, features, labels))

    def close(self) -> None:
        """Close the ledger."""
        self._home.close()


class _Kept(NamedTuple):
    """A sealed update: the name of its file, and the key that opens the file."""

    cid: Cid
    key: bytes


class Customer(Program):
    """The program of one home in one task.

    Args:
        follower: see `Program`, also for calls, store and say.
        identifier: Identifier of the task.
        key: Key of the home on the chain.
        learner: Learner that draws the home's updates.
        admission: Numbers v, r and s of the gate's signature; zeros where the task has none.
        max_round_blocks: Blocks that a round may take until its result stands and is paid. Nothing is spent
            on a task whose rounds take longer.
    """

    def __init__(
        self,
        follower: Follower,
        calls: Calls,
        store: Store,
        say: Callable[[str], None],
        *,
        identifier: bytes,
        key: Key,
        learner: Learner,
        admission: tuple[int, int, int] = (0, 0, 0),
        max_round_blocks: int = MAX_ROUND_BLOCKS,
    ) -> None:
        super().__init__(follower, calls, store, say)
        self._identifier, self._key, self._learner, self._admission = identifier, key, learner, admission
        self._max_round_blocks = whole("max_round_blocks", max_round_blocks, low=1)
        self._place = Place(follower.node.chain_id, follower.contract.address, identifier)
        self._text: CrowdTask | None = None
        self._shared: set[Cid] = set()  # files that the store has taken in this process

    def close(self) -> None:
        """Close the learner, the store and the node."""
        try:
            self._learner.close()
        finally:
            super().close()

    def act(self) -> bool:
        """Do what can be done now; return whether there will be more."""
        seen = self.follower.seen(self._identifier)
        if seen is None:
            raise ParameterError(f"there is no task {self._identifier.hex()} in the contract")
        self._check_text(seen)
        kept = self._kept(seen.progress.round)
        action = customer_action(seen, self.me, is_drawn=kept is not None)
        if action is None:
            return True
        if action.do is Do.END:
            return self._ended(seen)
        self._do(action, seen, kept)
        return True

    def _check_text(self, seen: Seen) -> CrowdTask:
        """Return the task's text, which must agree with the contract's terms."""
        if self._text is None:
            text = task_text.read(self.store, seen.task.text)
            text.check_terms(seen.task.terms)
            self._text = text
        return self._text

    def _check_windows(self, seen: Seen) -> None:
        """Refuse, before anything is spent, a task that pays too late, or too shortly to be claimed."""
        seen.task.terms.check_claims(self.follower.confirmations)
        round_blocks = seen.task.terms.round_blocks
        if round_blocks > self._max_round_blocks:
            raise ParameterError(
                f"a round must take at most {self._max_round_blocks} blocks (--max-round-blocks), "
                f"got {round_blocks}"
            )

    def _do(self, action: Action, seen: Seen, kept: _Kept | None) -> None:
        task, number = self._identifier, action.round
        once = f"{task.hex()}/{number}"
        match action.do:
            case Do.APPLY:
                self._check_windows(seen)
                self._learner.check(task.hex(), self._check_text(seen))
                self.calls.check_purse("apply", *_GAS)
                self.calls.send("apply", task, *self._admission, once=task.hex(), only=True)
            case Do.TRAIN:
                self._train(seen)
            case Do.COMMIT:
                assert kept is not None
                self._share(seen, kept.cid)
                bound = commitment(task, number, self.me, bytes(kept.cid), kept.key)
                self.calls.send("commit", task, bound, once=once, only=True)
            case Do.REVEAL:
                assert kept is not None
                self._share(seen, kept.cid)
                self.calls.send("reveal", task, bytes(kept.cid), kept.key, once=once, only=True)
            case Do.CLOSE:
                self.calls.send("close", task, once=once)
            case Do.SETTLE:
                result = result_of(seen, number)
                self.calls.send("settle", task, number, self.me, result.words(), once=once)
            case _:
                raise AssertionError(action)

    # Training

    def _train(self, seen: Seen) -> None:
        """Draw the update of the running round and seal it; both are kept before anything leaves."""
        self._check_windows(seen)
        text, number = self._check_text(seen), seen.progress.round
        self.calls.check_purse(*_GAS)  # before the ledger pays
        model = text.model(self.store, Cid.of_bytes(model_before(seen.task, number)))
        self._say(f"training for round {number}")
        update = self._learner.update(self._identifier.hex(), text, number, model)
        sealed = seal(text.grid, update, self._place.origin(number, self.me), self._key)
        cid = self._learner.store.put(sealed.file)
        self._learner.ledger.keep(self._note(number), f"{cid} {sealed.key.hex()}")
        kept = self._kept(number)
        assert kept is not None
        self._do(Action(Do.COMMIT, number), seen, kept)

    def _note(self, number: int) -> str:
        """Return the name of the note on a sealed update in the home's ledger: of this contract and key."""
        place = self._place
        return f"crowd/{place.chain_id}/{place.contract}/{place.task.hex()}/{number}/{self.me}"

    def _kept(self, number: int) -> _Kept | None:
        note = self._learner.ledger.kept(self._note(number))
        if note is None:
            return None
        cid, _, key = note.partition(" ")
        return _Kept(Cid.parse(cid), bytes.fromhex(key))

    def _share(self, seen: Seen, cid: Cid) -> None:
        """Put the sealed file where everybody may fetch it. It says nothing without its key."""
        if cid not in self._shared:
            file = self._learner.store.get(cid, most=size_of(self._check_text(seen).grid))
            self.store.put(file)
            self._shared.add(cid)

    # The end

    def _ended(self, seen: Seen) -> bool:
        """Withdraw the amount that is owed; return whether there is more to do."""
        if self.me not in seen.task.customers:
            raise LedgerError(f"the task is over or full, and {self.me} is no customer of it")
        if not take(self.calls, self.follower, seen.task.token):
            why = "was cancelled" if seen.task.is_cancelled else "is done"
            self._say(f"the task {why}")
            return False
        return True


def take(calls: Calls, follower: Follower, token: str) -> bool:
    """Withdraw the amount that the key is owed; return whether there was any."""
    if follower.contract.owed(calls.me, token, block=follower.block) == 0:
        return False
    calls.send("withdraw", token, once=str(calls.number()))
    return True


def result_of(seen: Seen, number: int) -> Proposal:
    """Return the decided proposal of a closed round, as `settle` takes it."""
    which = seen.task.rounds[number]
    assert which.result is not None
    return which.proposals[which.result][2] if which.result in which.proposals else _NOTHING
