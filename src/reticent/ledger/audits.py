"""Audits in the log: the claim, the verdict, and a commitment to the report.

An entry of type "audit" has no row in any table. The report itself opens the commitment, since it names its
own nonce: anybody who has the file can check it, and destroying the file erases what was committed to.

Privacy: claim and verdict are in the log for everybody to read. So only audits that compute on invented data
are recorded; whether one update could be inverted depends on real records, and is not (`apps.audit`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from reticent.errors import LedgerDamaged, ParameterError
from reticent.ledger import entries
from reticent.ledger.sql.batch import Batch
from reticent.ledger.sql.ledger import SqlLedger

CHUNK = 8192  # entries read at a time
LONGEST_CLAIM = 200
_NONCE = re.compile(r'<meta name="reticent-audit" content="([0-9a-f]{64})">')
_NO_CLAIM = re.compile(r"[^ !#-\[\]-~]")


class Verdict(Enum):
    """The verdict of an audit. An audit that found nothing proves nothing."""

    NOTHING_FOUND = "nothing_found"
    BROKEN = "broken"

    @property
    def words(self) -> str:
        """The verdict as text for people."""
        return "nothing found against it" if self is Verdict.NOTHING_FOUND else "broken"


@dataclass(frozen=True)
class AuditEntry:
    """An audit as recorded in the log.

    Attributes:
        entry: Number of the entry in the log.
        claim: Claim that was audited.
        verdict: Verdict of the audit.
        commitment: Commitment to the claim, the verdict and the report.
    """

    entry: int
    claim: str
    verdict: Verdict
    commitment: str

    def is_of(self, report: str) -> bool:
        """Return whether this text is the report that was recorded, to the last character."""
        found = _NONCE.search(report)
        return found is not None and self.commitment == _commitment(
            found[1], self.claim, self.verdict, report
        )


def mark() -> str:
    """Return the HTML tag with a fresh nonce that a report must carry in its head to be recorded."""
    return f'<meta name="reticent-audit" content="{os.urandom(entries.NONCE_BYTES).hex()}">'


def plain_claim(text: str) -> str:
    """Convert a text to a valid claim: ASCII without quotes and backslashes, cut at 200 characters."""
    return _NO_CLAIM.sub("_", text)[:LONGEST_CLAIM]


def record(ledger: SqlLedger, *, claim: str, verdict: Verdict, report: str) -> AuditEntry:
    """Append an audit to the log, once its report is written.

    Args:
        ledger: Ledger in which the audit is recorded.
        claim: Audited claim: 1 to 200 characters of ASCII without quotes and backslashes.
        verdict: Verdict of the audit.
        report: The text of the report's file, with one `mark` in it.
    """
    if not 0 < len(claim) <= LONGEST_CLAIM or _NO_CLAIM.search(claim):
        raise ParameterError(
            f"claim must be 1 to {LONGEST_CLAIM} characters of ASCII without quotes and backslashes"
        )
    nonces = _NONCE.findall(report)
    if len(nonces) != 1:
        raise ParameterError(f"report must name one nonce of its own, got {len(nonces)}")
    commitment = _commitment(nonces[0], claim, verdict, report)

    def work(batch: Batch) -> int:
        batch.log("audit", claim=claim, commitment=commitment, verdict=verdict.value)
        return batch.size - 1

    return AuditEntry(ledger.transact(work), claim, verdict, commitment)


def recorded(ledger: SqlLedger, first: int = 0, last: int | None = None) -> Iterator[AuditEntry]:
    """Yield every audit in the log, or in its entries [first, last), in order."""
    size, find = ledger.head().size if last is None else last, entries.PATTERNS["audit"].fullmatch
    for start in range(first, size, CHUNK):
        for number, leaf in enumerate(ledger.leaves(start, min(start + CHUNK, size)), start):
            if found := find(leaf):
                claim, commitment, verdict = found.groups()
                yield AuditEntry(number, claim, Verdict(verdict), commitment)


def of_report(ledger: SqlLedger, report: str) -> AuditEntry:
    """Return the entry that commits to this report.

    Raises:
        LedgerDamaged: there is none: the report was changed, or never recorded here.
    """
    for one in recorded(ledger):
        if one.is_of(report):
            return one
    raise LedgerDamaged("no audit in the log commits to this report: it was changed, or not recorded here")


def _commitment(nonce: str, claim: str, verdict: Verdict, report: str) -> str:
    return entries.commitment(bytes.fromhex(nonce), claim, verdict.value, report)
