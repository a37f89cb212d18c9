"""Refusals of the service itself, each with its HTTP status. One shape for every error.

{"error": {"type": "budget_exceeded", "message": "..."}}
"""

from __future__ import annotations

import math
import re
from typing import Any

from reticent import errors

_SOON_S = 1.0


class Refused(errors.ReticentError):
    """The service refuses: nothing was charged and nothing was released.

    Attributes:
        status: Status of HTTP.
        kind: Type in the reply.
        retry_s: Seconds after which a retry may help; None if it will not.
        told: Further public fields of the reply.
        reply: Bytes of the whole reply, if it is written already.
    """

    reply: bytes | None = None

    def __init__(
        self, status: int, kind: str, message: str, *, retry_s: float | None = None, **told: Any
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.retry_s, self.told = status, kind, retry_s, told


def not_signed_in() -> Refused:
    """No key, or one that is not known. Whether it ever was is not said."""
    return Refused(401, "not_signed_in", "a valid API key is needed: Authorization: Bearer rk_...")


def not_allowed(role: str) -> Refused:
    """The role may not do this to anything."""
    return Refused(403, "not_allowed", f"the role {role} may not do this")


def not_found(what: str) -> Refused:
    """There is none, or it belongs to somebody else: the two look the same."""
    return Refused(404, "not_found", f"there is no such {what}")


def too_many(pause_s: float) -> Refused:
    """Faster than the rate."""
    return Refused(
        429, "too_many_requests", f"too many requests: try again in {pause_s:.2f} s", retry_s=pause_s
    )


def too_much(cells: int, pause_s: float) -> Refused:
    """More work than the rate."""
    return Refused(
        429,
        "too_much_work",
        f"too much work: a question of {cells:,} cells may be asked in {pause_s:.2f} s",
        retry_s=pause_s,
    )


def busy() -> Refused:
    """Return the refusal for a process that works on as many requests as it takes."""
    return Refused(503, "busy", "the service is busy: try again", retry_s=_SOON_S)


# Most special first.
STATUS: dict[type[errors.ReticentError], tuple[int, str]] = {
    errors.BudgetExceeded: (409, "budget_exceeded"),
    errors.IdempotencyConflict: (409, "idempotency_conflict"),
    errors.AccountConflict: (409, "account_conflict"),
    errors.NotMeasured: (503, "not_measured"),
    errors.CommitUnknown: (503, "commit_unknown"),
    errors.WitnessUnavailable: (503, "witness_unavailable"),
    errors.RolledBack: (503, "rolled_back"),
    errors.LedgerDamaged: (503, "ledger_damaged"),
    errors.StorageUnavailable: (503, "storage_unavailable"),
    errors.ChainError: (503, "chain_unavailable"),
    errors.LedgerError: (409, "refused"),
    errors.SourceError: (503, "source_unavailable"),
    errors.MixedGuarantees: (400, "bad_request"),
    errors.GuaranteeError: (400, "bad_request"),
    errors.ParameterError: (400, "bad_request"),
    errors.ParameterTypeError: (400, "bad_request"),
}
_ADDRESS = re.compile(r" at \w+://\S+")  # where a witness listens is for the operator to know
_PASSING = (
    errors.CommitUnknown,
    errors.WitnessUnavailable,
    errors.StorageUnavailable,
)  # the same again, idempotently, may help


def explained(error: errors.ReticentError) -> tuple[int, dict[str, Any]]:
    """The status and the body of a refusal."""
    if isinstance(error, Refused):
        body = shape(error.kind, str(error))
        body["error"] |= error.told
        return error.status, body
    for kind, (status, name) in STATUS.items():
        if isinstance(error, kind):
            body = shape(name, _ADDRESS.sub("", str(error)))
            if isinstance(error, errors.BudgetExceeded):
                body["error"] |= {"asked": str(error.asked), "left": str(error.left)}
            if isinstance(error, errors.QuestionRefused):
                body["error"] |= _offer(error)
            return status, body
    return 500, shape("fault", "internal fault")


def refused_as(error: errors.ReticentError, *, reply: bytes | None = None) -> Refused:
    """Convert an error to a refusal of the service, which has nothing but what the reply says."""
    status, body = explained(error)
    told = dict(body["error"])
    kind, message = told.pop("type"), told.pop("message")
    refused = Refused(status, kind, message, retry_s=_retry_s(error), **told)
    refused.reply = reply
    return refused


def headers(error: errors.ReticentError) -> dict[str, str]:
    """Return the headers of a refusal: the sign-in scheme, and when to retry."""
    found = {}
    if isinstance(error, Refused) and error.status == 401:
        found["WWW-Authenticate"] = "Bearer"
    retry_s = _retry_s(error)
    if retry_s is not None:
        found["Retry-After"] = str(math.ceil(retry_s))
    return found


def _retry_s(error: errors.ReticentError) -> float | None:
    if isinstance(error, _PASSING):
        return _SOON_S
    return error.retry_s if isinstance(error, Refused) else None


def shape(kind: str, message: str) -> dict[str, Any]:
    """The one shape of errors."""
    return {"error": {"type": kind, "message": message}}


def _offer(refusal: errors.QuestionRefused) -> dict[str, Any]:
    """Return the details for a refused analyst: public numbers, and what is free."""
    best = refusal.best
    return {
        "reachable_error": refusal.reachable_error,
        "reachable_rows": refusal.reachable_rows,
        "best": best.to_json() if best is not None and hasattr(best, "to_json") else None,
    }
