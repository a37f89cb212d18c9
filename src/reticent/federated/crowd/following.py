"""Tasks as a program sees them: the events up to a block, and the contract's views at that same block.

A block counts when enough others lie on top of it. What is sent goes into the block after the newest one at
the earliest, so windows are held against that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from reticent.chain.log import ChainLog
from reticent.errors import ChainError
from reticent.federated.crowd.contract import DrawState, Progress, Status, TaskContract
from reticent.federated.crowd.history import History, TaskHistory


@dataclass(frozen=True)
class Seen:
    """A snapshot of a task at a block.

    Attributes:
        identifier: Identifier of the task.
        task: Events of the task so far.
        progress: Stage of the task.
        draw: the draw that runs, or ran last; None before the first.
        block: Block that was looked at, with enough others on top.
        next: the first block in which a transaction that is sent now can be.
    """

    identifier: bytes
    task: TaskHistory
    progress: Progress
    draw: DrawState | None
    block: int
    next: int

    @property
    def is_over(self) -> bool:
        """Whether no round runs any more."""
        return self.progress.status >= Status.DONE


class Follower:
    """All tasks of a contract, from block to block and through reorganisations.

    Args:
        contract: Contract to follow.
        first_block: Block before which there is nothing of the contract.
        confirmations: Number of blocks that must lie on top of what counts.
    """

    def __init__(self, contract: TaskContract, *, first_block: int = 0, confirmations: int = 0) -> None:
        self.contract, self.node = contract, contract.node
        self.confirmations = confirmations
        # Whatever changes a task writes an event, so views are asked again after the next one only.
        self._known: tuple[object, dict[bytes, tuple[Progress, DrawState | None]]] = (None, {})
        self._log = ChainLog(
            contract.node,
            contract.artifact,
            contract.address,
            partial(History, contract.version),
            first_block=first_block,
            confirmations=confirmations,
        )

    def look(self) -> str | None:
        """Read on; return the hash of the last block that counts, None before there is one."""
        self._log.sync()
        return self._log.block_hash

    @property
    def history(self) -> History:
        """The state that the events add up to."""
        return self._log.state

    @property
    def block(self) -> int:
        """The last block that was read."""
        return self._log.block

    def seen(self, identifier: bytes) -> Seen | None:
        """Return a snapshot of a task; None if there is no such task yet.

        Raises:
            ChainError: the node does not answer, or the chain changed meanwhile: look again.
        """
        task, block = self.history.tasks.get(identifier), self.block
        if task is None:
            return None
        if self._known[0] != self._log.last:
            self._known = self._log.last, {}
        known = self._known[1]
        if identifier not in known:
            progress = self.contract.progress(identifier, block=block)
            if progress is None or progress.round != task.number():
                raise ChainError("the chain changed while it was read")
            draw = self.contract.draw(progress.draw, block=block) if progress.draw else None
            known[identifier] = progress, draw
        return Seen(identifier, task, *known[identifier], block, block + self.confirmations + 1)
