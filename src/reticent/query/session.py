"""Sessions: price a question from public numbers, pay, measure, combine, answer.

A session is the only path by which answers leave.

Promise, pay, release: the plan and its price are computed from the declaration; `ledger.request` charges
what is not bought yet, or refuses; only then rows are read, noise is drawn, and `ledger.fulfil` records
the measurement, once. The answer is arithmetic on recorded measurements. A crash in between loses nothing:
a measurement that is paid for and not recorded is made when the question is asked next.

If another party (an oracle) holds the data, the session never sees a row: it writes in the ledger what must
be measured, pays, and waits until the measurement is recorded there.

Threads share a session, and processes share a ledger. They may wait for the following locks:

- a price, a known answer and an answer that is recorded take no lock that is held while rows are opened or
  read or noise is drawn: they read the ledger on its reading connection, one statement each, which sees the
  last commit. Cached plans, texts and answers are values that any thread may compute again, so two threads
  that compute the same value do no harm. Purchases of other questions are loaded under a lock, and
  estimates are made from them without one (`Purchases`);
- a paying thread takes the lock of opening the rows, once, and that of the table for one statement at a
  time (`source.Table`): paid questions about one data set are read one after the other. Neither is held
  while the ledger is called;
- the guarantee that a question is charged and drawn once rests on none of these locks: `ledger.request`
  decides and commits in one transaction, purchases only grow, and `ledger.fulfil` takes the first record of
  each measurement and refuses every later one. If two threads ask the same new question at once, the ledger
  charges the first and finds the question bought for the second. If the second comes before the first has
  recorded, both may draw, the first record stands, and both answers are made from it: the second draw is
  never shown.

Under the policy `degrade` a coarser answer is drawn under the notebook's lock (`degrade`). Other free answers
of that data set wait for this lock; no reading of rows does.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from functools import partial
from typing import Unpack

from reticent.arguments import real
from reticent.errors import BudgetExceeded, IdempotencyConflict, ParameterError, QuestionRefused
from reticent.ledger import Amount, Balance, Grant, Ledger, Reading, Unit
from reticent.privacy import spent_epsilon
from reticent.query.accuracy import (
    CONFIDENCE,
    KEY,
    NONE,
    SPAN,
    Accuracy,
    Words,
    checked_confidence,
    checked_reuse,
)
from reticent.query.answers import Answer, Assumed, Case, Price
from reticent.query.combined import worth
from reticent.query.declarations.account_opening import as_open
from reticent.query.declarations.datasets import DataSet, Policy
from reticent.query.estimates import widest
from reticent.query.idempotent_requests import find_earlier_grant, request_once
from reticent.query.kinds.count import COUNT
from reticent.query.kinds.intervals import half_width_factor
from reticent.query.language import tree
from reticent.query.language.questions import Question
from reticent.query.language.shorthands import Shorthands
from reticent.query.language.tree import Query
from reticent.query.measure import Plan, Rows
from reticent.query.notebook import Notebook
from reticent.query.paying import Due, Hand, Paid, check_paid_for
from reticent.query.plans import Asked, Kept, Plans
from reticent.query.prices import (
    assumed_rows,
    is_useless,
    predicted_error,
    rests_on_rows,
    sizes_at_least,
)
from reticent.query.proposals import Account, Proposal, each, proposed
from reticent.query.proposals import Asked as Wanted
from reticent.query.purchases import Purchases
from reticent.query.recording import Promptly, at_once, awaited, drawn_since, record
from reticent.query.shared_notebook import SharedNotebook
from reticent.query.span import Joint
from reticent.query.standing import Standing, bought, is_public, rounded_like_bought, standing
from reticent.query.telling import Teller
from reticent.randomness import Stream

_MOST_FREE = 500  # cached answers, each valid while ledger and account are unchanged
_FEW_CELLS = 64  # questions of so few cells are estimated at once
_FEWER = (10, 100)  # divisors of the assumed rows, to show the error with fewer rows


class Session(Shorthands):
    """A data set that answers questions, opened with `reticent.open`.

    A question is charged once, in this process or any other: a retry under the same idempotency text, a
    question whose process crashed after paying, and a question that is paid for and not recorded yet, cost
    nothing again.

    Args:
        data: Declaration of the data set.
        rows: Prepared rows, or a function that opens them; never read before the ledger has charged. None if
            an oracle holds the data and records the measurements.
        ledger: Ledger with the data set's account, which is opened if it is new.
        notebook: History of questions, coarser draws and requests; in RAM by default.
        rng: None for secure noise; a SimulationStream in tests and rehearsals.
        wait_s: Seconds that an oracle may take to record a measurement.
        leaving: Event that is set when the session shuts down: waiting for an oracle ends then.
    """

    def __init__(
        self,
        data: DataSet,
        rows: Rows | Callable[[], Rows] | None,
        ledger: Ledger,
        notebook: Notebook | SharedNotebook | None = None,
        *,
        rng: Stream | None = None,
        wait_s: float = 600.0,
        leaving: threading.Event | None = None,
    ) -> None:
        if ledger.measured_by_oracle:
            _check_elsewhere(data, rows)
            data = as_open(data, ledger)
        self._wait_s = real("wait_s", wait_s, low=0.0)
        self._leaving = leaving if leaving is not None else threading.Event()
        self.data = data
        self._rows, self._ledger, self._rng = rows, ledger, rng
        self._connecting = threading.Lock()
        self._notebook = notebook if notebook is not None else Notebook()
        self._plans = Plans(data, ledger)
        shares = data.policy is not Policy.DEGRADE  # a coarser draw is not to be undone by others' purchases
        self._purchases = Purchases(data, ledger, self._plans) if shares else None
        self._teller = Teller(data, ledger, self._notebook, self._purchases, rng)
        self._free: Kept[tuple[Query, Accuracy], tuple[Reading, Answer]] = Kept(_MOST_FREE)
        ledger.open(data.terms)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self, *, ledger: bool = True) -> None:
        """Close notebook and rows, and the ledger too unless `ledger` is false because it is shared."""
        if ledger:
            self._ledger.close()
        self._notebook.close()
        if self._rows is not None and not callable(self._rows):
            self._rows.close()

    # Questions

    def ask(
        self,
        query: Asked,
        accuracy: Accuracy | None = None,
        *,
        idempotency: str | None = None,
        paying: Callable[[int], None] | None = None,
        **words: Unpack[Words],
    ) -> Answer:
        """Answer a query at the requested accuracy, charging only for measurements that are not bought yet.

        Args:
            query: A `Query`, its JSON, or SQL text.
            accuracy: Accuracy of the answer; or pass the fields of `Accuracy` as keyword arguments: `error`,
                which is half the width of the interval, or instead `epsilon` with `delta`, or `information`;
                and `confidence` and `rows`.
            idempotency: Text under which a retry is charged once, and shows the cost of the first request.
            paying: Callback before the ledger is called, with the most units that it may charge; an exception
                from it refuses the question. Not called if nothing must be bought.
            **words: Fields of the accuracy.

        Raises:
            QuestionRefused: The budget does not suffice; nothing was charged. The error carries the units
                requested, the units left, and the best answer that is free.
            NotMeasured: The oracle that holds the data has not recorded the measurement in time. It is paid
                for: asking again is free.
        """
        given = Accuracy.of(accuracy, words)
        paid = self.pay(query, given, idempotency=idempotency, paying=paying)
        return self.told(query, paid, confidence=given.confidence)

    def pay(
        self,
        query: Asked,
        accuracy: Accuracy,
        *,
        idempotency: str | None = None,
        paying: Callable[[int], None] | None = None,
        offering: bool = True,
        hand: Hand | None = None,
        promptly: Promptly = at_once,
    ) -> Paid:
        """Charge for the measurements that a query still needs, draw and record them (first half of `ask`).

        Args:
            query: Query, as for `ask`.
            accuracy: Accuracy of the answer.
            idempotency: Text under which a retry is charged once, as for `ask`.
            paying: Callback before the charge, as for `ask`.
            offering: True if a refusal shall show the best free answer and the reachable error (see `offer`).
            hand: Worker that quotes, draws and records; this session by default.
            promptly: Wrapper of the ledger call that records, as for `record`; not used with a worker.
        """
        worker, asked = (self, self._plans.read(query)) if hand is None else (hand, query)
        if isinstance(asked, Query) and hand is None:  # most are free: skip what only payments need
            due = self._due(asked, self._standing(asked, accuracy))
        else:
            due = worker.due(asked, accuracy)
        for last in (False, True):
            if due.is_free:
                earlier = find_earlier_grant(due, idempotency, self._notebook, self._request)
                return Paid(due.bought, due.wanted, earlier, due.combined)
            if paying is not None:
                paying(due.cost)
            try:
                due, grant = request_once(due, idempotency, self._notebook, self._request)
                break
            except BudgetExceeded as refusal:
                if not offering:
                    raise
                raise self.offer(asked, accuracy, refusal) from refusal
            except IdempotencyConflict:
                # Another notebook charged this request meanwhile, for the amount due when less was recorded.
                again = worker.due(asked, accuracy)
                if last or again.amount == due.amount:
                    raise
                due = again
        if hand is None:
            self.record(asked, grant, promptly=promptly)
        else:
            hand.record(asked, grant)
        return Paid(due.bought, due.wanted, grant, due.combined, due.since)

    def _request(self, due: Due, idempotency: str | None) -> Grant:
        """Declare the question to the ledger and request its measurement."""
        text, grid, values = due.words
        self._ledger.declare(self.data.account, due.key, question=text, grid=grid, dimension=values)
        return self._ledger.request(
            self.data.account, due.key, self._amount(due.amount), idempotency=idempotency
        )

    def has_requested(self, query: Asked, idempotency: str | None) -> bool:
        """Return whether the ledger may have been asked for a question under an idempotency text."""
        if idempotency is None:
            return False
        key = self._plans.of(self._plans.read(query)).question.key
        return any(note.key == key for note in self._notebook.request_notes(idempotency))

    def due(self, query: Asked, accuracy: Accuracy) -> Due:
        """Quote the purchase that a question needs. Rows are opened, not read, so no payment is in vain."""
        asked = self._plans.read(query)
        return self._due(asked, self._standing(asked, accuracy))

    def _due(self, asked: Query, found: Standing) -> Due:
        is_free = is_public(asked, found.plan) or not found.fresh
        if not is_free:
            self.warm()
        plan = found.plan
        return Due(
            plan.question.key,
            found.bought,
            found.wanted,
            0 if is_free else self._teller.cost(plan, found.bought, found.amount),
            is_free,
            found.amount,
            found.combined,
            (plan.question.text, plan.shift, plan.values),
            found.before if found.reuse == NONE else None,
        )

    def record(self, query: Asked, grant: Grant, *, promptly: Promptly = at_once) -> None:
        """Read rows, draw noise and record every measurement of a grant that is paid for and not recorded.

        Any process with the same ledger and rows may do this: only the first record counts.

        Args:
            query: Query that was paid for.
            grant: Grant of the ledger for the query.
            promptly: Wrapper of the ledger call, which blocks other threads; drawing does not.
        """
        asked = self._plans.read(query)
        prepared = self._plans.of(asked)
        check_paid_for(prepared.question.key, grant)
        if self._rows is not None:
            record(self._ledger, prepared, grant, self._opened(), self._rng, promptly)
        if grant.charged:
            self._notebook.remember(prepared.question.key, json.dumps(tree.to_json(asked)))

    def told(self, query: Asked, paid: Paid, *, confidence: float = CONFIDENCE) -> Answer:
        """Build the answer from recorded measurements: the second half of `ask`.

        Any process with the same ledger may do this, as often as it likes: nothing is charged, and no rows
        are read. Under the policy `share` nothing is drawn either.
        """
        asked = self._plans.read(query)
        prepared = self._plans.of(asked)
        if is_public(asked, prepared):
            return self._teller.public(asked, prepared, confidence)
        check_paid_for(prepared.question.key, paid.grant)
        if paid.grant is not None and self._rows is None:
            look = partial(self._reading, prepared)
            after = awaited(look, paid.grant, self.data.name, self._wait_s, self._leaving)
        else:
            after = self._reading(prepared)
        if paid.combined:
            return self._teller.combined(asked, prepared, after, paid.wanted, confidence, paid.grant)
        if paid.since is not None:
            after, paid = drawn_since(after, paid.since), replace(paid, bought=0)
        return self._teller.answer(asked, prepared, paid.bought, after, paid.wanted, confidence, paid.grant)

    def free(self, query: Asked, accuracy: Accuracy | None = None, **words: Unpack[Words]) -> Answer | None:
        """Return the answer of `ask` if nothing must be bought or measured for it, else None.

        No rows are read, nothing is charged, and the call waits for no payment. Arguments as for `ask`.
        """
        asked = self._plans.read(query)
        given = Accuracy.of(accuracy, words)
        found = self._standing(asked, given)
        prepared, before = found.plan, found.before
        if is_public(asked, prepared):
            return self._teller.public(asked, prepared, given.confidence)
        if found.fresh:
            return None
        if not found.combined:
            return self._teller.answer(
                asked, prepared, found.bought, before, found.wanted, given.confidence, None
            )
        answer = self._teller.combined(asked, prepared, before, found.wanted, given.confidence, None)
        if prepared.question.cells <= _FEW_CELLS:
            self._free.keep((asked, given), (before, answer))
        return answer

    def _standing(self, query: Query, accuracy: Accuracy) -> Standing:
        """Compute how a query is measured, which units are bought, and how many must be in all."""
        prepared = self._plans.of(query)
        before = self._reading(prepared)
        if is_public(query, prepared):
            return Standing(prepared, before, 0, before.information, 0, False, accuracy.reuse)
        if self._purchases is None and accuracy.reuse == NONE:
            raise ParameterError("reuse must be key under the policy degrade, got none: what it shows is "
                                 "never better than what was asked for")  # fmt: skip
        wanted = self._wanted(query, prepared, accuracy, before)
        return standing(query, prepared, before, wanted, accuracy, self._purchases)

    def price(self, query: Asked, accuracy: Accuracy | None = None, **words: Unpack[Words]) -> Price:
        """Price a query: the units that `ask` would charge now, from public numbers. Same arguments."""
        asked = self._plans.read(query)
        given = Accuracy.of(accuracy, words)
        balance, found = self.balance(), self._standing(asked, given)
        prepared, wanted = found.plan, found.wanted
        if is_public(asked, prepared):
            delta, cap = self.data.budget.delta, balance.terms.cap
            return Price(asked, 0, 0, 0, balance.remaining, delta, 0.0, Case.PUBLIC, budget=cap)
        cost = self._teller.cost(prepared, found.bought, found.amount)
        units = wanted + max(0, cost - found.missing)
        if not found.combined and found.reuse != NONE:
            units = max(wanted, found.bought + cost)
        error = self._expected_error(asked, prepared, given, units)
        return Price(
            asked,
            wanted,
            found.bought,
            cost,
            balance.remaining,
            self.data.budget.delta,
            error,
            found.case,
            self._free_error(asked, prepared, given),
            self._assumed(asked, prepared, given, units),
            error is not None and is_useless(asked, prepared, error),
            balance.terms.cap,
            self._teller.cost(prepared, found.bought, found.bought + wanted),
        )

    def plan(
        self,
        workload: Iterable[Asked | tuple[Asked, Accuracy]],
        accuracy: Accuracy | None = None,
        **words: Unpack[Words],
    ) -> Proposal:
        """Propose purchases to make first for many questions, and price them all then. Nothing is bought.

        Args:
            workload: Queries, their JSON, or SQL texts, in the order in which they will be asked; or pairs of
                a query and its accuracy.
            accuracy: Accuracy of the queries without their own, as for `ask`.
            **words: Fields of the accuracy.
        """
        asked, reuses = [], self._purchases is not None
        for query, own in each(workload, accuracy, words):
            read = self._plans.read(query)
            found = self._standing(read, replace(own, reuse=KEY))
            asked.append(Wanted(read, found.plan, found.wanted, own.information is not None, own.reuse))
        joint = partial(Joint, self.data) if self._purchases is None else self._purchases.supposable
        held = (lambda plan: bought(self._reading(plan)), self._teller.cost)
        return proposed(asked, Account(self._plans.of, joint, *held, self.balance(), self.data, reuses))

    def _assumed(self, query: Query, prepared: Plan, accuracy: Accuracy, units: int) -> Assumed | None:
        """Return the private row count that a predicted error assumes, and the error with fewer rows."""
        rows = assumed_rows(query, prepared, accuracy.rows)
        if rows is None or not rests_on_rows(query, prepared):
            return None
        fewer = [rows / part for part in _FEWER if rows >= part]
        errors = [predicted_error(query, prepared, units, accuracy.confidence, one) for one in fewer]
        return Assumed(rows, accuracy.rows is not None, tuple(zip(fewer, errors, strict=True)))

    def _free_error(self, query: Query, prepared: Plan, accuracy: Accuracy) -> float | None:
        """Return the error of the answer from `known`; a guess of the rows may ask for more than needed."""
        best = self._teller.best(query, prepared, accuracy.confidence, accuracy.reuse)
        return None if best is None else widest(best[0])

    def reused(self, query: Asked, accuracy: Accuracy | None = None, **words: Unpack[Words]) -> Answer | None:
        """Return the answer of `ask` if it is free and takes no time; None if it may cost either.

        Meant for a service that must not wait: no rows are read, nothing is planned or charged.
        """
        ready = self._plans.ready(query)
        if ready is None or self.data.policy is Policy.DEGRADE:
            return None
        asked, prepared = ready
        if prepared.question.cells > _FEW_CELLS or is_public(asked, prepared):
            return None
        given = Accuracy.of(accuracy, words)
        before = self._reading(prepared)
        held = self._free.get((asked, given))
        if held is not None and held[0] == before and held[1].spent == self.balance().spent:
            return held[1]
        if not before.information or given.reuse == NONE:
            return None
        wanted = self._wanted(asked, prepared, given, before)
        if wanted > before.information:
            return None
        answer = self._teller.answer(asked, prepared, bought(before), before, wanted, given.confidence, None)
        self._free.keep((asked, given), (before, answer))
        return answer

    def known(self, query: Asked, *, confidence: float = CONFIDENCE, reuse: str = SPAN) -> Answer | None:
        """Return the best answer that is already paid for, free of charge; None if nothing is recorded.

        Args:
            query: Query, as for `ask`.
            confidence: Confidence of the intervals.
            reuse: "key" to use measurements of the question itself alone.
        """
        checked_confidence(confidence)
        checked_reuse(reuse, SPAN, KEY)
        asked = self._plans.read(query)
        prepared = self._plans.of(asked)
        if is_public(asked, prepared):
            return self._teller.public(asked, prepared, confidence)
        best = self._teller.best(asked, prepared, confidence, reuse)
        if best is None:
            return None
        _, reading, found = best
        if not found:
            units = reading.information
            return self._teller.answer(asked, prepared, bought(reading), reading, units, confidence, None)
        return self._teller.combined(asked, prepared, reading, worth(found), confidence, None)

    def recorded_rows(self, query: Asked, *, confidence: float = CONFIDENCE) -> int | None:
        """Return a lower bound of the rows in the smallest group, from recorded values: a guess for `rows`.

        Returns:
            The lower end of the interval, 0 if the group cannot be told from an empty one; None if nothing
            is recorded that may be shown. The bound is free, and no price depends on it.
        """
        factor = half_width_factor(checked_confidence(confidence))
        if self.data.policy is Policy.DEGRADE:
            return None
        asked = self._plans.read(query)
        question = self._plans.of(asked).question
        counting = Question(COUNT, None, True, question.where, question.by, self.data)
        found = [
            sizes_at_least(asked, prepared, reading.nearest(), reading.information, factor)
            for prepared in (self._plans.of(asked), self._plans.planned(counting))
            if prepared.counts is not None and (reading := self._reading(prepared)).information
        ]
        return max(found, default=None)

    def rehearse(
        self, query: Asked, accuracy: Accuracy | None = None, *, seed: int = 0, **words: Unpack[Words]
    ) -> Answer:
        """Answer a query about made-up rows that fit the declaration: nothing is charged, nothing is private.

        Args:
            query: Query, as for `ask`.
            accuracy: Accuracy, as for `ask`.
            seed: Seed of the made-up rows and their noise.
            **words: Fields of the accuracy.
        """
        from reticent.query.rows.rehearsal import rehearsal

        with rehearsal(self.data, seed) as session:
            return session.ask(query, accuracy, **words)

    # State of the data set

    def balance(self) -> Balance:
        """Return the balance of the data set's account: its cap and the units spent."""
        return self._ledger.balance(self.data.account)

    @property
    def recorded_values(self) -> int:
        """The number of recorded values that a question may be estimated from, as of the last look."""
        return 0 if self._purchases is None else len(self._purchases)

    def questions(self, keys: Container[str] | None = None) -> dict[str, Query]:
        """Return the queries bought so far, by key; only those under `keys`, if keys are passed."""
        return {
            key: tree.from_json(json.loads(text))
            for key, text in self._notebook.questions().items()
            if keys is None or key in keys
        }

    # The path of an answer

    def read(self, given: Asked) -> Query:
        """Parse a query from a `Query`, its JSON, or SQL text."""
        return self._plans.read(given)

    def _amount(self, units: int) -> Amount:
        return Amount(units, Unit.MU2, self.data.relation)

    def _reading(self, prepared: Plan) -> Reading:
        return self._ledger.reading(self.data.account, prepared.question.key)

    def warm(self) -> None:
        """Open the rows now, so that the first question need not wait for them. Nothing is read."""
        if self._rows is not None:
            self._opened()

    def _opened(self) -> Rows:
        with self._connecting:
            if callable(self._rows):
                self._rows = self._rows()
            assert self._rows is not None
            return self._rows

    def _wanted(self, query: Query, prepared: Plan, accuracy: Accuracy, reading: Reading) -> int:
        """Return the units that must be bought in all, from the declaration and the request alone.

        No recorded value enters. So the same request, or one for less, is always found bought, whatever the
        noise has shown since.
        """
        rows = assumed_rows(query, prepared, accuracy.rows)
        if accuracy.error is not None and rows is None:
            raise ParameterError("rows must be given with error: how many rows match is private, so guess it"
                                 f"{self._hint(query, accuracy.confidence)}")  # fmt: skip
        units = accuracy.units(query, prepared, self.data.budget, rows)
        return rounded_like_bought(units, bought(reading), is_exact=accuracy.information is not None)

    def _hint(self, query: Query, confidence: float) -> str:
        """Return a hint for guessing the rows, from recorded values, to append to an error message."""
        least = self.recorded_rows(query, confidence=confidence)
        if least is None:
            return ""
        return f"; what is recorded says at least {least}" if least else (
            "; what is recorded cannot tell the group from an empty one")  # fmt: skip

    def _expected_error(self, query: Query, prepared: Plan, accuracy: Accuracy, units: int) -> float | None:
        """Return half the interval's width at so many units; None if it depends on an unknown row count."""
        rows = assumed_rows(query, prepared, accuracy.rows)
        return None if rows is None else predicted_error(query, prepared, units, accuracy.confidence, rows)

    def offer(self, query: Asked, accuracy: Accuracy, refusal: BudgetExceeded) -> QuestionRefused:
        """Build the refusal of a query, with the best answer that is free and the error within reach."""
        asked = self._plans.read(query)
        prepared = self._plans.of(asked)
        best = self.known(asked, confidence=accuracy.confidence)
        held, delta = bought(self._reading(prepared)), self.data.budget.delta
        reachable, assumed = None, None
        if refusal.left >= self._teller.cost(prepared, 0, 1):
            reachable = self._expected_error(asked, prepared, accuracy, held + refusal.left)
            assumed = self._assumed(asked, prepared, accuracy, held + refusal.left)
        return QuestionRefused(
            refusal.account,
            refusal.asked,
            refusal.left,
            budget=self.data.terms.cap,
            asked_epsilon=spent_epsilon(refusal.asked, delta),
            left_epsilon=spent_epsilon(refusal.left, delta) if refusal.left else 0.0,
            best=best,
            best_error=best.error if best is not None else None,
            reachable_error=reachable,
            reachable_rows=None if assumed is None else assumed.rows,
        )


def _check_elsewhere(data: DataSet, rows: object) -> None:
    """Reject rows and the policy `degrade` for a ledger whose measurements an oracle makes."""
    if rows is not None:
        raise ParameterError("rows must be None with this ledger: an oracle holds the data and records")
    if data.policy is Policy.DEGRADE:
        raise ParameterError("policy must be share with this ledger, got degrade: it shows the best answer "
                             "to everybody")  # fmt: skip
