"""`reticent audit ledger`: the audits that a ledger keeps, and reports held against them."""

from __future__ import annotations

import html
import sys
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

from reticent.apps.audit import reports
from reticent.apps.ledger.work import opened
from reticent.audit.page import document
from reticent.errors import LedgerDamaged, ParameterError
from reticent.ledger import audits, verify_ledger
from reticent.ledger.audits import AuditEntry, Verdict

_LARGEST = 64 << 20


def run(where: str, *, check: list[Path], report: Path | None) -> int:
    """Verify the ledger, list its audits, hold reports against it; return the exit code."""
    console = Console(highlight=False, markup=False, emoji=False)
    reports.refuse_same([report], [Path(where), *check])
    texts = [(path, _text(path)) for path in check]
    try:
        with closing(opened(where)) as ledger:
            verified = verify_ledger(ledger)
            found = list(audits.recorded(ledger))
    except LedgerDamaged as error:
        print(f"error: does not verify: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    console.print(_table(found, f"{verified.origin}: {verified.size:,} entries verified"))
    missing = 0
    for path, text in texts:
        one = next((entry for entry in found if entry.is_of(text)), None)
        missing += one is None
        words = (
            "FAULT no audit in the log commits to it: it was changed, or not recorded here"
            if one is None
            else f"entry {one.entry} commits to it, {one.verdict.words}: {one.claim}"
        )
        console.print(f"{path}: {words}", soft_wrap=True)
    broken = sum(one.verdict is Verdict.BROKEN for one in last_of_each(found))
    words = f"{broken} broken by its last audit" if broken else "none broken by its last audit"
    console.print(f"{len(found)} audits of {len(last_of_each(found))} claims: {words}.", soft_wrap=True)
    if report is not None:
        reports.write(_page(found, verified.origin, verified.size), report)
        console.print(f"Report: {report}", soft_wrap=True)
    return 1 if missing or broken else 0


def last_of_each(found: list[AuditEntry]) -> list[AuditEntry]:
    """The last word on each claim."""
    return list({one.claim: one for one in found}.values())


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST:
            raise ParameterError(f"{path} is too large for a report")
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path} cannot be read as a report") from error


def _table(found: list[AuditEntry], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("entry", justify="right", no_wrap=True)
    table.add_column("claim", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    for one in found:
        style = "bold red" if one.verdict is Verdict.BROKEN else ""
        table.add_row(str(one.entry), one.claim, one.verdict.words, style=style)
    return table


def _page(found: list[AuditEntry], origin: str, size: int) -> str:
    rows = "".join(
        f"<li{' class=bad' if one.verdict is Verdict.BROKEN else ''}>entry {one.entry}: "
        f"{html.escape(one.claim)}: {one.verdict.words}</li>"
        for one in found
    )
    how = reports.made_line(f"{size:,} entries of {origin} verified")
    return document(
        "Audits in the ledger", f'<p class="dim">{html.escape(how)}</p><ul>{rows or "<li>none</li>"}</ul>'
    )
