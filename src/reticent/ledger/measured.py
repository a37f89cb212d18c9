"""Measurements in an exported ledger with openings: their keys, information and values.

Use this to check the measurements behind an answer, after `verify_export` has found the file complete and its
openings right.
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
    """A recorded measurement, read from an export."""

    account: str
    key: str
    information: int
    values: tuple[int, ...]


def measured(lines: Iterable[str], wanted: Collection[int], size: int) -> tuple[dict[int, Measured], str]:
    """Return measurements recorded in the first `size` entries, by number, and the root of these entries.

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
