"""The books of a market, done again: every payment from its report, every balance from its payments.

Nothing is believed but the ledger, whose rows `ledger.verify` holds against its log: of each sale the report
is judged again, its level priced again from the signed bill, and the ledger asked what was paid under the
sale's key. What is left over, missing, or paid for nothing is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reticent.collect.judging import judged
from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError, UnknownAccount
from reticent.fleet.intake import Intake
from reticent.fleet.operator import Operator
from reticent.fleet.revocation import Revocations
from reticent.fleet.signing import verified
from reticent.ledger.base import Ledger, Unit
from reticent.market import escrow
from reticent.market.bills import Bill, check_surveys
from reticent.market.holds import sale_id
from reticent.market.store import CLOSED, PAID, REFUSED, HeldBill, SaleStore
from reticent.market.trading import ReportForms, first_period


@dataclass(frozen=True)
class Books:
    """The result of checking the books.

    Attributes:
        bills: Number of bills that were checked.
        sales: Number of sales that were paid.
        cents: Cents that were paid for the sales.
        refunds: Cents that went back to buyers.
        waiting: Number of sales that are stored and not paid yet; the service goes on with them at its next
            start.
        faults: Descriptions of the faults; none, if the books are in order.
    """

    bills: int
    sales: int
    cents: int
    refunds: int
    waiting: int
    faults: tuple[str, ...]


def checked(store: SaleStore, operator: Operator, signer: bytes) -> Books:
    """Check the books of a market against its ledger.

    Args:
        store: File of the market.
        operator: Operator whose secret knows the devices, and whose ledger holds the money.
        signer: Public key that signed the bills.
    """
    ledger, faults = operator.record.ledger, list[str]()
    sales = cents = refunds = waiting = 0
    bills = store.bills()
    for held in bills.values():
        faults += _of_texts(store, held, signer)
        found = _Sums()
        faults += _of_sales(store, operator, held, found)
        faults += _of_money(store, ledger, held, found)
        sales, cents = sales + found.sales, cents + found.paid
        refunds, waiting = refunds + found.refund, waiting + found.waiting
    known = {escrow.account_of(one) for one in bills}
    for balance in ledger.accounts():
        name = balance.terms.name
        if (balance.terms.unit is Unit.MONEY or name.startswith(escrow.ESCROW)) and name not in known:
            faults.append(f"account {name} is of no bill of this market")
    return Books(len(bills), sales, cents, refunds, waiting, tuple(faults))


@dataclass
class _Sums:
    """The sums of one bill: cents, except for the fields that are counts."""

    sales: int = 0
    waiting: int = 0
    paid: int = 0  # as the ledger says, sale by sale
    sold: int = 0  # as the file says
    refund: int = 0


def _of_texts(store: SaleStore, held: HeldBill, signer: bytes) -> Iterator[str]:
    file, surveys = store.files(held)
    try:
        if verified(Bill, file, signer).id != held.bill.id:
            yield f"bill {held.bill.id.hex()}: its file is that of another bill"
        texts = [verified(type(held.surveys[0]), one, signer) for one in surveys]
        check_surveys(held.bill, texts)
    except (GuaranteeError, ParameterError, ParameterTypeError) as error:
        yield f"bill {held.bill.id.hex()}: {error}"


def _of_sales(store: SaleStore, operator: Operator, held: HeldBill, sums: _Sums) -> Iterator[str]:
    ledger, bill = operator.record.ledger, held.bill
    nobody = Revocations(":memory:")  # what was bought before an enrolment was taken back was bought
    intake = Intake(operator.master, nobody)
    for one, report in store.sales(held):
        where = f"sale {one.id.hex()} of bill {bill.id.hex()}"
        outcomes, admitted = intake.admitted([report], ReportForms(store))
        if not admitted:
            yield f"{where}: its report is refused ({outcomes[0].value})"
        for alike in admitted:
            if judged(held.layouts[one.place], alike.rows, first_period).kept.size != 1:
                yield f"{where}: its report has not the form of its level"
        if store.by_survey.get(report[1:9]) != (held, one.place):
            yield f"{where}: its report is of another level"
        if one.id != sale_id(operator.master, bill.id, report[13:21]):
            yield f"{where}: its report is of another enrolment"
        due = bill.levels[one.place].cents
        if one.cents != due:
            yield f"{where}: {one.cents} cents are noted, its level is {due}"
        try:
            got = escrow.paid(ledger, escrow.Due(bill.id, one.id, due))
        except UnknownAccount:
            got = 0
        if got != (due if one.state == PAID else 0) and not (one.state not in (PAID, REFUSED) and got == due):
            yield f"{where}: {due if one.state == PAID else 0} cents are due, {got} were paid"
        sums.paid, sums.sold = sums.paid + got, sums.sold + one.cents
        sums.sales, sums.waiting = (
            sums.sales + (one.state == PAID),
            sums.waiting + (one.state not in (PAID, REFUSED)),
        )
    nobody.close()


def _of_money(store: SaleStore, ledger: Ledger, held: HeldBill, sums: _Sums) -> Iterator[str]:
    where, purse = f"bill {held.bill.id.hex()}", store.purse(held)
    if sums.sold != purse.sold or store.held_cents(held) != purse.held:
        yield f"{where}: the sums of what is held and sold are not those of its sales"
    try:
        balance = ledger.balance(escrow.account_of(held.bill.id))
    except UnknownAccount:
        if purse.funded:
            yield f"{where}: it has no account in the ledger"
        return
    if balance.terms.cap != held.deposit or balance.terms.unit is not Unit.MONEY:
        yield f"{where}: its account holds {balance.terms.cap}, its deposit is {held.deposit}"
    sums.refund = escrow.refunded(ledger, held.bill.id)
    if balance.spent != sums.paid + sums.refund:
        yield (
            f"{where}: {balance.spent} cents left its account, {sums.paid} for sales and {sums.refund} back"
        )
    if purse.state == CLOSED and sums.paid + sums.refund != held.deposit:
        yield f"{where}: it is closed, and {sums.paid} and {sums.refund} are not its deposit {held.deposit}"
