"""How a question stands before it is paid for: what is bought, what is wanted, what is missing."""

from __future__ import annotations

from dataclasses import dataclass

from reticent.ledger import Reading
from reticent.query.accuracy import NONE, SPAN, Accuracy
from reticent.query.answers import Case
from reticent.query.kinds.listed import KIND
from reticent.query.language.tree import Query
from reticent.query.measure import Plan
from reticent.query.purchases import Purchases

LITTLE = 10**8  # this part of what is wanted is no saving that anybody would combine answers for
SAME = 10**9  # a price above what is bought by this part of it, or less, is the same price rounded otherwise


@dataclass(frozen=True)
class Standing:
    """A question and what it needs.

    Attributes:
        plan: how it is measured.
        before: what is recorded under its key, and waits to be.
        wanted: units that its answer must be worth.
        recorded: units that are recorded under its key, when it was found what is missing.
        fresh: units that must be recorded under its key beyond those.
        combined: whether others' purchases make that less.
        reuse: what the answer may be made of.
    """

    plan: Plan
    before: Reading
    wanted: int
    recorded: int
    fresh: int
    combined: bool
    reuse: str

    @property
    def bought(self) -> int:
        """Units that are paid for under its key, recorded or not."""
        return bought(self.before)

    @property
    def missing(self) -> int:
        """Units that must be paid for: what is paid for and not recorded will be."""
        return max(0, self.amount - self.bought)

    @property
    def amount(self) -> int:
        """What the ledger is asked for, under the key in all."""
        return self.recorded + self.fresh if self.reuse == NONE or self.combined else self.wanted

    @property
    def case(self) -> Case:
        """How the request meets what was bought before."""
        return (
            Case.SPAN
            if self.combined
            else Case.FRESH
            if self.reuse == NONE
            else case(self.bought, self.wanted)
        )


def standing(
    query: Query, plan: Plan, before: Reading, wanted: int, accuracy: Accuracy, purchases: Purchases | None
) -> Standing:
    """What a question needs.

    Others' purchases are looked at only where its own do not suffice: then nobody waits for them, and an
    answer that its own purchases give rests on no other noise.

    Args:
        query: what is asked.
        plan: how it is measured.
        before: what is recorded under its key.
        wanted: units that the answer must be worth.
        accuracy: what it may be made of.
        purchases: of others; None if they may not be used.
    """
    if accuracy.reuse == NONE:
        return Standing(plan, before, wanted, before.information, wanted + before.pending, False, NONE)
    missing = max(0, wanted - before.information)
    if (
        accuracy.reuse != SPAN
        or purchases is None
        or wanted <= bought(before)
        or not purchases.combines(query, plan, before)
    ):
        return Standing(plan, before, wanted, before.information, missing, False, accuracy.reuse)
    recorded, found = purchases.fresh(plan, wanted)
    fresh, combined = to_buy(plan, wanted, recorded, found, is_exact=accuracy.information is not None)
    return Standing(plan, before, wanted, recorded, fresh, combined, SPAN)


def to_buy(plan: Plan, wanted: int, recorded: int, fresh: int, *, is_exact: bool) -> tuple[int, bool]:
    """The units to buy under a question, and whether others' purchases make that less.

    Args:
        plan: how it is measured.
        wanted: units that its answer must be worth.
        recorded: units under its key.
        fresh: units that are missing beyond those, as `Joint.fresh` finds them.
        is_exact: whether units were asked for, and not an error.
    """
    missing, little = max(0, wanted - recorded), wanted // LITTLE
    if fresh and plan.values > 1:  # found in floats: on the safe side of them
        fresh += little + 1
    if not is_exact and fresh <= wanted // SAME:
        fresh = 0
    combined = fresh < missing - little
    return (fresh if combined else missing), combined


def rounded_like_bought(units: int, bought: int, *, is_exact: bool) -> int:
    """Return the units to ask for: those that are bought, if the request is the same price rounded otherwise.

    Args:
        units: Units that the declaration and the request make.
        bought: Units paid for under the question, recorded or not.
        is_exact: Whether the request names units, and not an error or an epsilon.
    """
    is_same = not is_exact and bought < units <= bought + bought // SAME
    return bought if is_same else units


def bought(reading: Reading) -> int:
    """The units that are paid for under a question, recorded or not."""
    return reading.information + reading.pending


def case(bought: int, wanted: int) -> Case:
    """How a request meets what was bought under its own key."""
    if not bought:
        return Case.FRESH
    if wanted == bought:
        return Case.EQUAL
    return Case.REFINED if wanted > bought else Case.COARSER


def is_public(query: Query, plan: Plan) -> bool:
    """Whether the declaration answers it: the number of all rows when that is public."""
    question = plan.question
    everything = question.where is True and not question.by and question.data.rows is not None
    return KIND[query.kind].is_public and everything
