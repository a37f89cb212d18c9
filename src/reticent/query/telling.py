"""Answers from recorded measurements: arithmetic on released numbers, repeatable at no cost.

Nothing here charges or reads rows. Under the policy `degrade` coarser answers are drawn (`degrade`), from
the measurements of their own question alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from reticent.errors import NotMeasured
from reticent.ledger import Grant, Ledger, Reading
from reticent.ledger.base import increment
from reticent.query.accuracy import CONFIDENCE, SPAN
from reticent.query.answers import Answer, Case, Receipt
from reticent.query.combined import Combined, combined, worth
from reticent.query.declarations.datasets import DataSet, Policy
from reticent.query.degrade import degraded
from reticent.query.estimates import estimates
from reticent.query.kinds.intervals import Cell, Estimate
from reticent.query.language.questions import resolve
from reticent.query.language.tree import Query
from reticent.query.measure import Plan, plan
from reticent.query.notebook import Notebook
from reticent.query.purchases import Purchases
from reticent.query.readability import Share, readability_notes, unreadable_share
from reticent.query.rows.columns import Column
from reticent.query.rows.row_order import needs_order_key
from reticent.query.shared_notebook import SharedNotebook
from reticent.query.span import Estimate as Part
from reticent.query.span import combined_cells
from reticent.query.standing import bought, case
from reticent.randomness import Stream


class Teller:
    """A builder of the answers about one data set.

    Args:
        data: Declaration of the data set.
        ledger: Ledger that records the measurements.
        notebook: Store of the draws of coarser answers.
        purchases: Recorded purchases of all questions; None if they may not be combined.
        rng: Random stream of coarser draws; None for the secure stream.
    """

    def __init__(
        self,
        data: DataSet,
        ledger: Ledger,
        notebook: Notebook | SharedNotebook,
        purchases: Purchases | None,
        rng: Stream | None,
    ) -> None:
        self.data, self._ledger, self._notebook = data, ledger, notebook
        self._purchases, self._rng = purchases, rng
        self._checks: dict[str, Plan] = {}  # plans that measure the share of unreadable cells, by column

    def answer(
        self,
        query: Query,
        prepared: Plan,
        held: int,
        after: Reading,
        wanted: int,
        confidence: float,
        grant: Grant | None,
    ) -> Answer:
        """Build an answer from the measurements under the question's own key.

        Args:
            query: Query to answer.
            prepared: Measurement plan of the query.
            held: Units that were bought under the key before.
            after: Recorded measurements of the key.
            wanted: Units that the answer must be worth.
            confidence: Confidence of the intervals.
            grant: Grant that was paid for the answer; None if nothing was.
        """
        vector: Sequence[float] = ()
        units = after.information
        if self.data.policy is not Policy.DEGRADE:
            vector = after.nearest()
        else:
            vector = degraded(prepared, after.estimate(), units, wanted, self._notebook, self._rng)
            units = wanted
        cells = estimates(query, prepared, vector, units, confidence)
        return self._made(query, prepared, cells, confidence, case(held, wanted), units, wanted, grant)

    def combined(
        self,
        query: Query,
        prepared: Plan,
        own: Reading,
        wanted: int,
        confidence: float,
        grant: Grant | None,
    ) -> Answer:
        """Build an answer from all measurements of the data set that are recorded by now."""
        purchases = self._purchases
        assert purchases is not None
        purchases.combines(query, prepared, own)
        told = purchases.told(prepared)
        if told is None:  # the work limit was met meanwhile: only without own measurements
            raise NotMeasured(f"{self.data.name}: others bought meanwhile what cannot be combined; ask again")
        found, looked = told
        cells = combined_cells(query, prepared, found, confidence)
        fresh_cost = self.cost(prepared, bought(own), bought(own) + wanted)
        receipt = self._receipt(prepared, grant, always=True)
        head = None if receipt.log_size is None else (receipt.log_size, str(receipt.log_root))
        how = combined(query, prepared, found, confidence, fresh_cost, looked, head)
        units = worth(found)
        return self._made(query, prepared, cells, confidence, Case.SPAN, units, wanted, grant, (how, receipt))

    def _made(
        self,
        query: Query,
        prepared: Plan,
        cells: Sequence[Cell],
        confidence: float,
        how_met: Case,
        units: int,
        wanted: int,
        grant: Grant | None,
        combined: tuple[Combined, Receipt] | None = None,
    ) -> Answer:
        how, receipt = combined or (None, self._receipt(prepared, grant))
        balance = self._ledger.balance(self.data.account)
        return Answer(
            query,
            tuple(cells),
            confidence,
            how_met,
            units,
            grant.charged if grant is not None else 0,
            self.cost(prepared, 0, wanted),
            balance.spent,
            balance.remaining,
            self.data.budget.delta,
            receipt,
            how,
            self._notes(prepared),
        )

    def _receipt(self, prepared: Plan, grant: Grant | None, *, always: bool = False) -> Receipt:
        """Build the receipt of an answer, with the log's head if something was paid or `always` is true."""
        numbers = tuple(one.number for one in grant.pending) if grant is not None else ()
        head = getattr(self._ledger, "head", None)
        if head is None or not (numbers or always):
            return Receipt(self.data.account, prepared.question.key, numbers)
        seen = head()
        return Receipt(self.data.account, prepared.question.key, numbers, seen.size, seen.root.hex())

    def public(self, query: Query, prepared: Plan, confidence: float) -> Answer:
        """Build the answer to a question for the public number of all rows, from the declaration."""
        rows = float(self.data.rows or 0)
        balance = self._ledger.balance(self.data.account)
        return Answer(
            query,
            (Cell((), Estimate(rows, 0.0, rows, rows)),),
            confidence,
            Case.PUBLIC,
            0,
            0,
            0,
            balance.spent,
            balance.remaining,
            self.data.budget.delta,
            Receipt(self.data.account, prepared.question.key),
            notes=self._notes(prepared),
        )

    def _notes(self, prepared: Plan) -> tuple[str, ...]:
        """Return notes on the declaration and the cells that a reader of an answer must know."""
        return (*notes_of(self.data), *readability_notes(prepared.question, self._bought_share))

    def _bought_share(self, column: Column) -> Share | None:
        """Return the recorded share of a column's cells that cannot be read; None if none is recorded."""
        query = unreadable_share(column)
        prepared = self._checks.get(column.name) or plan(resolve(query, self.data))
        self._checks[column.name] = prepared
        reading = self._ledger.reading(self.data.account, prepared.question.key)
        if not reading.information:
            return None
        (cell,) = estimates(query, prepared, reading.nearest(), reading.information, CONFIDENCE)
        return cell.estimate.value, cell.estimate.low, cell.estimate.high

    def best(
        self, query: Query, prepared: Plan, confidence: float, reuse: str = SPAN
    ) -> tuple[list[Cell], Reading, tuple[Part, ...]] | None:
        """Return the best free cells, the reading of the question's key, and any combined estimates."""
        reading = self._ledger.reading(self.data.account, prepared.question.key)
        if self._purchases is None:
            return None
        if reuse == SPAN and self._purchases.combines(query, prepared, reading):
            found = self._purchases.estimates(prepared) or ()
            if any(len(one.weights) > 1 or one.keys != (prepared.question.key,) for one in found):
                return combined_cells(query, prepared, found, confidence), reading, found
        if not reading.information:
            return None
        vector = reading.nearest()
        return estimates(query, prepared, vector, reading.information, confidence), reading, ()

    def cost(self, prepared: Plan, bought: int, wanted: int) -> int:
        """Return the units charged for raising a question from `bought` to `wanted` units."""
        values = prepared.values if self._ledger.charges_values else 1
        return increment(self.data.terms, bought, wanted, values)


def notes_of(data: DataSet) -> tuple[str, ...]:
    """Return notes on a data set's declaration that a reader of any of its answers must know."""
    if data.person is None:
        return ()
    rows = "1 row" if data.contribution == 1 else f"{data.contribution} rows"
    kept = "chosen by a secret key" if needs_order_key(data) else "those with the least values"
    return (f"at most {rows} of each person are counted, {kept}; further rows are left out",)
