"""Purchase proposals for a workload: tables to buy first, and the cost of all questions then.

A dashboard, or the questions of last month, asks many things about the same columns. A few tables that have
all of them in their span may cost much less than the questions one by one, and less than they cost as they
come, when each reuses what earlier questions happened to buy. `proposed` searches for such tables
(`span.tables`) and simulates the workload with them, as the ledger would charge it, without asking anything.

A proposal is only advice: each purchase is requested, priced and charged like any other question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np

from reticent.arguments import real
from reticent.errors import ParameterError
from reticent.ledger import Balance
from reticent.numerals import up
from reticent.privacy import spent_epsilon
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query.accuracy import KEY, SPAN, Accuracy, Words, checked_reuse
from reticent.query.answers import read_units
from reticent.query.declarations.datasets import DataSet
from reticent.query.language.tree import Query, from_json, to_json
from reticent.query.language.words import in_words
from reticent.query.measure import Plan
from reticent.query.plans import Asked as Given
from reticent.query.span import Joint, is_combined
from reticent.query.span.tables import candidates, chosen, rates, supposed
from reticent.query.standing import rounded_like_bought, to_buy

MOST_WISHES = 200
_FACTORS = (1.0, 0.85, 0.7, 0.55, 0.4)  # of the tables' units: fewer may do, as purchases support each other


@dataclass(frozen=True)
class Wish:
    """A question of a workload, with its costs alone and after the proposed purchases.

    Attributes:
        query: Query to answer.
        information: Units that the answer must be worth.
        alone: Units that the question costs now, reusing purchases of the question itself.
        after: Units that the question costs in its turn, once the proposed tables are bought.
    """

    query: Query
    information: int
    alone: int
    after: int


@dataclass(frozen=True)
class First:
    """A table to buy first.

    Attributes:
        query: Query of the table.
        information: Units that must be bought under the query in all.
        cost: Units that are charged for the table.
    """

    query: Query
    information: int
    cost: int

    @property
    def mu2(self) -> float:
        """The information in mu^2 that buys the table: `ask(query, information=mu2)`.

        It is rounded up: a request rounds down to units, and one unit less than was planned would make a
        later question pay the minimal charge for it.
        """
        return _rounded_up_mu2(self.information)


@dataclass(frozen=True)
class Proposal:
    """The cost of a workload, and the tables to buy first.

    Attributes:
        first: Tables to buy before anything else, in this order; none if that would save nothing.
        wishes: Questions, in their order.
        alone: Units of all questions, each reusing purchases of the question itself.
        as_they_come: Units of all questions, each reusing the purchases of those before it.
        cost: Units of the tables, and of the part of each question that is missing then.
        remaining: Units left in the account.
        budget: Units of the whole account.
        delta: Delta of the budget.
    """

    first: tuple[First, ...]
    wishes: tuple[Wish, ...]
    alone: int
    as_they_come: int
    cost: int
    remaining: int
    budget: int
    delta: float

    @property
    def affordable(self) -> bool:
        """True if the account has enough left for the whole proposal."""
        return self.cost <= self.remaining

    @property
    def epsilon(self) -> float:
        """The cost of the whole proposal alone as epsilon at the budget's delta."""
        return spent_epsilon(self.cost, self.delta) if self.cost else 0.0

    def share(self, units: int) -> float:
        """Return units as a share of the whole budget: shares add up."""
        return units / self.budget

    def __str__(self) -> str:
        def part(units: int) -> str:
            return f"{up(100 * self.share(units), 3)} % of the budget" if units else "nothing"

        lines = [f"{len(self.wishes)} questions: {part(self.alone)} each by itself, "
                 f"{part(self.as_they_come)} as they come, {part(self.cost)} as proposed"]  # fmt: skip
        lines += [f"  first {in_words(one.query)}: {part(one.cost)}" for one in self.first]
        free = sum(not one.after for one in self.wishes)
        lines.append(f"  then {free} of {len(self.wishes)} questions are free")
        if not self.affordable:
            lines.append("  more than is left")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON, with amounts as decimal strings of units."""
        return {
            "first": [
                {
                    "query": to_json(one.query),
                    "information": str(one.information),
                    "mu2": one.mu2,
                    "cost": str(one.cost),
                    "cost_share": self.share(one.cost),
                }
                for one in self.first
            ],
            "questions": [
                {
                    "query": to_json(one.query),
                    "information": str(one.information),
                    "alone": str(one.alone),
                    "after": str(one.after),
                }
                for one in self.wishes
            ],
            "alone": str(self.alone),
            "as_they_come": str(self.as_they_come),
            "cost": str(self.cost),
            "cost_share": self.share(self.cost),
            "cost_epsilon": self.epsilon,
            "remaining": str(self.remaining),
            "budget": str(self.budget),
            "delta": self.delta,
            "affordable": self.affordable,
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Proposal:
        """Parse a proposal from the output of `to_json`, also from a service.

        Raises:
            ParameterError: An amount is no whole number that a ledger can hold.
        """
        return cls(
            tuple(
                First(from_json(one["query"]), read_units(one["information"]), read_units(one["cost"]))
                for one in given["first"]
            ),
            tuple(
                Wish(
                    from_json(one["query"]),
                    read_units(one["information"]),
                    read_units(one["alone"]),
                    read_units(one["after"]),
                )
                for one in given["questions"]
            ),
            read_units(given["alone"]),
            read_units(given["as_they_come"]),
            read_units(given["cost"]),
            read_units(given["remaining"]),
            read_units(given["budget"], low=1),
            real("delta", given["delta"], low=0.0, high=1.0),
        )


@dataclass(frozen=True)
class Asked:
    """A question of a workload with its measurement plan and requested units.

    Attributes:
        query: Query to answer.
        plan: Measurement plan of the query.
        wanted: Units that the answer must be worth; 0 if the declaration answers the query.
        is_exact: True if the request names these units, and not an error (`standing.SAME`).
        reuse: Purchases that the answer may be made of, `accuracy.SPAN` or `accuracy.KEY`.
    """

    query: Query
    plan: Plan
    wanted: int
    is_exact: bool
    reuse: str = SPAN

    @property
    def is_combined(self) -> bool:
        """True if purchases of other questions may be part of the answer."""
        return self.reuse == SPAN and is_combined(self.query, self.plan)


@dataclass(frozen=True)
class Account:
    """The account that a workload is paid from, with its purchases and prices.

    Attributes:
        plan: Function from a query to its measurement plan.
        joint: Function that makes a new, independent joint estimate of all recorded measurements.
        bought: Function from a plan to the units that are paid for under its question.
        cost: Function from (plan, units bought, units wanted) to the units that the ledger charges.
        balance: Balance of the account.
        data: Declaration of the data set.
        reuses: True if questions may reuse purchases of other questions.
    """

    plan: Callable[[Query], Plan]
    joint: Callable[[], Joint]
    bought: Callable[[Plan], int]
    cost: Callable[[Plan, int, int], int]
    balance: Balance
    data: DataSet
    reuses: bool


def each(
    workload: Iterable[Given | tuple[Given, Accuracy]], accuracy: Accuracy | None, words: Words
) -> Iterator[tuple[Given, Accuracy]]:
    """Yield the questions of a workload, each with its own accuracy or the common one."""
    given = Accuracy.of(accuracy, words) if accuracy is not None or words else None
    for one in islice(workload, MOST_WISHES + 1):
        query, own = one if isinstance(one, tuple) else (one, given)
        if own is None:
            raise ParameterError("accuracy must be given for every question of a workload, or for all")
        checked_reuse(own.reuse, SPAN, KEY)
        yield query, own


def proposed(asked: Sequence[Asked], account: Account) -> Proposal:
    """Choose the tables to buy first for a workload, and compute the cost of all questions then."""
    if not 0 < len(asked) <= MOST_WISHES:
        raise ParameterError(f"workload must be 1 to {MOST_WISHES} questions, got {len(asked)}")
    alone = _by_themselves(asked, account)
    if not account.reuses:
        return _proposal([], asked, alone, sum(alone), (sum(alone), alone), account)
    as_they_come = _gone_through([], asked, account)
    best, tables = as_they_come, []
    for some in _choices(asked, account):
        found = _gone_through(some, asked, account)
        if found[0] < best[0]:
            best, tables = found, some
    return _proposal(tables, asked, alone, as_they_come[0], best, account)


def _choices(asked: Sequence[Asked], account: Account) -> list[list[Asked]]:
    """Return candidate sets of tables to buy first, with their units."""
    served = [one for one in asked if one.wanted and one.is_combined]
    if not served:
        return []
    data = account.data
    listed = candidates([(one.query, one.plan) for one in served], data)
    plans = [account.plan(query) for query in listed]
    worth = rates(plans, [one.plan for one in served], data)
    units = chosen(np.array([float(one.wanted) for one in served]), worth)
    # In the order in which they are shown and bought: the cost of a table depends on those before it.
    places = sorted(np.flatnonzero(units).tolist(), key=lambda place: -units[place])
    return [
        [Asked(listed[place], plans[place], _purchasable(factor * units[place]), True) for place in places]
        for factor in (_FACTORS if places else ())
    ]


def _purchasable(units: float) -> int:
    """Return the nearest units, at least 1, that a request by mu^2 can name exactly."""
    return _requested_units(_rounded_up_mu2(max(1, round(units))))


def _rounded_up_mu2(units: int) -> float:
    """Return the least float whose mu^2 is at least so many units, as a request counts them."""
    mu2 = units / UNITS_PER_ONE
    while _requested_units(mu2) < units:
        mu2 = math.nextafter(mu2, math.inf)
    return mu2


def _requested_units(mu2: float) -> int:
    """Return the units that a request for so much mu^2 asks for: `cap_units`, of any size."""
    return math.floor(Fraction(mu2) * UNITS_PER_ONE)


def _by_themselves(asked: Sequence[Asked], account: Account) -> list[int]:
    """Return the cost of each question in its turn if only the same measurement is reused."""
    bought: dict[str, int] = {}
    costs = []
    for one in asked:
        key = one.plan.question.key
        before = bought[key] if key in bought else account.bought(one.plan)
        wanted = rounded_like_bought(one.wanted, before, is_exact=one.is_exact)
        cost = account.cost(one.plan, before, wanted)
        bought[key] = before + cost
        costs.append(cost)
    return costs


def _gone_through(tables: Sequence[Asked], asked: Sequence[Asked], account: Account) -> tuple[int, list[int]]:
    """Return the total cost and each cost of tables and questions in turn, by the rule of the span."""
    joint, bought = account.joint(), dict[str, int]()
    costs = [_step(one, joint, bought, account) for one in (*tables, *asked)]
    return sum(costs), costs


def _step(one: Asked, joint: Joint, bought: dict[str, int], account: Account) -> int:
    """Return the cost of a question in its turn, and treat it as recorded, as `Session.ask` would.

    Args:
        one: Question to price.
        joint: Joint estimate of all earlier measurements; the question's own purchase is added.
        bought: Units paid for under each earlier key, recorded or not; the question's own are added.
        account: Account that pays.
    """
    plan, key = one.plan, one.plan.question.key
    before = bought[key] if key in bought else account.bought(plan)
    recorded = joint.recorded(key)
    wanted = rounded_like_bought(one.wanted, before, is_exact=one.is_exact)
    amount, fresh, combined = wanted, max(0, wanted - recorded), False
    if wanted > before and one.is_combined:
        found = joint.fresh(plan, wanted)
        fresh, combined = to_buy(plan, wanted, recorded, found, is_exact=one.is_exact)
        amount = recorded + fresh if combined else wanted
    if not fresh:
        cost = 0
    else:
        cost = account.cost(plan, before, amount)
        joint.record(plan, supposed(plan, before + cost))
    bought[key] = before + cost
    if combined:
        joint.estimates(plan)  # as the answer does: a later search begins from its result
    return cost


def _proposal(
    tables: Sequence[Asked],
    asked: Sequence[Asked],
    alone: Sequence[int],
    as_they_come: int,
    best: tuple[int, Sequence[int]],
    account: Account,
) -> Proposal:
    total, costs = best
    first = [First(one.query, one.wanted, cost) for one, cost in zip(tables, costs, strict=False) if cost]
    after = costs[len(tables) :]
    wishes = [
        Wish(one.query, one.wanted, before, then)
        for one, before, then in zip(asked, alone, after, strict=True)
    ]
    return Proposal(
        tuple(first),
        tuple(wishes),
        sum(alone),
        as_they_come,
        total,
        account.balance.remaining,
        account.balance.terms.cap,
        account.data.budget.delta,
    )
