"""What `reticent crowd customer` and `miner` do: programs that run until they are done or stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path

from reticent.apps.crowd.opened import GweiFees, Opened, opened, say, stopped_by_signals, task_of
from reticent.apps.store.work import read_token
from reticent.arguments import whole
from reticent.chain.keys import Key
from reticent.errors import ParameterError
from reticent.federated.crowd import records
from reticent.federated.crowd.customer import MAX_ROUND_BLOCKS, Customer, Learner
from reticent.federated.crowd.edge_learner import EdgeLearner
from reticent.federated.crowd.miner import MAX_LOCK_BLOCKS, Miner
from reticent.federated.split.noised import NoisedHome
from reticent.files import secluded
from reticent.store import Store, at

_MOST_STAKE = (1 << 32) - 1
_HOME = b"reticent crowd home/v1\n"


@contextmanager
def _running(
    home: Path,
    chain: Path,
    key: Path,
    rpc: str | None,
    fees: GweiFees,
    store: str,
    token_file: Path | None,
) -> Iterator[tuple[Opened, Store, threading.Event]]:
    """The contract with what sends to it, the store, and what ends a program: all that both of them need."""
    secluded(home)
    with (
        opened(chain, key, rpc, fees, home / "outbox.sqlite", say) as held,
        at(store, token=read_token(token_file)) as place,
        stopped_by_signals() as stop,
    ):
        yield held, place, stop


def customer(
    task: str,
    files: Sequence[Path],
    *,
    home: Path,
    lifetime: float,
    key: Path,
    chain: Path,
    rpc: str | None,
    store: str,
    token_file: Path | None,
    fees: GweiFees,
    poll: float,
    edge: str | None = None,
    max_round_blocks: int = MAX_ROUND_BLOCKS,
    learns: Callable[[Learner], Learner] = lambda learner: learner,
) -> None:
    """Take part in a task with the records of some files until it is over.

    What the demonstration's poisoner puts between home and crowd is `learns`.
    """
    identifier = task_of(task)
    records.check_files(files)
    with _running(home, chain, key, rpc, fees, store, token_file) as (held, place, stop):
        held.calls.check_purse("commit", "reveal", "settle")  # later it is waited for
        mine = NoisedHome(home / "ledger", home / "updates", home_key(held.key), lifetime=lifetime)
        learner = learns(EdgeLearner(mine, partial(records.read, files), place, edge))
        with Customer(
            held.follower,
            held.calls,
            place,
            say,
            identifier=identifier,
            key=held.key,
            learner=learner,
            max_round_blocks=max_round_blocks,
        ) as program:
            say(f"customer {held.key.address} of task {task[:10]}; Ctrl-C stops it")
            program.run(stop, poll)


def home_key(key: Key) -> bytes:
    """The secret of a home's ledger: of its key on the chain, and of no use there."""
    return sha256(_HOME + key.secret).digest()


def miner(
    *,
    home: Path,
    stake: int,
    key: Path,
    chain: Path,
    rpc: str | None,
    store: str,
    token_file: Path | None,
    fees: GweiFees,
    poll: float,
    max_lock_blocks: int = MAX_LOCK_BLOCKS,
) -> None:
    """Serve all tasks of a contract until stopped."""
    whole("stake", stake, low=0, high=_MOST_STAKE)
    with _running(home, chain, key, rpc, fees, store, token_file) as (held, place, stop):
        held.follower.look()
        if not stake and held.key.address not in held.follower.history.units:
            raise ParameterError(f"{held.key.address} is no miner of this contract: give --stake")
        held.calls.check_purse("seat", "deciding vote")  # later it is waited for
        told = (held.follower, held.calls, place, say)
        with Miner(*told, key=held.key, stake=stake, max_lock_blocks=max_lock_blocks) as program:
            say(f"miner {held.key.address}; Ctrl-C stops it")
            program.run(stop, poll)
