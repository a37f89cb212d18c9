"""What commands of a crowd open: the contract of a chain file and a key; and the lines that they say."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from reticent.apps.chain.keys import opened_key
from reticent.chain.fees import Ceiling
from reticent.chain.keys import Key
from reticent.chain.outbox import Outbox
from reticent.chain.sender import Sender
from reticent.errors import ParameterError
from reticent.federated.crowd.calls import Calls
from reticent.federated.crowd.contract import TaskContract
from reticent.federated.crowd.crowd_file import CrowdFile
from reticent.federated.crowd.following import Follower

_LONGEST_LINE = 300

GweiFees = tuple[float | None, float | None]  # the most for a unit of gas, and of that for the tip


@dataclass(frozen=True)
class Opened:
    """A contract that is followed, and a key that sends to it."""

    follower: Follower
    calls: Calls
    key: Key


def followed(file: CrowdFile, rpc: str | None) -> Follower:
    """The contract of a chain file."""
    node = file.connect(rpc)
    try:
        contract = TaskContract(node, file.contract)
    except BaseException:
        node.close()
        raise
    return Follower(contract, first_block=file.block, confirmations=file.confirmations)


@contextmanager
def opened(
    chain: Path,
    key: Path,
    rpc: str | None,
    fees: GweiFees,
    outbox: Path | None,
    say: Callable[[str], None],
) -> Iterator[Opened]:
    """The contract, followed, and what sends to it; signed calls are kept in the outbox, if there is one."""
    file, ceiling, signer = CrowdFile.read(chain), Ceiling.of(*fees), opened_key(key)
    follower = followed(file, rpc)
    with closing(follower.node):
        kept = None if outbox is None else Outbox(outbox)
        try:
            sender = Sender(
                follower.node, signer, confirmations=file.confirmations, ceiling=ceiling, outbox=kept
            )
            yield Opened(follower, Calls(sender, follower.contract.address, ceiling, say), signer)
        finally:
            if kept is not None:
                kept.close()


def task_of(text: str) -> bytes:
    """The identifier of a task as it is written."""
    if re.fullmatch("(?:0x)?[0-9a-fA-F]{64}", text) is None:
        raise ParameterError(f"a task must be 64 hexadecimal digits, got {text!r:.80}")
    return bytes.fromhex(text.removeprefix("0x"))


def say(line: str) -> None:
    """A line with its time. Parts of it may be strangers' words."""
    clean = "".join(letter if letter.isprintable() else " " for letter in line)[:_LONGEST_LINE]
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z {clean}", flush=True)


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, so that a program ends between two steps."""
    stop = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {one: signal.signal(one, end) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for one, held in before.items():
            signal.signal(one, held)
