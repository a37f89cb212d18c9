"""The demonstration's poisoner: a customer whose updates say the opposite, as long as the norm allows.

python -m reticent.apps.crowd.demo_poisoner TASK FILE --key ... (as `reticent crowd customer`)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reticent.federated.crowd.customer import Learner
from reticent.federated.crowd.task_text import CrowdTask
from reticent.federated.robust.attacks import Seen, scaling
from reticent.federated.robust.averages import Integers
from reticent.federated.robust.grid import Update
from reticent.ledger.device.ledger import DeviceLedger
from reticent.store import Directory


@dataclass
class Poisoned:
    """Draws like the honest learner inside, and turns what came round."""

    inside: Learner

    @property
    def ledger(self) -> DeviceLedger:
        """Of the home."""
        return self.inside.ledger

    @property
    def store(self) -> Directory:
        """Of the home."""
        return self.inside.store

    def check(self, identifier: str, task: CrowdTask) -> None:
        """As the honest one."""
        self.inside.check(identifier, task)

    def update(self, identifier: str, task: CrowdTask, number: int, model: Integers) -> Update:
        """The opposite of an update."""
        own = task.grid.values(self.inside.update(identifier, task, number, model))[None, :]
        return task.grid.placed(scaling(Seen(task.grid, own, own, np.zeros_like(own), own))[0])

    def close(self) -> None:
        """Give the ledger up."""
        self.inside.close()


def main() -> None:
    """As `reticent crowd customer`, poisoned."""
    from functools import partial

    from reticent.apps import main as command
    from reticent.apps.crowd import program_work

    program_work.customer = partial(program_work.customer, learns=Poisoned)
    command()


if __name__ == "__main__":
    main()
