"""Coverage of a question before payment: units that are bought, requested and missing."""

from __future__ import annotations

from dataclasses import dataclass

from reticent.ledger import Reading
from reticent.query.accuracy import NONE, SPAN, Accuracy
from reticent.query.answers import Case
from reticent.query.kinds.listed import KIND
from reticent.query.language.tree import Query
from reticent.query.measure import Plan
from reticent.query.purchases import Purchases

LITTLE = 10**8  # answers are not combined to save less than this part of the requested units
SAME = 10**9  # a price above the bought units by at most this part is the same price rounded otherwise


@dataclass(frozen=True)
class Standing:
    """A question's plan, the units that are bought for it, and the units that it still needs.

    Attributes:
        plan: Measurement plan of the question.
        before: Reading of the question's key: recorded and pending measurements.
        wanted: Units that the answer must be worth.
        recorded: Units recorded under the key when the missing units were computed.
        fresh: Units that must be recorded under the key beyond those.
        combined: True if purchases of other questions reduce the units to buy.
        reuse: Purchases that the answer may be made of (`accuracy.REUSES`).
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
        """Units that are paid for under the question's key, recorded or not."""
        return bought(self.before)

    @property
    def missing(self) -> int:
        """Units that must still be paid for; units paid for and not yet recorded count as bought."""
        return max(0, self.amount - self.bought)

    @property
    def amount(self) -> int:
        """Units to request from the ledger, under the question's key in all."""
        return self.recorded + self.fresh if self.reuse == NONE or self.combined else self.wanted

    @property
    def case(self) -> Case:
        """The case of reuse: how the request relates to earlier purchases."""
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
    """Assess which units a question needs beyond those that are bought.

    Purchases of other questions are used only if the question's own do not suffice. So no answer waits for
    them without need, and an answer from its own purchases contains no other noise.

    Args:
        query: Query to answer.
        plan: Measurement plan of the query.
        before: Reading of the question's key.
        wanted: Units that the answer must be worth.
        accuracy: Requested accuracy, with the purchases that the answer may reuse.
        purchases: Purchases of all questions; None if they may not be used.
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
    """Return the units to buy under a question, and whether purchases of other questions reduce them.

    Args:
        plan: Measurement plan of the question.
        wanted: Units that the answer must be worth.
        recorded: Units recorded under the question's key.
        fresh: Units that are missing beyond those, as computed by `Joint.fresh`.
        is_exact: True if the request names units, and not an error.
    """
    missing, little = max(0, wanted - recorded), wanted // LITTLE
    if fresh and plan.values > 1:  # computed in floats: add a margin on the safe side
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
    """Return the units that are paid for under a question, recorded or not."""
    return reading.information + reading.pending


def case(bought: int, wanted: int) -> Case:
    """Classify how a request relates to the units bought under the question's own key."""
    if not bought:
        return Case.FRESH
    if wanted == bought:
        return Case.EQUAL
    return Case.REFINED if wanted > bought else Case.COARSER


def is_public(query: Query, plan: Plan) -> bool:
    """Return True if the declaration answers the query: the number of all rows when that is public."""
    question = plan.question
    everything = question.where is True and not question.by and question.data.rows is not None
    return KIND[query.kind].is_public and everything
