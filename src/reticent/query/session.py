"""Asking: price from public numbers, pay, measure, combine, answer. The one path by which answers leave.

Promise, pay, release: the plan and its price are computed from the declaration; `ledger.request` charges
what is not bought yet, or refuses; only then rows are read, noise is drawn, and `ledger.fulfil` records
the measurement, once. The answer is arithmetic on what is recorded. A crash in between loses nothing:
what is paid and not recorded is measured by whoever asks next.

Where somebody else holds the data, this side never sees a row: it says in the ledger what must be measured,
pays, and waits until it is recorded there.

Threads share a session, and processes a ledger. What they may wait for:

- a price, a known answer and an answer that is recorded take no lock that is held while rows are opened or
  read or noise is drawn: they read the ledger on its reading connection, one statement each, which sees what
  was committed last. Plans, texts and answers that are kept ready are values that anybody may make again, so
  two who make the same do no harm. What others bought is taken in under a lock, and estimated from without
  one (`Purchases`);
- who pays takes the lock of opening the rows, once, and that of the table for one statement at a time
  (`source.Table`): paid questions about one data set are read one after the other. Neither is held while the
  ledger is called;
- that a question is charged and drawn once rests on none of these locks, and so not on who waits for whom:
  `ledger.request` decides and commits in one transaction, what is bought only grows, and `ledger.fulfil`
  takes the first record of each measurement and refuses every other. Of two who ask the same new question at
  once, the ledger charges the first and finds it bought for the second. If the second comes before the first
  has recorded, both may draw, the first record stands, and both answers are made from it: the other draw
  is seen by nobody.

Under the policy `degrade` a coarser answer is drawn under the notebook's lock (`degrade`), for which other
free answers of that data set wait, and no reading of rows.
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

_MOST_FREE = 500  # answers, each good while ledger and account stand as they did
_FEW_CELLS = 64  # that are estimated in no time
_FEWER = (10, 100)  # parts of the rows that an error assumes, to show what it would be with so many


class Session(Shorthands):
    """A data set that can be asked. Made by `reticent.open`.

    Whoever measures, a question is charged once: a retry under the same idempotency text, a question whose
    asker crashed after paying, and one that is paid for and not recorded yet, cost nothing again.

    Args:
        data: the declaration.
        rows: the prepared rows, or how to get at them; never looked at before the ledger has charged. None
            if somebody else holds the data and records what is paid for.
        ledger: holds the data set's account, which is opened if it is new.
        notebook: the engine's own memory; in RAM by default.
        rng: None for secure noise; a SimulationStream in tests and rehearsals.
        wait_s: how long an answer may take to be recorded by somebody else.
        leaving: is set once nobody may wait for that any longer.
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
        """Close notebook and rows, and the ledger too unless others use it."""
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
        """Answer a query as exactly as asked, charging only what is not bought yet.

        Args:
            query: a `Query`, its JSON, or SQL text.
            accuracy: how exact the answer shall be; or word by word, as the fields of `Accuracy`: `error`,
                which is half the width of the interval, or instead `epsilon` with `delta`, or `information`;
                and `confidence` and `rows`.
            idempotency: a retry with the same text is charged once, and shows what was charged.
            paying: called before the ledger is, with the most units that it may charge; what this raises
                refuses the question. Not called if nothing must be bought.
            **words: of the accuracy.

        Raises:
            QuestionRefused: the budget does not suffice; nothing was charged. It carries what was asked,
                what is left, and the best answer that is free.
            NotMeasured: whoever holds the data has not recorded it in time. It is paid for: asking again
                is free.
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
        """The first half of `ask`: charge what is not bought yet, draw and record it.

        Args:
            query: as for `ask`.
            accuracy: the same in one.
            idempotency: as for `ask`.
            paying: as for `ask`.
            offering: whether a refusal says what is free and within reach, as `offer` does.
            hand: who says what is due, and draws and records what is paid for; this session by default.
            promptly: how the ledger is called to record, as for `record`; not used with a hand.
        """
        worker, asked = (self, self._plans.read(query)) if hand is None else (hand, query)
        if isinstance(asked, Query) and hand is None:  # most is free: nothing is made that only payments need
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
                # Charged meanwhile by a try that another notebook knows of, when others had recorded less.
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
        """Tell the ledger what is asked, and ask for it."""
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
        """What must be bought for a question. Its rows are opened, not read: paying is not in vain."""
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
        """Read rows, draw noise and record it, for all that is paid for and not recorded.

        Any process with the same ledger and rows may do this: only the first record counts.

        Args:
            query: what was paid for.
            grant: the ledger's, for it.
            promptly: how the ledger is called; it holds others up, and drawing does not.
        """
        asked = self._plans.read(query)
        prepared = self._plans.of(asked)
        check_paid_for(prepared.question.key, grant)
        if self._rows is not None:
            record(self._ledger, prepared, grant, self._opened(), self._rng, promptly)
        if grant.charged:
            self._notebook.remember(prepared.question.key, json.dumps(tree.to_json(asked)))

    def told(self, query: Asked, paid: Paid, *, confidence: float = CONFIDENCE) -> Answer:
        """The second half of `ask`: the answer, from what is recorded.

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
        """What `ask` would answer if nothing must be bought or measured for it; None else.

        No rows are looked at, nothing is charged, and nobody who pays is waited for. Arguments as for `ask`.
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
        """How a query is measured, what is bought, and what must be in all."""
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
        """What `ask` would charge now, from public numbers only. Arguments as for `ask`."""
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
        """What to buy first for many questions, and what all of them cost then. Nothing is bought.

        Args:
            workload: queries, their JSON, or SQL texts, in the order in which they will be asked; or pairs of
                one of these and its accuracy.
            accuracy: of those without one of their own, as for `ask`.
            **words: the same, word by word.
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
        """What the predicted error rests on, where that is private, and what fewer rows would make of it."""
        rows = assumed_rows(query, prepared, accuracy.rows)
        if rows is None or not rests_on_rows(query, prepared):
            return None
        fewer = [rows / part for part in _FEWER if rows >= part]
        errors = [predicted_error(query, prepared, units, accuracy.confidence, one) for one in fewer]
        return Assumed(rows, accuracy.rows is not None, tuple(zip(fewer, errors, strict=True)))

    def _free_error(self, query: Query, prepared: Plan, accuracy: Accuracy) -> float | None:
        """How exact the answer is that `known` gives; a guess of the rows may ask for more than is needed."""
        best = self._teller.best(query, prepared, accuracy.confidence, accuracy.reuse)
        return None if best is None else widest(best[0])

    def reused(self, query: Asked, accuracy: Accuracy | None = None, **words: Unpack[Words]) -> Answer | None:
        """What `ask` would answer if that is free and takes no time; None if it may cost either.

        For a service that would rather not wait: no rows are read, nothing is planned or charged.
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
        """The best answer that is already paid for, free of charge; None if nothing is recorded.

        Args:
            query: as for `ask`.
            confidence: of the intervals.
            reuse: "key" for what is recorded under the question itself alone.
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
        """How many rows the smallest group has at least, by what is recorded: a guess to give as `rows`.

        Returns:
            The lower end of its interval, 0 if that tells it from an empty group no more; None if nothing is
            recorded that may be shown. It is free, and no price rests on it.
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
        """Ask the same of made-up rows that fit the declaration: nothing is charged, nothing is private.

        Args:
            query: as for `ask`.
            accuracy: as for `ask`.
            seed: of the made-up rows and their noise.
            **words: the same, word by word.
        """
        from reticent.query.rows.rehearsal import rehearsal

        with rehearsal(self.data, seed) as session:
            return session.ask(query, accuracy, **words)

    # What is there

    def balance(self) -> Balance:
        """The data set's account: its cap and what is spent."""
        return self._ledger.balance(self.data.account)

    @property
    def recorded_values(self) -> int:
        """Return how many recorded values a question may be estimated from, as of the last look."""
        return 0 if self._purchases is None else len(self._purchases)

    def questions(self, keys: Container[str] | None = None) -> dict[str, Query]:
        """What was bought so far, by key; under some keys only, where they are given."""
        return {
            key: tree.from_json(json.loads(text))
            for key, text in self._notebook.questions().items()
            if keys is None or key in keys
        }

    # The path of an answer

    def read(self, given: Asked) -> Query:
        """The query that is given, as its JSON or as SQL too."""
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
        """The units that must be bought in all: of the declaration and the request, nothing recorded.

        So whoever asks the same, or for less, finds it bought, whatever the noise has shown since.
        """
        rows = assumed_rows(query, prepared, accuracy.rows)
        if accuracy.error is not None and rows is None:
            raise ParameterError("rows must be given with error: how many rows match is private, so guess it"
                                 f"{self._hint(query, accuracy.confidence)}")  # fmt: skip
        units = accuracy.units(query, prepared, self.data.budget, rows)
        return rounded_like_bought(units, bought(reading), is_exact=accuracy.information is not None)

    def _hint(self, query: Query, confidence: float) -> str:
        """What is recorded of the rows that somebody should guess, in words."""
        least = self.recorded_rows(query, confidence=confidence)
        if least is None:
            return ""
        return f"; what is recorded says at least {least}" if least else (
            "; what is recorded cannot tell the group from an empty one")  # fmt: skip

    def _expected_error(self, query: Query, prepared: Plan, accuracy: Accuracy, units: int) -> float | None:
        """Half the width of the interval at that many units; None if it depends on what nobody knows."""
        rows = assumed_rows(query, prepared, accuracy.rows)
        return None if rows is None else predicted_error(query, prepared, units, accuracy.confidence, rows)

    def offer(self, query: Asked, accuracy: Accuracy, refusal: BudgetExceeded) -> QuestionRefused:
        """The ledger's refusal of a query, with the best answer that is free and what is within reach."""
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
    """Refuse what cannot be had where an oracle measures."""
    if rows is not None:
        raise ParameterError("rows must be None with this ledger: an oracle holds the data and records")
    if data.policy is Policy.DEGRADE:
        raise ParameterError("policy must be share with this ledger, got degrade: it shows the best answer "
                             "to everybody")  # fmt: skip
