"""The exception tree, with one root, so that callers catch by meaning.

    ReticentError
    |-- ParameterError (also a ValueError)     an argument breaks its rule; nothing was done
    |   `-- SeveralErrors                       more than one does: all are told at once
    |-- ParameterTypeError (also a TypeError)  an argument is of the wrong type; nothing was done
    |-- GuaranteeError                          a mechanism or channel does not keep its claim
    |-- MixedGuarantees                         guarantees of different kinds cannot be combined
    |-- LedgerError                             a ledger refused; nothing was written
    |   |-- StorageUnavailable                  a disk is full, read-only, busy or fails; nothing was written
    |   |-- BudgetExceeded                      the cap would be passed
    |   |   `-- QuestionRefused                 a question costs more than is left; says what is free
    |   |-- UnknownAccount                      no account of that name
    |   |-- AccountConflict                     the account exists with other terms
    |   |-- UnknownMeasurement                  no measurement of that number in this ledger
    |   |-- AlreadyFulfilled                    a measurement has its values already
    |   |-- MeasurementVoid                     a measurement was closed in a recovery, without values
    |   |-- IdempotencyConflict                 the same idempotency key came with another request
    |   |-- KeyUsed                             a payment came under a key that was bought before
    |   |-- CommitUnknown                       whether it was written is not known: ask again, idempotently
    |   |-- ReportForgotten                     a report has left, and the ledger does not hold it
    |   |-- NotMeasured                         paid for, and not recorded in time: asking again is free
    |   |-- WitnessUnavailable                  written, but the witness cannot be told: release nothing
    |   |   `-- WitnessRefused                  the witness was told and does not sign
    |   `-- LedgerDamaged                       the stored ledger does not verify
    |       `-- RolledBack                      the ledger is older than, or forked from, what was seen
    |-- ChainError                              a chain cannot be used as asked; nothing was released
    |   |-- NodeUnavailable                     the node does not answer
    |   |-- WrongChain                          another chain, contract or version than was asked for
    |   |-- TransactionRefused                  node or contract refused a transaction; it changed nothing
    |   |-- FeeTooHigh                          a unit of gas costs more than the ceiling; nothing was signed
    |   |-- NotConfirmed                        sent, and not deep enough in the chain in time
    |   `-- KeyLocked                           the file of a key is encrypted, and there is no password
    |-- StoreError                              content by its hash cannot be had or kept; nothing was used
    |   |-- ContentMissing                      a store does not have it
    |   |-- ContentForged                       what came is not what its identifier says
    |   |-- ContentTooLarge                     more bytes than the caller allows
    |   |-- StoreUnavailable                    a store cannot be reached, or does not answer as one
    |   `-- StoreFull                           a store takes no more
    |-- SourceError                             the rows of a data set cannot be read
    `-- MissingExtra (also an ImportError)     an optional part is not installed

Messages name the field, the rule and the value of a *parameter*. They never hold private data.
"""

from __future__ import annotations

from collections.abc import Sequence


class ReticentError(Exception):
    """Root of every error that Reticent raises on purpose."""


class ParameterError(ReticentError, ValueError):
    """A parameter has the right type and breaks its rule."""


class SeveralErrors(ParameterError):
    """More than one parameter breaks its rule.

    Attributes:
        each: Messages, one for each error.
    """

    def __init__(self, each: Sequence[str]) -> None:
        super().__init__("; ".join(each))
        self.each = tuple(each)


class ParameterTypeError(ReticentError, TypeError):
    """A parameter has the wrong type."""


class GuaranteeError(ReticentError):
    """A mechanism or channel fails the exact check of the guarantee that it claims."""


class MixedGuarantees(ReticentError):
    """Two guarantees differ in kind, unit of protection or neighbours and do not combine."""


class MissingExtra(ReticentError, ImportError):
    """A feature needs an optional dependency that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional part: pip install 'reticent[{extra}]'")
        self.feature, self.extra = feature, extra


class SourceError(ReticentError):
    """The rows of a data set cannot be read. What the engine said is dropped: it may quote them.

    Args:
        reason: Sentence for everybody.
        details: Type of the cause and where it was raised, which `reticent --debug` shows.
    """

    def __init__(self, reason: str = "the data cannot be read", *, details: str = "") -> None:
        super().__init__(reason)
        self.details = details


class ChainError(ReticentError):
    """A chain, its node or a key cannot be used as asked. Nothing was released."""


class NodeUnavailable(ChainError):
    """The node does not answer, or not in JSON-RPC."""


class WrongChain(ChainError):
    """Another chain, another contract or another version of it than was asked for."""


class TransactionRefused(ChainError):
    """A node or a contract refused a transaction. It changed nothing.

    Attributes:
        reason: Message of the contract, or of the node.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the transaction was refused: {reason}")
        self.reason = reason


class FeeTooHigh(ChainError):
    """A unit of gas costs more than the ceiling of the signer. Nothing was signed."""


class NotConfirmed(ChainError):
    """A transaction was sent and is not deep enough in the chain in time. It may still get there."""


class KeyLocked(ChainError):
    """The file of a key is encrypted, and no password was given."""


class StoreError(ReticentError):
    """Content by its hash cannot be had or kept. Nothing of it was used."""


class ContentMissing(StoreError):
    """A store does not have the content."""


class ContentForged(StoreError):
    """The received content is not what its identifier says: forged, damaged, or laid out differently."""


class ContentTooLarge(StoreError):
    """The content has more bytes than the caller allows. The remainder was not read."""


class StoreUnavailable(StoreError):
    """A store cannot be reached, or does not answer as one."""


class StoreFull(StoreError):
    """A store takes no more. Nothing was kept."""


class LedgerError(ReticentError):
    """A ledger refused a call: nothing was written."""


class StorageUnavailable(LedgerError):
    """A disk is full, read-only, held by another process, or fails. Nothing was written; try again later."""


class BudgetExceeded(LedgerError):
    """A request costs more than is left: nothing was written and no noise was drawn."""

    def __init__(self, account: str, asked: int, left: int) -> None:
        super().__init__(f"account {account}: asked {asked} units, only {left} left")
        self.account, self.asked, self.left = account, asked, left


class QuestionRefused(BudgetExceeded):
    """A question costs more than is left. Nothing was charged.

    Attributes:
        budget: Units of the whole account.
        best: Best answer that is already paid for (a `query.Answer`), or None.
        best_error: Half the width of its interval.
        reachable_error: Half the width that everything left would buy, or None if nothing can be bought.
        reachable_rows: Number of rows that a group must have for it; None if it depends on nothing private.
    """

    def __init__(
        self,
        account: str,
        asked: int,
        left: int,
        *,
        budget: int,
        asked_epsilon: float,
        left_epsilon: float,
        best: object,
        best_error: float | None,
        reachable_error: float | None,
        reachable_rows: float | None = None,
    ) -> None:
        super().__init__(account, asked, left)
        free = "nothing is recorded to reuse" if best_error is None else f"free now: within {best_error:.6g}"
        self.reachable_rows = reachable_rows
        more = (
            "" if reachable_error is None else f"; all that is left buys {reachable_error:.6g}{self.if_rows}"
        )
        self.args = (
            f"{account}: asked for {100 * asked / budget:.4g} % of the budget (epsilon {asked_epsilon:.4g} "
            f"alone), left is {100 * left / budget:.4g} % (epsilon {left_epsilon:.4g}); {free}{more}",
        )
        self.budget, self.best = budget, best
        self.best_error, self.reachable_error = best_error, reachable_error

    @property
    def if_rows(self) -> str:
        """Condition of `reachable_error`, to be written behind it."""
        return "" if self.reachable_rows is None else f" if {self.reachable_rows:,.0f} rows match"


class UnknownAccount(LedgerError):
    """No account of that name was opened."""


class AccountConflict(LedgerError):
    """An account of that name exists with other terms."""


class UnknownMeasurement(LedgerError):
    """The ledger never asked for a measurement of that number."""


class AlreadyFulfilled(LedgerError):
    """The values of a measurement are recorded already; the first ones stand."""


class MeasurementVoid(LedgerError):
    """A recovery closed the measurement: it counts as released and is never recorded. Ask, and pay, anew."""


class IdempotencyConflict(LedgerError):
    """An idempotency key was used before, for another request."""


class KeyUsed(LedgerError):
    """A payment for a release made elsewhere came under a key that was bought before."""


class WitnessUnavailable(LedgerError):
    """The witness cannot be told of the new head. A charge stands; nothing may be released for it yet."""


class WitnessRefused(WitnessUnavailable):
    """The witness can be reached and does not sign: it does not serve this log, or takes it for malformed."""


class CommitUnknown(LedgerError):
    """The connection was lost, or the writer interrupted, while committing.

    Asking again with the same idempotency key charges once, whatever happened.
    """


class NotMeasured(LedgerError):
    """A measurement is paid for, and the data holder has not recorded it in time. Asking again is free."""


class ReportForgotten(LedgerError):
    """A report of this period has left, as its collector says, and the ledger does not hold it.

    Nothing is drawn: two draws must not both be seen.
    """


class LedgerDamaged(LedgerError):
    """The stored ledger does not verify: it was edited, torn or is not a ledger."""


class RolledBack(LedgerDamaged):
    """The ledger is behind, or forked from, what a witness remembers, or the mark of a device's ledger."""
