"""The memory of the service itself: keys, visits, quotas, questions, attempts and jobs. No data.

A small SQLite file that all workers share, or tables in the PostgreSQL that all servers share. Losing it
loses keys and quotas, never a charge: those are in the ledger. Of answers it keeps what retries and jobs must
be told again, and of those that are one number that number: all of it was released and paid for.
"""

from reticent.service.state.history import Asked, today
from reticent.service.state.jobs import Job
from reticent.service.state.owners import Rows, Source
from reticent.service.state.people import KeyRecord, Visit
from reticent.service.state.published import Published
from reticent.service.state.whole import State, own_folder

__all__ = [
    "Asked",
    "Job",
    "KeyRecord",
    "Published",
    "Rows",
    "Source",
    "State",
    "Visit",
    "own_folder",
    "today",
]
