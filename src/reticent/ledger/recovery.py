"""Going on after an old backup had to be restored: nothing that was spent comes back.

The witness remembers what every account had spent, by number. `recover` charges each account up to that,
in visible "recover" entries that name the head which was lost, and asks the witness to continue from the
new head. The witness does so once, after its own operator allowed it, and shows the abandoned head to all.

Accounts that the witness knows and the backup does not: their numbers are taken again, in order, either by
the terms that the operator still has on paper (charged to what the witness saw), or by a sealed account
that is spent to its cap. So a number never comes back with less. A name is another matter: the witness
never knew names, so that nobody but the operator can tell that a new account is an old one; the entries
show that accounts were sealed, and which were opened afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reticent.errors import LedgerError, RolledBack
from reticent.ledger.base import Terms, Unit
from reticent.ledger.checkpoint import Head, parse
from reticent.ledger.entries import head_text
from reticent.ledger.sql import SqlLedger
from reticent.ledger.witness import WitnessClient
from reticent.privacy import Neighbours

SEALED = "sealed"


@dataclass(frozen=True)
class Recovery:
    """What a recovery did.

    Attributes:
        abandoned: the head that was lost.
        size: entries of the ledger now.
        charged: units charged by account number, to come up to what the witness saw.
        sealed: numbers of lost accounts that nobody described; they can never be used.
        reopened: numbers of lost accounts that were opened again from their terms.
    """

    abandoned: Head
    size: int
    charged: dict[int, int]
    sealed: tuple[int, ...]
    reopened: tuple[int, ...]


def recover(
    ledger: SqlLedger,
    client: WitnessClient,
    *,
    lost: Mapping[int, Terms] | None = None,
    seal_lost: bool = False,
    accept_fork: bool = False,
) -> Recovery:
    """Charge a restored ledger up to what the witness saw, and have the witness continue from it.

    Everything is checked before anything is written; after a crash in between, run it again. Stop
    whatever uses the ledger first: numbers of measurements that were lost are given out again.

    Args:
        ledger: the restored ledger, opened with its signing key and without a witness.
        client: the witness; its operator must have allowed the recovery.
        lost: terms of lost accounts by number.
        seal_lost: seal the lost accounts that `lost` does not describe. Otherwise they are an error.
        accept_fork: go on although the ledger has entries that the witness never saw in place of others.

    Raises:
        LedgerError: nothing is to be recovered, or the witness does not allow it.
    """
    told = client.record(ledger.origin)
    if told is None:
        raise LedgerError(f"the witness never saw the log {ledger.origin}")
    seen = parse(told["checkpoint"])[0]
    totals = {int(account): int(spent) for account, spent in told["totals"].items()}
    held, size = ledger.totals(), ledger.head().size
    if size >= seen.size and ledger.root(seen.size) == seen.root:
        raise LedgerError("the ledger holds all that the witness saw: there is nothing to recover")
    if size >= seen.size and not accept_fork:
        raise RolledBack(
            f"the ledger of {size} entries is forked from the {seen.size} that the witness saw: "
            "find out why before it is recovered as a fork"
        )
    if not told["recovery"]:
        raise LedgerError("the operator of the witness has not allowed a recovery of this log")
    missing = sorted(set(totals) - set(held))
    plan = _plan(ledger, missing, totals, dict(lost or {}), seal_lost=seal_lost)
    _check_caps(ledger, totals)
    for number in missing:
        ledger.open(plan[number])
        if number not in ledger.totals():
            raise LedgerError(
                f"account {number} could not be opened under its number: somebody else is writing"
            )
    goal = {n: plan[n].cap if n in plan and _is_sealed(plan[n]) else spent for n, spent in totals.items()}
    ledger.charge_witnessed(goal, head_text(seen.size, seen.root))
    now = ledger.totals()
    client.recover(ledger, seen)
    return Recovery(
        abandoned=seen,
        size=ledger.head().size,
        charged={number: now[number] - held.get(number, 0) for number in sorted(totals)},
        sealed=tuple(n for n in missing if _is_sealed(plan[n])),
        reopened=tuple(n for n in missing if not _is_sealed(plan[n])),
    )


def _is_sealed(terms: Terms) -> bool:
    return terms.name.startswith(f"{SEALED}:")


def _plan(
    ledger: SqlLedger, missing: list[int], totals: dict[int, int], lost: dict[int, Terms], *, seal_lost: bool
) -> dict[int, Terms]:
    """The terms under which each lost number is taken again."""
    if strange := sorted(set(lost) - set(missing)):
        raise LedgerError(f"accounts {_listed(strange)} are not lost")
    unknown = [number for number in missing if number not in lost]
    if unknown and not seal_lost:
        raise LedgerError(
            f"the backup does not know accounts {_listed(unknown)}: give their terms, or have them sealed"
        )
    names = {balance.terms.name for balance in ledger.accounts()}
    for number, terms in lost.items():
        if terms.name in names or _is_sealed(terms):
            raise LedgerError(f"account {number} cannot have a name that is taken")
        if terms.cap < totals[number]:
            raise LedgerError(f"account {number} had spent more than the cap given for it")
        names.add(terms.name)
    return {number: lost.get(number) or _seal(number, totals[number]) for number in missing}


def _seal(number: int, spent: int) -> Terms:
    """An account that keeps a number from being used again. Its unit is not known and says nothing."""
    words = "an account that was lost; its unit is not known"
    return Terms(f"{SEALED}:{number}", Unit.EPSILON, Neighbours.ANY_TWO_VALUES, words, max(1, spent))


def _check_caps(ledger: SqlLedger, totals: dict[int, int]) -> None:
    with ledger._store.reading():
        caps = dict(ledger._store.all("SELECT id, cap FROM account"))
    for number, spent in totals.items():
        if spent > caps.get(number, spent):
            raise RolledBack(
                f"account {number} is another one than the witness saw: it had spent more than its cap"
            )


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:10])
    return shown if len(numbers) <= 10 else f"{shown} and {len(numbers) - 10} more"
