"""The ledger's client of a witness, which signs each new head before the ledger answers anything.

The witness is also asked at start. `WitnessedLedger` is a ledger that answers nothing whose head the witness
has not signed. When the witness cannot be reached, the charge stands and the caller gets
`WitnessUnavailable`; a later call, after the witness is back, is answered without a second charge. After
`RolledBack` it answers nothing until it is opened again. The witness itself is `server`.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import wraps
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent import peers
from reticent.errors import (
    LedgerDamaged,
    LedgerError,
    ParameterError,
    RolledBack,
    WitnessRefused,
    WitnessUnavailable,
)
from reticent.ledger.base import Terms
from reticent.ledger.checkpoint import (
    LOG,
    WITNESS,
    Head,
    PublicKey,
    answer_text,
    holds,
    parse,
    reader_text,
    sign,
    totals_hash,
    verified,
)
from reticent.ledger.merkle import EMPTY_ROOT
from reticent.ledger.sql.ledger import SqlLedger, _Job

MOST_BYTES = 64 << 20  # of an answer
MOST_HEADS = 1 << 20  # that a witness tells of one log; one of ours keeps some thousand
SIGNATURE = "Reticent-Signature"  # header of an answer to a question with a nonce
_ATTEMPTS = 20  # how often another server may get in between
_Read = TypeVar("_Read")


class WitnessClient:
    """A client of a witness, safe to share between threads.

    Args:
        url: Address at which the witness listens, http:// or https://.
        key: Public key of the witness, as it prints it when it starts. Without it, the key that the witness
            shows first is believed until this client is closed.
        timeout_s: Seconds that an answer may take.
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
        """The public key of the witness."""
        with self._lock:
            if self._key is None:
                key = PublicKey.parse(str(self.logs().get("key")))
                if key.kind != WITNESS:
                    raise LedgerDamaged("the witness shows a key that is not a witness's")
                self._key = key
            return self._key

    def seen(self, origin: str) -> int:
        """Return the number of entries of the log that the witness is known to have signed for."""
        head = self._seen.get(origin)
        return head.size if head else 0

    def signed(self, head: Head) -> bool:
        """Return whether this is the head that the witness is known to have signed last."""
        return self._seen.get(head.origin) == head

    def logs(self) -> dict[str, Any]:
        """Return the key of the witness and the logs that it remembers."""
        return self._ask("GET", "/logs")[1]

    def last(self, origin: str) -> tuple[str, dict[int, int]] | None:
        """Return the witness's last checkpoint, its signature verified, and no totals.

        Totals are for the log alone.
        """
        found = self.record(origin)
        return (found["checkpoint"], {}) if found else None

    def record(self, origin: str) -> dict[str, Any] | None:
        """Return the public record of a log: last and abandoned checkpoints, whether recovery is allowed.

        The answer is signed together with a fresh nonce, so that an old one does not pass for it.
        """
        with self._lock:
            status, answer = self._fresh("/checkpoint", origin=origin)
            if status == 404:
                return None
            head = verified(str(answer.get("checkpoint")), self.key)
            if head.origin != origin or not isinstance(answer.get("abandoned"), list):
                raise WitnessUnavailable(f"the witness at {self.url} does not answer as a witness")
            if self._seen.get(origin) != head:
                self._seen[origin] = head
                self._totals.pop(origin, None)
            return answer

    def heads(self, origin: str, most: int) -> Iterator[tuple[int, bytes]]:
        """Yield sizes and roots of the heads up to a size that the witness remembers, largest first."""
        told = 0
        while True:
            answer = self._fresh("/heads", origin=origin, most=str(most), skip=str(told))[1]
            try:
                heads = [(int(size), bytes.fromhex(root)) for size, root in answer["heads"]]
            except (KeyError, TypeError, ValueError) as error:
                raise WitnessUnavailable(f"the witness at {self.url} does not answer as a witness") from error
            if not heads:
                return
            if told + len(heads) > MOST_HEADS:
                raise WitnessUnavailable(f"the witness at {self.url} tells of more heads than it keeps")
            yield from heads
            told += len(heads)

    def totals(self, ledger: SqlLedger) -> dict[int, int]:
        """Return the units spent by account number at the last head.

        The witness tells them to the log's key alone.
        """
        with self._lock:
            if self.record(ledger.origin) is None:
                return {}
            seen = self._seen[ledger.origin]
            signature = base64.b64encode(_signing(ledger).sign(reader_text(seen))).decode()
            answer = self._ask("POST", "/totals", {"origin": ledger.origin, "signature": signature})[1]
            try:
                totals = {int(account): int(spent) for account, spent in answer["totals"].items()}
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise WitnessUnavailable(f"the witness at {self.url} does not answer as a witness") from error
            if totals_hash(totals) != seen.totals:
                raise LedgerDamaged("the witness's answer does not fit its own signature")
            self._totals[ledger.origin] = totals
            return totals

    def push(self, ledger: SqlLedger) -> None:
        """Ask the witness to sign the ledger's present head.

        Raises:
            RolledBack: The witness remembers a longer log, or another one.
            WitnessUnavailable: The witness cannot be reached.
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
        """Send a head, and return the witness's objection to it, or an empty text."""
        held = self._totals.get(head.origin, {})
        status, answer = self._ask(
            "POST",
            "/add-checkpoint",
            {
                "old_size": seen.size,
                "proof": [node.hex() for node in ledger.consistency_proof(seen.size, head.size)],
                "checkpoint": checkpoint,
                "key": str(PublicKey(head.origin, _signing(ledger).public_key(), LOG)),
            },
            {str(n): str(spent) for n, spent in totals.items() if held.get(n) != spent},
            allowed=(409,),
        )
        if status == 409:
            return peers.one_line(answer.get("error")) or "refused"
        self._accept(head, checkpoint, totals, answer)
        return ""

    def recover(self, ledger: SqlLedger, abandoned: Head) -> None:
        """Ask the witness to continue from the ledger's present head instead of the one it remembers."""
        with self._lock:
            checkpoint, totals = _state(ledger)
            head = parse(checkpoint)[0]
            asked = {"old_size": abandoned.size, "old_root": abandoned.root.hex(), "checkpoint": checkpoint}
            told = {str(number): str(spent) for number, spent in totals.items()}
            status, answer = self._ask("POST", "/recover", asked, told, allowed=(409,))
            if status == 200:
                self._accept(head, checkpoint, totals, answer)
            elif self.record(ledger.origin) is None or self._seen[ledger.origin] != head:  # else it has it
                raise self._refused(answer)

    def _accept(self, head: Head, checkpoint: str, totals: dict[int, int], answer: dict[str, Any]) -> None:
        """Remember a head as signed, only if the witness's signature on this head holds."""
        verified(checkpoint + str(answer.get("cosignature")), self.key)
        self._seen[head.origin], self._totals[head.origin] = head, totals

    def _fresh(self, path: str, **asked: str) -> tuple[int, dict[str, Any]]:
        """Ask with a nonce, and accept only an answer that the witness signed together with the nonce.

        That holds also for the answer that the witness knows nothing.
        """
        nonce = os.urandom(32).hex()
        key, query = self.key, urlencode({**asked, "nonce": nonce})
        status, raw, signature = self._exchange("GET", f"{path}?{query}", None)
        answer = self._read(status, raw, allowed=(404,))
        if not holds(answer_text(nonce, raw), signature, key):
            raise LedgerDamaged(f"the answer of the witness is not signed by {key.name}, or is an old one")
        return status, answer

    def _ask(
        self, method: str, path: str, *lines: Any, allowed: tuple[int, ...] = ()
    ) -> tuple[int, dict[str, Any]]:
        data = "\n".join(json.dumps(line) for line in lines).encode() if lines else None
        status, raw, _ = self._exchange(method, path, data)
        return status, self._read(status, raw, allowed=allowed)

    def _read(self, status: int, raw: bytes, *, allowed: tuple[int, ...]) -> dict[str, Any]:
        try:
            answer = peers.read_json(raw)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or status >= 500:
            raise WitnessUnavailable(f"the witness at {self.url} does not answer as a witness")
        if status != 200 and status not in allowed:
            raise self._refused(answer)
        return answer

    def _refused(self, answer: dict[str, Any]) -> WitnessRefused:
        return WitnessRefused(f"the witness refused: {peers.one_line(answer.get('error'))}")

    def _exchange(self, method: str, path: str, data: bytes | None) -> tuple[int, bytes, str]:
        with self._lock:
            try:
                return self._once(method, path, data)
            except (OSError, http.client.HTTPException):
                self.close()  # the witness may have closed an idle connection; asking twice does no harm
            try:
                return self._once(method, path, data)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                raise WitnessUnavailable(
                    f"the witness at {self.url} cannot be reached ({type(error).__name__})"
                ) from error

    def _once(self, method: str, path: str, data: bytes | None) -> tuple[int, bytes, str]:
        if self._connection is None:
            kind = (
                http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
            )
            self._connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout_s)
        answer, raw = peers.exchange(
            self._connection,
            method,
            self._parts.path.rstrip("/") + path,
            data,
            {},
            seconds=self._timeout_s,
            most=MOST_BYTES,
        )
        return answer.status, raw, answer.headers.get(SIGNATURE, "")

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
    """Return the signed head of a ledger, and the totals that the head commits to."""
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
    """Refuse a ledger that is behind the witness or forked from it; else push its head to the witness.

    This happens at start.

    Raises:
        RolledBack: The ledger is behind or forked; the message has both sizes. `recovery.recover` continues
            from there.
    """
    seen = client.last(ledger.origin)
    if seen is not None:
        remembered, size = parse(seen[0])[0], ledger.head().size
        if size < remembered.size or ledger.root(remembered.size) != remembered.root:
            raise _rolled_back(size, remembered.size)
    client.push(ledger)  # which the witness refuses if an account has spent less than it saw


class WitnessRule(Enum):
    """A rule that says when a public method of a witnessed ledger may answer."""

    WAITS = "answers once the witness has signed the head that was read from"
    COMMITS = "writes, and answers once the witness has signed the new head"
    PASSES = "answers without the witness, unless a rollback was found"
    CONSTANT = "says nothing about the entries"


WITNESS_RULES: Mapping[str, WitnessRule] = {
    **dict.fromkeys(("pending", "purchases", "reading", "worded"), WitnessRule.WAITS),
    **dict.fromkeys(("checkpoint", "head", "leaf", "leaves", "root", "totals"), WitnessRule.WAITS),
    **dict.fromkeys(("consistency_proof", "inclusion_proof"), WitnessRule.WAITS),
    **dict.fromkeys(("account_mark", "in_view", "rows"), WitnessRule.WAITS),
    **dict.fromkeys(("open", "request", "request_many", "fulfil", "pay", "charge"), WitnessRule.COMMITS),
    **dict.fromkeys(("charge_witnessed", "transact"), WitnessRule.COMMITS),
    # Amounts, for callers that must see them while the witness is away; and whether anything was written.
    **dict.fromkeys(("accounts", "balance", "mark"), WitnessRule.PASSES),
    **dict.fromkeys(
        ("charges_values", "close", "declare", "lag", "measured_by_oracle"), WitnessRule.CONSTANT
    ),
}
"""The rule of every public name of a ledger. A name without a rule stops the import of this module."""


class WitnessedLedger(SqlLedger):
    """A ledger that answers nothing before the witness has signed the head which the answer rests on.

    Once the ledger was found rolled back, it refuses every call until it is opened again: the rollback may
    have been undone, or the log may have grown to where the witness stands, but the answers given from it
    would remain.

    Every public method has a rule in `WITNESS_RULES`, and its behaviour follows from the rule. A method that
    a base class gains has none, and the class cannot be made before it gets one.

    Args:
        where: Path or address of the ledger.
        client: Client of the witness.
        key: Key that signs heads.
        origin: Name of the log in its heads, as for `SqlLedger`. Give it: the witness remembers by name, and
            has no objection to a ledger that was put in its place under another name.
        optional: True to answer, with a warning, although the witness cannot be reached. A rollback to before
            the witness was last reached then goes unseen.
    """

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        client: WitnessClient,
        key: Ed25519PrivateKey,
        origin: str | None = None,
        optional: bool = False,
    ) -> None:
        self._client, self._optional = client, optional
        self._found: RolledBack | None = None
        super().__init__(where, origin=origin, key=key, after_commit=_tell)
        try:
            self._tolerant(lambda: guard(self._unwitnessed, client))
        except BaseException:
            self.close()
            raise

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a subclass that adds or replaces a public method: its rule is not known here."""
        super().__init_subclass__(**options)
        _check_rules(cls)
        replaced = sorted(name for name in WITNESS_RULES if getattr(cls, name) is not _rule_of_base(name))
        if replaced:
            raise TypeError(
                f"{cls.__name__} must not replace {', '.join(replaced)}: they wait for the witness"
            )

    def close(self) -> None:
        """Close the ledger, and the connection to the witness."""
        super().close()
        self._client.close()

    @property
    def lag(self) -> int:
        """The number of entries that the witness is not known to have signed for."""
        return self._unwitnessed.head().size - self._client.seen(self.origin)

    @property
    def _unwitnessed(self) -> SqlLedger:
        """This open ledger with the methods of `SqlLedger`, which do not wait for the witness."""
        plain = SqlLedger.__new__(SqlLedger)
        plain.__dict__ = self.__dict__
        return plain

    def _tolerant(self, tell: Callable[[], None]) -> None:
        try:
            tell()
        except RolledBack as error:
            self._found = error
            raise
        except WitnessUnavailable as error:
            if not self._optional or isinstance(error, WitnessRefused):
                raise
            warnings.warn(f"{error}; the ledger goes on without it", RuntimeWarning, stacklevel=3)

    def _not_rolled_back(self) -> None:
        if self._found is not None:
            raise RolledBack(f"{self._found}; nothing is answered until the ledger is opened again")

    def _answer_signed(self, read: Callable[[SqlLedger], _Read]) -> _Read:
        """Read, and answer once the witness has signed the head that was read from.

        Entries that an earlier call, or another server, failed to push to the witness are pushed now. Inside
        of another view the head may be an old one, which the witness would take for a rollback: that is
        refused.
        """
        self._not_rolled_back()
        plain = self._unwitnessed
        with self._store.reading():
            if self._store.is_nested_view:
                raise LedgerError("a witnessed ledger cannot answer inside of a view; use in_view")
            answer, head = read(plain), plain.head()
        if not self._client.signed(head):
            self._tolerant(lambda: self._client.push(plain))
        self._not_rolled_back()
        return answer

    def _write(self, job: _Job) -> Any:
        """Write to the ledger; the hook after the commit tells the witness before anybody is answered."""
        self._not_rolled_back()
        return super()._write(job)

    def _terms(self, account: str) -> Terms:
        self._not_rolled_back()
        return super()._terms(account)


def _waiting(name: str) -> Callable[..., Any]:
    """Build the method that answers as `SqlLedger` does, once the witness has signed the head."""
    method = getattr(SqlLedger, name)

    @wraps(method)
    def wait(ledger: WitnessedLedger, *args: Any, **options: Any) -> Any:
        return ledger._answer_signed(lambda plain: method(plain, *args, **options))

    return wait


def _passing(name: str) -> Callable[..., Any]:
    """Build the method that answers as `SqlLedger` does, unless a rollback was found."""
    method = getattr(SqlLedger, name)

    @wraps(method)
    def answer(ledger: WitnessedLedger, *args: Any, **options: Any) -> Any:
        ledger._not_rolled_back()
        return method(ledger, *args, **options)

    return answer


def _check_rules(kind: type[SqlLedger]) -> None:
    """Refuse a class with a public name that has no rule: nobody has said whether it waits."""
    names = {name for name in dir(kind) if not name.startswith("_")}
    if missing := sorted(names - set(WITNESS_RULES)):
        raise TypeError(f"{kind.__name__}: give {', '.join(missing)} a rule in WITNESS_RULES")


def _rule_of_base(name: str) -> Any:
    return getattr(WitnessedLedger, name)


def _apply_rules() -> None:
    """Give the witnessed ledger the behaviour of each rule."""
    _check_rules(WitnessedLedger)
    makers = {WitnessRule.WAITS: _waiting, WitnessRule.PASSES: _passing}
    for name, rule in WITNESS_RULES.items():
        if rule in makers:
            setattr(WitnessedLedger, name, makers[rule](name))


_apply_rules()


def _tell(ledger: SqlLedger) -> None:
    """Tell the witness of a commit, before anybody is answered."""
    assert isinstance(ledger, WitnessedLedger)
    ledger._tolerant(lambda: ledger._client.push(ledger._unwitnessed))
