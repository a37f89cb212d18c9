"""The settings of an operator, and their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.postgres import ADDRESSES


@dataclass(frozen=True)
class Settings:
    """The settings of a service.

    Limits on rates and numbers are those of one process.

    Args:
        folder: holds the declarations (`*.yaml`), the service's own state, and the ledger by default.
        ledger: a path or postgresql:// address, or the file that `reticent chain deploy` wrote; by default a
            file in the folder.
        key: File of the key that signs and pays the questions asked here, for a ledger on a chain.
        owner: the address of who registered the data sets there; needed unless a commitment lies beside them.
        max_fee: the most that a unit of gas may cost there, in gwei, whatever the node says.
        max_tip: the most of that for the tip.
        witness: address of a witness of the ledger; without it the one that is noted beside it, if any.
        witness_key: its public key.
        shared: True if several servers serve this: the state lies beside the ledger, which is in PostgreSQL,
            and the folder holds only what `reticent publish` said.
        signing_key: the file of the key that signs heads of the ledger; by default in the folder.
        drain_s: Seconds for which a server that shall end still takes requests, while it is not ready.
        traces: the address of a collector of OpenTelemetry (OTLP over HTTP), or a file for spans.
        log_name: Name of a ledger that is created: witnesses know logs by name.
        grid_s: replies to questions leave at whole multiples of this, so that time tells nothing; 0 for tests
            and measurements only.
        rows_per_step: a question about this many public rows is given one more step of the grid.
        rate: requests a second that one key may make, in the long run; and one host without a valid key.
        burst: requests that it may make at once.
        work_rate: cells a second that one key may ask for in the long run, in answers, prices and rehearsals,
            each counted once more for every `rows_per_step` public rows; and for what an answer may be
            estimated from, by the number of recorded values.
        work_burst: Cells that one key may ask for at once; a question with more may be asked when none were
            for long enough.
        largest_body: bytes of a request.
        body_s: Seconds that the headers of a request, and then its body, may take to come.
        most_at_once: requests that are worked on or wait; more are told to come again. As many bodies may be
            on their way; of more the oldest is cut.
        longest_s: a question that takes longer is answered through a job.
        threads: Threads that answer questions, and as many for everything else.
        job_threads: Threads that work on jobs.
        job_lapse_s: a job whose process has not been heard of for so long is taken up by another.
        most_jobs: unfinished ones that one person may have.
        most_epsilon: Largest epsilon of the budget of a data set that is registered over the network, with
            `most_delta`; what the operator declares in the folder by hand is not bound by them.
        most_delta: Largest delta beside `most_epsilon`.
        secure_cookie: True if browsers may send the cookie over https only.
    """

    folder: Path
    ledger: str | None = None
    key: str | None = None
    owner: str | None = None
    max_fee: float | None = None
    max_tip: float | None = None
    witness: str | None = None
    witness_key: str | None = None
    shared: bool = False
    signing_key: str | None = None
    drain_s: float = 0.0
    traces: str | None = None
    log_name: str | None = None
    grid_s: float = 0.1
    rows_per_step: int = 1_000_000
    rate: float = 50.0
    burst: int = 100
    work_rate: float = 2500.0
    work_burst: int = 1 << 17
    largest_body: int = 1 << 18
    body_s: float = 10.0
    most_at_once: int = 512
    longest_s: float = 30.0
    threads: int = 8
    job_threads: int = 2
    job_lapse_s: float = 10.0
    most_jobs: int = 100
    most_epsilon: float = 1.0
    most_delta: float = 1e-6
    secure_cookie: bool = False

    def __post_init__(self) -> None:
        if self.shared and not (self.ledger or "").startswith(ADDRESSES):
            raise ParameterError("shared must be the postgresql:// address of a ledger, no file")
        real("drain_s", self.drain_s, low=0.0, high=3600.0)
        real("grid_s", self.grid_s, low=0.0, high=60.0)
        whole("rows_per_step", self.rows_per_step, low=1)
        real("rate", self.rate, low=0.001, high=1e6)
        whole("burst", self.burst, low=1, high=10**6)
        real("work_rate", self.work_rate, low=0.001, high=1e12)
        whole("work_burst", self.work_burst, low=1, high=10**12)
        whole("largest_body", self.largest_body, low=1024, high=1 << 26)
        real("body_s", self.body_s, low=0.01, high=3600.0)
        whole("most_at_once", self.most_at_once, low=1, high=10**6)
        real("longest_s", self.longest_s, low=0.0, high=3600.0)
        whole("threads", self.threads, low=1, high=256)
        whole("job_threads", self.job_threads, low=1, high=256)
        real("job_lapse_s", self.job_lapse_s, low=0.1, high=3600.0)
        whole("most_jobs", self.most_jobs, low=1, high=10**6)
        real("most_epsilon", self.most_epsilon, low=0.0, high=100.0)
        real("most_delta", self.most_delta, low=0.0, high=0.5)

    @property
    def is_on_chain(self) -> bool:
        """Whether the ledger is on a chain: there is a key for it, or its file is JSON."""
        if self.key is not None or self.ledger is None or not Path(self.ledger).is_file():
            return self.key is not None
        with Path(self.ledger).open("rb") as file:
            return file.read(100).lstrip().startswith(b"{")

    def steps(self, rows: int | None) -> int:
        """Return the weight of a look at all rows, from their public number; 1 if the number is private."""
        return 1 + (rows or 0) // self.rows_per_step

    def deadline_s(self, rows: int | None) -> float:
        """When a reply to a question leaves at the earliest: from public numbers only (mathematics 4.8)."""
        return self.grid_s * self.steps(rows)
