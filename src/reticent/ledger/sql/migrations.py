"""Migrations of the tables of an SQL ledger, each from one version to the next.

Each runs in one transaction. Entries and their hashes are never touched, though more may be appended: a
migration changes the form of rows, never their meaning.
"""

from __future__ import annotations

from collections.abc import Callable

from reticent.ledger.sql.batch import Batch
from reticent.ledger.sql.store import Store

Migration = Callable[[Store], None]

_AT_ONCE = 10_000  # rows that a migration holds in memory


def _log_answers(store: Store) -> None:
    """Migrate to version 2: answers to idempotent calls get an entry in the log each, and a verb.

    Version 1 did not store the verb. All count as requests: so no earlier answer covers a payment.
    """
    store.run("ALTER TABLE answered RENAME TO answered_1")
    store.make_schema("answered")
    old = "SELECT account, idempotency, name, asked, information, charged FROM answered_1 "
    last = (-1, "")
    while rows := store.all(
        f"{old} WHERE account > ? OR (account = ? AND idempotency > ?) "
        f"ORDER BY account, idempotency LIMIT {_AT_ONCE}",
        (last[0], *last),
    ):
        batch = Batch(store)
        for account, idempotency, *answer in rows:
            batch.answer(account, idempotency, ("request", *answer))
        batch.flush()
        last = rows[-1][:2]
    store.run("DROP TABLE answered_1")


MIGRATIONS: dict[int, Migration] = {1: _log_answers, 2: lambda store: store.make_schema("question")}
