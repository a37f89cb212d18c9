"""The ledger's side of a witness: told of each new head before anything is answered, asked at start.

`WitnessedLedger` is a ledger that answers nothing whose head the witness has not signed. When the witness
cannot be reached, the charge stands and the caller gets `WitnessUnavailable`; a later call, after the
witness is back, is answered without a second charge. The witness itself is `witness_server`.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.errors import LedgerDamaged, LedgerError, ParameterError, RolledBack, WitnessUnavailable
from reticent.ledger.base import Measurement, Reading
from reticent.ledger.checkpoint import (
    LOG,
    WITNESS,
    Head,
    PublicKey,
    parse,
    sign,
    totals_hash,
    verified,
)
from reticent.ledger.merkle import EMPTY_ROOT
from reticent.ledger.sql import SqlLedger, _Job

MOST_BYTES = 64 << 20  # of an answer
_ATTEMPTS = 20  # how often another server may get in between


class WitnessClient:
    """Talks to a witness. Safe to share between threads.

    Args:
        url: where the witness listens, http:// or https://.
        key: the witness's public key, as it prints it when it starts. Without it, the key that the
            witness shows first is believed until this client is closed.
        timeout_s: how long an answer may take.
    """

    def __init__(self, url: str, *, key: PublicKey | str | None = None, timeout_s: float = 10.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ParameterError("the address of a witness reads http://host:port")
        self.url = url
        self._parts, self._timeout_s = parts, timeout_s
        self._key = PublicKey.parse(key) if isinstance(key, str) else key
        if self._key is not None and self._key.kind != WITNESS:
            raise ParameterError("key must be that of a witness")
        self._lock = threading.RLock()
        self._connection: http.client.HTTPConnection | None = None
        self._seen: dict[str, Head] = {}
        self._totals: dict[str, dict[int, int]] = {}

    @property
    def key(self) -> PublicKey:
        """The witness's public key."""
        with self._lock:
            if self._key is None:
                key = PublicKey.parse(str(self.logs().get("key")))
                if key.kind != WITNESS:
                    raise LedgerDamaged("the witness shows a key that is not a witness's")
                self._key = key
            return self._key

    def seen(self, origin: str) -> int:
        """Entries of the log that the witness is known to have signed for."""
        head = self._seen.get(origin)
        return head.size if head else 0

    def logs(self) -> dict[str, Any]:
        """The witness's key and the logs that it remembers."""
        return self._ask("GET", "/logs")[1]

    def last(self, origin: str) -> tuple[str, dict[int, int]] | None:
        """The witness's last checkpoint, its signature verified, and the spent totals, if it has any."""
        found = self.record(origin)
        return (found["checkpoint"], self._totals[origin]) if found else None

    def record(self, origin: str) -> dict[str, Any] | None:
        """All that the witness tells about a log: also whether a recovery is allowed, and abandoned heads."""
        with self._lock:
            status, answer = self._ask("GET", f"/checkpoint?origin={quote(origin, safe='')}", allowed=(404,))
            if status == 404:
                return None
            head = verified(str(answer.get("checkpoint")), self.key)
            try:
                totals = {int(account): int(spent) for account, spent in answer["totals"].items()}
            except (AttributeError, KeyError, TypeError, ValueError):
                raise WitnessUnavailable(f"the witness at {self.url} does not answer as a witness") from None
            if head.origin != origin or totals_hash(totals) != head.totals:
                raise LedgerDamaged("the witness's answer does not fit its own signature")
            self._seen[origin], self._totals[origin] = head, totals
            return answer

    def push(self, ledger: SqlLedger) -> None:
        """Have the witness sign the ledger's present head.

        Raises:
            RolledBack: the witness remembers a longer log, or another one.
            WitnessUnavailable: it cannot be reached.
        """
        with self._lock:
            conflict = ""
            for _ in range(_ATTEMPTS):
                checkpoint, totals = _state(ledger)
                head = parse(checkpoint)[0]
                if head.origin not in self._seen:
                    self.record(head.origin)
                seen = self._seen.get(head.origin) or Head(head.origin, 0, EMPTY_ROOT, totals_hash({}))
                if (head.size, head.root, head.totals) == (seen.size, seen.root, seen.totals):
                    return
                if head.size > seen.size:
                    conflict = self._add(ledger, head, checkpoint, totals, seen)
                    if not conflict:
                        return
                self.record(head.origin)
                again = self._seen.get(head.origin)
                if again == seen and head.size <= parse(_state(ledger)[0])[0].size <= seen.size:
                    break  # nobody got in between: the logs differ
                if again == seen and conflict:
                    break
            raise _rolled_back(head.size, seen.size, conflict)

    def _add(self, ledger: SqlLedger, head: Head, checkpoint: str, totals: dict[int, int], seen: Head) -> str:
        """Send a head; return what the witness holds against it, or nothing."""
        held = self._totals.get(head.origin, {})
        status, answer = self._ask(
            "POST",
            "/add-checkpoint",
            {
                "old_size": seen.size,
                "proof": [node.hex() for node in ledger.consistency_proof(seen.size, head.size)],
                "checkpoint": checkpoint,
                "totals": {str(n): str(spent) for n, spent in totals.items() if held.get(n) != spent},
                "key": str(PublicKey(head.origin, _signing(ledger).public_key(), LOG)),
            },
            allowed=(409,),
        )
        if status == 409:
            return str(answer.get("error"))
        self._accept(head, checkpoint, totals, answer)
        return ""

    def recover(self, ledger: SqlLedger, abandoned: Head) -> None:
        """Have the witness continue from the ledger's present head instead of the one it remembers."""
        with self._lock:
            checkpoint, totals = _state(ledger)
            asked = {
                "old_size": abandoned.size,
                "old_root": abandoned.root.hex(),
                "checkpoint": checkpoint,
                "totals": {str(number): str(spent) for number, spent in totals.items()},
            }
            status, answer = self._ask("POST", "/recover", asked, allowed=(403, 409))
            if status != 200:
                raise LedgerError(f"the witness refused: {answer.get('error')}")
            self._accept(parse(checkpoint)[0], checkpoint, totals, answer)

    def _accept(self, head: Head, checkpoint: str, totals: dict[int, int], answer: dict[str, Any]) -> None:
        """Believe the witness only when its signature on this head holds."""
        verified(checkpoint + str(answer.get("cosignature")), self.key)
        self._seen[head.origin], self._totals[head.origin] = head, totals

    def _ask(
        self, method: str, path: str, body: Any = None, *, allowed: tuple[int, ...] = ()
    ) -> tuple[int, dict[str, Any]]:
        data = None if body is None else json.dumps(body).encode()
        with self._lock:
            try:
                status, raw = self._once(method, path, data)
            except (OSError, http.client.HTTPException):
                self.close()  # the witness may have closed an idle connection; asking twice does no harm
                try:
                    status, raw = self._once(method, path, data)
                except (OSError, http.client.HTTPException) as error:
                    self.close()
                    raise WitnessUnavailable(
                        f"the witness at {self.url} cannot be reached ({type(error).__name__})"
                    ) from None
        try:
            answer = json.loads(raw)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or status >= 500:
            raise WitnessUnavailable(f"the witness at {self.url} does not answer as a witness")
        if status != 200 and status not in allowed:
            raise LedgerError(f"the witness refused: {' '.join(str(answer.get('error'))[:200].split())}")
        return status, answer

    def _once(self, method: str, path: str, data: bytes | None) -> tuple[int, bytes]:
        if self._connection is None:
            kind = (
                http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
            )
            self._connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout_s)
        self._connection.request(method, self._parts.path.rstrip("/") + path, data)
        answer = self._connection.getresponse()
        return answer.status, answer.read(MOST_BYTES)

    def close(self) -> None:
        """Close the connection; the next question opens another."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:
            connection.close()


def _signing(ledger: SqlLedger) -> Ed25519PrivateKey:
    if ledger._key is None:
        raise LedgerError("a witnessed ledger needs a signing key")
    return ledger._key


def _state(ledger: SqlLedger) -> tuple[str, dict[int, int]]:
    """The signed head, and the totals that it speaks of."""
    while True:
        head, totals = ledger.head(), ledger.totals()
        if totals_hash(totals) == head.totals:  # else another server wrote in between
            return sign(head, ledger.origin, _signing(ledger)), totals


def _rolled_back(size: int, seen: int, conflict: str = "") -> RolledBack:
    if size < seen:
        return RolledBack(f"the ledger has {size} entries, the witness saw {seen}: it was rolled back")
    why = f" ({conflict})" if conflict else ""
    return RolledBack(f"the ledger of {size} entries is forked from the {seen} that the witness saw{why}")


def guard(ledger: SqlLedger, client: WitnessClient) -> None:
    """At start: refuse a ledger that is behind, or forked from, what the witness saw; else tell it the rest.

    Raises:
        RolledBack: with both sizes. `recovery.recover` is the way on.
    """
    seen = client.last(ledger.origin)
    if seen is not None:
        remembered, totals = parse(seen[0])[0], ledger.totals()
        size = ledger.head().size
        if size < remembered.size or ledger.root(remembered.size) != remembered.root:
            raise _rolled_back(size, remembered.size)
        for account, spent in seen[1].items():
            if totals.get(account, 0) < spent:
                raise RolledBack(f"account {account} has spent less than the witness saw")
    client.push(ledger)


class WitnessedLedger(SqlLedger):
    """A ledger that answers nothing before the witness has signed the head which the answer rests on.

    Args:
        where: the path or address.
        client: the witness.
        key: signs heads.
        origin: the name of the log in its heads, fixed when the ledger is made.
        optional: answer although the witness cannot be reached, with a warning. A rollback to
            before the witness was last reached then goes unseen.
    """

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        client: WitnessClient,
        key: Ed25519PrivateKey,
        origin: str = "reticent/ledger",
        optional: bool = False,
    ) -> None:
        self._client, self._optional = client, optional
        super().__init__(where, origin=origin, key=key, after_commit=_tell)
        try:
            self._tolerant(lambda: guard(self, client))
        except BaseException:
            self.close()
            raise

    @property
    def lag(self) -> int:
        """Entries that the witness is not known to have signed for."""
        return self.head().size - self._client.seen(self.origin)

    def _tolerant(self, tell: Callable[[], None]) -> None:
        try:
            tell()
        except WitnessUnavailable as error:
            if not self._optional:
                raise
            warnings.warn(f"{error}; the ledger goes on without it", RuntimeWarning, stacklevel=3)

    def _witnessed(self) -> None:
        """Tell the witness of entries that an earlier call, or another server, failed to tell it of."""
        ((size,),) = self._rows("SELECT size FROM head")
        if size != self._client.seen(self.origin):
            self._tolerant(lambda: self._client.push(self))

    def _write(self, job: _Job) -> Any:
        answer = super()._write(job)
        self._witnessed()
        return answer

    def reading(self, account: str, key: str) -> Reading:
        """What is recorded under a key, once the witness has its head."""
        found = super().reading(account, key)
        self._witnessed()
        return found

    def pending(self, account: str) -> list[Measurement]:
        """Measurements that are paid for and not recorded, once the witness has their head."""
        found = super().pending(account)
        self._witnessed()
        return found


def _tell(ledger: SqlLedger) -> None:
    """The hook after each commit."""
    assert isinstance(ledger, WitnessedLedger)
    ledger._tolerant(lambda: ledger._client.push(ledger))
