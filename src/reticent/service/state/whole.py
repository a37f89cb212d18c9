"""All of the state, in one file."""

from __future__ import annotations

from pathlib import Path

from reticent.files import secluded
from reticent.service.settings import Settings
from reticent.service.state.history import History
from reticent.service.state.jobs import JobList
from reticent.service.state.owners import Owners
from reticent.service.state.people import People
from reticent.service.state.published import Agreed
from reticent.service.state.quotas import Quotas

_REMEMBERED_S = 7 * 24 * 3600.0  # attempts and finished jobs


def own_folder(folder: Path) -> Path:
    """Return the folder in which the service of a folder keeps its own files."""
    return folder / ".service"


class State(People, Owners, Quotas, History, JobList, Agreed):
    """Everything that the service itself remembers. Open it after forking."""

    @classmethod
    def of(cls, folder: Path) -> State:
        """The state of the service of a folder; made if there is none."""
        own = own_folder(folder)
        secluded(own, whole=True)
        return cls(own / "state.sqlite")

    @classmethod
    def of_service(cls, settings: Settings) -> State:
        """The state of a service: beside the ledger if servers share it, else in its folder."""
        return cls(str(settings.ledger)) if settings.shared else cls.of(settings.folder)

    def forget(self) -> None:
        """Drop old attempts and finished jobs. The ledger still knows what was paid for."""
        before = self.now() - _REMEMBERED_S
        with self._writing() as connection:
            connection.execute("DELETE FROM attempt WHERE made < ?", (before,))
            connection.execute("DELETE FROM job WHERE made < ? AND result IS NOT NULL", (before,))
