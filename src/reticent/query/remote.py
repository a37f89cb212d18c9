"""A data set behind a service: the same questions, the same answers and errors, over HTTP.

    with reticent.open("https://host/census", key="rk_...") as session:
        session.mean("income", error=500)

Nothing here is needed for a guarantee: the service charges and refuses. Every `ask` carries a key of its
own against double charges, so a request that was lost on the way is sent again. What goes wrong on the way
is a `SourceError`; what the service refuses is the error that a session beside the data would raise.
"""

from __future__ import annotations

import http.client
import json
import re
import secrets
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Unpack
from urllib.parse import quote, unquote, urlsplit

from reticent import errors, peers
from reticent.arguments import real
from reticent.errors import ParameterError, ParameterTypeError, SourceError
from reticent.ledger import Balance, Terms, Unit
from reticent.privacy import Budget, Neighbours, spent_epsilon
from reticent.query.accuracy import CONFIDENCE, KEY, SPAN, Accuracy, Words, checked_reuse
from reticent.query.answers import Answer, Price
from reticent.query.declarations.datasets import Policy
from reticent.query.language import tree
from reticent.query.language.shorthands import Shorthands
from reticent.query.language.tree import Query
from reticent.query.proposals import Proposal, each

Asked = Query | Mapping[str, Any] | str
_TRIES = 4
_PAUSES_S = (0.1, 2.0)  # before the second try, at most before any
_MOST_IDLE = 8  # connections that are kept
_LONGEST_REPLY = 1 << 26
_LONGEST_MESSAGE = 1000
_MOST_QUESTIONS = 1 << 18  # that are kept of what a service tells of
_SECONDS = re.compile("[0-9]{1,9}")
_AGAIN = (429, 502, 503, 504)
_BY_TYPE: dict[str, type[errors.ReticentError]] = {
    "account_conflict": errors.AccountConflict,
    "bad_request": ParameterError,
    "chain_unavailable": errors.ChainError,
    "commit_unknown": errors.CommitUnknown,
    "idempotency_conflict": errors.IdempotencyConflict,
    "invalid": ParameterError,
    "ledger_damaged": errors.LedgerDamaged,
    "not_allowed": ParameterError,
    "not_found": ParameterError,
    "not_measured": errors.NotMeasured,
    "not_signed_in": ParameterError,
    "refused": errors.LedgerError,
    "source_unavailable": SourceError,
    "storage_unavailable": errors.StorageUnavailable,
    "too_large": ParameterError,
    "witness_unavailable": errors.WitnessUnavailable,
}


class RemoteSession(Shorthands):
    """A data set of a service. Made by `reticent.open`; threads may share it.

    Args:
        url: http(s)://host:port, or that and the name of a data set.
        key: the API key.
        dataset: the name, if the URL does not say it and the service has several.
        timeout_s: how long one reply may take to come, in all.
        wait_s: how long an answer may take in all.
        insecure: send the key over plain http to another machine too: whoever listens on the way can use it.

    Raises:
        ParameterError: the URL, the key or the name is not one, or the key would travel in the clear.
        SourceError: the service cannot be reached.
    """

    def __init__(
        self,
        url: str,
        key: str,
        dataset: str | None = None,
        *,
        timeout_s: float = 60.0,
        wait_s: float = 600.0,
        insecure: bool = False,
    ) -> None:
        self._timeout_s = real("timeout_s", timeout_s, low=0.0, open_low=True)
        self._wait_s = real("wait_s", wait_s, low=0.0)
        place = _place(url)
        named = unquote(place.path.strip("/")) or None
        if named is not None and dataset is not None and named != dataset:
            raise ParameterError("dataset must be left out where the URL names one")
        if not isinstance(key, str) or not key.isascii() or not key.isprintable():
            raise ParameterError("key must be an API key: rk_ and 43 letters")
        if place.scheme != "https" and not peers.is_here(place.hostname) and insecure is not True:
            raise ParameterError(
                "url must begin with https:// for another machine: over plain http whoever listens gets the "
                "key. insecure=True sends it all the same"
            )
        self._secure, self._host, self._port = place.scheme == "https", str(place.hostname), place.port
        self._headers = {"Authorization": f"Bearer {key}", "Accept": "application/json"}
        self._guard = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        try:
            self.name = named or dataset or self._only()
            self.described: dict[str, Any] = self._call("GET", self._at(""))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> RemoteSession:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # Questions

    def ask(
        self,
        query: Asked,
        accuracy: Accuracy | None = None,
        *,
        idempotency: str | None = None,
        **words: Unpack[Words],
    ) -> Answer:
        """As `Session.ask`. Without `idempotency` a fresh text is used, for this call and its retries.

        Raises:
            QuestionRefused: the budget does not suffice; nothing was charged.
            BudgetExceeded: the analyst's quota does not suffice; nothing was charged.
            SourceError: the service cannot be reached. What was charged, if anything, is not lost: asking the
                same again is free.
        """
        body = _body(query, Accuracy.of(accuracy, words))
        headers = {"Idempotency-Key": idempotency or secrets.token_urlsafe(24)}
        until = time.monotonic() + self._wait_s
        reply = self._call("POST", self._at("/ask"), body, headers)
        with self._understood():
            if "job" in reply:
                reply = self._finished(str(reply["job"]), until)
            return Answer.from_json(reply)

    def price(self, query: Asked, accuracy: Accuracy | None = None, **words: Unpack[Words]) -> Price:
        """As `Session.price`."""
        body = _body(query, Accuracy.of(accuracy, words))
        reply = self._call("POST", self._at("/price"), body)
        with self._understood():
            return Price.from_json(reply)

    def plan(
        self,
        workload: Iterable[Asked | tuple[Asked, Accuracy]],
        accuracy: Accuracy | None = None,
        **words: Unpack[Words],
    ) -> Proposal:
        """As `Session.plan`."""
        bodies = [_body(query, own) for query, own in each(workload, accuracy, words)]
        reply = self._call("POST", self._at("/plan"), {"questions": bodies})
        with self._understood():
            return Proposal.from_json(reply)

    def known(self, query: Asked, *, confidence: float = CONFIDENCE, reuse: str = SPAN) -> Answer | None:
        """As `Session.known`."""
        body = {"query": _query(query), "confidence": confidence}
        if checked_reuse(reuse, SPAN, KEY) != SPAN:
            body["reuse"] = reuse
        reply = self._call("POST", self._at("/known"), body)
        with self._understood():
            return None if reply["answer"] is None else Answer.from_json(reply["answer"])

    def rehearse(
        self, query: Asked, accuracy: Accuracy | None = None, *, seed: int = 0, **words: Unpack[Words]
    ) -> Answer:
        """As `Session.rehearse`."""
        body = {"seed": seed, **_body(query, Accuracy.of(accuracy, words))}
        reply = self._call("POST", self._at("/rehearse"), body)
        with self._understood():
            return Answer.from_json(reply)

    @property
    def declared_budget(self) -> Budget:
        """The budget of the data set for ever, as its owner declared it."""
        with self._understood():
            budget = self.described["budget"]
            return Budget(float(budget["epsilon"]), float(budget["delta"]))

    @property
    def policy(self) -> Policy:
        """Return the policy of the data set."""
        with self._understood():
            return Policy(self.described["policy"])

    def budget(self) -> dict[str, Any]:
        """The account in units and as epsilon, with the caller's own quota if there is one."""
        return self._call("GET", self._at("/budget"))

    def balance(self) -> Balance:
        """As `Session.balance`."""
        found, told = self.budget(), self.described
        with self._understood():
            terms = Terms(
                self.name,
                Unit.MU2,
                Neighbours(told["neighbours"]),
                told["protects"],
                int(found["cap"]),
                int(found["minimum"]),
            )
            return Balance(terms, int(found["spent"]))

    def questions(self) -> dict[str, Query]:
        """As `Session.questions`."""
        found: dict[str, Query] = {}
        until = time.monotonic() + self._wait_s
        while True:
            before = len(found)
            reply = self._call("GET", self._at(f"/answers?first={before}&count=1000"))
            with self._understood():
                found |= {str(one["key"]): tree.from_json(one["query"]) for one in reply["answers"]}
                if len(found) == before or len(found) >= reply["size"]:
                    return found
            if time.monotonic() >= until or len(found) > _MOST_QUESTIONS:
                raise SourceError(f"the service at {self._host} tells of ever more questions")

    # The way there and back

    def _only(self) -> str:
        """The one data set of the service."""
        reply = self._call("GET", "/api/v1/datasets")
        with self._understood():
            names = [str(one["name"]) for one in reply["datasets"]]
        if len(names) != 1:
            raise ParameterError(f"dataset must be one of {peers.one_line(', '.join(names), 1000) or 'none'}")
        return names[0]

    def _at(self, rest: str) -> str:
        return f"/api/v1/datasets/{quote(self.name, safe='')}{rest}"

    def _finished(self, job: str, until: float) -> dict[str, Any]:
        """The result of a job, once it has one."""
        pause, longest = _PAUSES_S
        while True:
            told = self._call("GET", f"/api/v1/jobs/{quote(job, safe='')}")
            if told["state"] == "done":
                result: dict[str, Any] = told["result"]
                return result
            if told["state"] == "refused":
                raise self._error(told["result"]["error"])
            if time.monotonic() >= until:
                raise errors.NotMeasured(
                    f"{self.name}: not answered within {self._wait_s:g} s; asking again is charged once"
                )
            time.sleep(pause)
            pause = min(2 * pause, longest)

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """One call, sent again where that is safe and may help: every call here may be repeated."""
        sent = None if body is None else json.dumps(body).encode()
        told = self._headers | ({"Content-Type": "application/json"} if sent else {}) | dict(headers or {})
        pause, longest = _PAUSES_S
        for left in reversed(range(_TRIES)):
            try:
                status, again_s, reply = self._exchange(method, path, sent, told)
            except (OSError, http.client.HTTPException) as error:
                if not left:
                    raise SourceError(
                        f"the service at {self._host} cannot be reached ({type(error).__name__})"
                    ) from error
            else:
                if 200 <= status < 300:
                    return reply
                error_told = reply.get("error")
                if not isinstance(error_told, dict):
                    raise SourceError(
                        f"the service at {self._host} answered {status}, and not as Reticent does"
                    )
                if not left or status not in _AGAIN or again_s is None:
                    with self._understood():
                        told_of = self._error(error_told)
                    raise told_of
                pause = max(pause, min(again_s, longest))
            time.sleep(pause)
            pause = min(2 * pause, longest)
        raise AssertionError

    def _exchange(
        self, method: str, path: str, sent: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, float | None, dict[str, Any]]:
        """Status, when to come again if that was said, and the reply."""
        with self._guard:
            connection = self._idle.pop() if self._idle else self._connected()
        try:
            reply, text = peers.exchange(
                connection,
                method,
                path,
                sent,
                dict(headers),
                seconds=self._timeout_s,
                most=_LONGEST_REPLY,
            )
        except BaseException:
            connection.close()
            raise
        again = reply.headers.get("Retry-After", "")
        with self._guard:
            if reply.will_close or not reply.isclosed() or len(self._idle) >= _MOST_IDLE:
                connection.close()
            else:
                self._idle.append(connection)
        try:
            found = peers.harmless(peers.read_json(text))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise http.client.HTTPException("not JSON")
        return reply.status, float(again) if _SECONDS.fullmatch(again) else None, found

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """What in a reply is not as it should be is a lie or a fault of the service, and no error of ours."""
        try:
            yield
        except (SourceError, errors.LedgerError):
            raise
        except (AttributeError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise SourceError(f"the service at {self._host} does not answer as Reticent does") from error

    def _connected(self) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout_s, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)

    def _error(self, told: Mapping[str, Any]) -> errors.ReticentError:
        """The error that the service told of, as a session beside the data would raise it."""
        kind, message = str(told.get("type")), peers.one_line(told.get("message"), _LONGEST_MESSAGE)
        if kind in ("budget_exceeded", "quota_exceeded") and "asked" in told:
            asked, left = int(told["asked"]), int(told["left"])
            if "reachable_error" not in told:
                return errors.BudgetExceeded(self.name, asked, left)
            best = None if told.get("best") is None else Answer.from_json(told["best"])
            declared = self.declared_budget
            delta = declared.delta
            return errors.QuestionRefused(
                self.name,
                asked,
                left,
                budget=declared.mu2_cap,
                asked_epsilon=spent_epsilon(asked, delta),
                left_epsilon=spent_epsilon(left, delta) if left else 0.0,
                best=best,
                best_error=None if best is None else best.error,
                reachable_error=told["reachable_error"],
                reachable_rows=told.get("reachable_rows"),
            )
        if kind in ("too_many_requests", "busy", "fault"):
            return SourceError(f"the service at {self._host} says: {message}")
        return _BY_TYPE.get(kind, errors.LedgerError)(message)


def _place(url: Any) -> Any:
    if not isinstance(url, str):
        raise ParameterTypeError(f"url must be a text, got {type(url).__name__}")
    try:
        place = urlsplit(url)
        is_one = place.scheme in ("http", "https") and place.hostname and place.port != 0
    except ValueError:
        is_one = False
    if not is_one or place.query or place.fragment or "@" in place.netloc or "/" in place.path.strip("/"):
        raise ParameterError("url must be http(s)://host:port or http(s)://host:port/DATASET")
    return place


def _query(query: Asked) -> Any:
    if isinstance(query, Query):
        return tree.to_json(query)
    if isinstance(query, (str, Mapping)):
        return query if isinstance(query, str) else dict(query)
    raise ParameterTypeError(f"query must be a Query, JSON or SQL, got {type(query).__name__}")


def _body(query: Asked, accuracy: Accuracy) -> dict[str, Any]:
    return {"query": _query(query), **accuracy.words()}
