"""Where reports of audits go: a file, and the ledger that commits to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from reticent import __version__
from reticent.apps.ledger.work import opened
from reticent.errors import ParameterError
from reticent.files import appearing
from reticent.ledger import audits
from reticent.ledger.audits import Verdict
from reticent.ledger.witness.opening import opened as open_witnessed


@dataclass(frozen=True)
class Places:
    """Where the report of an audit of invented data goes. What is wrong with them is said beforehand.

    Attributes:
        report: the file; None for none.
        ledger: that keeps claim, verdict and a commitment to the report; None for none.
        key: file of the key that signs the ledger's heads; a ledger with a witness knows its own.
    """

    report: Path | None
    ledger: str | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if self.ledger is not None:
            if self.report is None:
                raise ParameterError("--ledger needs --report: the ledger commits to that file")
            refuse_same([self.report], [Path(self.ledger), self.key])
            opened(self.ledger, change=True).close()

    def keep(self, console: Console, page: Callable[[], str], *, claim: str, is_kept: bool) -> None:
        """Write the report, and enter it into the ledger, with its witness if it has one."""
        if self.report is None:
            return
        text = page()
        write(text, self.report)
        console.print(f"Report: {self.report}", soft_wrap=True)
        if self.ledger is None:
            return
        verdict = Verdict.NOTHING_FOUND if is_kept else Verdict.BROKEN
        with open_witnessed(self.ledger, signer=self.key) as log:
            made = audits.record(log, claim=audits.plain_claim(claim), verdict=verdict, report=text)
        said = f"Ledger: entry {made.entry} of {self.ledger} commits to it: {verdict.words}."
        console.print(said, soft_wrap=True)


def refuse_same(written: Sequence[Path | None], read: Sequence[Path | None]) -> None:
    """A report takes its name from whatever had it: that must not be what the audit reads, or a ledger."""
    for place in filter(None, written):
        for other in filter(None, read):
            if place.exists() and other.exists() and place.samefile(other):
                raise ParameterError(
                    f"{place} would be written over, and the audit needs it: name another file"
                )


def write(text: str, path: Path, *, for_owner: bool = False) -> None:
    """Write a report; folders are made. One that shows real records is for its owner alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with appearing(path, mode=0o600 if for_owner else 0o666) as file:
        file.write(text.encode())


def made_line(how: str) -> str:
    """When and how a report was made."""
    return f"reticent {__version__}, {time.strftime('%Y-%m-%d', time.gmtime())}, {how}."
