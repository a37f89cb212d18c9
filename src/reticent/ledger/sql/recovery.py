"""Recovery after an old backup was restored: no spent budget comes back.

The witness remembers what every account had spent, by number. `recover` charges each account up to that,
in visible "recover" entries that name the head which was lost, and asks the witness to continue from the
new head. The witness does so once, after its own operator allowed it, and shows the abandoned head to all.

The restored ledger may have spent more since: the witness also remembers earlier heads. Up to the last one
that is on the restored log too, everything is in the totals of the witness; all charges after it may
belong to releases of a copy that the witness did not see, and are charged again, on top. A backup that was
never used ends in such a head, as long as the witness remembers it.

Measurements that are pending in the restored ledger may have their values in the lost one, where they were
released. So they are closed, in "void" entries: never recorded, still paid for, and no longer bought. An
analyst who needs them requests, and pays, again.

Accounts that the witness knows and the backup does not get their numbers again, in order, either with the
terms that the operator still has on paper (charged to the witness's total), or as a sealed account that is
spent to its cap. So a number never comes back with less spent. This does not hold for names: the witness
never knew them, so that only the operator can tell that a new account is an old one; the entries show that
accounts were sealed, and which were opened afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reticent.errors import LedgerError, ParameterError, RolledBack
from reticent.ledger import entries
from reticent.ledger.base import Terms, Unit
from reticent.ledger.checkpoint import Head, parse
from reticent.ledger.replay import Replay
from reticent.ledger.sql.ledger import SqlLedger
from reticent.ledger.verify import CHUNK
from reticent.ledger.witness.client import WitnessClient
from reticent.privacy import Neighbours

SEALED = "sealed"


@dataclass(frozen=True)
class Recovery:
    """The result of a recovery.

    Attributes:
        abandoned: Head that was lost.
        common: Number of first entries that the restored ledger and the witness's log have in common.
        size: Number of entries of the ledger now.
        charged: Units charged by account number, to reach the witness's total and the unseen charges.
        closed: Numbers of measurements that were pending and are closed.
        sealed: Numbers of lost accounts that nobody described; they can never be used.
        reopened: Numbers of lost accounts that were opened again from their terms.
    """

    abandoned: Head
    common: int
    size: int
    charged: dict[int, int]
    closed: tuple[int, ...]
    sealed: tuple[int, ...]
    reopened: tuple[int, ...]


def recover(
    ledger: SqlLedger,
    client: WitnessClient,
    *,
    lost: Mapping[int, Terms] | None = None,
    seal_lost: bool = False,
    accept_fork: bool = False,
    unused_backup: bool = False,
) -> Recovery:
    """Charge a restored ledger up to the witness's totals, and have the witness continue from it.

    Everything is checked before anything is written, and all that is written is one transaction; after a
    crash before the witness has it, run it again, with the same arguments. Stop whatever uses the ledger
    first: numbers of measurements that were lost are given out again.

    Args:
        ledger: The restored ledger, opened with its signing key and without a witness.
        client: The witness; its operator must have allowed the recovery.
        lost: Terms of lost accounts by number.
        seal_lost: Seal the lost accounts that `lost` does not describe. Otherwise they are an error.
        accept_fork: Continue although the ledger has other entries than the witness saw.
        unused_backup: Statement of the operator that nobody used this copy since it was made. Its charges
            after the last head that the witness remembers are then not charged a second time.

    Raises:
        LedgerError: nothing is to be recovered, or the witness does not allow it.
        RolledBack: the ledger is forked, or is not the one that the witness saw.
    """
    told = client.record(ledger.origin)
    if told is None:
        raise LedgerError(f"the witness never saw the log {ledger.origin}")
    seen, size = parse(told["checkpoint"])[0], ledger.head().size
    if size >= seen.size and ledger.root(seen.size) == seen.root:
        raise LedgerError("the ledger holds all that the witness saw: there is nothing to recover")
    totals, head = client.totals(ledger), entries.head_text(seen.size, seen.root)
    restored = _restored_size(ledger, head)
    common, forked = _common(ledger, client, restored, seen)
    if forked and unused_backup:
        raise ParameterError(f"the witness remembers other entries after {common}: this copy was used")
    if forked and not accept_fork:
        raise RolledBack(
            f"the ledger of {restored} entries is forked from the {seen.size} that the witness saw, after "
            f"{common}: find out why before it is recovered as a fork"
        )
    if not told["recovery"]:
        raise LedgerError("the operator of the witness has not allowed a recovery of this log")
    held, now = _totals_at(ledger, restored), ledger.totals()
    begun = sorted(set(now) - set(held))  # opened by an earlier attempt
    missing = sorted(set(totals) - set(now))
    described = {number: terms for number, terms in (lost or {}).items() if number not in begun}
    plan = _plan(ledger, missing, totals, described, seal_lost=seal_lost)
    known = held if unused_backup or common == restored else _totals_at(ledger, common)
    unseen = {number: spent - known.get(number, 0) for number, spent in held.items()}
    goal = _goal(ledger, plan, totals, unseen)
    pending = any(ledger.pending(balance.terms.name) for balance in ledger.accounts())
    if restored == size or missing or pending or any(now[number] < goal[number] for number in goal):
        ledger.charge_witnessed(goal, head, lost=plan)
    client.recover(ledger, seen)
    return _report(ledger, seen, common, restored, held, sorted(totals))


def _restored_size(ledger: SqlLedger, head: str) -> int:
    """Return the number of entries before those of an earlier attempt to recover from this head."""
    start, account = ledger.head().size, None
    while start:
        fields = entries.decode(ledger.leaf(start - 1))
        if fields.get("head") == head:
            account = fields.get("account")
        elif fields["type"] != "open" or fields["account"] != account:
            break
        start -= 1
    return start


def _common(ledger: SqlLedger, client: WitnessClient, size: int, seen: Head) -> tuple[int, bool]:
    """Return the number of entries in common with the witness, and whether the two fork after them."""
    forked = size >= seen.size
    for remembered, root in client.heads(ledger.origin, size):
        if ledger.root(remembered) == root:
            return remembered, forked
        forked = True
    return 0, forked


def _totals_at(ledger: SqlLedger, size: int) -> dict[int, int]:
    """Return the units spent by account number after `size` entries, from the entries alone."""
    replay = Replay()
    while replay.size < size:
        replay.read(ledger.leaves(replay.size, min(size, replay.size + CHUNK)))
    return replay.totals()


def _is_sealed(name: str) -> bool:
    return name.startswith(f"{SEALED}:")


def _plan(
    ledger: SqlLedger, missing: list[int], totals: dict[int, int], lost: dict[int, Terms], *, seal_lost: bool
) -> dict[int, Terms]:
    """Return the terms under which each lost account number is opened again."""
    if strange := sorted(set(lost) - set(missing)):
        raise LedgerError(f"accounts {_listed(strange)} are not lost")
    unknown = [number for number in missing if number not in lost]
    if unknown and not seal_lost:
        raise LedgerError(
            f"the backup does not know accounts {_listed(unknown)}: give their terms, or have them sealed"
        )
    names = {balance.terms.name for balance in ledger.accounts()}
    for number, terms in lost.items():
        if terms.name in names or _is_sealed(terms.name):
            raise LedgerError(f"account {number} cannot have a name that is taken")
        if terms.cap < totals[number]:
            raise LedgerError(f"account {number} had spent more than the cap given for it")
        names.add(terms.name)
    return {number: lost.get(number) or _seal(number, totals[number]) for number in missing}


def _seal(number: int, spent: int) -> Terms:
    """Return terms of a sealed account, which block the reuse of a number; their unit is arbitrary."""
    words = "an account that was lost; its unit is not known"
    return Terms(f"{SEALED}:{number}", Unit.EPSILON, Neighbours.ANY_TWO_VALUES, words, max(1, spent))


def _goal(
    ledger: SqlLedger, plan: dict[int, Terms], totals: dict[int, int], unseen: dict[int, int]
) -> dict[int, int]:
    """Return the units each account must have spent: witness's total plus unseen charges, up to the cap."""
    terms = {**_accounts(ledger), **{number: (one.name, one.cap) for number, one in plan.items()}}
    goal = {}
    for number, spent in totals.items():
        name, cap = terms[number]
        if spent > cap:
            raise RolledBack(
                f"account {number} is another one than the witness saw: it had spent more than its cap"
            )
        goal[number] = cap if _is_sealed(name) else min(cap, spent + unseen.get(number, 0))
    return goal


def _accounts(ledger: SqlLedger) -> dict[int, tuple[str, int]]:
    """Return the names and caps of all accounts by number."""
    return {number: (name, cap) for number, name, cap in ledger.rows("SELECT id, name, cap FROM account")}


def _report(
    ledger: SqlLedger, seen: Head, common: int, restored: int, held: dict[int, int], numbers: list[int]
) -> Recovery:
    now, names = ledger.totals(), _accounts(ledger)
    lost = [number for number in numbers if number not in held]
    written = [entries.decode(leaf) for leaf in ledger.leaves(restored)]
    return Recovery(
        abandoned=seen,
        common=common,
        size=ledger.head().size,
        charged={number: now[number] - held.get(number, 0) for number in numbers},
        closed=tuple(int(entry["measurement"]) for entry in written if entry["type"] == "void"),
        sealed=tuple(number for number in lost if _is_sealed(names[number][0])),
        reopened=tuple(number for number in lost if not _is_sealed(names[number][0])),
    )


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:10])
    return shown if len(numbers) <= 10 else f"{shown} and {len(numbers) - 10} more"
