"""Measurements in an exported ledger with openings: under which key, how much information, which values.

For whoever checks what an answer was made of. That the file is whole and its openings fit, `verify_export`
says before.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from reticent.errors import LedgerDamaged
from reticent.ledger import entries
from reticent.ledger.merkle import Frontier, leaf_hash


@dataclass(frozen=True)
class Measured:
    """A recorded measurement."""

    account: str
    key: str
    information: int
    values: tuple[int, ...]


def measured(lines: Iterable[str], wanted: Collection[int], size: int) -> tuple[dict[int, Measured], str]:
    """The measurements of these numbers that the first `size` entries record, and the root of those entries.

    Raises:
        LedgerDamaged: the file has fewer entries, or nothing that opens them.
    """
    rest = iter(lines)
    if not json.loads(next(rest))["openings"]:
        raise LedgerDamaged("the file must be exported with --with-openings: values are closed in it")
    log, accounts, found = Frontier(), dict[str, str](), dict[int, Measured]()
    asked: dict[int, tuple[str, str, int]] = {}
    while log.size < size:
        leaf = next(rest, "").rstrip("\n")
        if not leaf.startswith("{") or '"type":"' not in leaf:
            raise LedgerDamaged(f"the log has {log.size} entries, and {size} are spoken of")
        log.append(leaf_hash(leaf.encode()))
        fields = entries.decode(leaf)
        opens: list[str] = []
        if "commitment" in fields and fields["type"] != "audit":
            opens = json.loads(next(rest))["opens"]
        number = int(fields.get("measurement", -1))
        if fields["type"] == "open":
            accounts[fields["account"]] = opens[0]
        elif fields["type"] == "request" and number in wanted:
            asked[number] = (accounts[fields["account"]], opens[0], int(fields["charged"]))
        elif fields["type"] == "fulfil" and number in wanted:
            found[number] = Measured(*asked[number], entries.values_of(opens[0]))
    return found, log.root().hex()
